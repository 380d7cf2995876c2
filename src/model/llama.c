/*
 * llama.c - the llama architecture: Touvron et al., "LLaMA: Open and Efficient Foundation Language
 * Models", 2023; grouped-query attention as in its second version. Mistral (with a window), SmolLM
 * and many others share it, some with biases.
 *
 *     x  = E[ids]
 *     for each layer:  x += Wo attention(rope(Wqkv rmsnorm(x)))
 *                      x += Wdown (silu(Wgate h) * (Wup h)),  h = rmsnorm(x)
 */
#include "model/graph.h"

static void load_layer(model_loading *l, model_layer *layer)
{
    const model_config *c = l->config;
    model_load_norm(l, "attn_norm", false, &layer->attn_norm);
    model_load_qkv(l, false, BIAS_OPTIONAL, &layer->qkv);
    model_load_linear(l, "attn_output", c->width, (uint64_t)c->q_heads * c->head_dim, BIAS_OPTIONAL,
                      &layer->attn_output);
    model_load_norm(l, "ffn_norm", false, &layer->ffn_norm);
    model_load_gate_up(l, false, &layer->gate_up);
    model_load_linear(l, "ffn_down", c->width, c->ffn, BIAS_OPTIONAL, &layer->ffn_down);
}

void llama_record_layer(model *m, gpu_recorder *rec, const model_step *step, uint32_t index)
{
    const model_layer *layer = &m->layers[index];
    const model_scratch *s = &m->scratch;
    const uint32_t rows = step->rows;

    model_record_normed_linear(m, rec, &layer->attn_norm, &layer->qkv, s->x, s->h, s->qkv, rows);
    model_record_attention(m, rec, step, index);
    model_record_linear(m, rec, &layer->attn_output, s->mixed, s->x, rows, OP_ACCUMULATE);

    model_record_gated(m, rec, &layer->ffn_norm, &layer->gate_up, OP_GATE_SILU, &layer->ffn_down,
                       s->x, rows, OP_ACCUMULATE);
}

const model_graph llama_graph = {load_layer, llama_record_layer};
