/*
 * op.h - the operations of a decoder on the GPU. Every call checks its arguments, chooses a kernel
 * from the op's table of rows (rows.h) and records dispatches; nothing here waits, allocates or
 * knows a model.
 *
 *     op_weight *w;
 *     op_weight_create(device, weight_format_of(DTYPE_Q4_1), n, k, "blk.0.ffn_down", &w, &err);
 *     for (rows...) { weight_repack_rows(...); op_weight_write_rows(w, row, 64, planes, &err); }
 *     gpu_recorder *rec = gpu_record_begin(device);
 *     op_rmsnorm(rec, h, norm, x, rows, cols, eps);
 *     op_matmul(rec, w, x, y, rows, OP_WRITE);
 *     gpu_submit(rec, &ticket, &err);              // wrong arguments above come out here
 *
 * Rules for all ops
 *  - Activations are f32, row-major, dense. A view may be larger than the tensor; never smaller.
 *    Its offset is a multiple of the device's storage_alignment.
 *  - An output never shares a buffer with an input of the same call (WebGPU forbids it, ranges
 *    apart or not).
 *  - rows == 0, or any other length of 0, records nothing.
 *  - Arguments that the world decides (shapes of a model file) are refused through gpu_record_fail
 *    with both numbers.
 *  - Views are borrowed until the recorder is submitted. Buffers are never created here but by
 *    op_weight_create.
 *  - Long work is cut into dispatches of bounded length (OP_DISPATCH_WORK); grids above the
 *    device's max_workgroups fold into a second dimension.
 *  - One pass through gpu_record_prepare with one row and one with the most there will be asks for
 *    every pipeline that any row count or length needs later.
 *  - NaN in an input reaches every output that depends on it.
 *
 * Letters: rows = tokens of this step; N output channels, K input channels of a weight; D head_dim;
 * Hq, Hkv query and key/value heads; V vocabulary.
 */
#ifndef TEMPER_OP_OP_H
#define TEMPER_OP_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"
#include "gpu/gpu.h"

enum {
    OP_CACHE_BLOCK = 256,  /* positions a block of the KV cache */
    OP_MAX_HEAD_DIM = 256, /* head_dim is a multiple of 4 up to this */
    /* Multiply-adds that one dispatch may take on a software device, eight times that elsewhere. */
    OP_DISPATCH_WORK = 1 << 28,
};

#define OP_NO_TOKEN UINT32_C(0xffffffff) /* what op_sample writes where no token can be chosen */

/* ---- weights --------------------------------------------------------------------------------- */

typedef struct op_weight_part {
    uint64_t row0,
        rows;           /* rows [row0, row0 + rows) of the matrix; row0 a multiple of WEIGHT_ROWS */
    uint64_t stride;    /* weight_stride(rows) */
    gpu_buffer *data;   /* owned; each of weight_plane_words words */
    gpu_buffer *high;   /* owned; NULL but for Q5 and Q6 */
    gpu_buffer *scales; /* owned; NULL for SCALE_NONE */
} op_weight_part;

/* A matrix [N, K] in a layout of base/dtype.h. Split by rows so that each plane of a part fits the
 * device's max_storage_binding and max_buffer_size. */
typedef struct op_weight {
    weight_format format;
    uint64_t n, k;
    const char *label;  /* owned copy */
    gpu_device *device; /* one reference */
    bool halves;        /* f16 holds all rows written so far (weight_suits_f16) */
    double largest;     /* what none of their elements passes; means something where f16 does */
    uint32_t part_count;
    op_weight_part parts[]; /* ascending row0, no gaps */
} op_weight;

/* Creates a zeroed weight on the device (purpose GPU_PURPOSE_WEIGHTS). Formats: F32, F16, BF16 with
 * any K; Q8 with SCALE_F16; Q4, Q5 and Q6 with every scale; group a multiple of 8 that divides K,
 * and for the K scales K a multiple of 256 and group 16 or, with minimums, 32. *out is owned by the
 * caller (op_weight_destroy). Errors: TEMPER_BAD_ARGUMENT for an empty shape or an impossible
 * format, TEMPER_UNSUPPORTED when WEIGHT_ROWS rows pass the device's limits, TEMPER_NO_MEMORY,
 * TEMPER_DEVICE_MEMORY. */
