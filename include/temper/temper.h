/*
 * temper.h - run a language model on whatever GPU there is.
 *
 * temper opens a model file (GGUF), keeps its weights on a WebGPU device and continues texts with
 * it. This header is the whole interface and its manual; training has a header of its own.
 *
 *     temper_error err = {0};
 *     temper_engine *engine = NULL;
 *     temper_session *session = NULL;
 *     temper_engine_desc model = {.model = "model.gguf"};
 *     if (temper_engine_open(&model, &engine, &err) != TEMPER_OK ||
 *         temper_session_open(engine, NULL, &session, &err) != TEMPER_OK ||
 *         temper_chat(engine, messages, 1, &prompt, &err) != TEMPER_OK ||
 *         temper_session_generate(session, &(temper_request){.prompt = prompt, .on_text = show},
 *                                 &result, &err) != TEMPER_OK)
 *         fprintf(stderr, "%s\n", err.text);
 *     temper_session_close(session);
 *     temper_engine_close(engine);
 *
 * What it does not do: it never prints, never exits, never touches the network, starts no threads
 * of its own.
 *
 * Glossary
 *     token    one entry of the model's vocabulary; its id is its index
 *     prompt   the ids that the model is given
 *     context  the most ids that a session can hold
 *     engine   a model's weights on a device, its tokenizer and chat template; immutable once open
 *     session  one text in the making: it owns the keys and values (KV cache) of what it has seen
 *     prefill  computing the keys and values of a prompt, many rows at once
 *     decode   computing one row at a time, for an answer
 *     batch    several texts in the making at once, each with a row in every step
 *     logit    the model's raw score of a token as the next one
 *
 * Objects
 *     Three nouns: device (an opened GPU), engine, session. A descriptor goes in, a handle comes
 *     out; a zeroed field means its default, and a NULL descriptor means all defaults. Every close
 *     accepts NULL. An engine keeps its device alive, a session its engine.
 *
 * Threads
 *     One thread at a time drives a device and everything on it. A call that comes in while another
 *     is running, from another thread or from a callback, returns TEMPER_BUSY and does nothing.
 *     Different devices are independent. Three functions of batches are for any thread (see there).
 *
 * Errors
 *     Every function that can fail returns a temper_status and fills *err (which may be NULL) with
 *     a text that names what failed, on which file or value, and what to do. Zero the struct before
 *     the first use; a text that is already there is kept, so the first cause wins. After a device
 *     was lost, every call on it and on what it carries says so; closing still works.
 *
 * Ownership, in five words used below
 *     owned           the callee keeps it until it closes
 *     borrowed        the callee reads it during the call only
 *     returned-owned  the caller must release it, with the function named
 *     view            a pointer into an object: valid until the object changes or closes
 *     callback-only   valid until the callback returns
 */
#ifndef TEMPER_H
#define TEMPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TEMPER_API __attribute__((visibility("default")))
#else
#define TEMPER_API
#endif

/* ---- outcomes ------------------------------------------------------------------------------- */

/* One table of outcomes: X(name, value, sentence). */
#define TEMPER_STATUS_TABLE(X)                                                                     \
    X(TEMPER_OK, 0, "no error")                                                                    \
    X(TEMPER_BAD_ARGUMENT, 1, "an argument is out of its range")                                   \
    X(TEMPER_NO_MEMORY, 2, "the host's memory is exhausted")                                       \
    X(TEMPER_IO, 3, "a file could not be read or written")                                         \
    X(TEMPER_BAD_FILE, 4, "a file is damaged or contradicts itself")                               \
    X(TEMPER_UNSUPPORTED, 5, "temper cannot do this yet, or not on this device")                   \
    X(TEMPER_NO_DEVICE, 6, "no adapter can be used")                                               \
    X(TEMPER_DEVICE_LOST, 7, "the device was lost")                                                \
    X(TEMPER_DEVICE_ERROR, 8, "the device reported an error")                                      \
    X(TEMPER_DEVICE_MEMORY, 9, "the device's memory is exhausted")                                 \
    X(TEMPER_CONTEXT_FULL, 10, "the text is longer than the context")                              \
    X(TEMPER_NOT_FINITE, 11, "a result is not a finite number")                                    \
    X(TEMPER_TEMPLATE, 12, "the chat template refused the messages or could not be rendered")      \
    X(TEMPER_BUSY, 13, "the object is in use by another call")                                     \
    X(TEMPER_FAILED, 14, "the object failed earlier")                                              \
    X(TEMPER_STOPPED, 15, "the caller's callback asked to stop")                                   \
    X(TEMPER_INTERNAL, 16, "temper contradicted itself: this is a bug")                            \
    X(TEMPER_FULL, 17, "there is no room for another request now")

