/*
 * base_suits_f16.c - which weights f16 operands hold, for every kind of scale.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/dtype.h"
#include "base/half.h"

enum { K = 512, ROW = 5, ROWS = 64 };

/* A weight whose row ROW alone is not 0. */
typedef struct one_row {
    weight_format format;
    weight_planes planes;
} one_row;

static one_row make(layout of, scale_kind scale, uint32_t group)
{
    one_row w = {.format = {of, scale, group}};
    for (int p = 0; p < WEIGHT_PLANES; p++) {
        const uint64_t words = weight_plane_words(w.format, (weight_plane)p, K, ROWS);
        w.planes.plane[p] = words > 0 ? calloc(words, 4) : NULL;
        assert_true(words == 0 || w.planes.plane[p] != NULL);
    }
    return w;
}

static void drop(one_row *w)
{
    for (int p = 0; p < WEIGHT_PLANES; p++)
        free(w->planes.plane[p]);
}

static bool suits(const one_row *w, uint64_t first, uint64_t count)
{
    double largest = 0;
    const bool right = weight_suits_f16(w->format, K, w->planes, ROWS, first, count, &largest);
    /* What they hold is within f16, and a row of zeros raises nothing. */
    assert_true(largest >= 0 && largest <= 32768);
    return right;
}

