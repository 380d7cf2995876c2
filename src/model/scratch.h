/*
 * scratch.h - the buffers that a step works in: which of them may be one, how large they are, and
 * what they take in all.
 */
#ifndef TEMPER_MODEL_SCRATCH_H
#define TEMPER_MODEL_SCRATCH_H

#include "gpu/pool.h"
#include "model/config.h"
#include "op/op.h"

/* Rows: the most of a step. What is not needed at the same moment of a layer may share a buffer. */
typedef struct model_scratch {
    gpu_buffer *x;         /* residual stream [rows, width] */
    gpu_buffer *h;         /* normed input of a product, or output to be normed [rows, width] */
    gpu_buffer *qkv;       /* [rows, (Hq + 2 Hkv) D] */
    gpu_buffer *q;         /* rotated queries [rows, Hq D] */
    gpu_buffer *mixed;     /* attention's output [rows, Hq D] */
    gpu_buffer *gate_up;   /* [rows, 2 ffn], or [rows, ffn] without a gate */
    gpu_buffer *act;       /* [rows, ffn] */
    gpu_buffer *last;      /* rows that want logits [MODEL_LOGIT_ROWS, width] */
    gpu_buffer *logits;    /* [MODEL_LOGIT_ROWS, vocabulary] */
    gpu_buffer *attention; /* op_attention's own, for `positions`; NULL before it is reserved */
    uint32_t positions;
    gpu_buffer *products; /* of the products of many rows, or NULL where they want none */
    gpu_buffer *sums;     /* the same */
    op_products allowed;  /* what products may use, `products` among it */
    gpu_pool pool;        /* of all these */
    uint32_t attention_slot;
} model_scratch;

/* Creates what does not depend on the context. */
temper_status scratch_open(model_scratch *s, gpu_device *device, const model_config *config,
                           uint32_t max_rows, error *err);

/* Makes op_attention's scratch fit sequences of `positions`. */
temper_status scratch_fit_attention(model_scratch *s, gpu_device *device,
                                    const model_config *config, uint32_t max_rows,
                                    uint32_t positions, error *err);

/* Creates the scratch of products; once in the life of a model. */
temper_status scratch_add_products(model_scratch *s, gpu_device *device, op_product_bytes bytes,
                                   error *err);

void scratch_close(model_scratch *s);

/* Tests only: in models opened from now on all buffers share that may, whatever their sizes, so
 * that a moment that is missing shows. */
void scratch_share_all(bool on);

/* Bytes of all of them for sequences of `positions`, with products that want so much. device: NULL
 * for one that binds buffers of any size. */
uint64_t scratch_bytes(const gpu_device *device, const model_config *config, uint32_t max_rows,
                       uint32_t positions, op_product_bytes products);

#endif