typedef enum temper_status {
#define X(name, value, sentence) name = value,
    TEMPER_STATUS_TABLE(X)
#undef X
} temper_status;

enum { TEMPER_ERROR_BYTES = 1024 };

typedef struct temper_error {
    temper_status status;          /* TEMPER_OK while nothing has failed */
    char text[TEMPER_ERROR_BYTES]; /* UTF-8, at most six lines, control characters escaped */
} temper_error;

/* Returns the sentence of a status: static, never NULL. */
TEMPER_API const char *temper_status_text(temper_status status);

/* Returns "0.1.0". */
TEMPER_API const char *temper_version(void);

/* Returns the name of the WebGPU library that this build computes with: "Dawn" or "wgpu-native". */
TEMPER_API const char *temper_webgpu(void);

/* Releases memory that a function below calls returned-owned. NULL is fine. */
TEMPER_API void temper_free(void *memory);

/* ---- devices -------------------------------------------------------------------------------- */

typedef struct temper_device temper_device;

typedef struct temper_limit {
    const char *name; /* WebGPU's name, static */
    uint64_t value;
} temper_limit;

enum { TEMPER_MAX_LIMITS = 16 };

/* What there is to compute on. */
typedef struct temper_adapter {
    char name[256]; /* "NVIDIA H200" */
    char driver[256];
    char backend[32];                    /* "Vulkan", "Metal", "D3D12" */
    char type[32];                       /* "discrete GPU", "integrated GPU", "CPU" */
    char features[128];                  /* "f16,subgroups": those that temper can use */
    uint32_t subgroup_min, subgroup_max; /* 0: unknown */
    temper_limit limits[TEMPER_MAX_LIMITS];
    uint32_t limit_count;
    bool usable;
    char reason[256]; /* why not, when it is not */
} temper_adapter;

/* Lists the adapters, unusable ones too: fills up to `capacity` rows, sets *count to how many there
 * are. */
TEMPER_API temper_status temper_adapters(temper_adapter *rows, uint32_t capacity, uint32_t *count,
                                         temper_error *err);

typedef struct temper_device_desc {
    const char *adapter; /* NULL: the best one; a number as `temper doctor` lists them; or part of
                            a name. Borrowed */
    const char *without; /* features to do without: "f16,subgroups,subgroup-matrix,timestamps,
                            immediates"; NULL: none. Borrowed */
    const char *const *limits; /* limit_count lowered limits,
                                  "maxStorageBufferBindingSize=134217728". Borrowed */
    uint32_t limit_count;
    bool robust;        /* keep the WebGPU library's bounds checks in every kernel */
    const char *tuning; /* folder where `temper kernels tune` keeps which kernels are fastest here;
                           NULL: none is read. What is missing there or of another device changes
                           nothing. Borrowed */
} temper_device_desc;

/* Opens a device. *out is returned-owned (temper_device_release). Errors: TEMPER_NO_DEVICE when no
 * adapter can compute, with each one's reason; TEMPER_BAD_ARGUMENT for a name or limit that does
 * not exist. */
TEMPER_API temper_status temper_device_open(const temper_device_desc *desc, temper_device **out,
                                            temper_error *err);

/* One more reference to the device; returns it. */
TEMPER_API temper_device *temper_device_retain(temper_device *device);

/* Gives a reference back; the last one closes the device. */
TEMPER_API void temper_device_release(temper_device *device);

/* What a kernel multiplies with: each has a rate of its own on a card. */
typedef enum temper_unit {
    TEMPER_UNIT_F32,    /* fused multiply-adds of f32 */
    TEMPER_UNIT_DOT4,   /* four products of bytes an instruction */
    TEMPER_UNIT_MATRIX, /* matrix units */
    TEMPER_UNITS
} temper_unit;

/* What a device has cost so far. Bytes are of GPU memory. */
typedef struct temper_device_stats {
    uint64_t live_bytes, peak_bytes;
    uint64_t weight_bytes, cache_bytes, scratch_bytes; /* alive now */
    uint64_t dispatches, submits, readbacks;
    uint64_t buffers_created, bind_groups_created, pipelines_created;
    uint64_t work_bytes; /* that the dispatches had to move at the least, and the additions and */
    uint64_t work_operations[TEMPER_UNITS]; /* multiplications that they had to do, by unit */
} temper_device_stats;

TEMPER_API temper_device_stats temper_device_get_stats(const temper_device *device);

typedef struct temper_profile_row {
    const char *kernel; /* static */
    temper_unit unit;
    uint64_t dispatches;
    double seconds;             /* of the GPU, by timestamps */
    uint64_t bytes, operations; /* as work_bytes and work_operations */
} temper_profile_row;

