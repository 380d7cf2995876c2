/*
 * context.h - what the case files of this room share: inputs, buffers, running, comparing.
 *
 * A case runs straight through without looking at errors: after the first failure every helper does
 * nothing, and check_run reports it. Buffers and blocks belong to the context and go with it.
 */
#ifndef TEMPER_CHECK_CONTEXT_H
#define TEMPER_CHECK_CONTEXT_H

#include "base/dtype.h"
#include "check/check.h"
#include "op/op.h"
#include "op/rows.h"

enum { CHECK_BUFFERS = 32, CHECK_BLOCKS = 64, CHECK_WEIGHTS = 4 };

typedef struct check_context {
    gpu_device *device;
    const check_timing *timing;
    bool time;
    bool only_preferred, abandoned; /* check_only_preferred, and that the case was left out */
    check_result *result;
    error *err;
    temper_status status;
    gpu_buffer *buffers[CHECK_BUFFERS];
    uint32_t buffer_count;
    void *blocks[CHECK_BLOCKS];
    uint32_t block_count;
    op_weight *weights[CHECK_WEIGHTS];
    uint32_t weight_count;
} check_context;

typedef struct check_group {
    const char *op;
    uint32_t (*count)(void);
    void (*describe)(uint32_t i, check_case *out); /* name and cost */
    void (*run)(check_context *c, uint32_t i);
} check_group;

extern const check_group check_matmul, check_products, check_product_edges, check_halves,
    check_agreement, check_fused, check_lookup, check_rmsnorm, check_silu_gate, check_add,
    check_layernorm, check_head_norm, check_gelu_gate, check_gelu, check_bias, check_add_positions,
    check_softcap, check_rope_store, check_attention, check_step_of_attention,
    check_attention_agreement, check_sample, check_penalize, check_bias_logits, check_best,
    check_nll, check_gather_ids, check_lossy;

/* ---- memory and inputs ----------------------------------------------------------------------- */

/* Zeroed host memory; NULL only after a failure. */
void *check_alloc(check_context *c, uint64_t count, uint64_t size);

/* ((i % 17) - 8) / 16 over the flat index: the ramp of the golden cases. */
float *check_ramp(check_context *c, uint64_t count);

/* Uniform in [-1, 1) by Philox of (seed, index). */
float *check_random(check_context *c, uint64_t count, uint32_t seed);
uint32_t check_random_word(uint32_t seed, uint64_t index);
float check_random_float(uint32_t seed, uint64_t index);

/* A buffer with these bytes. */
gpu_view check_input(check_context *c, const void *bytes, uint64_t size);

/* A buffer of NaNs that no op makes: what is not written shows. */
gpu_view check_output(check_context *c, uint64_t size);

typedef struct check_weight {
    op_weight *weight;
    float *values; /* dequantised by base, [n, k] */
} check_weight;

/* The name of a format and the formats that have cases. */
typedef struct check_format {
    const char *name;
    weight_format format;
} check_format;

extern const check_format check_formats[];
extern const uint32_t check_format_count;
const weight_format *check_format_named(const char *name);

/* A weight of random values around +-1 (plain layouts) or +-0.16 (quantised ones). */
check_weight check_make_weight(check_context *c, weight_format format, uint64_t n, uint64_t k,
                               uint32_t seed);

/* The same from given planes of weight_stride(n). */
check_weight check_upload_weight(check_context *c, weight_format format, uint64_t n, uint64_t k,
                                 weight_planes planes);

/* Zeroed planes of weight_stride(n). */
weight_planes check_planes(check_context *c, weight_format format, uint64_t n, uint64_t k);

/* ---- running --------------------------------------------------------------------------------- */

/* False, and the case is skipped, where the device cannot run the row; NULL: a failure. */
bool check_can_run(check_context *c, const op_kernel_row *row);

/* Records, submits, waits, and copies `out` to a new host block; with c->time also times it: flops
 * and bytes are what one recording computes and must move. NULL after a failure. */
void *check_go(check_context *c, check_record record, void *user, gpu_view out, double flops,
               double bytes);

/* Reads a view back. */
void *check_read(check_context *c, gpu_view view);

/* The recording must be refused with this status and a text that holds `word`. */
void check_refused(check_context *c, check_record record, void *user, temper_status status,
                   const char *word);

/* ---- comparing ------------------------------------------------------------------------------- */

/* Largest |got - want| over the root mean square of want; NaN and infinities must meet their
 * equals. */
void check_close(check_context *c, const float *got, const double *want, uint64_t count,
                 double limit);

/* An element fails when it is off by more than `absolute` and by more than `relative` of want; the
 * error is the worst element's share of its bound, the limit 1. */
void check_bounds(check_context *c, const float *got, const double *want, uint64_t count,
                  double absolute, double relative);

/* Bit for bit, every NaN being one. */
void check_same(check_context *c, const uint32_t *got, const uint32_t *want, uint64_t count);

void check_that(check_context *c, bool right, const char *format, ...) ERROR_PRINTF(3, 4);

#endif
