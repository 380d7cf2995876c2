/*
 * model_config.c - the keys of a network: windows, rope and its stretching, biases of taste; values
 * worked out by hand or by transformers' formulas. And the order of rotated rows.
 */
#include "model/config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/source.h"
#include "model/weights.h"
#include "support/gguf_build.h"

/* A file of one architecture: the keys that every one has, then what a test adds. */
typedef struct maker {
    strbuf keys;
    uint64_t count;
    const char *arch;
} maker;

static const char *key_of(const maker *m, const char *suffix)
{
    static char key[96];
    snprintf(key, sizeof key, "%s.%s", m->arch, suffix);
    return key;
}

static void put_u32(maker *m, const char *suffix, uint32_t value)
{
    gguf_put_key_u32(&m->keys, key_of(m, suffix), value);
    m->count++;
}

static void put_f32(maker *m, const char *suffix, float value)
{
    gguf_put_key(&m->keys, key_of(m, suffix), GGUF_FLOAT32);
    gguf_put_f32(&m->keys, value);
    m->count++;
}

static void put_text(maker *m, const char *suffix, const char *value)
{
    gguf_put_key(&m->keys, key_of(m, suffix), GGUF_STRING);
    gguf_put_string(&m->keys, value);
    m->count++;
}

static maker start(const char *arch)
{
    maker m = {.arch = arch, .count = 1};
    gguf_put_key(&m.keys, "general.architecture", GGUF_STRING);
    gguf_put_string(&m.keys, arch);
    put_u32(&m, "block_count", 7);
    put_u32(&m, "embedding_length", 64);
    put_u32(&m, "feed_forward_length", 96);
    put_u32(&m, "context_length", 4096);
    put_u32(&m, "attention.head_count", 4);
    put_f32(&m,
            strcmp(arch, "gpt2") == 0 ? "attention.layer_norm_epsilon"
                                      : "attention.layer_norm_rms_epsilon",
            1e-5f);
    return m;
}

static temper_status read_config(maker *m, model_config *out, error *err)
{
    strbuf file = {0};
    gguf_file *gguf = NULL;
    source *src = NULL;
    gguf_put_header(&file, "GGUF", 3, 0, m->count);
    strbuf_append(&file, strbuf_text(&m->keys), m->keys.length);
    assert_int_equal(source_open_memory("made", strbuf_text(&file), file.length, &src, err),
                     TEMPER_OK);
    const temper_status opened = gguf_open(src, &gguf, err);
    if (opened != TEMPER_OK)
        fail_msg("%s", err->text);
    const temper_status status = model_config_read(gguf, 100, out, err);
    gguf_close(gguf);
    strbuf_free(&file);
    strbuf_free(&m->keys);
    return status;
}

static model_config accepted(maker m)
{
    error err = {0};
    model_config c;
    if (read_config(&m, &c, &err) != TEMPER_OK)
        fail_msg("%s", err.text);
    return c;
}

static void refused(maker m, temper_status status, const char *word)
{
    error err = {0};
    model_config c;
    const temper_status got = read_config(&m, &c, &err);
    if (got != status || strstr(err.text, word) == NULL)
        fail_msg("refused as %d \"%s\", not as %d with \"%s\"", (int)got, err.text, (int)status,
                 word);
}

static void near_to(double got, double want, double relative)
{
    if (!(fabs(got - want) <= relative * fabs(want)))
        fail_msg("%.9g, not %.9g", got, want);
}

/* ---- what an architecture means -------------------------------------------------------------- */