/* One dispatch. */
typedef struct temper_profile_event {
    const char *kernel; /* static */
    uint64_t submit;    /* the number of its submit */
    double submitted;   /* seconds of the host's clock, from any beginning */
    double begin, end;  /* seconds of the GPU's clock since the device's first event */
    uint64_t bytes, operations;
} temper_profile_event;

/* Switches timing by kernel on or off. While it is on, every dispatch runs in a pass of its own, so
 * that steps take longer than the sum of their kernels. TEMPER_UNSUPPORTED where the device has no
 * timestamps. */
TEMPER_API temper_status temper_device_profile(temper_device *device, bool on, temper_error *err);

/* Fills up to `capacity` events with the dispatches since the last temper_device_profile_take, in
 * the order of their submits; returns how many there are: of a very long run, the first 262144. */
TEMPER_API uint32_t temper_device_profile_events(temper_device *device,
                                                 temper_profile_event *events, uint32_t capacity);

/* Fills up to `capacity` rows, the costliest first, with what ran since the last call; returns how
 * many kernels there were. */
TEMPER_API uint32_t temper_device_profile_take(temper_device *device, temper_profile_row *rows,
                                               uint32_t capacity);

/* Name of the adapter, a view as long as the device lives. */
TEMPER_API const char *temper_device_name(const temper_device *device);

/* The features and limits that the device has, after what was taken away. */
TEMPER_API void temper_device_describe(const temper_device *device, temper_adapter *out);

/* ---- files ---------------------------------------------------------------------------------- */

/* The types Q1_0, Q2_0, IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ4_NL, IQ4_XS,
 * MXFP4, TQ1_0 and TQ2_0 have no layout on the device, and tensors of them are refused by name. Who
 * asks for it has them read as F16, each weight rounded once, which takes up to fourteen times
 * their bytes. */
typedef struct temper_widened {
    const char *type;     /* "IQ3_XXS" */
    const char *tensor;   /* the first one of the type, escaped where it holds control characters */
    uint64_t tensors;     /* how many there are */
    uint64_t extra_bytes; /* that they take in F16 beyond those of the file */
} temper_widened;

/* Called once for each such type; everything in it is callback-only. */
typedef void (*temper_on_widened)(const temper_widened *what, void *user);

typedef struct temper_widen {
    temper_on_widened tell; /* NULL: none */
    void *user;             /* for tell */
} temper_widen;

/* A look into a model file, without a device. */
typedef struct temper_file temper_file;

typedef struct temper_file_info {
    const char *format;       /* "GGUF v3", "Hugging Face directory" */
    const char *architecture; /* "" where the file has none */
    uint64_t bytes, alignment, parameters;
    uint64_t value_count, tensor_count;
} temper_file_info;

typedef struct temper_file_value {
    const char *key;  /* escaped where it holds control characters or no UTF-8 */
    const char *type; /* "uint32", "string", "array of string" */
    const char *text; /* the value; of an array its first elements */
    uint64_t count;   /* elements of an array, else 1 */
    bool is_string, is_array;
} temper_file_value;

typedef struct temper_file_tensor {
    const char *name; /* escaped like a key */
    const char *type; /* "Q4_1" */
    uint64_t dims[4]; /* innermost first */
    uint32_t dim_count;
    uint64_t offset, bytes;
    bool loadable; /* temper can put it on a device */
} temper_file_tensor;

/* How keys and values are kept. Each is rounded once, as it is stored; scores, softmax and sums are
 * f32 with every type. */
typedef enum temper_kv {
    TEMPER_KV_F32 = 0, /* not rounded */
    TEMPER_KV_F16 = 1, /* half the memory */
    TEMPER_KV_Q8 = 2,  /* int8 and an f32 scale per 32 values: 9 bits a value, 10 in heads of 64 */
} temper_kv;

/* Bytes of device memory that running the model takes, by part. */
typedef struct temper_memory_estimate {
    uint64_t weights, cache, scratch, total;
    uint32_t context; /* that the cache is for */
} temper_memory_estimate;

/* Opens and checks a GGUF file, a part of a split one or a Hugging Face directory: what a converter
 * would make of them. With `widen` (borrowed; else NULL) the types without a layout are F16 in it.
 * *out is returned-owned (temper_file_close). */
TEMPER_API temper_status temper_file_open(const char *path, const temper_widen *widen,
                                          temper_file **out, temper_error *err);
TEMPER_API void temper_file_close(temper_file *file);

