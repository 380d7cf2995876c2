/*
 * phi3.c - Phi 3 and Phi 4: Abdin et al., "Phi-3 Technical Report", 2024. The graph of llama.c; q,
 * k and v are one tensor, gate and up another, and longer contexts come with factors for every
 * rotary frequency (long-rope).
 */
#include "model/graph.h"

static void load_layer(model_loading *l, model_layer *layer)
{
    const model_config *c = l->config;
    model_load_norm(l, "attn_norm", false, &layer->attn_norm);
    model_load_qkv(l, true, BIAS_OPTIONAL, &layer->qkv);
    model_load_linear(l, "attn_output", c->width, (uint64_t)c->q_heads * c->head_dim, BIAS_OPTIONAL,
                      &layer->attn_output);
    model_load_norm(l, "ffn_norm", false, &layer->ffn_norm);
    model_load_gate_up(l, true, &layer->gate_up);
    model_load_linear(l, "ffn_down", c->width, c->ffn, BIAS_OPTIONAL, &layer->ffn_down);
}

const model_graph phi3_graph = {load_layer, llama_record_layer};