static void defaults(void **state)
{
    (void)state;
    const model_config llama = accepted(start("llama"));
    near_to((double)llama.attention_scale, 0.25, 1e-7);
    assert_true(llama.embedding_scale == 1.0f && llama.rope_magnitude == 1.0f);
    assert_true(!llama.rope_halves && llama.rope_dims == 16 && llama.rope_base == 10000.0f);
    assert_int_equal(llama.kv_heads, 4);
    assert_false(model_layer_is_local(&llama, 0));
    assert_true(accepted(start("qwen2")).rope_halves && accepted(start("phi3")).rope_halves);
    const model_config gemma = accepted(start("gemma3"));
    assert_true(gemma.embedding_scale == 8.0f && gemma.rope_local_base == 10000.0f);
    assert_int_equal(accepted(start("gpt2")).rope_dims, 0);

    maker m = start("gemma3");
    put_f32(&m, "attention.scale", 0.5f);
    put_f32(&m, "final_logit_softcapping", 30.0f);
    put_f32(&m, "attn_logit_softcapping", 50.0f);
    const model_config c = accepted(m);
    assert_true(c.attention_scale == 0.5f && c.logit_softcap == 30.0f &&
                c.attention_softcap == 50.0f);
}

static void refusals(void **state)
{
    (void)state;
    refused(start("mamba"), TEMPER_UNSUPPORTED,
            "\"mamba\"; temper runs: llama, qwen2, qwen3, gemma3, phi3, gpt2");
    maker m = start("llama");
    put_u32(&m, "expert_count", 8);
    refused(m, TEMPER_UNSUPPORTED, "llama.expert_count");
    m = start("llama");
    put_text(&m, "rope.scaling.type", "dynamic");
    refused(m, TEMPER_UNSUPPORTED, "\"dynamic\"");
    m = start("llama");
    put_text(&m, "rope.scaling.type", "yarn");
    refused(m, TEMPER_BAD_FILE, "llama.rope.scaling.factor");
    m = start("qwen3");
    put_u32(&m, "rope.dimension_count", 15);
    refused(m, TEMPER_BAD_FILE, "15 rotated dimensions do not fit heads of 16");
    m = start("gemma3");
    put_f32(&m, "rope.freq_base_swa", 0.0f);
    refused(m, TEMPER_BAD_FILE, "gemma3.rope.freq_base_swa is 0");
    m = start("gemma3");
    put_f32(&m, "final_logit_softcapping", NAN);
    refused(m, TEMPER_BAD_FILE, "gemma3.final_logit_softcapping");
    m = start("llama");
    put_f32(&m, "rope.scaling.yarn_log_multiplier", 0.1f);
    refused(m, TEMPER_UNSUPPORTED, "llama.rope.scaling.yarn_log_multiplier");
}

/* ---- windows --------------------------------------------------------------------------------- */

static uint32_t local_layers(const model_config *c)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < c->layers; i++)
        bits |= (uint32_t)model_layer_is_local(c, i) << i;
    return bits;
}

static void put_pattern(maker *m, uint32_t bits)
{
    gguf_put_array(&m->keys, key_of(m, "attention.sliding_window_pattern"), GGUF_BOOL, 7);
    for (uint32_t i = 0; i < 7; i++)
        strbuf_putc(&m->keys, (char)(bits >> i & 1));
    m->count++;
}

static void windows(void **state)
{
    (void)state;
    model_config c = accepted(start("gemma3"));
    assert_int_equal(local_layers(&c), 0); /* no window in the file */
    const struct {
        const char *arch;
        uint32_t pattern, local;
    } rows[] = {{"llama", 0, 0x7f}, {"phi3", 0, 0x7f}, {"gemma3", 0, 0x5f}, {"gemma3", 3, 0x5b}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        maker m = start(rows[i].arch);
        put_u32(&m, "attention.sliding_window", 512);
        if (rows[i].pattern > 0)
            put_u32(&m, "attention.sliding_window_pattern", rows[i].pattern);
        c = accepted(m);
        assert_int_equal(c.window, 512);
        assert_int_equal(local_layers(&c), rows[i].local);
    }
    const uint32_t lists[] = {0x5f, 0x5b, 0x2a ^ 0x7f, 0x7f, 0};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        maker m = start("gemma3");
        put_u32(&m, "attention.sliding_window", 512);
        put_pattern(&m, lists[i]);
        c = accepted(m);
        assert_int_equal(local_layers(&c), lists[i]);
    }
    maker m = start("gemma3");
    put_u32(&m, "attention.sliding_window", 512);
    put_pattern(&m, 0x5e);
    refused(m, TEMPER_UNSUPPORTED, "gemma3.attention.sliding_window_pattern is no period");
}