/* Views until the next call on the file. Indices are below value_count and tensor_count. */
TEMPER_API temper_file_info temper_file_get_info(const temper_file *file);
TEMPER_API temper_status temper_file_get_value(temper_file *file, uint64_t index,
                                               temper_file_value *out, temper_error *err);
TEMPER_API temper_status temper_file_get_tensor(temper_file *file, uint64_t index,
                                                temper_file_tensor *out, temper_error *err);

/* What is to be run, and where. */
typedef struct temper_estimate_desc {
    temper_device *device; /* rows a step and the scratch of products depend on it. NULL: a GPU
                              whose products want none. Borrowed */
    uint32_t context;      /* as in temper_session_desc */
    temper_kv kv;          /* likewise */
    uint32_t max_rows;     /* as in temper_engine_desc */
} temper_estimate_desc;

/* What an engine of the file and a session would take, within 5 %. Reads the file's vectors, and
 * makes nothing. TEMPER_BAD_ARGUMENT as temper_session_open has it; TEMPER_UNSUPPORTED or
 * TEMPER_BAD_FILE when temper could not run the file. */
TEMPER_API temper_status temper_file_estimate(const temper_file *file,
                                              const temper_estimate_desc *desc,
                                              temper_memory_estimate *out, temper_error *err);

/* ---- engines -------------------------------------------------------------------------------- */

typedef struct temper_engine temper_engine;

/* Called while a model loads with the bytes done and in all. Return false to stop (TEMPER_STOPPED).
 */
typedef bool (*temper_progress)(uint64_t done, uint64_t total, void *user);

/* What products may round besides, for whoever asks for it: speed on some cards, and an error that
 * SPEED.md has a table of. Products that none of its kernels takes, or that f16 matrices with f32
 * sums compute faster, are computed as ever. */
typedef enum temper_lossy {
    TEMPER_LOSSY_NONE,
    TEMPER_LOSSY_INT8, /* inputs of products with quantised weights are signed bytes, 32 of them
                          under one f32 scale; the sums of 32 are exact, those across them f32 */
    TEMPER_LOSSY_F16_BLOCK, /* products of several rows: operands are f16, and so are sums inside a
                               block of 32 inputs; across blocks they are f32 */
    TEMPER_LOSSY_F16_SUMS,  /* the same, and f16 sums over all inputs */
} temper_lossy;

/* "int8", "f16-block", "f16-sums"; "" for TEMPER_LOSSY_NONE; NULL for what is no member. */
TEMPER_API const char *temper_lossy_name(temper_lossy lossy);

typedef struct temper_engine_desc {
    const char *model;        /* path of a GGUF file, of a part of a split one whose other parts lie
                                 beside it, or of a Hugging Face directory. Borrowed */
    const char *shape;        /* instead of a model: a known shape ("llama-1b") with random weights,
                                 to be timed. It has no tokenizer; its ids mean nothing. Borrowed */
    const char *shape_type;   /* of its weights, one that can be loaded; NULL: Q4_0. Borrowed */
    temper_device *device;    /* NULL: opens the best one. Shared, not taken over */
    bool vocabulary_only;     /* no device and no weights: tokenizing and chat rendering work */
    uint32_t max_rows;        /* most prompt rows computed in one step, 1 to 4096; 0: 512, 128
                                 where a CPU computes, or on matrix units as many, up to 2048, as
                                 take 512 MiB of scratch */
    bool exact;               /* no operand of a product or of attention is rounded. Else a GPU
                                 decodes quantised weights with inputs in 16-bit fixed point (off
                                 by about 4e-5), and one whose matrix units pass checks against f32
                                 reads prompts with f16 operands; sums stay f32 */
    temper_lossy lossy;       /* 0: nothing more is rounded than that. On any device, a CPU too;
                                 refused (TEMPER_BAD_ARGUMENT) together with `exact`, and
                                 (TEMPER_UNSUPPORTED) where no kernel of it runs: on a device
                                 without f16 */
    temper_progress progress; /* NULL: none */
    void *user;               /* for progress */
    /* Types without a layout are read as F16; NULL: they are refused. Borrowed. */
    const temper_widen *widen;
} temper_engine_desc;

/* Opens a model and loads its weights. *out is returned-owned (temper_engine_close). Errors:
 * TEMPER_IO; TEMPER_BAD_FILE for a damaged or contradictory file; TEMPER_UNSUPPORTED for an
 * architecture, type or tokenizer that temper does not know, by name; TEMPER_NO_DEVICE;
 * TEMPER_DEVICE_MEMORY. */
TEMPER_API temper_status temper_engine_open(const temper_engine_desc *desc, temper_engine **out,
                                            temper_error *err);
TEMPER_API void temper_engine_close(temper_engine *engine);

