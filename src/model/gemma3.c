/*
 * gemma3.c - Gemma 3: "Gemma 3 Technical Report", 2025. Norms before and after each half of a
 * layer, a norm of every q and k head, gelu gates, and five layers with a window of their own rope
 * base for each that sees everything.
 *
 *     x  = sqrt(width) E[ids]
 *     for each layer:  x += rmsnorm(Wo attention(rope(norm(Wqkv rmsnorm(x)))))
 *                      x += rmsnorm(Wdown (gelu(Wgate h) * (Wup h))),  h = rmsnorm(x)
 */
#include "model/graph.h"

static void load_layer(model_loading *l, model_layer *layer)
{
    const model_config *c = l->config;
    model_load_norm(l, "attn_norm", false, &layer->attn_norm);
    model_load_qkv(l, false, BIAS_OPTIONAL, &layer->qkv);
    model_load_head_norms(l, &layer->head_norms);
    model_load_linear(l, "attn_output", c->width, (uint64_t)c->q_heads * c->head_dim, BIAS_OPTIONAL,
                      &layer->attn_output);
    model_load_norm(l, "post_attention_norm", false, &layer->attn_post_norm);
    model_load_norm(l, "ffn_norm", false, &layer->ffn_norm);
    model_load_gate_up(l, false, &layer->gate_up);
    model_load_linear(l, "ffn_down", c->width, c->ffn, BIAS_OPTIONAL, &layer->ffn_down);
    model_load_norm(l, "post_ffw_norm", false, &layer->ffn_post_norm);
}

static void record_layer(model *m, gpu_recorder *rec, const model_step *step, uint32_t index)
{
    const model_config *c = &m->config;
    const model_layer *layer = &m->layers[index];
    const model_scratch *s = &m->scratch;
    const uint32_t rows = step->rows;
    const op_heads heads = {rows, c->q_heads, c->kv_heads, c->head_dim};

    model_record_normed_linear(m, rec, &layer->attn_norm, &layer->qkv, s->x, s->h, s->qkv, rows);
    op_head_norm(rec, gpu_whole(s->qkv), gpu_whole(layer->head_norms), &heads, c->norm_eps);
    model_record_attention(m, rec, step, index);
    model_record_linear(m, rec, &layer->attn_output, s->mixed, s->h, rows, OP_WRITE);
    op_rmsnorm_add(rec, gpu_whole(s->h), gpu_whole(layer->attn_post_norm.weight), gpu_whole(s->x),
                   rows, c->width, c->norm_eps);

    model_record_gated(m, rec, &layer->ffn_norm, &layer->gate_up, OP_GATE_GELU, &layer->ffn_down,
                       s->h, rows, OP_WRITE);
    op_rmsnorm_add(rec, gpu_whole(s->h), gpu_whole(layer->ffn_post_norm.weight), gpu_whole(s->x),
                   rows, c->width, c->norm_eps);
}

const model_graph gemma3_graph = {load_layer, record_layer};
