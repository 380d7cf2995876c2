/*
 * ref.c - the double twins against values worked out by hand: the yardstick itself.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "ref/ref.h"

static void near_to(double got, double want)
{
    if (!(fabs(got - want) <= 1e-12 * (1 + fabs(want))))
        fail_msg("%.17g, not %.17g", got, want);
}

static void matmul(void **state)
{
    (void)state;
    const float x[] = {1, 2, 3, 4, 5, -1, 0, 1, 0, 2};
    const float w[] = {1, 1, 1, 1, 1, 2, 0, 0, 0, 1, 0, 0, 0, 0, -3};
    const float start[] = {100, 100, 100, 100, 100, 100};
    const double want[] = {15, 7, -15, 2, 0, -6};
    double y[6];
    ref_matmul(x, w, NULL, 0, 2, 3, 5, y);
    for (int i = 0; i < 6; i++)
        near_to(y[i], want[i]);
    ref_matmul(x, w, start, 0, 2, 3, 5, y);
    for (int i = 0; i < 6; i++)
        near_to(y[i], 100 + want[i]);
}

static void embed(void **state)
{
    (void)state;
    const float w[] = {1, 2, 3, 4, 5, 6};
    const uint32_t ids[] = {2, 0, 3, 0xffffffffu};
    double out[8];
    ref_embed(w, 3, 2, ids, 4, 10, out);
    near_to(out[0], 50);
    near_to(out[1], 60);
    near_to(out[2], 10);
    for (int i = 4; i < 8; i++)
        assert_true(isnan(out[i]));
}

static void rmsnorm(void **state)
{
    (void)state;
    const float x[] = {3, 4, 0, 0}, weight[] = {2, 1, 1, 1};
    double y[4];
    ref_rmsnorm(x, weight, 1, 4, 0, y); /* root mean square 2.5 */
    near_to(y[0], 2.4);
    near_to(y[1], 1.6);
    near_to(y[2], 0);
    ref_rmsnorm(x, weight, 1, 4, 93.75, y); /* sqrt(6.25 + 93.75) = 10 */
    near_to(y[0], 0.6);
}

static void silu_gate(void **state)
{
    (void)state;
    const float gate_up[] = {0, 1, 5, 3};
    double out[2];
    ref_silu_gate(gate_up, 1, 2, out);
    near_to(out[0], 0);
    near_to(out[1], 3 / (1 + exp(-1.0)));
}

/* One pair turned by a quarter and three times as long: (a, b) -> (-3 b, 3 a); the block table
 * sends position 257 to slot 1 of block 0. */