typedef struct temper_model_info {
    const char *architecture; /* "llama"; views as long as the engine lives */
    const char *name;         /* "" where the file has none */
    const char *tokenizer;    /* "gpt2 (smollm)" */
    uint64_t parameters;      /* number of weights */
    uint64_t file_bytes;
    uint32_t layers, width, ffn, q_heads, kv_heads, head_dim;
    uint32_t vocabulary;
    uint32_t context;         /* positions the model was trained for */
    uint32_t default_context; /* what a session gets unless it asks: at most 8192 */
    int32_t bos, eos;         /* -1: none */
    bool adds_bos;            /* the file asks for BOS before a text */
    bool has_chat_template;
    double load_seconds;      /* that the weights took from the file to the device */
    uint64_t load_host_bytes; /* of host memory that the loader had at one time at the most */
    const char *products; /* what the operands of a prompt's products are rounded to: "int8", "f16",
                             or "f32": not at all */
    temper_lossy lossy;   /* as asked for */
} temper_model_info;

/* Facts about the model; a view as long as the engine lives. Fields of the network are 0 in a
 * vocabulary-only engine of a file that lacks them. */
TEMPER_API const temper_model_info *temper_engine_info(const temper_engine *engine);

/* A matrix that the network multiplies with, as it lies on the device. */
typedef struct temper_product {
    uint64_t n, k;      /* outputs and inputs; what is fused is one matrix */
    char format[24];    /* "q4 f16 32": layout, scales, group */
    uint32_t most_rows; /* of the inputs at once */
    uint32_t count;     /* matrices of this kind */
} temper_product;

/* Fills up to `capacity` rows, one a kind of matrix; returns how many kinds there are. */
TEMPER_API uint32_t temper_engine_products(const temper_engine *engine, temper_product *rows,
                                           uint32_t capacity);

/* The engine's device (a view), NULL when it is vocabulary-only. */
TEMPER_API temper_device *temper_engine_device(const temper_engine *engine);

/* ---- text to ids and back ------------------------------------------------------------------- */

enum {
    TEMPER_ADD_BOS = 1, /* put BOS first, unless the text already begins with it; an error where the
                           vocabulary has none */
    TEMPER_AUTO_BOS = 2,      /* the same, but only where the file asks for it */
    TEMPER_PARSE_SPECIAL = 4, /* "<|im_end|>" in the text is that token, not its letters */
};

/* A list of ids. Zero it before the first use; ids is returned-owned (temper_free). */
typedef struct temper_tokens {
    uint32_t *ids;
    size_t count;
} temper_tokens;

/* Tokenizes `length` bytes of UTF-8 text (SIZE_MAX: up to its NUL) into *out, whatever it held
 * before being forgotten. flags: TEMPER_ADD_BOS and so on. Bytes that are no UTF-8 are tokenized as
 * they are. */
TEMPER_API temper_status temper_tokenize(const temper_engine *engine, const char *text,
                                         size_t length, uint32_t flags, temper_tokens *out,
                                         temper_error *err);

/* The bytes that an id stands for, `*length` of them: a view as long as the engine lives; special
 * tokens give their name. NULL for an id that is none. One id may be part of a character only. */
TEMPER_API const char *temper_piece(const temper_engine *engine, uint32_t id, size_t *length);

/* True for the ids that end an answer. */
TEMPER_API bool temper_ends(const temper_engine *engine, uint32_t id);

typedef struct temper_message {
    const char *role;    /* "system", "user" or "assistant" */
    const char *content; /* UTF-8 */
} temper_message;

/* Renders messages with the model's own chat template, ready for an answer, and tokenizes the
 * result: exactly one BOS where there is one. Errors: TEMPER_UNSUPPORTED when the file has no
 * template; TEMPER_TEMPLATE with the template's own words when it refuses the messages. */
TEMPER_API temper_status temper_chat(const temper_engine *engine, const temper_message *messages,
                                     size_t count, temper_tokens *out, temper_error *err);

/* ---- sessions ------------------------------------------------------------------------------- */

typedef struct temper_session temper_session;

enum { TEMPER_MAX_SPECULATION = 16 };

/* Speculation: tokens are proposed ahead, and one pass of the model checks several of them. It
 * never changes the text: each token is still the one that the model chooses for its place, by the
 * seed and the place alone; only how many a pass brings depends on what was proposed. (Passes of
 * one row and of several may round differently: where the two best tokens are closer than that,
 * either may come out, as between any two kernels.) How many are proposed adapts to how often they
 * are right: bad proposals cost a few passes at first, then less and less. */
