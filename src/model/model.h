/*
 * model.h - a network on a device: its weights, the scratch that a step needs, and the graph of a
 * step.
 *
 * A step takes rows: one token each, with its position and the block table of the sequence it
 * belongs to, so that a prompt (many rows of one sequence), a decode (one row) and a batch (a row
 * of each of several sequences) are one thing.
 */
#ifndef TEMPER_MODEL_MODEL_H
#define TEMPER_MODEL_MODEL_H

#include <stdint.h>

#include "file/gguf.h"
#include "gpu/gpu.h"
#include "model/config.h"
#include "model/kv_cache.h"
#include "model/scratch.h"
#include "model/weights.h"
#include "op/op.h"

enum { MODEL_LOGIT_ROWS = 16 }; /* rows whose logits are in memory at once */

/* A product y = x W^T + bias whose rows come from up to three tensors: one weight where their types
 * agree, else one each. */
typedef struct model_linear {
    op_weight *weights[3];
    uint64_t columns[3]; /* where each one's outputs begin in y */
    uint64_t width;      /* of y */
    uint32_t count;
    gpu_buffer *bias; /* f32 [width of y], or NULL */
} model_linear;

/* A norm by mean and variance where there is a bias, else by the root mean square. */
typedef struct model_norm {
    gpu_buffer *weight; /* f32 [width] */
    gpu_buffer *bias;   /* f32 [width], or NULL */
} model_norm;

/* What a layer may have; an architecture leaves out what it does not. */
typedef struct model_layer {
    model_norm attn_norm;
    model_linear qkv;          /* [(Hq + 2 Hkv) D, width] */
    gpu_buffer *head_norms;    /* f32 [2, D]: of q, of k */
    model_linear attn_output;  /* [width, Hq D] */
    model_norm attn_post_norm; /* of attention's output */
    model_norm ffn_norm;
    model_linear gate_up;     /* [2 ffn, width], or [ffn, width] without a gate */
    model_linear ffn_down;    /* [width, ffn] */
    model_norm ffn_post_norm; /* of the feed-forward layer's output */
} model_layer;

/* Whether attention over many rows may round its operands to f16. */
typedef enum model_rounding { MODEL_UNTRIED, MODEL_EXACT, MODEL_HALF } model_rounding;

typedef struct model {
    gpu_device *device; /* one reference */
    model_config config;
    uint32_t max_rows;
    op_weight *embedding;  /* [vocabulary, width] */
    op_weight *head;       /* the same where the file has no output.weight */
    gpu_buffer *positions; /* learned ones, f32 [context, width], or NULL */
    model_norm output_norm;
    gpu_buffer *turns;       /* op_turns [rope_dims / 2] */
    gpu_buffer *turns_long;  /* of long-rope, for contexts past rope_original, or NULL */
    gpu_buffer *turns_local; /* of local layers, where they have a base of their own, or NULL */
    model_layer *layers;
    model_scratch scratch;
    model_rounding rounding[OP_CACHE_TYPES]; /* by the type of the cache */
} model;

/* Loads the network of a file. *out is owned by the caller. */
temper_status model_open(const gguf_file *file, gpu_device *device, const model_config *config,
                         uint32_t max_rows, weights_progress progress, void *user, model **out,
                         error *err);

/* The same with random weights of a type: a shape to be timed. */
temper_status model_open_random(gpu_device *device, const model_config *config, dtype type,
                                uint32_t max_rows, model **out, error *err);
void model_close(model *m);

/* Lets products and the attention of prompts round their operands to f16 where the device is good
 * at it, unless `exact`, and products more than that where `lossy` says so; the first time that is
 * computed and waited for, of products here, of attention when a cache of its type is reserved. To
 * be called before the first model_reserve; without it both are exact. */
temper_status model_choose_products(model *m, bool exact, temper_lossy lossy, error *err);

/* Makes the scratch fit sequences of `positions` and asks for every pipeline that their steps need;
 * waits for them. */
temper_status model_reserve(model *m, const kv_cache *cache, error *err);

typedef struct model_step {
    uint32_t rows;      /* 1 to max_rows, of any sequences and positions, in any order */
    uint32_t longest;   /* the largest position among the rows, plus 1 */
    uint32_t sequences; /* that the rows belong to; 0: 1; as many as rows: each has its own */
    uint32_t singles;   /* of the first rows, how many attention takes one by one */
    const kv_cache *cache;
    gpu_view ids;         /* u32 [rows] */
    gpu_view row_info;    /* op_row_info [rows] */
    uint32_t logit_first; /* rows [logit_first, logit_first + logit_rows) get logits */
    uint32_t logit_rows;  /* 0 to MODEL_LOGIT_ROWS */
} model_step;

/* Records a step. Its logits are in model_logits after the submit, f32 [logit_rows, vocabulary]. */
void model_record_step(model *m, gpu_recorder *rec, const model_step *step);

/* Records the head alone for rows of the last recorded step: how more than MODEL_LOGIT_ROWS rows
 * get theirs, in turns. */
void model_record_head(model *m, gpu_recorder *rec, uint32_t first, uint32_t rows);

gpu_view model_logits(const model *m);

/* Bytes of device memory. */
typedef struct model_memory {
    uint64_t weights, scratch;
} model_memory;

/* What model_open and model_reserve would take, for sequences of `positions`, without making any of
 * it. device: what products want of scratch depends on it; NULL: nothing. Fails as model_open does
 * where the file is wrong, but for the values of its matrices, which are not read. */
temper_status model_measure(const gguf_file *file, gpu_device *device, const model_config *config,
                            uint32_t max_rows, uint32_t positions, model_memory *out, error *err);

#endif
