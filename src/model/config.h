/*
 * config.h - what a model file says about its network, read and checked before anything is
 * allocated.
 */
#ifndef TEMPER_MODEL_CONFIG_H
#define TEMPER_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "file/gguf.h"

/* Limits with names: a file past one of them is refused with the number. */
enum {
    MODEL_MAX_LAYERS = 1024,
    MODEL_MAX_WIDTH = 1 << 17,
    MODEL_MAX_FFN = 1 << 20,
    MODEL_MAX_HEADS = 1024,
    MODEL_MAX_HEAD_DIM = 256,
    MODEL_MAX_VOCABULARY = 1 << 20,
    MODEL_MAX_CONTEXT = 1 << 20,
    MODEL_DEFAULT_CONTEXT = 8192,
};

typedef enum model_arch { MODEL_LLAMA } model_arch;

typedef struct model_config {
    model_arch arch;
    uint32_t layers;
    uint32_t width; /* n_embd: the residual stream */
    uint32_t ffn;   /* n_ff */
    uint32_t q_heads;
    uint32_t kv_heads;   /* divides q_heads */
    uint32_t head_dim;   /* D */
    uint32_t vocabulary; /* ids that the tokenizer has */
    uint32_t context;    /* positions the model was trained for */
    uint32_t rope_dims;  /* rotated dimensions of a head, even, at most head_dim */
    float rope_base;
    float rope_factor; /* linear scaling: positions are divided by it; 1: none */
    float norm_eps;
} model_config;

/* Reads and checks the keys of a file whose tokenizer has `vocabulary` ids. Errors:
 * TEMPER_UNSUPPORTED for an architecture or a rope scaling temper does not know (by name),
 * TEMPER_BAD_FILE for missing keys and values out of range (key and value). */
temper_status model_config_read(const gguf_file *file, uint32_t vocabulary, model_config *out,
                                error *err);

/* The keys that can be read without checking them against each other, for listings: unreadable ones
 * stay 0. */
void model_config_peek(const gguf_file *file, model_config *out);

/* The name of the file's architecture ("" where it has none), a view into the file. */
gguf_string model_architecture(const gguf_file *file);

/* inv_freq[i] for i < rope_dims / 2: base^(-2i / rope_dims) / rope_factor / factors[i], computed in
 * double. factors (rope_freqs.weight) may be NULL. */
void model_rope_frequencies(const model_config *config, const float *factors, double *inv_freq);

#endif
