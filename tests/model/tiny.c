/*
 * tiny.c - small random models of every weight type against double-precision logits, under every
 * mask. Their prompts of 300 tokens cross a block of the KV cache, and the chunk sizes below cut
 * them everywhere.
 */
#include "support/model_test.h"

static const char *const models[] = {"f32", "f16", "q4_0", "q4_1", "q8_0", "wide"};

static void check_model(temper_device *device, const char *name, uint32_t max_rows)
{
    char stem[64];
    snprintf(stem, sizeof stem, "tiny/llama-%s", name);
    test_tiny_model(device, stem, max_rows);
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
    test_tiny_logits(session, prompt, temper_engine_info(engine)->vocabulary, "f32, split");
    test_tiny_greedy(session, prompt, "f32, split");
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