typedef struct temper_speculation {
    uint32_t tokens;      /* proposed at once at most, 0 to TEMPER_MAX_SPECULATION; 0: off */
    temper_engine *draft; /* a smaller model with the same vocabulary, on the same device, proposes;
                             shared, not taken over. NULL: the text itself does, by what followed
                             the last tokens when they stood there before */
} temper_speculation;

typedef struct temper_session_desc {
    uint32_t context; /* most ids the session holds, up to the model's own; 0: the default */
    temper_kv kv;     /* of the session, and of its draft model */
    temper_speculation speculation;
} temper_session_desc;

/* Opens a session and reserves its KV cache. *out is returned-owned (temper_session_close). Errors:
 * TEMPER_BAD_ARGUMENT for a context that the model was not trained for, for a `kv` that is none,
 * and for a draft model that does not fit, naming the first token that differs; TEMPER_UNSUPPORTED
 * where a layer's cache is more than the device binds; TEMPER_DEVICE_MEMORY. */
TEMPER_API temper_status temper_session_open(temper_engine *engine, const temper_session_desc *desc,
                                             temper_session **out, temper_error *err);
TEMPER_API void temper_session_close(temper_session *session);

/* Positions the session can hold. */
TEMPER_API uint32_t temper_session_context(const temper_session *session);

enum { TEMPER_MAX_BIASES = 1024, TEMPER_MAX_LOGPROBS = 32 };

/* A number added to a token's logit before anything else; -infinity makes it impossible. */
typedef struct temper_logit_bias {
    uint32_t id;
    float bias;
} temper_logit_bias;

/* How the next token is chosen. All fields zero: always the likeliest (temperature 0). */
typedef struct temper_sampling {
    float temperature;    /* 0 and up to 1e-6: greedy; finite, not negative */
    uint32_t top_k;       /* only the k likeliest; 0: all */
    float top_p;          /* only the likeliest that together reach p, 0 to 1; 0 here: off (as 1) */
    float min_p;          /* only those at least min_p times as likely as the likeliest; 0 to 1 */
    float repeat_penalty; /* weakens tokens that stand in the window: above 0; 0 or 1: off */
    float presence_penalty;  /* taken from the logit of a token that stands there; 0: off */
    float frequency_penalty; /* taken once for each time it does; 0: off */
    int64_t penalty_window;  /* how many tokens back, the prompt's too; 0: 64; below 0: all */
    const temper_logit_bias *biases; /* bias_count of them, no id twice, at most
                                        TEMPER_MAX_BIASES. Borrowed */
    size_t bias_count;
    uint64_t seed; /* the same seed gives the same text on the same device */
} temper_sampling;

/* A token and the natural logarithm of its probability, after biases and penalties, before the
 * filters and the temperature. */
typedef struct temper_logprob {
    uint32_t id;
    float logprob;
} temper_logprob;

typedef enum temper_finish {
    TEMPER_FINISH_STOP,     /* the model ended its answer, or a stop string appeared */
    TEMPER_FINISH_LENGTH,   /* max_tokens, or the end of the context */
    TEMPER_FINISH_CANCELLED /* the callback asked to stop */
} temper_finish;

/* A piece of the answer, whole characters only; callback-only. Return false to stop. The pieces of
 * up to four tokens come together where a GPU chooses them in one submit (a small network, one
 * answer). */
typedef bool (*temper_on_text)(const char *text, size_t length, void *user);

/* Called while a prompt is computed, with the ids done and in all. Return false to stop. */
typedef bool (*temper_on_prompt)(size_t done, size_t total, void *user);

typedef struct temper_request {
    temper_tokens prompt; /* the whole text so far, not only what is new: the session reuses what it
                             has in common with the last call. At least one id. Borrowed */
    uint64_t max_tokens;  /* 0: until the context is full */
    bool no_tokens;       /* compute the prompt only */
    bool logprobs;        /* log-probabilities of the tokens chosen ... */
    uint32_t best;        /* ... and of the likeliest at each place, 0 to TEMPER_MAX_LOGPROBS */
    temper_sampling sampling;
    const char *const *stops; /* stop_count strings that end the answer; not part of it. Borrowed */
    size_t stop_count;
    temper_on_text on_text;     /* NULL: none */
    temper_on_prompt on_prompt; /* NULL: none */
    void *user;                 /* for both */
} temper_request;

