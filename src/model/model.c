#include "model/model.h"

#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "base/mem.h"
#include "model/graph.h"
#include "op/choices.h"

/* ---- weights -------------------------------------------------------------------------------- */

static const model_graph *const graphs[MODEL_ARCHES] = {
    [MODEL_LLAMA] = &llama_graph,   [MODEL_QWEN2] = &qwen2_graph, [MODEL_QWEN3] = &qwen3_graph,
    [MODEL_GEMMA3] = &gemma3_graph, [MODEL_PHI3] = &phi3_graph,   [MODEL_GPT2] = &gpt2_graph,
};

static void load_vocabulary(model_loading *l, const char *name, op_weight **out)
{
    const model_config *c = l->config;
    if (l->status == TEMPER_OK)
        l->status = weights_vocabulary(l->loader, name, c->vocabulary, c->width, out, l->err);
}

/* Rotary frequencies, with the factors of a tensor (NULL: none). */
static void load_turns(model_loading *l, bool local, const char *tensor, gpu_buffer **out)
{
    const uint32_t pairs = l->config->rope_dims / 2;
    double frequencies[MODEL_MAX_HEAD_DIM / 2];
    float factors[MODEL_MAX_HEAD_DIM / 2];
    op_turns turns[MODEL_MAX_HEAD_DIM / 2] = {{0, 0}};
    if (l->status == TEMPER_OK && tensor != NULL)
        l->status = weights_host_vector(l->loader, tensor, pairs, factors, l->err);
    for (uint32_t i = 0; l->status == TEMPER_OK && tensor != NULL && i < pairs; i++)
        if (factors[i] <= 0.0f)
            l->status = error_set(l->err, TEMPER_BAD_FILE, "value %u of %s is %g, not above 0", i,
                                  tensor, (double)factors[i]);
    if (l->status != TEMPER_OK)
        return;
    model_rope_frequencies(l->config, local, tensor != NULL ? factors : NULL, frequencies);
    for (uint32_t i = 0; i < pairs; i++)
        turns[i] = op_turns_of(frequencies[i]);
    /* Without rope there is one pair that nobody reads: an op's view is never empty. */
    const uint64_t bytes = max_u64(pairs, 1) * sizeof turns[0];
    l->status = weights_buffer(l->loader, "rope frequencies", turns, bytes, out, l->err);
}

static void load_rope(model_loading *l, model *m)
{
    const model_config *c = l->config;
    const char *factors = weights_has(l->loader, "rope_freqs.weight") ? "rope_freqs.weight" : NULL;
    if (c->rope_scaling == ROPE_LONG) {
        load_turns(l, false, "rope_factors_short.weight", &m->turns);
        load_turns(l, false, "rope_factors_long.weight", &m->turns_long);
    } else {
        load_turns(l, false, factors, &m->turns);
    }
    if (c->window > 0 && c->rope_local_base > 0.0f)
        load_turns(l, true, NULL, &m->turns_local);
}

/* Learned positions, as f32 whatever type the file has. */
static void load_positions(model_loading *l, gpu_buffer **out)
{
    const uint64_t positions = l->config->context, width = l->config->width;
    const uint64_t bytes = positions * width * sizeof(float);
    const char *name = "position_embd.weight";
    op_weight *weight = NULL;
    if (l->status == TEMPER_OK)
        l->status = weights_matrix(l->loader, &name, &positions, NULL, 1, width, &weight, l->err);
    if (l->status == TEMPER_OK)
        l->status = weights_buffer(l->loader, "positions", NULL, bytes, out, l->err);
    if (l->status == TEMPER_OK)
        l->status = weights_flush(l->loader, l->err);
    if (l->status == TEMPER_OK && *out != NULL) {
        gpu_recorder *rec = gpu_record_begin(l->device);
        op_dequantize(rec, weight, 0, l->config->context, gpu_whole(*out));
        l->status = gpu_submit(rec, NULL, l->err);
    }
    if (l->status == TEMPER_OK && *out != NULL)
        l->status = gpu_finish(l->device, l->err);
    op_weight_destroy(weight);
}

