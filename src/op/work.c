/*
 * work.c - what the larger ops must move and compute at the least, for profiles and shares of a
 * card's peak.
 */
#include "base/checked.h"
#include "op/op.h"
#include "op/rows.h"

void op_record_product_work(gpu_recorder *rec, weight_format format, uint64_t n, uint64_t k,
                            uint64_t rows, op_mode mode)
{
    const uint64_t y_bytes = rows * n * (mode == OP_ACCUMULATE ? 8 : 4);
    gpu_record_work(rec, op_weight_bytes(format, n, k) + rows * k * 4 + y_bytes, 2 * rows * n * k);
}

void op_record_attention_work(gpu_recorder *rec, const op_attention_shape *s)
{
    const uint64_t seen = s->window > 0 ? min_u64(s->longest, s->window) : s->longest;
    const bool prompt = s->sequences <= 1;
    /* The rows of one sequence end at the longest: the first of them see fewer positions. */
    const uint64_t first = prompt ? s->longest - min_u64(s->rows, s->longest) + 1 : s->longest;
    uint64_t pairs = 0;
    for (uint64_t r = 0; r < s->rows; r++)
        pairs += min_u64(prompt ? first + r : first, seen);
    const uint64_t touched = prompt ? min_u64(s->longest, seen + s->rows) : seen * s->sequences;
    gpu_record_work(rec,
                    2 * touched * s->kv_heads * op_cache_row_words(s->cache, s->head_dim) * 16 +
                        2 * (uint64_t)s->rows * s->q_heads * s->head_dim * 4,
                    4 * pairs * s->q_heads * s->head_dim);
}
