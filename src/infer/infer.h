/*
 * infer.h - what the files of this room share: the public handles from inside.
 */
#ifndef TEMPER_INFER_INFER_H
#define TEMPER_INFER_INFER_H

#include <stdatomic.h>

#include "base/error.h"
#include "file/gguf.h"
#include "gpu/gpu.h"
#include "model/model.h"
#include "temper/temper.h"
#include "text/chat.h"
#include "text/tokenizer.h"

enum {
    INFER_SOFTWARE_ROWS = 128, /* of a prompt in one step */
    INFER_DEFAULT_ROWS = 512,
    INFER_MATRIX_ROWS = 2048,     /* on matrix units */
    INFER_STEP_BYTES = 512 << 20, /* that a step of more than the default may take */
    INFER_MAX_ROWS = 4096,
    INFER_DEFAULT_WINDOW = 64,
};

struct temper_device {
    gpu_device *gpu;
    atomic_uint references;
    atomic_flag busy;
};

struct temper_engine {
    temper_device *device;  /* NULL: vocabulary only */
    atomic_uint references; /* its handle, and one a session */
    temper_model_info info;
    double load_seconds;      /* of its weights */
    uint64_t load_host_bytes; /* that they took on the way */
    char *architecture;       /* owned, behind info */
    char *name;
    tokenizer *tok;
    chat_template *chat; /* NULL: the file has none, or chat_failure says why it cannot be used */
    error chat_failure;
    model *net; /* NULL: vocabulary only */
};

/* Takes the device for one call; TEMPER_BUSY when another call has it. */
temper_status infer_enter(temper_device *device, error *err);
void infer_leave(temper_device *device);

/* Most prompt rows of a step: as many on matrix units as take INFER_STEP_BYTES of scratch. */
uint32_t infer_step_rows(bool software, bool matrices, const model_config *config);

/* The same on a device (NULL: on a GPU without matrix units), of which `wanted` were asked for; 0:
 * the default. exact: matrix units are not used. */
uint32_t infer_max_rows(gpu_device *device, const model_config *config, bool exact,
                        uint32_t wanted);

temper_engine *infer_engine_retain(temper_engine *engine);

/* TEMPER_BAD_ARGUMENT, with its value, for a kv that is none. */
temper_status infer_cache_type(temper_kv kv, op_cache_type *out, error *err);

/* The context that was asked for, or the engine's default for 0. TEMPER_BAD_ARGUMENT for one that
 * the model was not trained for, and for an engine that holds only a vocabulary. */
temper_status infer_check_context(const temper_engine *engine, uint32_t wanted, uint32_t *out,
                                  error *err);

/* TEMPER_BAD_ARGUMENT for a prompt that is empty or holds an id that is none, TEMPER_CONTEXT_FULL
 * for one that is longer than the context. */
temper_status infer_check_prompt(temper_tokens prompt, uint32_t vocabulary, uint32_t context,
                                 error *err);

/* The type of random weights that a name stands for; NULL: Q4_0. */
temper_status infer_shape_type(const char *name, dtype *out, error *err);

/* TEMPER_BAD_ARGUMENT, with the field's name and value, when one is out of its range. */
temper_status infer_check_sampling(const temper_sampling *sampling, error *err);

/* The same for the logit biases, of ids below `vocabulary`. */
temper_status infer_check_biases(const temper_sampling *sampling, uint32_t vocabulary, error *err);

/* What the GPU is given: fields out of use replaced by the values that switch them off. */
op_sample_params infer_sample_params(const temper_sampling *sampling, uint32_t position);

/* The penalties on the choice of the token at `position`; count 0 when none is asked for. */
op_penalties infer_penalties(const temper_sampling *sampling, uint32_t position);

#endif
