#include "model/model.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/mem.h"

/* ---- weights -------------------------------------------------------------------------------- */

static void linear_close(model_linear *linear)
{
    for (uint32_t i = 0; i < linear->count; i++)
        op_weight_destroy(linear->weights[i]);
}

/* Loads `count` matrices of `rows` each by k: as one weight where their types agree. */
static temper_status linear_open(weights_loader *loader, const char *const *names,
                                 const uint64_t *rows, uint32_t count, uint64_t k,
                                 model_linear *out, error *err)
{
    for (uint32_t i = 0; i < count; i++)
        out->width += rows[i];
    if (weights_same_type(loader, names, count)) {
        const temper_status status =
            weights_matrix(loader, names, rows, count, k, &out->weights[0], err);
        out->count = status == TEMPER_OK ? 1 : 0;
        return status;
    }
    uint64_t column = 0;
    for (uint32_t i = 0; i < count; i++) {
        const temper_status status =
            weights_matrix(loader, &names[i], &rows[i], 1, k, &out->weights[i], err);
        if (status != TEMPER_OK)
            return status;
        out->columns[i] = column;
        out->count = i + 1;
        column += rows[i];
    }
    return TEMPER_OK;
}

void model_record_linear(gpu_recorder *rec, const model_linear *linear, gpu_buffer *x,
                         gpu_buffer *y, uint32_t rows)
{
    for (uint32_t i = 0; i < linear->count; i++)
        op_matmul_columns(rec, linear->weights[i], gpu_whole(x), gpu_whole(y), rows,
                          linear->columns[i], linear->width, OP_WRITE);
}

typedef struct tensor_name {
    char text[48];
} tensor_name;

static tensor_name layer_tensor(uint32_t layer, const char *what)
{
    tensor_name name;
    snprintf(name.text, sizeof name.text, "blk.%u.%s.weight", layer, what);
    return name;
}

static temper_status layer_open(weights_loader *loader, const model_config *c, uint32_t index,
                                model_layer *layer, error *err)
{
    const tensor_name q = layer_tensor(index, "attn_q"), k = layer_tensor(index, "attn_k"),
                      v = layer_tensor(index, "attn_v"), o = layer_tensor(index, "attn_output"),
                      gate = layer_tensor(index, "ffn_gate"), up = layer_tensor(index, "ffn_up"),
                      down = layer_tensor(index, "ffn_down");
    const uint64_t q_rows = (uint64_t)c->q_heads * c->head_dim,
                   kv_rows = (uint64_t)c->kv_heads * c->head_dim;
    const uint64_t width = c->width, ffn = c->ffn;
    const char *o_name = o.text, *down_name = down.text;
    temper_status status;
    if ((status = weights_vector(loader, layer_tensor(index, "attn_norm").text, width,
                                 &layer->attn_norm, err)) != TEMPER_OK ||
        (status = linear_open(loader, (const char *[]){q.text, k.text, v.text},
                              (const uint64_t[]){q_rows, kv_rows, kv_rows}, 3, width, &layer->qkv,
                              err)) != TEMPER_OK ||
        (status = weights_matrix(loader, &o_name, &width, 1, q_rows, &layer->attn_output, err)) !=
            TEMPER_OK ||
        (status = weights_vector(loader, layer_tensor(index, "ffn_norm").text, width,
                                 &layer->ffn_norm, err)) != TEMPER_OK ||
        (status = linear_open(loader, (const char *[]){gate.text, up.text},
                              (const uint64_t[]){ffn, ffn}, 2, width, &layer->gate_up, err)) !=
            TEMPER_OK)
        return status;
    return weights_matrix(loader, &down_name, &width, 1, ffn, &layer->ffn_down, err);
}

static void layer_close(model_layer *layer)
{
    gpu_buffer_destroy(layer->attn_norm);
    gpu_buffer_destroy(layer->ffn_norm);
    linear_close(&layer->qkv);
    linear_close(&layer->gate_up);
    op_weight_destroy(layer->attn_output);
    op_weight_destroy(layer->ffn_down);
}

