/*
 * gpt2.c - GPT-2: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
 * Learned positions, norms by mean and variance, a bias everywhere, no gate.
 *
 *     x  = E[ids] + P[positions]
 *     for each layer:  x += Wo attention(Wqkv layernorm(x) + b) + b
 *                      x += Wdown gelu(Wup layernorm(x) + b) + b
 */
#include "model/graph.h"

static void load_layer(model_loading *l, model_layer *layer)
{
    const model_config *c = l->config;
    model_load_norm(l, "attn_norm", true, &layer->attn_norm);
    model_load_qkv(l, true, BIAS_REQUIRED, &layer->qkv);
    model_load_linear(l, "attn_output", c->width, c->width, BIAS_REQUIRED, &layer->attn_output);
    model_load_norm(l, "ffn_norm", true, &layer->ffn_norm);
    model_load_linear(l, "ffn_up", c->ffn, c->width, BIAS_REQUIRED, &layer->gate_up);
    model_load_linear(l, "ffn_down", c->width, c->ffn, BIAS_REQUIRED, &layer->ffn_down);
}

static void record_layer(model *m, gpu_recorder *rec, const model_step *step, uint32_t index)
{
    const model_layer *layer = &m->layers[index];
    const model_scratch *s = &m->scratch;
    const uint32_t rows = step->rows;

    model_record_norm(m, rec, &layer->attn_norm, s->x, s->h, rows);
    model_record_linear(m, rec, &layer->qkv, s->h, s->qkv, rows, OP_WRITE);
    model_record_attention(m, rec, step, index);
    model_record_linear(m, rec, &layer->attn_output, s->mixed, s->x, rows, OP_ACCUMULATE);

    model_record_norm(m, rec, &layer->ffn_norm, s->x, s->h, rows);
    model_record_linear(m, rec, &layer->gate_up, s->h, s->gate_up, rows, OP_WRITE);
    op_gelu(rec, gpu_whole(s->gate_up), gpu_whole(s->act), (uint64_t)rows * m->config.ffn);
    model_record_linear(m, rec, &layer->ffn_down, s->act, s->x, rows, OP_ACCUMULATE);
}

const model_graph gpt2_graph = {load_layer, record_layer};
