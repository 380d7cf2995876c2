/*
 * graph.h - what the graphs of this room are made of. Each architecture is a file with two
 * functions: which tensors a layer has, and what is computed with them. Both are lists of calls of
 * the parts below.
 *
 *     static void load_layer(model_loading *l, model_layer *layer)
 *     {
 *         model_load_norm(l, "attn_norm", false, &layer->attn_norm);
 *         ...
 *     }
 *
 *     static void record_layer(model *m, gpu_recorder *rec, const model_step *step, uint32_t i)
 *     {
 *         model_record_norm(m, rec, &layer->attn_norm, s->x, s->h, step->rows);
 *         ...
 *     }
 *
 *     const model_graph llama_graph = {load_layer, record_layer};
 */
#ifndef TEMPER_MODEL_GRAPH_H
#define TEMPER_MODEL_GRAPH_H

#include "model/model.h"

/* ---- loading --------------------------------------------------------------------------------- */

/* The layer being loaded. After the first failure every call does nothing. */
typedef struct model_loading {
    const model_config *config;
    gpu_device *device;
    weights_loader *loader;
    uint32_t layer;
    temper_status status;
    error *err;
} model_loading;

/* The bias of a product: BIAS_OPTIONAL takes it where the file has it. */
typedef enum model_bias { BIAS_OPTIONAL, BIAS_REQUIRED } model_bias;

/* A vector of n numbers. */
void model_load_vector(model_loading *l, const char *name, uint64_t n, gpu_buffer **out);

/* The weight blk.LAYER.WHAT.weight [width], and with `with_bias` the bias beside it. */
void model_load_norm(model_loading *l, const char *what, bool with_bias, model_norm *out);

/* blk.LAYER.attn_q_norm.weight and attn_k_norm.weight, each [D], in the order that rope wants. */
void model_load_head_norms(model_loading *l, gpu_buffer **out);

/* Q, K and V [(Hq + 2 Hkv) D, width] with the rows of Q and K in the order that rope wants: three
 * tensors, or with `fused` the one tensor attn_qkv. */
void model_load_qkv(model_loading *l, bool fused, model_bias bias, model_linear *out);

/* The gate and the input of a feed-forward layer [2 ffn, width]: ffn_gate and ffn_up, or with
 * `fused` the one tensor ffn_up. */
void model_load_gate_up(model_loading *l, bool fused, model_linear *out);

/* The one tensor blk.LAYER.WHAT.weight [rows, k]. */
void model_load_linear(model_loading *l, const char *what, uint64_t rows, uint64_t k,
                       model_bias bias, model_linear *out);

/* Frees what the functions above loaded. */
void model_layer_close(model_layer *layer);
void model_norm_close(model_norm *norm);

/* ---- recording ------------------------------------------------------------------------------- */

/* y = the norm of x. */
void model_record_norm(const model *m, gpu_recorder *rec, const model_norm *norm, gpu_buffer *x,
                       gpu_buffer *y, uint32_t rows);

/* y (+)= x W^T + bias. */
void model_record_linear(const model *m, gpu_recorder *rec, const model_linear *linear,
                         gpu_buffer *x, gpu_buffer *y, uint32_t rows, op_mode mode);

/* y = linear(norm(x)); h is scratch [rows, width]. One dispatch where the device has it. */
void model_record_normed_linear(const model *m, gpu_recorder *rec, const model_norm *norm,
                                const model_linear *linear, gpu_buffer *x, gpu_buffer *h,
                                gpu_buffer *y, uint32_t rows);

/* y (+)= down(gate of the halves of gate_up(norm(s->x))). Two dispatches where the device has it.
 */
void model_record_gated(const model *m, gpu_recorder *rec, const model_norm *norm,
                        const model_linear *gate_up, op_gate gate, const model_linear *down,
                        gpu_buffer *y, uint32_t rows, op_mode mode);

/* From s->qkv to s->mixed: rope, the way of k and v into the cache, attention; with the window and
 * the frequencies of layer `index`. */
void model_record_attention(const model *m, gpu_recorder *rec, const model_step *step,
                            uint32_t index);

/* ---- the graphs ------------------------------------------------------------------------------ */

typedef struct model_graph {
    void (*load_layer)(model_loading *l, model_layer *layer);
    void (*record_layer)(model *m, gpu_recorder *rec, const model_step *step, uint32_t index);
} model_graph;

/* The layer of the llama family, for graphs that differ in their tensors only. */
void llama_record_layer(model *m, gpu_recorder *rec, const model_step *step, uint32_t index);

extern const model_graph llama_graph, qwen2_graph, qwen3_graph, gemma3_graph, phi3_graph,
    gpt2_graph;

#endif