/* The rotary frequencies, with the factors of rope_freqs.weight where the file has them. */
static temper_status turns_open(model *m, weights_loader *loader, error *err)
{
    const uint32_t pairs = m->config.rope_dims / 2;
    double frequencies[MODEL_MAX_HEAD_DIM / 2];
    float factors[MODEL_MAX_HEAD_DIM / 2];
    op_turns turns[MODEL_MAX_HEAD_DIM / 2];
    const bool scaled = weights_has(loader, "rope_freqs.weight");
    temper_status status = TEMPER_OK;
    if (scaled)
        status = weights_host_vector(loader, "rope_freqs.weight", pairs, factors, err);
    for (uint32_t i = 0; status == TEMPER_OK && scaled && i < pairs; i++)
        if (factors[i] <= 0.0f)
            status =
                error_set(err, TEMPER_BAD_FILE, "value %u of rope_freqs.weight is %g, not above 0",
                          i, (double)factors[i]);
    if (status != TEMPER_OK)
        return status;
    model_rope_frequencies(&m->config, scaled ? factors : NULL, frequencies);
    for (uint32_t i = 0; i < pairs; i++)
        turns[i] = op_turns_of(frequencies[i]);
    const uint64_t bytes = pairs * sizeof turns[0];
    status = gpu_buffer_create(m->device, bytes, GPU_PURPOSE_WEIGHTS, "rope frequencies", &m->turns,
                               err);
    return status == TEMPER_OK ? gpu_write(m->device, m->turns, 0, turns, bytes, err) : status;
}

static temper_status weights_load(model *m, weights_loader *loader, error *err)
{
    const model_config *c = &m->config;
    const uint64_t vocabulary = c->vocabulary;
    const char *embedding = "token_embd.weight", *head = "output.weight";
    temper_status status;
    if ((status = weights_matrix(loader, &embedding, &vocabulary, 1, c->width, &m->embedding,
                                 err)) != TEMPER_OK ||
        (status = turns_open(m, loader, err)) != TEMPER_OK)
        return status;
    for (uint32_t i = 0; i < c->layers; i++)
        if ((status = layer_open(loader, c, i, &m->layers[i], err)) != TEMPER_OK)
            return status;
    if ((status = weights_vector(loader, "output_norm.weight", c->width, &m->output_norm, err)) !=
        TEMPER_OK)
        return status;
    m->head = m->embedding;
    if (weights_has(loader, head))
        status = weights_matrix(loader, &head, &vocabulary, 1, c->width, &m->head, err);
    return status == TEMPER_OK ? weights_finish(loader, err) : status;
}

/* ---- scratch -------------------------------------------------------------------------------- */

typedef struct scratch_row {
    gpu_buffer **buffer;
    const char *label;
    uint64_t floats;
} scratch_row;

enum { SCRATCH_ROWS = 9 };

/* The buffers whose size does not depend on the context; returns their bytes. */
static uint64_t scratch_table(const model_config *c, uint32_t max_rows, model_scratch *s,
                              scratch_row rows[SCRATCH_ROWS])
{
    const uint64_t n = max_rows, q = (uint64_t)c->q_heads * c->head_dim,
                   kv = (uint64_t)c->kv_heads * c->head_dim;
    const scratch_row table[SCRATCH_ROWS] = {
        {&s->x, "residual stream", n * c->width},
        {&s->h, "normed input", n * c->width},
        {&s->qkv, "queries, keys, values", n * (q + 2 * kv)},
        {&s->q, "rotated queries", n * q},
        {&s->mixed, "attention output", n * q},
        {&s->gate_up, "gate and up", n * 2 * c->ffn},
        {&s->act, "gated", n * c->ffn},
        {&s->last, "rows for the head", (uint64_t)MODEL_LOGIT_ROWS * c->width},
        {&s->logits, "logits", (uint64_t)MODEL_LOGIT_ROWS * c->vocabulary},
    };
    memcpy(rows, table, sizeof table);
    uint64_t floats = 0;
    for (uint32_t i = 0; i < SCRATCH_ROWS; i++)
        floats += table[i].floats;
    return floats * sizeof(float);
}

