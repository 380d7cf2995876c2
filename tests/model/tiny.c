/*
 * tiny.c - small random models of every weight type against double-precision logits, under every
 * mask. Their prompts of 300 tokens cross a block of the KV cache, and the chunk sizes below cut
 * them everywhere.
 */
#include "support/model_test.h"

/* f32 arithmetic on these models differs from the double reference by less than this share of the
 * logit range; measured 4e-7 at worst, so a wrong formula cannot hide. */
#define LIMIT 1e-5

static const char *const models[] = {"f32", "f16", "q4_0", "q4_1", "q8_0", "wide"};

/* Every golden position of a prompt, each by a fresh prompt that ends there; the session keeps what
 * they share. */
static void check_logits(temper_session *session, const json_t *prompt, uint32_t vocabulary,
                         const char *what)
{
    temper_error err = {0};
    float *logits = calloc(vocabulary, sizeof *logits);
    temper_tokens ids = test_ids(json_object_get(prompt, "ids"));
    const double range = json_number_value(json_object_get(prompt, "range"));
    const json_t *rows = json_object_get(prompt, "logits");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const size_t position = (size_t)json_integer_value(json_object_get(row, "position"));
        const temper_tokens part = {ids.ids, position + 1};
        assert_ok(temper_session_logits(session, part, logits, &err));
        const double worst = test_worst(logits, NULL, json_object_get(row, "values"), range);
        if (!(worst <= LIMIT))
            fail_msg("%s, %zu tokens, position %zu: off by %g of the range", what, ids.count,
                     position, worst);
    }
    free(ids.ids);
    free(logits);
}

static void check_greedy(temper_session *session, const json_t *prompt, const char *what)
{
    temper_error err = {0};
    temper_result result;
    temper_tokens ids = test_ids(json_object_get(prompt, "ids"));
    temper_tokens wanted = test_ids(json_object_get(json_object_get(prompt, "greedy"), "ids"));
    const temper_request request = {.prompt = ids, .max_tokens = wanted.count};
    assert_ok(temper_session_generate(session, &request, &result, &err));
    for (size_t i = 0; i < result.token_count; i++)
        if (result.tokens[i] != wanted.ids[i])
            fail_msg("%s, %zu tokens: token %zu is %u, not %u", what, ids.count, i,
                     result.tokens[i], wanted.ids[i]);
    assert_int_equal(result.token_count, wanted.count);
    free(ids.ids);
    free(wanted.ids);
}

static void check_model(temper_device *device, const char *name, uint32_t max_rows)
{
    char path[64], what[128];
    temper_error err = {0};
    temper_session *session = NULL;
    snprintf(path, sizeof path, "tiny/llama-%s.json", name);
    json_t *golden = test_golden(path);
    snprintf(path, sizeof path, "tiny/llama-%s.gguf", name);
    snprintf(what, sizeof what, "%s, %u rows a step", name, max_rows);
    temper_engine *engine = test_engine(device, path, max_rows);
    const json_t *prompts = json_object_get(golden, "prompts");
    assert_ok(temper_session_open(engine, &(temper_session_desc){.context = 512}, &session, &err));
    assert_int_equal(json_array_size(prompts), 3);
    for (size_t i = 0; i < json_array_size(prompts); i++) {
        check_logits(session, json_array_get(prompts, i), temper_engine_info(engine)->vocabulary,
                     what);
        check_greedy(session, json_array_get(prompts, i), what);
    }
    temper_session_close(session);
    temper_engine_close(engine);
    json_decref(golden);
}

static void every_type_under_every_mask(void **state)
{
    (void)state;
    for (size_t m = 0; m < test_mask_count; m++) {
        temper_device *device = test_device(&test_masks[m]);
        for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
            check_model(device, models[i], 0);
        test_nothing_left(device);
        temper_device_release(device);
    }
}

static void every_size_of_chunk(void **state)
{
    (void)state;
    temper_device *device = test_device(&test_masks[0]);
    const uint32_t sizes[] = {1, 2, 7, 16, 17, 64, 255, 256, 257, 300, 512};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        check_model(device, "q4_1", sizes[i]);
    temper_device_release(device);
}

/* A weight that passes the binding limit is split by rows over dispatches, with the same result. */
static void a_tiny_binding_limit_splits_every_weight(void **state)
{
    (void)state;
    temper_error err = {0};
    temper_device *device = NULL;
    const char *limits[] = {"maxStorageBufferBindingSize=32768"};
    const temper_device_desc desc = {.limits = limits, .limit_count = 1};
    assert_ok(temper_device_open(&desc, &device, &err));
    temper_session *session = NULL;
    json_t *golden = test_golden("tiny/llama-f32.json");
    temper_engine *engine = test_engine(device, "tiny/llama-f32.gguf", 16);
    assert_ok(temper_session_open(engine, &(temper_session_desc){.context = 256}, &session, &err));
    const json_t *prompt = json_array_get(json_object_get(golden, "prompts"), 1);
    check_logits(session, prompt, temper_engine_info(engine)->vocabulary, "f32, split");
    check_greedy(session, prompt, "f32, split");
    temper_session_close(session);
    temper_engine_close(engine);
    temper_device_release(device);
    json_decref(golden);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_under_every_mask),
        cmocka_unit_test(every_size_of_chunk),
        cmocka_unit_test(a_tiny_binding_limit_splits_every_weight),
    };
    return cmocka_run_group_tests_name("model_tiny", tests, NULL, NULL);
}