static temper_status weights_load(model *m, weights_loader *loader, error *err)
{
    const model_config *c = &m->config;
    const bool gpt2 = c->arch == MODEL_GPT2;
    model_loading l = {.config = c, .device = m->device, .loader = loader, .err = err};
    load_vocabulary(&l, "token_embd.weight", &m->embedding);
    if (gpt2)
        load_positions(&l, &m->positions);
    load_rope(&l, m);
    for (l.layer = 0; l.layer < c->layers; l.layer++)
        graphs[c->arch]->load_layer(&l, &m->layers[l.layer]);
    model_load_vector(&l, "output_norm.weight", c->width, &m->output_norm.weight);
    if (gpt2)
        model_load_vector(&l, "output_norm.bias", c->width, &m->output_norm.bias);
    m->head = m->embedding;
    if (weights_has(loader, "output.weight"))
        load_vocabulary(&l, "output.weight", &m->head);
    return l.status == TEMPER_OK ? weights_finish(loader, err) : l.status;
}

/* ---- opening and closing -------------------------------------------------------------------- */

/* Builds the network from a loader, which it closes; without scratch. */
static temper_status load_from(weights_loader *loader, gpu_device *device,
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
    m->device = device == NULL ? NULL : gpu_device_retain(device);
    m->config = *config;
    m->max_rows = max_rows;
    m->layers = layers;
    const temper_status status = weights_load(m, loader, err);
    weights_close(loader);
    if (status != TEMPER_OK) {
        model_close(m);
        return status;
    }
    *out = m;
    return TEMPER_OK;
}

static temper_status open_from(weights_loader *loader, gpu_device *device,
                               const model_config *config, uint32_t max_rows, model **out,
                               error *err)
{
    model *m = NULL;
    temper_status status = load_from(loader, device, config, max_rows, &m, err);
    if (status != TEMPER_OK)
        return status;
    status = scratch_open(&m->scratch, m->device, &m->config, max_rows, err);
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
        model_layer_close(&m->layers[i]);
    mem_free(m->layers);
    scratch_close(&m->scratch);
    if (m->head != m->embedding)
        op_weight_destroy(m->head);
    op_weight_destroy(m->embedding);
    model_norm_close(&m->output_norm);
    gpu_buffer_destroy(m->positions);
    gpu_buffer_destroy(m->turns);
    gpu_buffer_destroy(m->turns_long);
    gpu_buffer_destroy(m->turns_local);
    gpu_device_release(m->device);
    mem_free(m);
}

/* Runs the graph once through a recorder that only asks for pipelines. */
static temper_status prepare(model *m, const kv_cache *cache, gpu_buffer *inputs, uint32_t rows,
                             error *err)
{
    gpu_recorder *rec = gpu_record_prepare(m->device);
    const model_step step = {.rows = rows,
                             .longest = (uint32_t)min_u64(rows, kv_cache_positions(cache)),
                             .cache = cache,
                             .ids = gpu_whole(inputs),
                             .row_info = gpu_whole(inputs),
                             .logit_rows = rows < MODEL_LOGIT_ROWS ? rows : MODEL_LOGIT_ROWS};
    model_record_step(m, rec, &step);
    return gpu_submit(rec, NULL, err);
}

/* Which row computes a product depends on the rows of x: what any of them wants. */
static void widen_by(const model *m, const op_weight *w, uint32_t most, op_product_bytes *bytes)
{
    for (uint32_t rows = op_rows_class(most); rows > 1; rows /= 2) {
        const op_product_bytes own =
            op_matmul_scratch_bytes(m->device, w->format, w->n, w->k, (uint32_t)min_u64(rows, most),
                                    m->scratch.allowed.half, m->scratch.allowed.lossy);
        bytes->scratch = max_u64(bytes->scratch, own.scratch);
        bytes->sums = max_u64(bytes->sums, own.sums);
    }
}

static void widen(const model *m, const model_linear *linear, op_product_bytes *bytes)
{
    for (uint32_t i = 0; i < linear->count; i++)
        widen_by(m, linear->weights[i], m->max_rows, bytes);
}