static op_attention_shape widest_attention(const model_config *c, uint32_t max_rows,
                                           uint32_t positions)
{
    return (op_attention_shape){.rows = max_rows,
                                .q_heads = c->q_heads,
                                .kv_heads = c->kv_heads,
                                .head_dim = c->head_dim,
                                .scale = 1.0f,
                                .longest = positions};
}

uint64_t model_scratch_bytes(const model_config *config, uint32_t max_rows, uint32_t positions)
{
    model_scratch none = {0};
    scratch_row rows[SCRATCH_ROWS];
    const op_attention_shape attention = widest_attention(config, max_rows, positions);
    return scratch_table(config, max_rows, &none, rows) + op_attention_scratch_bytes(&attention);
}

static temper_status scratch_open(model *m, error *err)
{
    scratch_row rows[SCRATCH_ROWS];
    scratch_table(&m->config, m->max_rows, &m->scratch, rows);
    temper_status status = TEMPER_OK;
    for (uint32_t i = 0; status == TEMPER_OK && i < SCRATCH_ROWS; i++)
        status = gpu_buffer_create(m->device, rows[i].floats * sizeof(float), GPU_PURPOSE_SCRATCH,
                                   rows[i].label, rows[i].buffer, err);
    return status;
}

/* ---- opening and closing -------------------------------------------------------------------- */

/* Builds the network from a loader, which it closes. */
static temper_status open_from(weights_loader *loader, gpu_device *device,
                               const model_config *config, uint32_t max_rows, model **out,
                               error *err)
{
    model *m = mem_calloc(1, sizeof *m);
    model_layer *layers = mem_calloc(config->layers, sizeof *layers);
    if (m == NULL || layers == NULL) {
        mem_free(m);
        mem_free(layers);
        weights_close(loader);
        return error_set(err, TEMPER_NO_MEMORY, "no memory for a model");
    }
    m->device = gpu_device_retain(device);
    m->config = *config;
    m->max_rows = max_rows;
    m->layers = layers;
    temper_status status = weights_load(m, loader, err);
    weights_close(loader);
    if (status == TEMPER_OK)
        status = scratch_open(m, err);
    if (status != TEMPER_OK) {
        model_close(m);
        return status;
    }
    *out = m;
    return TEMPER_OK;
}

temper_status model_open(const gguf_file *file, gpu_device *device, const model_config *config,
                         uint32_t max_rows, weights_progress progress, void *user, model **out,
                         error *err)
{
    assert(file != NULL && device != NULL && config != NULL && max_rows > 0 && out != NULL);
    weights_loader *loader = NULL;
    const temper_status status = weights_open(file, device, progress, user, &loader, err);
    return status == TEMPER_OK ? open_from(loader, device, config, max_rows, out, err) : status;
}

temper_status model_open_random(gpu_device *device, const model_config *config, dtype type,
                                uint32_t max_rows, model **out, error *err)
{
    assert(device != NULL && config != NULL && max_rows > 0 && out != NULL);
    weights_loader *loader = NULL;
    const temper_status status = weights_open_random(device, type, &loader, err);
    return status == TEMPER_OK ? open_from(loader, device, config, max_rows, out, err) : status;
}

void model_close(model *m)
{
    if (m == NULL)
        return;
    for (uint32_t i = 0; i < m->config.layers; i++)
        layer_close(&m->layers[i]);
    mem_free(m->layers);
    scratch_row rows[SCRATCH_ROWS];
    scratch_table(&m->config, m->max_rows, &m->scratch, rows);
    for (uint32_t i = 0; i < SCRATCH_ROWS; i++)
        gpu_buffer_destroy(*rows[i].buffer);
    gpu_buffer_destroy(m->scratch.attention);
    if (m->head != m->embedding)
        op_weight_destroy(m->head);
    op_weight_destroy(m->embedding);
    gpu_buffer_destroy(m->output_norm);
    gpu_buffer_destroy(m->turns);
    gpu_device_release(m->device);
    mem_free(m);
}

