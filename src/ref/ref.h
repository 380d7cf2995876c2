/*
 * ref.h - every op of op/op.h once more, for the CPU, in double: small and plainly right. The
 * yardstick of check and of the tests; never linked into the library. Inputs are the f32 values the
 * GPU gets, results are double.
 */
#ifndef TEMPER_REF_REF_H
#define TEMPER_REF_REF_H

#include <stdint.h>

/* y[r, n] (+)= sum_k x[r, k] w[n, k] for the rows r0 <= r < r1; w f32 [n, k]. With start != NULL, y
 * begins at start[r, n], else at 0. */
void ref_matmul(const float *x, const float *w, const float *start, uint64_t r0, uint64_t r1,
                uint64_t n, uint64_t k, double *y);

/* out[r, :] = scale * w[ids[r], :], NaN for ids[r] >= n. */
void ref_embed(const float *w, uint64_t n, uint64_t k, const uint32_t *ids, uint64_t rows,
               double scale, double *out);

void ref_rmsnorm(const float *x, const float *weight, uint64_t rows, uint64_t cols, double eps,
                 double *y);
void ref_layernorm(const float *x, const float *weight, const float *bias, uint64_t rows,
                   uint64_t cols, double eps, double *y);
void ref_gelu(const float *x, uint64_t count, double *out);
void ref_gelu_gate(const float *gate_up, uint64_t rows, uint64_t f, double *out);
void ref_bias(const float *y, const float *bias, uint64_t rows, uint64_t cols, double *out);
void ref_softcap(const float *x, uint64_t count, double cap, double *out);
void ref_silu_gate(const float *gate_up, uint64_t rows, uint64_t f, double *out);
void ref_add(const float *a, const float *b, uint64_t count, double *out);

/* ids[r] = sources[r], or chosen[i] where that is 2^31 + i; UINT32_MAX where i >= count. */
void ref_gather_ids(const uint32_t *sources, const uint32_t *chosen, uint32_t count, uint64_t rows,
                    uint32_t *ids);

typedef struct ref_heads {
    uint32_t rows, q_heads, kv_heads, head_dim, rotary_dim;
} ref_heads;

/* weights: of q, then of k [2, head_dim]; out: all of qkv, v as it is. */
void ref_head_norm(const float *qkv, const float *weights, const ref_heads *heads, double eps,
                   double *out);

/* out = x plus the table's row at each row's position, NaN past `positions`. row_info: pairs
 * (position, table_offset). */
void ref_add_positions(const float *x, const float *table, const uint32_t *row_info, uint64_t rows,
                       uint64_t cols, uint32_t positions, double *out);

/* row_info: pairs (position, table_offset). Blocks of 256 positions, caches
 * [block][kv_heads][256][head_dim]. inv_freq: radians a position [rotary_dim / 2]. magnitude
 * multiplies what turns. Cache entries of other positions are left alone. */
void ref_rope_store(const float *qkv, const double *inv_freq, double magnitude,
                    const uint32_t *row_info, const uint32_t *block_table, const ref_heads *heads,
                    double *q_out, double *k_cache, double *v_cache);

typedef struct ref_scores {
    double scale;
    uint32_t window; /* 0: none */
    double softcap;  /* 0: none */
} ref_scores;

void ref_attention(const float *q, const float *k_cache, const float *v_cache,
                   const uint32_t *row_info, const uint32_t *block_table, const ref_heads *heads,
                   const ref_scores *scores, double *out);

typedef struct ref_sample_params {
    double temperature, top_p, min_p;
    uint32_t top_k;
    uint64_t seed;
    uint32_t position;
} ref_sample_params;

/* keep[v] = 1 for tokens that the filters leave. Returns how many; 0 where no token can be chosen.
 */
uint32_t ref_sample_keep(const float *logits, uint32_t vocab, const ref_sample_params *params,
                         uint8_t *keep);

/* The standard Gumbel noise of a token at a position. */
double ref_gumbel(uint64_t seed, uint32_t position, uint32_t id);

/* The chosen token or 0xffffffff. *margin (may be NULL): by how much its score beats the second;
 * infinity where there is none. keep: scratch of vocab bytes. */
uint32_t ref_sample(const float *logits, uint32_t vocab, const ref_sample_params *params,
                    uint8_t *keep, double *margin);

void ref_nll(const float *logits, const uint32_t *targets, uint64_t rows, uint32_t vocab,
             double *out);

/* out [V] = logits with the penalties of op_penalize over the window. */
void ref_penalize(const float *logits, const uint32_t *window, uint32_t count, uint32_t vocab,
                  double repeat, double presence, double frequency, double *out);

/* out [V] = logits with biases[i] added at ids[i], where that is below V. */
void ref_bias_logits(const float *logits, const uint32_t *ids, const float *biases, uint32_t count,
                     uint32_t vocab, double *out);

/* ids [count] = the largest logits, the lowest id first among equals; UINT32_MAX past the last that
 * is a number. */
void ref_best(const float *logits, uint32_t vocab, uint32_t count, uint32_t *ids);

#endif
