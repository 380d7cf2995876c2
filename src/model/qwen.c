/*
 * qwen.c - Qwen 2: "Qwen2 Technical Report", 2024: llama with biases on q, k and v. Qwen 3: "Qwen3
 * Technical Report", 2025: no biases, but a norm of every q and k head before rope.
 *
 *     x  = E[ids]
 *     for each layer:  x += Wo attention(rope(norm(Wqkv rmsnorm(x) + b)))
 *                      x += Wdown (silu(Wgate h) * (Wup h)),  h = rmsnorm(x)
 */
#include "model/graph.h"

static void load_qwen2_layer(model_loading *l, model_layer *layer)
{
    const model_config *c = l->config;
    model_load_norm(l, "attn_norm", false, &layer->attn_norm);
    model_load_qkv(l, false, BIAS_REQUIRED, &layer->qkv);
    model_load_linear(l, "attn_output", c->width, (uint64_t)c->q_heads * c->head_dim, BIAS_OPTIONAL,
                      &layer->attn_output);
    model_load_norm(l, "ffn_norm", false, &layer->ffn_norm);
    model_load_gate_up(l, false, &layer->gate_up);
    model_load_linear(l, "ffn_down", c->width, c->ffn, BIAS_OPTIONAL, &layer->ffn_down);
}

static void load_qwen3_layer(model_loading *l, model_layer *layer)
{
    const model_config *c = l->config;
    model_load_norm(l, "attn_norm", false, &layer->attn_norm);
    model_load_qkv(l, false, BIAS_OPTIONAL, &layer->qkv);
    model_load_head_norms(l, &layer->head_norms);
    model_load_linear(l, "attn_output", c->width, (uint64_t)c->q_heads * c->head_dim, BIAS_OPTIONAL,
                      &layer->attn_output);
    model_load_norm(l, "ffn_norm", false, &layer->ffn_norm);
    model_load_gate_up(l, false, &layer->gate_up);
    model_load_linear(l, "ffn_down", c->width, c->ffn, BIAS_OPTIONAL, &layer->ffn_down);
}

static void record_qwen3_layer(model *m, gpu_recorder *rec, const model_step *step, uint32_t index)
{
    const model_config *c = &m->config;
    const model_layer *layer = &m->layers[index];
    const model_scratch *s = &m->scratch;
    const uint32_t rows = step->rows;
    const op_heads heads = {rows, c->q_heads, c->kv_heads, c->head_dim};

    model_record_normed_linear(m, rec, &layer->attn_norm, &layer->qkv, s->x, s->h, s->qkv, rows);
    op_head_norm(rec, gpu_whole(s->qkv), gpu_whole(layer->head_norms), &heads, c->norm_eps);
    model_record_attention(m, rec, step, index);
    model_record_linear(m, rec, &layer->attn_output, s->mixed, s->x, rows, OP_ACCUMULATE);

    model_record_gated(m, rec, &layer->ffn_norm, &layer->gate_up, OP_GATE_SILU, &layer->ffn_down,
                       s->x, rows, OP_ACCUMULATE);
}

const model_graph qwen2_graph = {load_qwen2_layer, llama_record_layer};
const model_graph qwen3_graph = {load_qwen3_layer, record_qwen3_layer};