temper_status op_weight_create(gpu_device *device, weight_format format, uint64_t n, uint64_t k,
                               const char *label, op_weight **out, error *err);

/* Queues rows [row0, row0 + rows) for upload from planes of weight_stride(rows), borrowed for the
 * call. row0 is even, and so is rows unless they are the last ones (assert). A whole part is one
 * copy a plane, anything less one for each line of its tables: many rows at a time are best. */
temper_status op_weight_write_rows(op_weight *weight, uint64_t row0, uint64_t rows,
                                   weight_planes planes, error *err);

/* The same from the block of an upload that is next to be sent (gpu.h): the planes lie there one
 * after another from its first byte on. `largest` is what weight_suits_f16 says of the rows,
 * INFINITY where f16 does not hold them. */
void op_weight_upload_rows(op_weight *weight, uint64_t row0, uint64_t rows, gpu_upload *upload,
                           double largest);

/* A weight without its planes, on no device: what it would be like. */
temper_status op_weight_outline(weight_format format, uint64_t n, uint64_t k, const char *label,
                                op_weight **out, error *err);

void op_weight_destroy(op_weight *weight); /* NULL is fine */

/* Bytes on the device of a weight of this format, all planes. */
uint64_t op_weight_bytes(weight_format format, uint64_t n, uint64_t k);

/* ---- ops on weights -------------------------------------------------------------------------- */

/* out[r, :] = scale * W[ids[r], :]. ids: u32 [rows]; out: f32 [rows, K]. An id >= N (OP_NO_TOKEN of
 * a failed sampler) gives a row of NaN: nothing is read out of bounds. */
void op_embed(gpu_recorder *rec, const op_weight *weight, gpu_view ids, gpu_view out, uint32_t rows,
              float scale);

/* out = rows [row0, row0 + rows) of W as f32 [rows, K], bit for bit as weight_dequantize_row. */
void op_dequantize(gpu_recorder *rec, const op_weight *weight, uint64_t row0, uint32_t rows,
                   gpu_view out);

/* ids[r] = sources[r]; where that is OP_CHOSEN + i, chosen[i]: ids that the host knows among ids
 * that a step before chose. A place i past the end of `chosen` gives OP_NO_TOKEN. sources, ids: u32
 * [rows]; ids is a buffer of its own. */
#define OP_CHOSEN UINT32_C(0x80000000)
void op_gather_ids(gpu_recorder *rec, gpu_view sources, gpu_view chosen, gpu_view ids,
                   uint32_t rows);

typedef enum op_mode {
    OP_WRITE,      /* y  = x W^T */
    OP_ACCUMULATE, /* y += x W^T: the residual stream */
} op_mode;

/* x: f32 [rows, K]; y: f32 [rows, N], read too with OP_ACCUMULATE. All formats, any rows, N, K.
 * Sums in f32. */
void op_matmul(gpu_recorder *rec, const op_weight *weight, gpu_view x, gpu_view y, uint32_t rows,
               op_mode mode);

/* What a product may use. */
typedef struct op_products {
    gpu_view scratch; /* op_matmul_scratch_bytes or more, its contents mean nothing after: inputs in
                         f16; buffer NULL: none, and so no f16 */
    gpu_view sums; /* the same, for sums of a product that is split along K; a buffer of its own */
    bool fixed;    /* the operand of a single row may be 16-bit fixed point: error about 4e-5 of
                      the root mean square */
    bool half;     /* operands may be rounded to f16 (sums stay f32): error about 3e-4 of the
                      root mean square. Set it only where op_matmul_check says so; a weight that
                      f16 does not hold is multiplied in f32 all the same */
    temper_lossy lossy; /* the kernels that this opens come before all others, on any device; set
                           it where op_matmul_check_lossy accepts it */
    bool half_sums;     /* sums of f16 on matrix units too: what that said */
} op_products;

/* Bytes for products of up to so many rows with a weight; 0 where none would be used. half, lossy:
 * as in op_products. */
typedef struct op_product_bytes {
    uint64_t scratch, sums;
} op_product_bytes;

