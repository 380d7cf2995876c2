/*
 * attention.c - rotary positions, the blocked cache, and softmax attention with the whole row of
 * scores at hand.
 */
#include <math.h>

#include "base/mem.h"
#include "ref/ref.h"

enum { BLOCK = 256 };

static uint64_t cache_at(const uint32_t *row_info, const uint32_t *block_table, const ref_heads *h,
                         uint32_t row, uint32_t position, uint32_t kv_head)
{
    const uint64_t block = block_table[row_info[2 * row + 1] + position / BLOCK];
    return ((block * h->kv_heads + kv_head) * BLOCK + position % BLOCK) * h->head_dim;
}

static void turn(const float *in, const double *inv_freq, double magnitude, uint32_t position,
                 const ref_heads *h, double *out)
{
    for (uint32_t d = 0; d < h->head_dim; d++)
        out[d] = (double)in[d];
    for (uint32_t i = 0; i < h->rotary_dim / 2; i++) {
        const double angle = position * inv_freq[i], a = (double)in[2 * i],
                     b = (double)in[2 * i + 1];
        out[2 * i] = magnitude * (a * cos(angle) - b * sin(angle));
        out[2 * i + 1] = magnitude * (a * sin(angle) + b * cos(angle));
    }
}

void ref_rope_store(const float *qkv, const double *inv_freq, double magnitude,
                    const uint32_t *row_info, const uint32_t *block_table, const ref_heads *h,
                    double *q_out, double *k_cache, double *v_cache)
{
    const uint32_t heads = h->q_heads + 2 * h->kv_heads;
    for (uint32_t row = 0; row < h->rows; row++) {
        const uint32_t position = row_info[2 * row];
        const float *in = qkv + (uint64_t)row * heads * h->head_dim;
        for (uint32_t i = 0; i < h->q_heads; i++)
            turn(in + i * h->head_dim, inv_freq, magnitude, position, h,
                 q_out + ((uint64_t)row * h->q_heads + i) * h->head_dim);
        for (uint32_t i = 0; i < h->kv_heads; i++) {
            const uint64_t at = cache_at(row_info, block_table, h, row, position, i);
            turn(in + (h->q_heads + i) * h->head_dim, inv_freq, magnitude, position, h,
                 k_cache + at);
            const float *v = in + (h->q_heads + h->kv_heads + i) * h->head_dim;
            for (uint32_t d = 0; d < h->head_dim; d++)
                v_cache[at + d] = (double)v[d];
        }
    }
}

void ref_attention(const float *q, const float *k_cache, const float *v_cache,
                   const uint32_t *row_info, const uint32_t *block_table, const ref_heads *h,
                   const ref_scores *scores, double *out)
{
    uint32_t longest = 0;
    for (uint32_t row = 0; row < h->rows; row++)
        longest = row_info[2 * row] + 1 > longest ? row_info[2 * row] + 1 : longest;
    double *score = mem_alloc(longest * sizeof *score);
    for (uint32_t row = 0; score != NULL && row < h->rows; row++)
        for (uint32_t head = 0; head < h->q_heads; head++) {
            const uint32_t kv_head = head / (h->q_heads / h->kv_heads),
                           count = row_info[2 * row] + 1;
            const uint32_t first =
                scores->window > 0 && scores->window < count ? count - scores->window : 0;
            const uint64_t at = ((uint64_t)row * h->q_heads + head) * h->head_dim;
            double highest = -INFINITY, total = 0;
            for (uint32_t p = first; p < count; p++) {
                const float *k = k_cache + cache_at(row_info, block_table, h, row, p, kv_head);
                double sum = 0;
                for (uint32_t d = 0; d < h->head_dim; d++)
                    sum += (double)q[at + d] * (double)k[d];
                score[p] = scores->scale * sum;
                if (scores->softcap > 0)
                    score[p] = scores->softcap * tanh(score[p] / scores->softcap);
                highest = score[p] > highest ? score[p] : highest;
            }
            for (uint32_t p = first; p < count; p++) {
                score[p] = exp(score[p] - highest);
                total += score[p];
            }
            for (uint32_t d = 0; d < h->head_dim; d++)
                out[at + d] = 0;
            for (uint32_t p = first; p < count; p++) {
                const float *v = v_cache + cache_at(row_info, block_table, h, row, p, kv_head);
                for (uint32_t d = 0; d < h->head_dim; d++)
                    out[at + d] += score[p] / total * (double)v[d];
            }
        }
    mem_free(score);
}