/* Runs the graph once through a recorder that only asks for pipelines. */
static temper_status prepare(model *m, const kv_cache *cache, gpu_buffer *inputs, uint32_t rows,
                             error *err)
{
    gpu_recorder *rec = gpu_record_prepare(m->device);
    const model_step step = {.rows = rows,
                             .longest = rows,
                             .cache = cache,
                             .ids = gpu_whole(inputs),
                             .row_info = gpu_whole(inputs),
                             .logit_rows = rows < MODEL_LOGIT_ROWS ? rows : MODEL_LOGIT_ROWS};
    model_record_step(m, rec, &step);
    return gpu_submit(rec, NULL, err);
}

temper_status model_reserve(model *m, const kv_cache *cache, error *err)
{
    const uint32_t positions = kv_cache_positions(cache);
    temper_status status = TEMPER_OK;
    if (positions > m->scratch.positions) {
        const op_attention_shape shape = widest_attention(&m->config, m->max_rows, positions);
        gpu_buffer *attention = NULL;
        status = gpu_buffer_create(m->device, max_u64(4, op_attention_scratch_bytes(&shape)),
                                   GPU_PURPOSE_SCRATCH, "attention scratch", &attention, err);
        if (status != TEMPER_OK)
            return status;
        gpu_buffer_destroy(m->scratch.attention);
        m->scratch.attention = attention;
        m->scratch.positions = positions;
    }
    gpu_buffer *inputs = NULL;
    status = gpu_buffer_create(m->device, m->max_rows * sizeof(op_row_info), GPU_PURPOSE_INPUT,
                               "step inputs", &inputs, err);
    if (status == TEMPER_OK)
        status = prepare(m, cache, inputs, 1, err);
    if (status == TEMPER_OK && m->max_rows > 1)
        status = prepare(m, cache, inputs, m->max_rows, err);
    gpu_buffer_destroy(inputs);
    return status == TEMPER_OK ? gpu_pipelines_wait(m->device, err) : status;
}

/* ---- a step --------------------------------------------------------------------------------- */

void model_record_head(model *m, gpu_recorder *rec, uint32_t first, uint32_t rows)
{
    assert(rows >= 1 && rows <= MODEL_LOGIT_ROWS && first + rows <= m->max_rows);
    const model_config *c = &m->config;
    const model_scratch *s = &m->scratch;
    const uint64_t row_bytes = (uint64_t)c->width * sizeof(float);
    gpu_record_copy(rec, (gpu_view){s->x, first * row_bytes, rows * row_bytes},
                    (gpu_view){s->last, 0, rows * row_bytes});
    op_rmsnorm(rec, gpu_whole(s->last), gpu_whole(m->output_norm), gpu_whole(s->h), rows, c->width,
               c->norm_eps);
    op_matmul(rec, m->head, gpu_whole(s->h), gpu_whole(s->logits), rows, OP_WRITE);
}

void model_record_step(model *m, gpu_recorder *rec, const model_step *step)
{
    assert(m != NULL && rec != NULL && step->cache != NULL && step->rows >= 1 &&
           step->rows <= m->max_rows);
    assert(step->longest >= 1 && step->longest <= kv_cache_positions(step->cache));
    switch (m->config.arch) {
    case MODEL_LLAMA:
        llama_record_layers(m, rec, step);
        break;
    }
    if (step->logit_rows > 0)
        model_record_head(m, rec, step->logit_first, step->logit_rows);
}

gpu_view model_logits(const model *m)
{
    return gpu_whole(m->scratch.logits);
}