op_product_bytes op_matmul_scratch_bytes(gpu_device *device, weight_format format, uint64_t n,
                                         uint64_t k, uint32_t rows, bool half,
                                         temper_lossy lossy);

/* Sets *half to whether the device's f16 products agree with its f32 products, at several K. The
 * first call on a device computes and waits; what it finds stays with the device, and a refusal is
 * logged. False on devices without matrix units. */
temper_status op_matmul_check(gpu_device *device, bool *half, error *err);

/* Whether a device runs a kernel that `lossy` opens: TEMPER_OK, or TEMPER_UNSUPPORTED with what it
 * lacks. Sums in f16 on matrix units are compared with f32 as op_matmul_check does, the first time;
 * *half_sums says whether they are good. */
temper_status op_matmul_check_lossy(gpu_device *device, temper_lossy lossy, bool *half_sums,
                                    error *err);

/* As op_matmul into columns [column, column + N) of a wider y [rows, width]: how weights of
 * different types share an output. column + N <= width < 2^32 (assert). The other columns stay as
 * they are. with: borrowed for the call; NULL: nothing. */
void op_matmul_columns(gpu_recorder *rec, const op_weight *weight, gpu_view x, gpu_view y,
                       uint32_t rows, uint64_t column, uint64_t width, op_mode mode,
                       const op_products *with);

/* y = rmsnorm(x) W^T, or y += the same. x, h: f32 [rows, K]; norm: f32 [K]; y: f32 [rows, N]. h is
 * scratch: what is in it after means nothing. `with` as above. */
void op_rmsnorm_matmul(gpu_recorder *rec, gpu_view x, gpu_view norm, float eps, gpu_view h,
                       const op_weight *weight, gpu_view y, uint32_t rows, op_mode mode,
                       const op_products *with);

typedef enum op_gate { OP_GATE_NONE, OP_GATE_SILU, OP_GATE_GELU } op_gate; /* gelu: its tanh form */

/* A gated pair of products, F wide between them. */
typedef struct op_gated {
    gpu_view norm; /* f32 [K] */
    float eps;
    const op_weight *gate_up;       /* [2 F, K]: the gate, then what it multiplies */
    op_gate gate;                   /* not OP_GATE_NONE */
    const op_weight *down;          /* [N, F] */
    gpu_view h, gate_products, act; /* scratch: f32 [rows, K], [rows, 2 F], [rows, F] */
} op_gated;

/* y (+)= (gate(a) * b) Wdown^T with (a, b) = rmsnorm(x) Wgate_up^T. x: f32 [rows, K]; y: f32 [rows,
 * N]. Where the device has it, the gate is a part of the first product (one row) or of the second
 * (many). */
void op_gated_matmul(gpu_recorder *rec, gpu_view x, const op_gated *gated, gpu_view y,
                     uint32_t rows, op_mode mode, const op_products *with);

/* ---- norms, gates, sums ---------------------------------------------------------------------- */

/* y[r, c] = x[r, c] / sqrt(mean_c(x[r, c]^2) + eps) * weight[c]. x, y: [rows, cols]; weight: f32
 * [cols]. */
void op_rmsnorm(gpu_recorder *rec, gpu_view x, gpu_view weight, gpu_view y, uint32_t rows,
                uint32_t cols, float eps);

/* The same added to y: a norm after a product, on its way into the residual stream. */
void op_rmsnorm_add(gpu_recorder *rec, gpu_view x, gpu_view weight, gpu_view y, uint32_t rows,
                    uint32_t cols, float eps);

/* y[r, c] = (x[r, c] - m) / sqrt(mean_c((x[r, c] - m)^2) + eps) * weight[c] + bias[c], m the mean
 * of row r. Shapes as op_rmsnorm; bias: f32 [cols]. */
void op_layernorm(gpu_recorder *rec, gpu_view x, gpu_view weight, gpu_view bias, gpu_view y,
                  uint32_t rows, uint32_t cols, float eps);

typedef struct op_heads {
    uint32_t rows;
    uint32_t q_heads, kv_heads, head_dim;
} op_heads;

