/*
 * llama.c - the llama architecture: Touvron et al., "LLaMA: Open and Efficient Foundation Language
 * Models", 2023; grouped-query attention as in its second version. Mistral, SmolLM and many others
 * share it.
 *
 *     x  = E[ids]
 *     for each layer:  x += Wo attention(rope(Wqkv rmsnorm(x)))
 *                      x += Wdown (silu(Wgate h) * (Wup h)),  h = rmsnorm(x)
 */
#include <assert.h>
#include <math.h>

#include "model/model.h"

static void record_attention(model *m, gpu_recorder *rec, const model_step *step, uint32_t index)
{
    const model_config *c = &m->config;
    const model_layer *layer = &m->layers[index];
    const model_scratch *s = &m->scratch;
    const gpu_view keys = kv_cache_keys(step->cache, index),
                   values = kv_cache_values(step->cache, index);
    const gpu_view table = kv_cache_table(step->cache);
    const op_rope_shape rope = {.rows = step->rows,
                                .q_heads = c->q_heads,
                                .kv_heads = c->kv_heads,
                                .head_dim = c->head_dim,
                                .rotary_dim = c->rope_dims};
    const op_attention_shape attention = {.rows = step->rows,
                                          .q_heads = c->q_heads,
                                          .kv_heads = c->kv_heads,
                                          .head_dim = c->head_dim,
                                          .scale = 1.0f / sqrtf((float)c->head_dim),
                                          .longest = step->longest};

    op_rmsnorm(rec, gpu_whole(s->x), gpu_whole(layer->attn_norm), gpu_whole(s->h), step->rows,
               c->width, c->norm_eps);
    model_record_linear(rec, &layer->qkv, s->h, s->qkv, step->rows);
    op_rope_store(rec, gpu_whole(s->qkv), gpu_whole(m->turns), step->row_info, table,
                  gpu_whole(s->q), keys, values, &rope);
    op_attention(rec, gpu_whole(s->q), keys, values, step->row_info, table, gpu_whole(s->attention),
                 gpu_whole(s->mixed), &attention);
    op_matmul(rec, layer->attn_output, gpu_whole(s->mixed), gpu_whole(s->x), step->rows,
              OP_ACCUMULATE);
}

static void record_ffn(model *m, gpu_recorder *rec, const model_step *step, uint32_t index)
{
    const model_config *c = &m->config;
    const model_layer *layer = &m->layers[index];
    const model_scratch *s = &m->scratch;

    op_rmsnorm(rec, gpu_whole(s->x), gpu_whole(layer->ffn_norm), gpu_whole(s->h), step->rows,
               c->width, c->norm_eps);
    model_record_linear(rec, &layer->gate_up, s->h, s->gate_up, step->rows);
    op_silu_gate(rec, gpu_whole(s->gate_up), gpu_whole(s->act), step->rows, c->ffn);
    op_matmul(rec, layer->ffn_down, gpu_whole(s->act), gpu_whole(s->x), step->rows, OP_ACCUMULATE);
}

void llama_record_layers(model *m, gpu_recorder *rec, const model_step *step)
{
    assert(m->config.arch == MODEL_LLAMA && step->rows >= 1 && step->rows <= m->max_rows);
    op_embed(rec, m->embedding, step->ids, gpu_whole(m->scratch.x), step->rows, 1.0f);
    for (uint32_t i = 0; i < m->config.layers; i++) {
        record_attention(m, rec, step, i);
        record_ffn(m, rec, step, i);
    }
}