static void rope_store(void **state)
{
    (void)state;
    const ref_heads heads = {1, 1, 1, 4, 2};
    const double quarter = acos(-1.0) / 2 / 257;
    const float qkv[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const uint32_t info[] = {257, 1}, table[] = {9, 1, 0};
    static double k[2 * 256 * 4], v[2 * 256 * 4];
    double q[4];
    ref_rope_store(qkv, &quarter, 3.0, info, table, &heads, q, k, v);
    near_to(q[0], -6);
    near_to(q[1], 3);
    near_to(q[2], 3);
    near_to(q[3], 4);
    near_to(k[4], -18);
    near_to(k[5], 15);
    near_to(k[6], 7);
    near_to(v[4], 9);
    near_to(v[7], 12);
    near_to(v[0] + k[0] + k[8] + v[8], 0);
}

/* Two positions with scores 0 and ln 3: weights 1/4 and 3/4; the row at position 0 sees the first
 * alone. */
static void attention(void **state)
{
    (void)state;
    const ref_heads heads = {2, 2, 1, 4, 0};
    const uint32_t info[] = {0, 0, 1, 0}, table[] = {0};
    static float k[256 * 4], v[256 * 4];
    const float q[] = {1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0};
    double out[16];
    k[4] = 1;
    v[0] = 10;
    v[4] = 20;
    v[8] = NAN;
    ref_scores scores = {.scale = log(3.0)};
    ref_attention(q, k, v, info, table, &heads, &scores, out);
    near_to(out[0], 10);
    near_to(out[4], 10);
    near_to(out[8], 17.5);
    near_to(out[12], 15); /* a query across the key: equal weights */
    /* Capped scores: 1 tanh(atanh(ln 3 / 2)) is half of ln 3. */
    scores = (ref_scores){.scale = atanh(log(3.0) / 2), .softcap = 1};
    ref_attention(q, k, v, info, table, &heads, &scores, out);
    near_to(out[8], (10 + 20 * sqrt(3.0)) / (1 + sqrt(3.0)));
    /* A window of one position: nothing but itself. */
    scores = (ref_scores){.scale = log(3.0), .window = 1};
    ref_attention(q, k, v, info, table, &heads, &scores, out);
    near_to(out[0], 10);
    near_to(out[8], 20);
    near_to(out[12], 20);
}

/* Rows with mean 2 and variance 1; a q head, a k head and a v head; gelu where tanh(u) is known. */
static void norms_and_gelu(void **state)
{
    (void)state;
    const float x[] = {1, 3, 1, 3}, weight[] = {1, 2, 3, 4}, bias[] = {0, 0, 10, 10};
    double y[4];
    ref_layernorm(x, weight, bias, 1, 4, 3.0, y); /* the deviation is sqrt(1 + 3) */
    near_to(y[0], -0.5);
    near_to(y[1], 1);
    near_to(y[2], 8.5);
    near_to(y[3], 12);
    const ref_heads heads = {1, 1, 1, 2, 0};
    const float qkv[] = {3, 1, 6, 2, 5, 7}, weights[] = {1, 2, 10, 20};
    double normed[6];
    ref_head_norm(qkv, weights, &heads, 0.0, normed);
    near_to(normed[0], 3 / sqrt(5.0));
    near_to(normed[1], 2 / sqrt(5.0));
    near_to(normed[2], 30 / sqrt(5.0));
    near_to(normed[3], 20 / sqrt(5.0));
    near_to(normed[4], 5);
    near_to(normed[5], 7);
    const float g[] = {0, 1, -1, 50, -50, 2};
    double out[6];
    ref_gelu(g, 5, out);
    near_to(out[0], 0);
    near_to(out[1], 0.8411919906082768); /* (1 + tanh(sqrt(2 / pi) 1.044715)) / 2 */
    near_to(out[2], -0.1588080093917232);
    near_to(out[3], 50);
    near_to(out[4], 0);
    ref_gelu_gate(g + 1, 1, 1, out);
    near_to(out[0], -0.8411919906082768);
}

static void biases_positions_and_caps(void **state)
{
    (void)state;
    const float y[] = {1, 2, 3, 4}, bias[] = {10, 20}, table[] = {5, 6, 7, 8};
    const uint32_t info[] = {1, 9, 2, 9};
    double out[4];
    ref_bias(y, bias, 2, 2, out);
    near_to(out[0], 11);
    near_to(out[3], 24);
    ref_add_positions(y, table, info, 2, 2, 2, out);
    near_to(out[0], 8);
    near_to(out[1], 10);
    assert_true(isnan(out[2]) && isnan(out[3])); /* position 2 is past the table */
    ref_softcap(y, 1, 2.0, out);
    near_to(out[0], 2 * tanh(0.5));
}

static void sample(void **state)
{
    (void)state;
    /* Probabilities 0.1, 0.4, 0.2, 0.2, 0.1 */
    float logits[5];
    const double p[] = {0.1, 0.4, 0.2, 0.2, 0.1};
    for (int i = 0; i < 5; i++)
        logits[i] = (float)log(p[i]);
    logits[3] = logits[2];
    uint8_t keep[5];
    ref_sample_params s = {.temperature = 1, .top_p = 1};
    assert_int_equal(ref_sample_keep(logits, 5, &s, keep), 5);
    s.top_k = 2; /* the two of 0.2 are equal */
    assert_int_equal(ref_sample_keep(logits, 5, &s, keep), 3);
    assert_false(keep[0] || keep[4]);
    s = (ref_sample_params){.temperature = 1, .top_p = 0.39};
    assert_int_equal(ref_sample_keep(logits, 5, &s, keep), 1);
    s.top_p = 0.5;
    assert_int_equal(ref_sample_keep(logits, 5, &s, keep), 3);
    s = (ref_sample_params){.temperature = 1, .top_p = 0};
    assert_int_equal(ref_sample_keep(logits, 5, &s, keep), 1);
    s = (ref_sample_params){.temperature = 1, .top_p = 1, .min_p = 0.4};
    assert_int_equal(ref_sample_keep(logits, 5, &s, keep), 3);
    s = (ref_sample_params){.temperature = 0, .top_p = 1};
    assert_int_equal(ref_sample(logits, 5, &s, keep, NULL), 1);
    logits[1] = logits[2];
    double margin;
    assert_int_equal(ref_sample(logits, 5, &s, keep, &margin), 1);
    near_to(margin, 0);
    logits[4] = NAN;
    assert_int_equal(ref_sample(logits, 5, &s, keep, NULL), 0xffffffffu);
    logits[4] = INFINITY;
    assert_int_equal(ref_sample(logits, 5, &s, keep, NULL), 0xffffffffu);
    for (int i = 0; i < 5; i++)
        logits[i] = -INFINITY;
    assert_int_equal(ref_sample(logits, 5, &s, keep, NULL), 0xffffffffu);
}

/* Mean of Gumbel noise: Euler's constant; variance: pi^2 / 6. */
static void gumbel(void **state)
{
    (void)state;
    enum { N = 200000 };
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < N; i++) {
        const double g = ref_gumbel(12345, 3, i);
        assert_true(isfinite(g));
        sum += g;
        squares += g * g;
    }
    const double mean = sum / N, variance = squares / N - mean * mean;
    assert_true(fabs(mean - 0.5772156649) < 0.01);
    assert_true(fabs(variance - 1.6449340668) < 0.03);
    assert_true(ref_gumbel(12345, 3, 7) != ref_gumbel(12345, 4, 7));
    assert_true(ref_gumbel(12345, 3, 7) != ref_gumbel(12345 + (1ull << 32), 3, 7));
}

static void nll(void **state)
{
    (void)state;
    const float logits[] = {1000, 1000, 1000, 1000, -1000, 0, -INFINITY, 0};
    const uint32_t targets[] = {2, 0};
    double out[2];
    ref_nll(logits, targets, 2, 4, out);
    near_to(out[0], log(4.0));
    near_to(out[1], 1000 + log(2.0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmul),
        cmocka_unit_test(embed),
        cmocka_unit_test(rmsnorm),
        cmocka_unit_test(silu_gate),
        cmocka_unit_test(rope_store),
        cmocka_unit_test(attention),
        cmocka_unit_test(norms_and_gelu),
        cmocka_unit_test(biases_positions_and_caps),
        cmocka_unit_test(sample),
        cmocka_unit_test(gumbel),
        cmocka_unit_test(nll),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