/* rmsnorm of every q head and every k head by itself, in place. qkv: f32 [rows, (Hq + 2 Hkv) D]: q
 * heads, then k heads, then v heads, which stay. weights: f32 [2, D]: of q, then of k. */
void op_head_norm(gpu_recorder *rec, gpu_view qkv, gpu_view weights, const op_heads *heads,
                  float eps);

/* out[r, i] = silu(gate_up[r, i]) * gate_up[r, F + i], silu(g) = g / (1 + exp(-g)). gate_up: [rows,
 * 2 F]. */
void op_silu_gate(gpu_recorder *rec, gpu_view gate_up, gpu_view out, uint32_t rows, uint32_t f);

/* The same with gelu in its tanh form: g / 2 (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3))). */
void op_gelu_gate(gpu_recorder *rec, gpu_view gate_up, gpu_view out, uint32_t rows, uint32_t f);

/* out[i] = gelu(x[i]), the same function. */
void op_gelu(gpu_recorder *rec, gpu_view x, gpu_view out, uint64_t count);

/* out[i] = a[i] + b[i]. a and b may be the same view; out is a buffer of its own. */
void op_add(gpu_recorder *rec, gpu_view a, gpu_view b, gpu_view out, uint64_t count);

/* y[r, c] += bias[c]. y: [rows, cols]; bias: f32 [cols]. */
void op_bias(gpu_recorder *rec, gpu_view y, gpu_view bias, uint32_t rows, uint32_t cols);

/* x[r, c] += table[position of row r, c]: learned positions. x: [rows, cols]; table: f32
 * [positions, cols]; row_info: op_row_info [rows]. A position past the table gives a row of NaN. */
void op_add_positions(gpu_recorder *rec, gpu_view x, gpu_view table, gpu_view row_info,
                      uint32_t rows, uint32_t cols, uint32_t positions);

/* x[i] = cap * tanh(x[i] / cap), in place; cap above 0. */
void op_softcap(gpu_recorder *rec, gpu_view x, uint64_t count, float cap);

/* ---- rope and attention ---------------------------------------------------------------------- */

/* One rotary frequency as the GPU wants it: turns a position, inv_freq / (2 pi) modulo 1, as a
 * fraction of 64 bits. position * turns modulo 1 is then exact in integers, so that the angle is as
 * good at position 131071 as at 1. inv_freq: radians a position, already divided by the model's
 * factors. Write [rot / 2] of these to a buffer. */
typedef struct op_turns {
    uint32_t low, high;
} op_turns;

op_turns op_turns_of(double inv_freq);

/* What a row of a step is: its position, and where its sequence's blocks start in the block table.
 */
typedef struct op_row_info {
    uint32_t position;
    uint32_t table_offset; /* block_table[table_offset + position / OP_CACHE_BLOCK] is the block of
                              `position` */
} op_row_info;

/* How a cache keeps its numbers. */
typedef enum op_cache_type {
    OP_CACHE_F32,
    OP_CACHE_F16, /* rounded to half; finite numbers beyond +-65504 are held there */
    OP_CACHE_Q8,  /* int8 times an f32 scale, the largest magnitude / 127, per 32 values of a row;
                     NaN or infinity among them makes all of them NaN */
    OP_CACHE_TYPES
} op_cache_type;

enum { OP_CACHE_GROUP = 32 }; /* values under one scale of OP_CACHE_Q8 */

/* The blocked cache of one layer: K and V, one buffer each, [block][Hkv][OP_CACHE_BLOCK] rows of D
 * values. A row is whole words of 16 bytes, so that a lane can store its own without touching
 * another's: the values, with OP_CACHE_Q8 then its scales, f32 [ceil(D / OP_CACHE_GROUP)], then
 * zeros. A zeroed buffer is a cache of zeros. */
uint32_t op_cache_row_words(op_cache_type type, uint32_t head_dim); /* of 16 bytes */

/* Bytes of one block, K or V alone. */
uint64_t op_cache_block_bytes(op_cache_type type, uint32_t kv_heads, uint32_t head_dim);

const char *op_cache_type_name(op_cache_type type); /* "f32", "f16", "q8" */

