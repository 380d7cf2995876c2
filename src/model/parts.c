/*
 * parts.c - the parts of the graphs: loading them, recording them.
 */
#include <assert.h>
#include <stdio.h>

#include "base/mem.h"
#include "model/graph.h"

/* ---- loading --------------------------------------------------------------------------------- */

typedef struct tensor_name {
    char text[64];
} tensor_name;

/* "attn_q" and "weight" make "blk.3.attn_q.weight" in layer 3. */
static tensor_name name_of(const model_loading *l, const char *what, const char *kind)
{
    tensor_name name;
    snprintf(name.text, sizeof name.text, "blk.%u.%s.%s", l->layer, what, kind);
    return name;
}

void model_load_vector(model_loading *l, const char *name, uint64_t n, gpu_buffer **out)
{
    if (l->status == TEMPER_OK)
        l->status = weights_vector(l->loader, name, n, out, l->err);
}

void model_load_norm(model_loading *l, const char *what, bool with_bias, model_norm *out)
{
    model_load_vector(l, name_of(l, what, "weight").text, l->config->width, &out->weight);
    if (with_bias)
        model_load_vector(l, name_of(l, what, "bias").text, l->config->width, &out->bias);
}

/* What a tensor adds to a product: the rows of WHAT.weight, the values of WHAT.bias. */
typedef struct part {
    const char *what;
    uint64_t rows;
    weights_order order;
} part;

enum { MOST_PARTS = 3 };

/* Vectors under each other, each in its part's order. kind: "weight" or "bias". */
static void load_vectors(model_loading *l, const part *parts, uint32_t count, const char *kind,
                         gpu_buffer **out)
{
    uint64_t n = 0, most = 0;
    for (uint32_t i = 0; i < count; i++) {
        n += parts[i].rows;
        most = parts[i].rows > most ? parts[i].rows : most;
    }
    if (l->status != TEMPER_OK)
        return;
    float *values = mem_alloc((size_t)n * sizeof *values);
    float *read = mem_alloc((size_t)most * sizeof *read);
    if (values == NULL || read == NULL)
        l->status = error_set(l->err, TEMPER_NO_MEMORY, "no memory for %llu values of %s",
                              (unsigned long long)n, parts[0].what);
    for (uint64_t i = 0, at = 0; l->status == TEMPER_OK && i < count; at += parts[i++].rows) {
        const tensor_name name = name_of(l, parts[i].what, kind);
        l->status = weights_host_vector(l->loader, name.text, parts[i].rows, read, l->err);
        for (uint64_t row = 0; l->status == TEMPER_OK && row < parts[i].rows; row++)
            values[at + weights_order_row(parts[i].order, row)] = read[row];
    }
    if (l->status == TEMPER_OK)
        l->status = weights_buffer(l->loader, name_of(l, parts[0].what, kind).text, values,
                                   n * sizeof *values, out, l->err);
    mem_free(values);
    mem_free(read);
}

/* One weight of all parts where they go together, else one each. */
static void load_matrices(model_loading *l, const part *parts, uint32_t count, uint64_t k,
                          model_linear *out)
{
    tensor_name texts[MOST_PARTS];
    const char *names[MOST_PARTS];
    uint64_t rows[MOST_PARTS];
    weights_order orders[MOST_PARTS];
    for (uint32_t i = 0; i < count; i++) {
        texts[i] = name_of(l, parts[i].what, "weight");
        names[i] = texts[i].text;
        rows[i] = parts[i].rows;
        orders[i] = parts[i].order;
        out->columns[i] = out->width;
        out->width += parts[i].rows;
    }
    const uint32_t together = weights_go_together(l->loader, names, rows, count) ? count : 1;
    for (uint32_t i = 0; l->status == TEMPER_OK && i < count; i += together) {
        l->status = weights_matrix(l->loader, names + i, rows + i, orders + i, together, k,
                                   &out->weights[i], l->err);
        out->count += l->status == TEMPER_OK;
    }
}

static void load_parts(model_loading *l, const part *parts, uint32_t count, uint64_t k,
                       model_bias bias, model_linear *out)
{
    assert(count >= 1 && count <= MOST_PARTS);
    if (l->status == TEMPER_OK)
        load_matrices(l, parts, count, k, out);
    if (bias == BIAS_REQUIRED || weights_has(l->loader, name_of(l, parts[0].what, "bias").text))
        load_vectors(l, parts, count, "bias", &out->bias);
}