/* ---- rope ------------------------------------------------------------------------------------ */

/* Heads of 16, base 10000: pair i turns by 10^(-i / 2) a position. A context of 128 stretched 16
 * times: 32 turns over 128 positions are pair 8 ln(128 / (64 pi)) / ln 10000 = -0.39, one turn is
 * pair 8 ln(128 / (2 pi)) / ln 10000 = 2.62. So a ramp from 0 to 3: all of pair 0 stays, 2/3 of
 * pair 1, 1/3 of pair 2, and from pair 3 on nothing. */
static void yarn(void **state)
{
    (void)state;
    maker m = start("llama");
    put_text(&m, "rope.scaling.type", "yarn");
    put_f32(&m, "rope.scaling.factor", 16.0f);
    put_u32(&m, "rope.scaling.original_context_length", 128);
    const model_config c = accepted(m);
    double frequency[8];
    near_to((double)c.rope_magnitude, 1 + 0.1 * log(16), 1e-6);
    model_rope_frequencies(&c, false, NULL, frequency);
    const double kept[8] = {1, 2.0 / 3, 1.0 / 3};
    for (int i = 0; i < 8; i++)
        near_to(frequency[i], pow(10, -i / 2.0) * (kept[i] + (1 - kept[i]) / 16), 1e-12);
}

static void other_scalings(void **state)
{
    (void)state;
    double frequency[8];
    maker m = start("llama");
    put_f32(&m, "rope.scaling.factor", 4.0f); /* a factor alone is linear */
    model_config c = accepted(m);
    model_rope_frequencies(&c, false, NULL, frequency);
    near_to(frequency[2], 0.1 / 4, 1e-12);
    m = start("llama");
    put_text(&m, "rope.scaling.type", "none");
    put_f32(&m, "rope.scaling.factor", 4.0f);
    c = accepted(m);
    model_rope_frequencies(&c, false, NULL, frequency);
    near_to(frequency[2], 0.1, 1e-12);
    /* Local layers have a base of their own and know no factor. */
    m = start("gemma3");
    put_u32(&m, "attention.sliding_window", 512);
    put_text(&m, "rope.scaling.type", "linear");
    put_f32(&m, "rope.scaling.factor", 8.0f);
    put_f32(&m, "rope.freq_base", 1e6f);
    c = accepted(m);
    model_rope_frequencies(&c, false, NULL, frequency);
    near_to(frequency[4], 1e-3 / 8, 1e-12);
    model_rope_frequencies(&c, true, NULL, frequency);
    near_to(frequency[4], 1e-2, 1e-12);
    /* Long-rope: a factor a pair, and a magnitude for all. */
    m = start("phi3");
    put_text(&m, "rope.scaling.type", "longrope");
    put_u32(&m, "rope.scaling.original_context_length", 64);
    put_f32(&m, "rope.scaling.attn_factor", 1.25f);
    c = accepted(m);
    const float factors[8] = {1, 2, 4, 5, 8, 10, 16, 20};
    model_rope_frequencies(&c, false, factors, frequency);
    near_to(frequency[4], 1e-2 / 8, 1e-12);
    assert_true(c.rope_magnitude == 1.25f && c.rope_original == 64);
}

/* Heads of 8 rows of which 6 turn: 0 3, 1 4, 2 5 are pairs; 6 and 7 stay, and so does the third
 * head. */
static void order_of_rows(void **state)
{
    (void)state;
    const weights_order order = {2, 8, 6}, none = {0, 0, 0};
    const uint64_t want[8] = {0, 2, 4, 1, 3, 5, 6, 7};
    for (uint64_t row = 0; row < 24; row++) {
        assert_int_equal(weights_order_row(order, row),
                         row < 16 ? row / 8 * 8 + want[row % 8] : row);
        assert_int_equal(weights_order_row(none, row), row);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),       cmocka_unit_test(refusals),
        cmocka_unit_test(windows),        cmocka_unit_test(yarn),
        cmocka_unit_test(other_scalings), cmocka_unit_test(order_of_rows),
    };
    return cmocka_run_group_tests_name("unit_model_config", tests, NULL, NULL);
}