typedef struct op_rope_shape {
    uint32_t rows;
    uint32_t q_heads, kv_heads;
    uint32_t head_dim;   /* a multiple of 4; else TEMPER_UNSUPPORTED */
    uint32_t rotary_dim; /* even, <= head_dim; values past it are copied */
    float magnitude;     /* what turned values are multiplied by; 0: 1 */
    op_cache_type cache;
} op_rope_shape;

/* For each row: q and k turn by ADJACENT pairs (2i, 2i+1) with angle position * inv_freq[i]; q goes
 * to q_out, k and v to the cache at the row's position, in the cache's type. qkv: f32 [rows, (Hq +
 * 2 Hkv) D]: q heads, then k heads, then v heads. turns: op_turns [rotary_dim / 2]. row_info:
 * op_row_info [rows]. block_table: u32. q_out: f32 [rows, Hq D]. */
void op_rope_store(gpu_recorder *rec, gpu_view qkv, gpu_view turns, gpu_view row_info,
                   gpu_view block_table, gpu_view q_out, gpu_view k_cache, gpu_view v_cache,
                   const op_rope_shape *shape);

typedef struct op_attention_shape {
    uint32_t rows;
    uint32_t q_heads,
        kv_heads; /* q_heads a multiple of kv_heads: query head i reads KV head i / (Hq / Hkv) */
    uint32_t head_dim;  /* a multiple of 4, <= OP_MAX_HEAD_DIM; else TEMPER_UNSUPPORTED */
    float scale;        /* score = scale * q.k; 1 / sqrt(D) as a rule */
    uint32_t longest;   /* the largest position among the rows, plus 1: cuts and splits the work */
    uint32_t sequences; /* how many sequences the rows belong to (0 or 1: one); as many as rows:
                           each row is one of its own */
    uint32_t singles;   /* so many of the first rows are taken one by one, as is best for sequences
                           that have a row or two; only speed depends on it */
    uint32_t window;    /* positions a row sees, its own among them; 0: all */
    float softcap;      /* score = softcap * tanh(scale * q.k / softcap); 0: none */
    op_cache_type cache;
    bool half; /* q, K, V and the softmax's numerators may be rounded to f16 (sums stay f32): set it
                  only where op_attention_check says so */
} op_attention_shape;

/* Bytes of scratch that op_attention needs for this shape and every shape with fewer rows, a
 * smaller `longest` or another window. */
uint64_t op_attention_scratch_bytes(const op_attention_shape *shape);

/* out[r, h, :] = sum_p softmax_p(scale * q[r, h] . K[p, h / G]) V[p, h / G] over p = max(0,
 * position
 * + 1 - window) .. position of row r, by streaming softmax (running maximum and sum); K and V are
 * read once for the G query heads of a KV head, and not at all in blocks before the window. The
 * cache already holds the rows' own k and v (op_rope_store earlier in the recording). q, out: f32
 * [rows, Hq D]. scratch: at least op_attention_scratch_bytes, its contents mean nothing after. */
void op_attention(gpu_recorder *rec, gpu_view q, gpu_view k_cache, gpu_view v_cache,
                  gpu_view row_info, gpu_view block_table, gpu_view scratch, gpu_view out,
                  const op_attention_shape *shape);

/* Sets *half to whether the device's matrix units compute attention with such heads, head_dim and
 * cache as its f32 kernels do, at several lengths. Computes and waits; a refusal is logged, and its
 * reason goes to `why`, which may be NULL. False, without a reason, where no row of the table could
 * use them. */
temper_status op_attention_check(gpu_device *device, const op_attention_shape *shape, bool *half,
                                 error *why, error *err);

/* The views of an op_rope_attention; each as the op of that name below has it. */
typedef struct op_rope_attention_views {
    gpu_view qkv, turns, row_info, block_table, k_cache, v_cache;
    gpu_view q, scratch; /* scratch: what is in them after means nothing */
    gpu_view out;
} op_rope_attention_views;

/* op_rope_store and op_attention of the same rows: one dispatch where each row is a sequence of its
 * own (one row, or as many sequences as rows) and a row of attention's table can do both. The
 * shapes agree in rows, heads, head_dim and cache (assert). */
void op_rope_attention(gpu_recorder *rec, const op_rope_attention_views *views,
                       const op_rope_shape *rope, const op_attention_shape *attention);

