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

/* The architectures there are, by the names of GGUF: Mistral and SmolLM files are llama. */
typedef enum model_arch {
    MODEL_LLAMA,
    MODEL_QWEN2,
    MODEL_QWEN3,
    MODEL_GEMMA3,
    MODEL_PHI3,
    MODEL_GPT2,
    MODEL_ARCHES
} model_arch;

/* How rotary frequencies are stretched to a longer context. llama3's way and long-rope come as
 * tensors of factors: rope_freqs.weight; rope_factors_short.weight and rope_factors_long.weight. */
typedef enum model_rope_scaling {
    ROPE_PLAIN,
    ROPE_LINEAR,
    ROPE_YARN,
    ROPE_LONG
} model_rope_scaling;

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
    float norm_eps;
    float embedding_scale;   /* of a token's row as it enters the residual stream */
    float attention_scale;   /* score = scale * q.k */
    float attention_softcap; /* score = cap * tanh(score / cap); 0: none */
    float logit_softcap;     /* the same of the logits */

    uint32_t window;        /* positions that a local layer sees, its own among them; 0: all layers
                               are global */
    uint32_t global_period; /* every n-th layer is global (of 6: 5, 11, ...); 0: all are local */

    uint32_t rope_dims; /* rotated dimensions of a head, even, at most head_dim; 0: no rope */
    bool rope_halves;   /* the file's rows of Q and K turn in pairs (i, i + rope_dims / 2), not
                           (2i, 2i + 1) */
    float rope_base;
    float rope_local_base; /* of local layers, which know no scaling; 0: as the others */
    model_rope_scaling rope_scaling;
    float rope_factor;          /* of ROPE_LINEAR and ROPE_YARN */
    uint32_t rope_original;     /* positions before the stretching, of ROPE_YARN and ROPE_LONG */
    float yarn_fast, yarn_slow; /* turns over rope_original: more stay, fewer are divided */
    float yarn_extrapolation;   /* how much of the ramp between them counts: 1 as a rule */
    float rope_magnitude;       /* what rotated values are multiplied by */
} model_config;

/* Reads and checks the keys of a file whose tokenizer has `vocabulary` ids. Errors:
 * TEMPER_UNSUPPORTED for an architecture or a rope scaling temper does not know (by name),
 * TEMPER_BAD_FILE for missing keys and values out of range (key and value). */
temper_status model_config_read(const gguf_file *file, uint32_t vocabulary, model_config *out,
                                error *err);

/* Gives what is 0 in a configuration, where 0 means nothing, the value that its architecture has:
 * scales, global_period, rope_halves (true but for llama), rope_local_base, rope_magnitude and what
 * yarn needs. The shape (layers to context, rope_dims, rope_base) must be there. For whoever fills
 * one without a GGUF file. */
void model_config_complete(model_config *config);

/* The keys that can be read without checking them against each other, for listings: unreadable ones
 * stay 0. */
void model_config_peek(const gguf_file *file, model_config *out);

/* "llama", as GGUF names it. */
const char *model_arch_name(model_arch arch);

/* The architecture of a name; false where temper has none. */
bool model_arch_find(const char *name, uint64_t length, model_arch *out);

/* The name of the file's architecture ("" where it has none), a view into the file. */
gguf_string model_architecture(const gguf_file *file);

/* True when the layer sees config->window positions only. */
bool model_layer_is_local(const model_config *config, uint32_t layer);

/* inv_freq[i] for i < rope_dims / 2, in radians a position, computed in double: base^(-2i /
 * rope_dims), stretched as rope_scaling says and divided by factors[i] (may be NULL: 1). With
 * `local`, those of local layers: rope_local_base and nothing else. */
void model_rope_frequencies(const model_config *config, bool local, const float *factors,
                            double *inv_freq);

#endif
