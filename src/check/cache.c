/*
 * cache.c - a blocked cache for the cases.
 */
#include "check/cache.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "base/half.h"

check_cache check_make_cache(check_context *c, op_cache_type type, ref_heads heads,
                             uint32_t sequences, uint32_t positions, uint32_t most)
{
    check_cache cache = {
        .heads = heads, .type = type, .sequence_blocks = ceil_div_u32(positions, OP_CACHE_BLOCK)};
    const uint32_t used = sequences * cache.sequence_blocks;
    cache.blocks = (uint32_t)min_u64(used, most);
    cache.table_words = CHECK_TABLE_GAP + used;
    cache.table = check_alloc(c, cache.table_words, 4);
    cache.values = (uint64_t)cache.blocks * heads.kv_heads * OP_CACHE_BLOCK * heads.head_dim;
    cache.bytes = cache.blocks * op_cache_block_bytes(type, heads.kv_heads, heads.head_dim);
    if (cache.table == NULL)
        return cache;
    for (uint32_t i = 0; i < used; i++)
        cache.table[CHECK_TABLE_GAP + i] = i % cache.blocks;
    for (uint32_t i = cache.blocks; i > 1; i--) {
        const uint32_t j = check_random_word(51, i) % i,
                       moved = cache.table[CHECK_TABLE_GAP + i - 1];
        cache.table[CHECK_TABLE_GAP + i - 1] = cache.table[CHECK_TABLE_GAP + j];
        cache.table[CHECK_TABLE_GAP + j] = moved;
    }
    return cache;
}

uint32_t check_table_offset(const check_cache *cache, uint32_t sequence)
{
    return CHECK_TABLE_GAP + sequence * cache->sequence_blocks;
}

uint64_t check_cache_at(const check_cache *cache, uint32_t table_offset, uint32_t position,
                        uint32_t kv_head)
{
    const uint64_t block = cache->table[table_offset + position / OP_CACHE_BLOCK];
    return ((block * cache->heads.kv_heads + kv_head) * OP_CACHE_BLOCK +
            position % OP_CACHE_BLOCK) *
           cache->heads.head_dim;
}

/* ---- types ----------------------------------------------------------------------------------- */

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Up to OP_CACHE_GROUP values to bytes at words (little-endian, `first` the byte of the first one)
 * and their scale. */
static void encode_group(const float *values, uint32_t count, uint32_t *words, uint32_t first,
                         uint32_t *scale)
{
    float largest = 0;
    bool finite = true;
    for (uint32_t i = 0; i < count; i++) {
        finite = finite && isfinite(values[i]);
        largest = fmaxf(largest, fabsf(values[i]));
    }
    const bool tiny = largest < 0x1p-100f;
    *scale = bits_of(!finite ? NAN : tiny ? 0.0f : largest / 127.0f);
    for (uint32_t i = 0; finite && !tiny && i < count; i++) {
        const uint32_t byte = (uint32_t)(int32_t)nearbyintf(values[i] * (127.0f / largest)) & 0xff;
        words[(first + i) / 4] |= byte << 8 * ((first + i) % 4);
    }
}

static void encode_row(const check_cache *cache, const float *values, uint32_t *row)
{
    const uint32_t d = cache->heads.head_dim;
    uint32_t *scales = row + d / 4;
    if (cache->type == OP_CACHE_F32)
        memcpy(row, values, d * sizeof *values);
    for (uint32_t i = 0; cache->type == OP_CACHE_F16 && i < d; i++)
        row[i / 2] |= (uint32_t)f32_to_f16(values[i]) << 16 * (i % 2);
    for (uint32_t i = 0; cache->type == OP_CACHE_Q8 && i < d; i += OP_CACHE_GROUP)
        encode_group(values + i, (uint32_t)min_u64(OP_CACHE_GROUP, d - i), row, i,
                     scales + i / OP_CACHE_GROUP);
}

static void decode_row(const check_cache *cache, const uint32_t *row, float *values)
{
    const uint32_t d = cache->heads.head_dim;
    const uint32_t *scales = row + d / 4;
    for (uint32_t i = 0; i < d; i++) {
        if (cache->type == OP_CACHE_F32)
            values[i] = float_of(row[i]);
        else if (cache->type == OP_CACHE_F16)
            values[i] = f16_to_f32((uint16_t)(row[i / 2] >> 16 * (i % 2)));
        else
            values[i] =
                (float)(int8_t)(row[i / 4] >> 8 * (i % 4)) * float_of(scales[i / OP_CACHE_GROUP]);
    }
}

/* u32 words of a row. */
static uint64_t words_of(const check_cache *cache)
{
    return op_cache_row_words(cache->type, cache->heads.head_dim) * 4;
}

uint32_t *check_cache_encode(check_context *c, const check_cache *cache, const float *values)
{
    uint32_t *words = check_alloc(c, cache->bytes, 1);
    const uint64_t d = cache->heads.head_dim;
    for (uint64_t row = 0; words != NULL && row < cache->values / d; row++)
        encode_row(cache, values + row * d, words + row * words_of(cache));
    return words;
}

float *check_cache_decode(check_context *c, const check_cache *cache, const uint32_t *words)
{
    float *values = check_alloc(c, cache->values, sizeof *values);
    const uint64_t d = cache->heads.head_dim;
    for (uint64_t row = 0; values != NULL && words != NULL && row < cache->values / d; row++)
        decode_row(cache, words + row * words_of(cache), values + row * d);
    return values;
}

void check_cache_round(const check_cache *cache, float *row)
{
    uint32_t words[4 * 64] = {0};
    assert(words_of(cache) <= sizeof words / sizeof *words);
    encode_row(cache, row, words);
    decode_row(cache, words, row);
}

/* Half a step of the type, for check_bounds; `largest`: the largest magnitude of the group. */
typedef struct bound {
    double absolute, relative;
} bound;

static bound step_of(op_cache_type type, double largest)
{
    /* Half a unit of eleven bits, and what a driver may flush; half of largest / 127. The f32 that
     * is rounded is off by 1e-6 itself. */
    if (type == OP_CACHE_F16)
        return (bound){6.2e-5, 0x1p-11 + 1e-6};
    if (type == OP_CACHE_Q8)
        return (bound){largest / 254 * 1.001 + 1e-30, 1e-6};
    return (bound){1e-30, 1e-9};
}

void check_cache_stored(check_context *c, const check_cache *cache, const uint32_t *words,
                        double *want, bool turned)
{
    const float *got = check_cache_decode(c, cache, words);
    const uint32_t d = cache->heads.head_dim;
    for (uint64_t at = 0; got != NULL && at < cache->values;) {
        const uint32_t n = (uint32_t)min_u64(OP_CACHE_GROUP, d - at % d);
        double largest = 0;
        bool nan = false;
        for (uint32_t i = 0; i < n; i++) {
            largest = fmax(largest, fabs(want[at + i]));
            nan = nan || isnan(want[at + i]);
        }
        for (uint32_t i = 0; nan && cache->type == OP_CACHE_Q8 && i < n; i++)
            want[at + i] = NAN;
        bound b = step_of(cache->type, largest);
        if (turned && cache->type == OP_CACHE_F32)
            b = (bound){1e-6, 1e-6};
        check_bounds(c, got + at, want + at, n, b.absolute, b.relative);
        at += n;
    }
}