/* ---- the end of a step ----------------------------------------------------------------------- */

/* Logits below: f32 [rows, V]. What goes with row r (how its token is chosen, the token itself, a
 * score) stands at place `first + r` of the other arguments: a step may have more rows than there
 * is room for logits, and takes them in turns. */

/* How the next token is chosen, as the device reads it: 32 bytes. Filters come first, on the
 * distribution as the model gives it; then temperature.
 *   top_k: keep the k largest logits (0: all); every token equal to the k-th is kept.
 *   top_p: of those, the fewest largest whose probabilities, renormalised, reach top_p (1: all, 0:
 *          the best); every token equal to the last is kept.
 *   min_p: of those, the tokens with probability >= min_p * the best (0: all).
 *   temperature <= 1e-6: the largest logit, the lowest id among equals.
 * The draw is argmax(logit / temperature + Gumbel noise) with noise a function of (seed, position,
 * id) alone. */
typedef struct op_sample_params {
    float temperature;
    uint32_t top_k;
    float top_p;
    float min_p;
    uint64_t seed;
    uint32_t position;
} op_sample_params;

_Static_assert(sizeof(op_sample_params) == 32, "two vec4 of words a row");

/* ids[first + r] = the next token of logits row r, or OP_NO_TOKEN where the row holds NaN or
 * +infinity, or nothing but -infinity. -infinity masks a token. V to 2^24. params: of these rows,
 * [rows], to be checked and to choose a kernel by; choices: the same bytes on the device,
 * op_sample_params [first + rows]. ids: u32 [first + rows]. */
void op_sample(gpu_recorder *rec, gpu_view logits, gpu_view choices, gpu_view scratch, gpu_view ids,
               uint32_t first, uint32_t rows, uint32_t vocab, const op_sample_params *params);

/* Bytes of scratch that op_sample needs; their contents mean nothing after. */
uint64_t op_sample_scratch_bytes(uint32_t rows, uint32_t vocab);

/* Penalties over a window of the text: the tokens in history [first, first + count). */
typedef struct op_penalties {
    uint32_t first, count;
    float repeat;   /* divides a positive logit of a token that stands there, multiplies a negative;
                       1: off */
    float presence; /* taken from the logit of a token that stands there */
    float frequency; /* taken once for each time */
} op_penalties;

/* Row `row` of the logits, weakened in place where a token of the window is below V. history: u32.
 */
void op_penalize(gpu_recorder *rec, gpu_view logits, gpu_view history, uint32_t row, uint32_t vocab,
                 const op_penalties *penalties);

/* A number added to the logit of a token; -infinity makes it impossible. */
typedef struct op_logit_bias {
    uint32_t id;
    float bias;
} op_logit_bias;

/* Row `row` of the logits, in place, with the pairs [first, first + count) of op_logit_bias: no id
 * twice; ids at or above V are passed over. */
void op_bias_logits(gpu_recorder *rec, gpu_view logits, gpu_view pairs, uint32_t row,
                    uint32_t vocab, uint32_t first, uint32_t count);

enum { OP_MAX_BEST = 32 };

/* A token and its logit. */
typedef struct op_scored {
    uint32_t id;
    float logit;
} op_scored;

/* out: op_scored [first + rows, 1 + count]: of each row the chosen token (chosen: u32 [first +
 * rows]; NaN when it is no id), then the `count` largest logits in descending order, the lowest id
 * first among equals; past the vocabulary OP_NO_TOKEN and NaN. NaNs are never among the largest.
 * count <= OP_MAX_BEST (assert). */
void op_best(gpu_recorder *rec, gpu_view logits, gpu_view chosen, gpu_view out, uint32_t first,
             uint32_t rows, uint32_t vocab, uint32_t count);

/* out[first + r] = log(sum_v exp(logits[r, v])) - logits[r, targets[first + r]], for perplexity. A
 * target >= V gives NaN. targets: u32, out: f32, both [first + rows]. */
void op_nll(gpu_recorder *rec, gpu_view logits, gpu_view targets, gpu_view out, uint32_t first,
            uint32_t rows, uint32_t vocab);

#endif