/* The row is looked at where it is among those asked about, and nowhere else. */
static void expect(const one_row *w, bool right)
{
    assert_int_equal(suits(w, 0, ROWS), right);
    assert_int_equal(suits(w, ROW, 1), right);
    assert_true(suits(w, 0, ROW));
    assert_true(suits(w, ROW + 1, ROWS - ROW - 1));
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static const struct {
    float largest;
    bool right;
} sizes[] = {{0.0f, true},        {1.0f, true},
             {-1.0f, true},       {32768.0f, true},
             {32769.0f, false},   {-7e4f, false},
             {1.0f / 4096, true}, {1e-4f, false},
             {-1e-7f, false},     {(float)INFINITY, false},
             {(float)NAN, false}};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void test_floats(void **state)
{
    (void)state;
    for (int i = 0; i < SIZES; i++) {
        /* The last element of the last block. */
        one_row wide = make(LAYOUT_F32, SCALE_NONE, 0);
        wide.planes.plane[WEIGHT_DATA][((K / 32 - 1) * ROWS + ROW) * 32 + 31] =
            bits_of(sizes[i].largest);
        expect(&wide, sizes[i].right);
        drop(&wide);
        one_row brain = make(LAYOUT_BF16, SCALE_NONE, 0);
        brain.planes.plane[WEIGHT_DATA][((K / 32 - 1) * ROWS + ROW) * 16 + 15] =
            bits_of(sizes[i].largest) & 0xffff0000u;
        /* 32769 is 32768 there. */
        expect(&brain, sizes[i].right || sizes[i].largest == 32769.0f);
        drop(&brain);
    }
    one_row half = make(LAYOUT_F16, SCALE_NONE, 0);
    uint32_t *word = &half.planes.plane[WEIGHT_DATA][ROW * 16];
    *word = 0x7800; /* 2^15 */
    expect(&half, true);
    *word = 0x7801;
    expect(&half, false);
    *word = 0xf801u << 16;
    expect(&half, false);
    *word = 0x0c00; /* 2^-12 */
    expect(&half, true);
    *word = 0x0001;
    expect(&half, false);
    *word = 0x0c000001;
    expect(&half, true);
    drop(&half);
}

/* The scale and the minimum of one group of the row. */
static void set_scale(one_row *w, uint64_t line, float scale, float minimum)
{
    const uint64_t at = line * ROWS + ROW;
    uint32_t *table = w->planes.plane[WEIGHT_SCALES];
    if (w->format.scale == SCALE_F32)
        table[at] = bits_of(scale);
    else if (w->format.scale == SCALE_F16_MIN)
        table[at] = f32_to_f16(scale) | (uint32_t)f32_to_f16(minimum) << 16;
    else
        table[at / 2] = (uint32_t)f32_to_f16(scale) << (at % 2 * 16);
}

/* The scale alone decides: a stored number may be what the bits can hold. */
static void test_groups(void **state)
{
    static const struct {
        layout layout;
        scale_kind scale;
        uint32_t group;
        float top;
    } rows[] = {{LAYOUT_Q8, SCALE_F16, 32, 128},    {LAYOUT_Q4, SCALE_F16, 32, 8},
                {LAYOUT_Q4, SCALE_F32, 8, 8},       {LAYOUT_Q4, SCALE_F32, 128, 8},
                {LAYOUT_Q5, SCALE_F16, 32, 16},     {LAYOUT_Q6, SCALE_F32, 32, 32},
                {LAYOUT_Q4, SCALE_F16_MIN, 64, 16}, {LAYOUT_Q5, SCALE_F16_MIN, 32, 32}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const uint64_t last = K / rows[i].group - 1;
        one_row w = make(rows[i].layout, rows[i].scale, rows[i].group);
        expect(&w, true);
        set_scale(&w, last, 32768.0f / rows[i].top, 0);
        expect(&w, true);
        set_scale(&w, last, -32768.0f / rows[i].top, 0);
        expect(&w, true);
        set_scale(&w, last, 33000.0f / rows[i].top, 0);
        expect(&w, false);
        set_scale(&w, last, 1.0f / 4096 / rows[i].top, 0);
        expect(&w, true);
        set_scale(&w, last, 1.0f / 8192 / rows[i].top, 0);
        expect(&w, false);
        set_scale(&w, 0, 1.0f, 0); /* a larger group: the small one is small beside it */
        expect(&w, true);
        if (rows[i].scale == SCALE_F16_MIN) {
            set_scale(&w, last, 0, -40000.0f);
            expect(&w, false);
            set_scale(&w, last, 0, 30000.0f);
            expect(&w, true);
        }
        drop(&w);
    }
}

static void test_k_scales(void **state)
{
    static const struct {
        layout layout;
        scale_kind scale;
        uint32_t group;
        float top;
    } rows[] = {{LAYOUT_Q6, SCALE_K, 16, 32},
                {LAYOUT_Q4, SCALE_K, 16, 8},
                {LAYOUT_Q4, SCALE_K_MIN, 32, 16},
                {LAYOUT_Q4, SCALE_K_MIN, 16, 16}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        one_row w = make(rows[i].layout, rows[i].scale, rows[i].group);
        uint32_t *table = w.planes.plane[WEIGHT_SCALES];
        const uint64_t factor = ROWS + ROW, line = K / 32 - 1; /* the second block's */
        uint32_t *entries = table + (uint64_t)(K / SCALE_K_BLOCK) * ROWS;
        const bool minimums = rows[i].scale == SCALE_K_MIN;
        const bool words = minimums && rows[i].group == 16;
        const uint64_t at = line * ROWS + ROW;
        uint32_t *entry = &entries[words ? at : at / 2];
        const uint32_t shift = words ? 16 : (uint32_t)(at % 2 * 16);
        /* 100 times d; of signed scales the second of the block, negative. */
        *entry = (minimums ? 100u : (uint32_t)(uint8_t)-100 << 8) << shift;
        table[factor] = f32_to_f16(32000.0f / 100 / rows[i].top);
        expect(&w, true);
        table[factor] = f32_to_f16(34000.0f / 100 / rows[i].top);
        expect(&w, false);
        table[factor] = f32_to_f16(1.0f / 8192 / 100 / rows[i].top);
        expect(&w, false);
        if (minimums) {
            *entry = 200u << 8 << shift;
            table[factor] = (uint32_t)f32_to_f16(150.0f) << 16;
            expect(&w, true);
            table[factor] = (uint32_t)f32_to_f16(170.0f) << 16;
            expect(&w, false);
        }
        drop(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_floats),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_k_scales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