typedef struct temper_result {
    const uint32_t *tokens; /* the ids generated, without the one that ended the answer: a view
                               until the session's next call */
    size_t token_count;
    size_t prompt_tokens; /* ids in the prompt */
    size_t reused_tokens; /* of these, how many were still in the cache */
    temper_finish finish;
    const temper_logprob *logprobs; /* [token_count][1 + best]: the chosen token, then the
                                       likeliest; NULL unless asked for. A view like tokens */
    double prompt_seconds;          /* from the call to the first token */
    double decode_seconds;          /* from the first token to the last */
    uint64_t passes;                /* of the model that chose tokens: with speculation fewer than
                                       tokens */
    uint64_t proposed, accepted; /* tokens that speculation proposed, and of these the right ones */
} temper_result;

/* Continues the prompt. Errors: TEMPER_CONTEXT_FULL for a prompt that does not fit (never cut in
 * silence); TEMPER_BAD_ARGUMENT for sampling values out of range, by name; TEMPER_NOT_FINITE when
 * the model's scores are no numbers; TEMPER_DEVICE_*. Text that was handed out before an error
 * stays valid. */
TEMPER_API temper_status temper_session_generate(temper_session *session,
                                                 const temper_request *request,
                                                 temper_result *result, temper_error *err);

/* Computes the prompt (reusing what is cached) and copies the logits of the token after it:
 * `vocabulary` floats to `logits`. */
TEMPER_API temper_status temper_session_logits(temper_session *session, temper_tokens prompt,
                                               float *logits, temper_error *err);

/* The same for every place of the prompt from `first` on: logits[i] are those of the token after
 * ids[first + i], `vocabulary` floats each, prompt.count - first of them. first < prompt.count. */
TEMPER_API temper_status temper_session_logits_from(temper_session *session, temper_tokens prompt,
                                                    size_t first, float *logits, temper_error *err);

/* Negative log-likelihoods, in nats: nll[i] = -log p(ids[first + i] | ids[0 .. first + i - 1]) for
 * i from 0 to count - first - 1. 1 <= first < count. nll has count - first floats. */
TEMPER_API temper_status temper_session_score(temper_session *session, temper_tokens prompt,
                                              size_t first, float *nll, temper_error *err);

/* ---- batches -------------------------------------------------------------------------------- */

/* Many answers in the making at once: what a server stands on. The weights are read once for all of
 * them, so that sixteen answers take little longer than one.
 *
 *     temper_batch_open(engine, &(temper_batch_desc){.sequences = 16}, &batch, &err);
 *     temper_batch_submit(batch, &request, on_done, &id, &err);      // any thread
 *     while (temper_batch_step(batch, &more, &err) == TEMPER_OK && more)
 *         ;                                                          // the thread of the device
 *
 * Each answer is the one that a session would give: requests come and go while others are in the
 * middle, each with its own sampling, seed, stops and callbacks. Prompts are read in chunks beside
 * the tokens of the others, so that nobody waits long for a newcomer.
 *
 * Room. `sequences` requests are answered at once; `waiting` more wait, first come, first served;
 * one more is refused with TEMPER_FULL. The keys and values of all answers share a pool of blocks
 * of 256 positions, which is why it may be smaller than all contexts together. When it is full, the
 * youngest answer gives its blocks to the older ones and is read again when there is room: it takes
 * longer, and says the same. The text of an answer that has ended stays in the pool as long as
 * nobody needs the room: a request that begins with it (the next turn of a chat) reuses it.
 *
 * Threads. temper_batch_submit, temper_batch_cancel and temper_batch_get_stats may be called from
 * any thread at any time, from callbacks too. temper_batch_step and temper_batch_close belong to
 * the thread that drives the device; every callback runs inside of them, on that thread, and must
 * not call a session or a batch's step or close (TEMPER_BUSY). A thread that has nothing to step
 * sleeps until it is told of a submit: how, is the caller's. Sessions of the same engine may be
 * used between steps.
 *
 * Failures. What is wrong with one request ends that request. A pass that fails ends all requests
 * that are running, and temper_batch_step says so too; after a lost device all that are waiting end
 * as well, and nothing is taken any more. Every request that was taken ends with exactly one
 * on_done. */
typedef struct temper_batch temper_batch;

typedef struct temper_batch_desc {
    uint32_t sequences;   /* answers at once, 1 to 256 and at most the engine's max_rows; 0: 16 */
    uint32_t context;     /* most ids of one of them, up to the model's own; 0: the default */
    temper_kv kv;         /* of the pool, and of the draft model */
    uint64_t positions;   /* in the pool, at least one context; 0: a quarter of all contexts, and
                             1024 for each sequence at least */
    uint32_t waiting;     /* requests that may wait; 0: 256 */
    uint32_t prompt_rows; /* of prompts in a pass while answers are in the middle, 1 to the engine's
                             max_rows: more let newcomers begin earlier and the others wait longer;
                             0: a quarter of max_rows */
    temper_speculation speculation;
} temper_batch_desc;