/* The order of so many heads' rows. */
static weights_order order_of(const model_config *c, uint32_t heads)
{
    return (weights_order){c->rope_halves ? heads : 0, c->head_dim, c->rope_dims};
}

void model_load_head_norms(model_loading *l, gpu_buffer **out)
{
    const model_config *c = l->config;
    const part parts[] = {{"attn_q_norm", c->head_dim, order_of(c, 1)},
                          {"attn_k_norm", c->head_dim, order_of(c, 1)}};
    load_vectors(l, parts, 2, "weight", out);
}

void model_load_qkv(model_loading *l, bool fused, model_bias bias, model_linear *out)
{
    const model_config *c = l->config;
    const uint64_t q = (uint64_t)c->q_heads * c->head_dim, kv = (uint64_t)c->kv_heads * c->head_dim;
    const part whole = {"attn_qkv", q + 2 * kv, order_of(c, c->q_heads + c->kv_heads)};
    const part parts[] = {{"attn_q", q, order_of(c, c->q_heads)},
                          {"attn_k", kv, order_of(c, c->kv_heads)},
                          {"attn_v", kv, order_of(c, 0)}};
    load_parts(l, fused ? &whole : parts, fused ? 1 : 3, c->width, bias, out);
}

void model_load_gate_up(model_loading *l, bool fused, model_linear *out)
{
    const model_config *c = l->config;
    const part whole = {"ffn_up", 2 * (uint64_t)c->ffn, {0, 0, 0}};
    const part parts[] = {{"ffn_gate", c->ffn, {0, 0, 0}}, {"ffn_up", c->ffn, {0, 0, 0}}};
    load_parts(l, fused ? &whole : parts, fused ? 1 : 2, c->width, BIAS_OPTIONAL, out);
}

void model_load_linear(model_loading *l, const char *what, uint64_t rows, uint64_t k,
                       model_bias bias, model_linear *out)
{
    const part whole = {what, rows, {0, 0, 0}};
    load_parts(l, &whole, 1, k, bias, out);
}

static void linear_close(model_linear *linear)
{
    for (uint32_t i = 0; i < MOST_PARTS; i++)
        op_weight_destroy(linear->weights[i]);
    gpu_buffer_destroy(linear->bias);
}

void model_norm_close(model_norm *norm)
{
    gpu_buffer_destroy(norm->weight);
    gpu_buffer_destroy(norm->bias);
}

void model_layer_close(model_layer *layer)
{
    model_norm_close(&layer->attn_norm);
    model_norm_close(&layer->attn_post_norm);
    model_norm_close(&layer->ffn_norm);
    model_norm_close(&layer->ffn_post_norm);
    gpu_buffer_destroy(layer->head_norms);
    linear_close(&layer->qkv);
    linear_close(&layer->attn_output);
    linear_close(&layer->gate_up);
    linear_close(&layer->ffn_down);
}

/* ---- recording ------------------------------------------------------------------------------- */

void model_record_norm(const model *m, gpu_recorder *rec, const model_norm *norm, gpu_buffer *x,
                       gpu_buffer *y, uint32_t rows)
{
    const model_config *c = &m->config;
    if (norm->bias != NULL)
        op_layernorm(rec, gpu_whole(x), gpu_whole(norm->weight), gpu_whole(norm->bias),
                     gpu_whole(y), rows, c->width, c->norm_eps);
    else
        op_rmsnorm(rec, gpu_whole(x), gpu_whole(norm->weight), gpu_whole(y), rows, c->width,
                   c->norm_eps);
}

void model_record_linear(const model *m, gpu_recorder *rec, const model_linear *linear,
                         gpu_buffer *x, gpu_buffer *y, uint32_t rows, op_mode mode)
{
    for (uint32_t i = 0; i < linear->count; i++)
        op_matmul_columns(rec, linear->weights[i], gpu_whole(x), gpu_whole(y), rows,
                          linear->columns[i], linear->width, mode, &m->scratch.allowed);
    if (linear->bias != NULL)
        op_bias(rec, gpu_whole(y), gpu_whole(linear->bias), rows, (uint32_t)linear->width);
}