temper_status model_choose_products(model *m, bool exact, temper_lossy lossy, error *err)
{
    assert(!exact || lossy == TEMPER_LOSSY_NONE);
    m->scratch.allowed.lossy = lossy;
    m->scratch.allowed.half = false;
    m->scratch.allowed.fixed = !exact;
    if (exact)
        return TEMPER_OK;
    op_products *allowed = &m->scratch.allowed;
    const temper_status status = op_matmul_check(m->device, &allowed->half, err);
    return status == TEMPER_OK
               ? op_matmul_check_lossy(m->device, lossy, &allowed->half_sums, err)
               : status;
}

/* The scratch that the products of prompts want; 0 where they want none. */
static op_product_bytes products_bytes(const model *m)
{
    op_product_bytes bytes = {0, 0};
    for (uint32_t i = 0; i < m->config.layers; i++) {
        const model_layer *layer = &m->layers[i];
        widen(m, &layer->qkv, &bytes);
        widen(m, &layer->attn_output, &bytes);
        widen(m, &layer->gate_up, &bytes);
        widen(m, &layer->ffn_down, &bytes);
    }
    widen_by(m, m->head, (uint32_t)min_u64(m->max_rows, MODEL_LOGIT_ROWS), &bytes);
    return bytes;
}

/* Makes it, once for the life of the model. */
static temper_status products_open(model *m, error *err)
{
    model_scratch *s = &m->scratch;
    if (s->products != NULL)
        return TEMPER_OK;
    const op_product_bytes bytes = products_bytes(m);
    if (bytes.scratch == 0 && bytes.sums == 0)
        return TEMPER_OK;
    return scratch_add_products(s, m->device, bytes, err);
}

/* Whether the device's matrix units are good at this model's attention with this type of cache:
 * once for the life of the model. What may be rounded at all may be here. */
static temper_status choose_rounding(model *m, op_cache_type cache, error *err)
{
    const model_config *c = &m->config;
    const op_attention_shape shape = {.rows = m->max_rows,
                                      .q_heads = c->q_heads,
                                      .kv_heads = c->kv_heads,
                                      .head_dim = c->head_dim,
                                      .longest = 1,
                                      .cache = cache};
    bool half = false;
    temper_status status = TEMPER_OK;
    if (m->rounding[cache] != MODEL_UNTRIED)
        return TEMPER_OK;
    if (m->scratch.allowed.fixed)
        status = op_attention_check(m->device, &shape, &half, NULL, err);
    if (status == TEMPER_OK)
        m->rounding[cache] = half ? MODEL_HALF : MODEL_EXACT;
    return status;
}

temper_status model_reserve(model *m, const kv_cache *cache, error *err)
{
    const uint32_t positions = kv_cache_positions(cache);
    temper_status status = choose_rounding(m, kv_cache_type(cache), err);
    if (status != TEMPER_OK)
        return status;
    status = scratch_fit_attention(&m->scratch, m->device, &m->config, m->max_rows, positions, err);
    if (status != TEMPER_OK)
        return status;
    status = products_open(m, err);
    if (status != TEMPER_OK)
        return status;
    gpu_buffer *inputs = NULL;
    status = gpu_buffer_create(m->device, m->max_rows * sizeof(op_row_info), GPU_PURPOSE_INPUT,
                               "step inputs", &inputs, err);
    if (status == TEMPER_OK)
        status = prepare(m, cache, inputs, 1, err);
    if (status == TEMPER_OK && m->max_rows > 1)
        status = prepare(m, cache, inputs, m->max_rows, err);
    /* Rows chosen by measurement differ with the number of rows. */
    const bool chosen = op_choices_of(m->device) != NULL;
    for (uint32_t rows = op_rows_class(m->max_rows) / 2; chosen && rows > 1; rows /= 2)
        if (status == TEMPER_OK)
            status = prepare(m, cache, inputs, rows, err);
    gpu_buffer_destroy(inputs);
    return status == TEMPER_OK ? gpu_pipelines_wait(m->device, err) : status;
}

/* ---- what it would take --------------------------------------------------------------------- */

static uint64_t linear_bytes(const model_linear *linear)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < linear->count; i++)
        bytes += op_weight_bytes(linear->weights[i]->format, linear->weights[i]->n,
                                 linear->weights[i]->k);
    return bytes;
}

