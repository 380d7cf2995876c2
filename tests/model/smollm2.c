/*
 * smollm2.c - the default model against double-precision logits and greedy answers
 * (tests/golden/model/smollm2-135m), and the perplexity of a licence that every Debian machine has.
 */
#include "support/model_test.h"

#include <math.h>

#include "base/mem.h"
#include "model/weights.h"

static void check_prompts(const device_mask *mask, const char *const *names, size_t count)
{
    temper_error err = {0};
    temper_session *session = NULL;
    temper_device *device = test_device(mask);
    temper_engine *engine = test_engine(device, test_default_model(), 0);
    assert_ok(temper_session_open(engine, &(temper_session_desc){.context = 2048}, &session, &err));
    for (size_t i = 0; i < count; i++)
        test_smollm2_prompt(engine, session, names[i], SIZE_MAX);
    temper_session_close(session);
    temper_engine_close(engine);
    test_nothing_left(device);
    temper_device_release(device);
}

static void all_prompts_with_everything(void **state)
{
    (void)state;
    const char *const names[] = {"one", "sixteen", "plain", "code", "chat", "nonlatin", "long"};
    check_prompts(&test_masks[0], names, sizeof names / sizeof names[0]);
}

/* The last mask takes every feature away and leaves WebGPU's default limits. */
static void all_prompts_bare(void **state)
{
    (void)state;
    const char *const names[] = {"one", "sixteen", "plain", "code", "chat", "nonlatin", "long"};
    check_prompts(&test_masks[test_mask_count - 1], names, sizeof names / sizeof names[0]);
}

static void short_prompts_under_the_other_masks(void **state)
{
    (void)state;
    const char *const names[] = {"sixteen", "plain", "chat"};
    for (size_t m = 1; m + 1 < test_mask_count; m++)
        check_prompts(&test_masks[m], names, sizeof names / sizeof names[0]);
}

/* llama.cpp's convention: windows of 256, the second half of each scored. */
static void perplexity_of_a_licence(void **state)
{
    (void)state;
    temper_error err = {0};
    temper_session *session = NULL;
    temper_tokens tokens = {0};
    json_t *golden = test_golden("model/smollm2-135m/ppl-gpl3.json");
    const json_t *text = json_object_get(golden, "text");
    const json_t *windows = json_object_get(golden, "windows");
    const char *path = json_string_value(json_object_get(text, "path"));
    char command[512];
    snprintf(command, sizeof command, "echo '%s  %s' | sha256sum --check --status",
             json_string_value(json_object_get(text, "sha256")), path);
    if (system(command) != 0)
        fail_msg("%s is not the text that the golden was made from", path);

    char *content = calloc(1, 1 << 20);
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    const size_t length = fread(content, 1, 1 << 20, in);
    fclose(in);
    temper_device *device = test_device(&test_masks[0]);
    temper_engine *engine = test_engine(device, test_default_model(), 0);
    assert_ok(temper_tokenize(engine, content, length, TEMPER_PARSE_SPECIAL, &tokens, &err));
    assert_int_equal(tokens.count, json_integer_value(json_object_get(golden, "text_tokens")));
    const uint32_t n = (uint32_t)json_integer_value(json_object_get(golden, "context"));
    assert_ok(temper_session_open(engine, &(temper_session_desc){.context = n}, &session, &err));
    float nll[256];
    double sum = 0.0;
    size_t scored = 0;
    for (size_t w = 0; w < json_array_size(windows); w++) {
        double part = 0.0;
        const temper_tokens window = {tokens.ids + w * n, n};
        assert_ok(temper_session_score(session, window, n / 2 + 1, nll, &err));
        for (uint32_t i = 0; i < n - n / 2 - 1; i++)
            part += (double)nll[i];
        scored += n - n / 2 - 1;
        const double wanted = json_number_value(json_object_get(json_array_get(windows, w), "nll"));
        print_message("window %zu: %.5f, reference %.5f\n", w, part, wanted);
        assert_true(fabs(part - wanted) <= 1e-4 * wanted);
        sum += part;
    }
    assert_int_equal(scored, 508);
    assert_true(
        fabs(exp(sum / (double)scored) - json_number_value(json_object_get(golden, "ppl"))) < 1e-2);
    temper_session_close(session);
    temper_engine_close(engine);
    temper_device_release(device);
    temper_free(tokens.ids);
    free(content);
    json_decref(golden);
}

/* Reading and repacking go through some small blocks, whatever the size of the model: under 1.2
 * times the largest tensor, what the library maps for uploads included. */
static void loading_holds_little_on_the_host(void **state)
{
    (void)state;
    temper_device *device = test_device(&test_masks[0]);
    const uint64_t largest = 49152ull * 576 / 32 * 34; /* the embedding, Q8_0 */
    temper_engine *engine = test_engine(device, test_default_model(), 0);
    const uint64_t peak = temper_engine_info(engine)->load_host_bytes;
    print_message("%llu bytes at most, the largest tensor has %llu\n", (unsigned long long)peak,
                  (unsigned long long)largest);
    assert_true(peak > 2 * WEIGHTS_BLOCK_BYTES && peak < largest / 10 * 12);
    temper_engine_close(engine);
    temper_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_prompts_with_everything),
        cmocka_unit_test(all_prompts_bare),
        cmocka_unit_test(short_prompts_under_the_other_masks),
        cmocka_unit_test(perplexity_of_a_licence),
        cmocka_unit_test(loading_holds_little_on_the_host),
    };
    return cmocka_run_group_tests_name("model_smollm2", tests, NULL, NULL);
}