/* Opens a batch and reserves its pool. *out is returned-owned (temper_batch_close). Errors as
 * temper_session_open. */
TEMPER_API temper_status temper_batch_open(temper_engine *engine, const temper_batch_desc *desc,
                                           temper_batch **out, temper_error *err);

/* Ends what is left with TEMPER_FINISH_CANCELLED, then closes. */
TEMPER_API void temper_batch_close(temper_batch *batch);

/* How a request ended. `result` and `failure` are callback-only; failure->status is TEMPER_OK
 * unless it failed. The request's `user` comes back. */
typedef void (*temper_on_done)(uint64_t id, const temper_result *result,
                               const temper_error *failure, void *user);

/* Takes a request: a copy of it, the ids of its prompt, its biases and its stops among it. *id (may
 * be NULL) names it, 1 and up. on_done may be NULL. Errors, at once and without on_done: as
 * temper_session_generate has them for the request's values; TEMPER_FULL; TEMPER_DEVICE_* after a
 * failure of the device. */
TEMPER_API temper_status temper_batch_submit(temper_batch *batch, const temper_request *request,
                                             temper_on_done on_done, uint64_t *id,
                                             temper_error *err);

/* Asks that a request ends with TEMPER_FINISH_CANCELLED at the next step; in a callback, after what
 * this step hands out. False when it has ended already. */
TEMPER_API bool temper_batch_cancel(temper_batch *batch, uint64_t id);

/* Takes what waits, submits a pass for all that are running, and hands out what the pass before it
 * chose. *more (may be NULL): whether any request is left. */
TEMPER_API temper_status temper_batch_step(temper_batch *batch, bool *more, temper_error *err);

typedef struct temper_batch_stats {
    uint32_t running, waiting;    /* requests, now */
    uint32_t blocks, free_blocks; /* of the pool, and those that no running request holds */
    uint64_t finished, tokens;    /* requests that have ended, and the tokens of their answers */
    uint64_t passes;              /* of the model */
    uint64_t evictions;           /* times that a running request gave its blocks away */
    uint64_t proposed, accepted;  /* of requests that have ended: see temper_result */
} temper_batch_stats;

TEMPER_API temper_batch_stats temper_batch_get_stats(temper_batch *batch);

/* ---- making files --------------------------------------------------------------------------- */

/* All write beside their destination, sync, then rename: after a failure, a full disk or a stop by
 * `progress` (NULL: none) what was there before is there still, and nothing else. */

/* Writes a Hugging Face directory, or a split model given by one of its parts, as one GGUF file.
 * Matrices keep their types (F32, F16, BF16); norms and biases become F32. With `widen` (borrowed;
 * else NULL) the types without a layout become F16; else they stay as they are. */
TEMPER_API temper_status temper_convert(const char *from, const char *to, const temper_widen *widen,
                                        temper_progress progress, void *user, temper_error *err);

/* Writes a known shape ("llama-1b") with random weights of a type (NULL: Q4_0) as a GGUF file, to
 * be timed: its vocabulary means nothing. TEMPER_UNSUPPORTED for shapes of other architectures than
 * llama. */
TEMPER_API temper_status temper_write_shape(const char *shape, const char *type, const char *to,
                                            temper_progress progress, void *user,
                                            temper_error *err);

typedef struct temper_quantize_result {
    uint64_t bytes;            /* of the new file */
    uint32_t tensors;          /* in it */
    uint32_t fallbacks;        /* of these, in another type since their rows are no multiple of a
                                  block: */
    char fallback_tensor[128]; /* the first one, */
    char fallback_type[16];    /* and its type */
    uint32_t requantized;      /* made of weights that were quantised before */
} temper_quantize_result;

/* Writes a model in another type: F16, Q4_0, Q4_1, Q8_0, Q4_K or Q6_K. Norms, biases and other
 * vectors are F32. The matrix that makes the logits (output.weight, or token_embd.weight where it
 * serves as the head) is Q6_K under the types of four bits. Rows that are no multiple of 256 take
 * Q5_0 instead of Q4_K and Q8_0 instead of Q6_K; rows that are no multiple of 32 take F16. Any type
 * that temper loads is read, and with `widen` (borrowed; else NULL) those without a layout too, by
 * way of F16. Errors: TEMPER_BAD_ARGUMENT for another type, TEMPER_BAD_FILE for a value that is not
 * finite or too large for the type. */
TEMPER_API temper_status temper_quantize(const char *from, const char *to, const char *type,
                                         const temper_widen *widen, temper_progress progress,
                                         void *user, temper_quantize_result *result,
                                         temper_error *err);

#ifdef __cplusplus
}
#endif

#endif