static uint64_t matrices_bytes(const model *m)
{
    uint64_t bytes = op_weight_bytes(m->embedding->format, m->embedding->n, m->embedding->k);
    if (m->head != m->embedding)
        bytes += op_weight_bytes(m->head->format, m->head->n, m->head->k);
    for (uint32_t i = 0; i < m->config.layers; i++) {
        const model_layer *layer = &m->layers[i];
        bytes += linear_bytes(&layer->qkv) + linear_bytes(&layer->attn_output) +
                 linear_bytes(&layer->gate_up) + linear_bytes(&layer->ffn_down);
    }
    return bytes;
}

temper_status model_measure(const gguf_file *file, gpu_device *device, const model_config *config,
                            uint32_t max_rows, uint32_t positions, model_memory *out, error *err)
{
    assert(file != NULL && config != NULL && max_rows > 0 && positions > 0 && out != NULL);
    weights_loader *loader = NULL;
    model *m = NULL;
    uint64_t vectors = 0;
    temper_status status = weights_open_measured(file, &vectors, &loader, err);
    if (status == TEMPER_OK)
        status = load_from(loader, device, config, max_rows, &m, err);
    if (status != TEMPER_OK)
        return status;
    m->scratch.allowed.half = true; /* as where products are not exact */
    const op_product_bytes products = device != NULL ? products_bytes(m) : (op_product_bytes){0, 0};
    *out = (model_memory){.weights = vectors + matrices_bytes(m),
                          .scratch = scratch_bytes(device, config, max_rows, positions, products)};
    model_close(m);
    return TEMPER_OK;
}

/* ---- a step --------------------------------------------------------------------------------- */

void model_record_head(model *m, gpu_recorder *rec, uint32_t first, uint32_t rows)
{
    assert(rows >= 1 && rows <= MODEL_LOGIT_ROWS && first + rows <= m->max_rows);
    const model_config *c = &m->config;
    const model_scratch *s = &m->scratch;
    const uint64_t row_bytes = (uint64_t)c->width * sizeof(float);
    gpu_view last = {s->x, first * row_bytes, rows * row_bytes};
    if (last.offset % gpu_device_limits(m->device)->storage_alignment != 0) {
        /* No kernel can be given rows that begin there. A copy ends a pass of the GPU. */
        const gpu_view copy = {s->last, 0, rows * row_bytes};
        gpu_record_copy(rec, last, copy);
        last = copy;
    }
    if (m->output_norm.bias == NULL) {
        op_rmsnorm_matmul(rec, last, gpu_whole(m->output_norm.weight), c->norm_eps, gpu_whole(s->h),
                          m->head, gpu_whole(s->logits), rows, OP_WRITE, &s->allowed);
    } else {
        op_layernorm(rec, last, gpu_whole(m->output_norm.weight), gpu_whole(m->output_norm.bias),
                     gpu_whole(s->h), rows, c->width, c->norm_eps);
        op_matmul_columns(rec, m->head, gpu_whole(s->h), gpu_whole(s->logits), rows, 0, m->head->n,
                          OP_WRITE, &s->allowed);
    }
    if (c->logit_softcap > 0.0f)
        op_softcap(rec, gpu_whole(s->logits), (uint64_t)rows * c->vocabulary, c->logit_softcap);
}

void model_record_step(model *m, gpu_recorder *rec, const model_step *step)
{
    assert(m != NULL && rec != NULL && step->cache != NULL && step->rows >= 1 &&
           step->rows <= m->max_rows);
    assert(step->longest >= 1 && step->longest <= kv_cache_positions(step->cache));
    const model_config *c = &m->config;
    const gpu_view x = gpu_whole(m->scratch.x);
    op_embed(rec, m->embedding, step->ids, x, step->rows, c->embedding_scale);
    if (m->positions != NULL)
        op_add_positions(rec, x, gpu_whole(m->positions), step->row_info, step->rows, c->width,
                         c->context);
    for (uint32_t i = 0; i < c->layers; i++)
        graphs[c->arch]->record_layer(m, rec, step, i);
    if (step->logit_rows > 0)
        model_record_head(m, rec, step->logit_first, step->logit_rows);
}

gpu_view model_logits(const model *m)
{
    return gpu_whole(m->scratch.logits);
}
