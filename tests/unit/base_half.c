/*
 * base_half.c - 16-bit floats against a slow reference: every value, every midpoint between two
 * neighbours and the floats beside it, and a million bit patterns.
 */
#include "base/half.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"

typedef struct format {
    int fraction_bits, bias;
    uint16_t infinity;
    uint16_t (*narrow)(float f);
    float (*widen)(uint16_t h);
} format;

static const format formats[] = {
    {10, 15, 0x7c00, f32_to_f16, f16_to_f32},
    {7, 127, 0x7f80, f32_to_bf16, bf16_to_f32},
};

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* The value of a pattern without its sign, by the definition; infinity counts as the next power of
 * two, which makes rounding to it the same as rounding to any other value. */
static double value_of(const format *t, uint16_t magnitude)
{
    const int exponent = magnitude >> t->fraction_bits;
    const int fraction = magnitude & ((1 << t->fraction_bits) - 1);

    if (exponent == 0)
        return ldexp(fraction, 1 - t->bias - t->fraction_bits);
    return ldexp(fraction + (1 << t->fraction_bits), exponent - t->bias - t->fraction_bits);
}

/* The nearest pattern by bisection; doubles hold floats, halves and midpoints exactly. */
static uint16_t nearest(const format *t, float f)
{
    const uint16_t sign = signbit(f) ? 0x8000 : 0;
    const double x = fabs((double)f);
    uint16_t low = 0, high = t->infinity;

    if (x >= value_of(t, high))
        return sign | high;
    while (high - low > 1) {
        const uint16_t middle = (uint16_t)((low + high) / 2);
        if (value_of(t, middle) <= x)
            low = middle;
        else
            high = middle;
    }
    const double below = x - value_of(t, low), above = value_of(t, high) - x;
    if (below == above)
        return sign | (low % 2 == 0 ? low : high);
    return sign | (below < above ? low : high);
}

static void check_narrow(const format *t, float f)
{
    const uint16_t got = t->narrow(f), wanted = nearest(t, f);

    if (got != wanted)
        fail_msg("%a becomes %04x instead of %04x", (double)f, got, wanted);
}

static void test_every_pattern(void **state)
{
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        const format *t = &formats[k];
        for (uint32_t pattern = 0; pattern <= 0xffff; pattern++) {
            const uint16_t h = (uint16_t)pattern, magnitude = h & 0x7fff;
            const float f = t->widen(h);
            if (t->narrow(f) != h)
                fail_msg("%04x does not come back", h);
            assert_int_equal(signbit(f) != 0, h >> 15);
            if (magnitude > t->infinity)
                assert_true(isnan(f));
            else if (magnitude == t->infinity)
                assert_true(isinf(f));
            else if (fabs((double)f) != value_of(t, magnitude))
                fail_msg("%04x becomes %a", h, (double)f);
        }
    }
}

static void test_rounding(void **state)
{
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        const format *t = &formats[k];
        for (uint16_t h = 0; h < t->infinity; h++) {
            const double middle = (value_of(t, h) + value_of(t, (uint16_t)(h + 1))) / 2;
            const uint32_t bits = bits_of((float)middle);
            for (uint32_t step = 0; step < 5; step++) {
                if (bits + step < 2)
                    continue;
                check_narrow(t, float_of(bits + step - 2));
                check_narrow(t, -float_of(bits + step - 2));
            }
        }
        random_state r = {k};
        for (int i = 0; i < 1000000; i++) {
            const float f = float_of((uint32_t)random_u64(&r));
            if (isnan(f))
                assert_true(isnan(t->widen(t->narrow(f))));
            else
                check_narrow(t, f);
        }
    }
}

static void test_nan_stays_nan(void **state)
{
    (void)state;
    /* Payloads in the bits that are dropped must not turn into an infinity. */
    for (uint32_t payload = 1; payload < 0x800000; payload += payload < 0x4000 ? 1 : 0x3fff)
        for (uint32_t sign = 0; sign < 2; sign++)
            for (size_t k = 0; k < 2; k++) {
                const format *t = &formats[k];
                const uint16_t h = t->narrow(float_of(sign << 31 | 0x7f800000u | payload));
                assert_true((h & 0x7fff) > t->infinity);
                assert_int_equal(h >> 15, sign);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_pattern),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_nan_stays_nan),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