void model_record_normed_linear(const model *m, gpu_recorder *rec, const model_norm *norm,
                                const model_linear *linear, gpu_buffer *x, gpu_buffer *h,
                                gpu_buffer *y, uint32_t rows)
{
    if (norm->bias != NULL || linear->count > 1) {
        model_record_norm(m, rec, norm, x, h, rows);
        model_record_linear(m, rec, linear, h, y, rows, OP_WRITE);
        return;
    }
    op_rmsnorm_matmul(rec, gpu_whole(x), gpu_whole(norm->weight), m->config.norm_eps, gpu_whole(h),
                      linear->weights[0], gpu_whole(y), rows, OP_WRITE, &m->scratch.allowed);
    if (linear->bias != NULL)
        op_bias(rec, gpu_whole(y), gpu_whole(linear->bias), rows, (uint32_t)linear->width);
}

void model_record_gated(const model *m, gpu_recorder *rec, const model_norm *norm,
                        const model_linear *gate_up, op_gate gate, const model_linear *down,
                        gpu_buffer *y, uint32_t rows, op_mode mode)
{
    const model_scratch *s = &m->scratch;
    const gpu_view products = gpu_whole(s->gate_up), act = gpu_whole(s->act);
    if (norm->bias == NULL && gate_up->bias == NULL && gate_up->count == 1) {
        const op_gated gated = {.norm = gpu_whole(norm->weight),
                                .eps = m->config.norm_eps,
                                .gate_up = gate_up->weights[0],
                                .gate = gate,
                                .down = down->weights[0],
                                .h = gpu_whole(s->h),
                                .gate_products = products,
                                .act = act};
        op_gated_matmul(rec, gpu_whole(s->x), &gated, gpu_whole(y), rows, mode, &s->allowed);
        if (down->bias != NULL)
            op_bias(rec, gpu_whole(y), gpu_whole(down->bias), rows, (uint32_t)down->width);
        return;
    }
    model_record_normed_linear(m, rec, norm, gate_up, s->x, s->h, s->gate_up, rows);
    if (gate == OP_GATE_GELU)
        op_gelu_gate(rec, products, act, rows, m->config.ffn);
    else
        op_silu_gate(rec, products, act, rows, m->config.ffn);
    model_record_linear(m, rec, down, s->act, y, rows, mode);
}

void model_record_attention(const model *m, gpu_recorder *rec, const model_step *step,
                            uint32_t index)
{
    const model_config *c = &m->config;
    const model_scratch *s = &m->scratch;
    const bool local = model_layer_is_local(c, index);
    const bool own_turns = local && m->turns_local != NULL;
    /* The factors of a session never change, or cached keys would not fit new queries. */
    const bool is_long =
        m->turns_long != NULL && kv_cache_positions(step->cache) > c->rope_original;
    gpu_buffer *turns = own_turns ? m->turns_local : is_long ? m->turns_long : m->turns;
    const op_rope_shape rope = {.rows = step->rows,
                                .q_heads = c->q_heads,
                                .kv_heads = c->kv_heads,
                                .head_dim = c->head_dim,
                                .rotary_dim = c->rope_dims,
                                .magnitude = own_turns ? 1.0f : c->rope_magnitude,
                                .cache = kv_cache_type(step->cache)};
    const op_attention_shape attention = {.rows = step->rows,
                                          .q_heads = c->q_heads,
                                          .kv_heads = c->kv_heads,
                                          .head_dim = c->head_dim,
                                          .scale = c->attention_scale,
                                          .longest = step->longest,
                                          .sequences = step->sequences,
                                          .singles = step->singles,
                                          .window = local ? c->window : 0,
                                          .softcap = c->attention_softcap,
                                          .cache = kv_cache_type(step->cache),
                                          .half = m->rounding[kv_cache_type(step->cache)] ==
                                                  MODEL_HALF};
    const op_rope_attention_views views = {
        .qkv = gpu_whole(s->qkv),
        .turns = gpu_whole(turns),
        .row_info = step->row_info,
        .block_table = kv_cache_table(step->cache),
        .k_cache = kv_cache_keys(step->cache, index),
        .v_cache = kv_cache_values(step->cache, index),
        .q = gpu_whole(s->q),
        .scratch = gpu_whole(s->attention),
        .out = gpu_whole(s->mixed),
    };
    op_rope_attention(rec, &views, &rope, &attention);
}
