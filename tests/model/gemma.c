/*
 * gemma.c - Gemma 3 270M, where set-up fetched it (tools/setup --gemma): a second real model, of
 * four weight formats, with windows and two rope bases, against tests/golden/model/gemma3-270m.
 */
#include "support/model_test.h"

#include <math.h>

/* The f32 path stays within this share of the logit range of the exact reference (measured: 2e-6).
 */
#define LIMIT 1e-4

static void check_prompts(const device_mask *mask, const char *const *names, size_t count)
{
    const char *path = test_gemma_model();
    temper_error err = {0};
    temper_session *session = NULL;
    temper_device *device = test_device(mask);
    temper_engine *engine = test_engine(device, path, 0);
    assert_ok(temper_session_open(engine, &(temper_session_desc){.context = 1024}, &session, &err));
    for (size_t i = 0; i < count; i++) {
        char golden[64];
        snprintf(golden, sizeof golden, "model/gemma3-270m/%s.json", names[i]);
        test_model_prompt(engine, session, golden, LIMIT, SIZE_MAX);
    }
    temper_session_close(session);
    temper_engine_close(engine);
    test_nothing_left(device);
    temper_device_release(device);
}

static void all_prompts_with_everything(void **state)
{
    (void)state;
    const char *const names[] = {"plain", "code", "nonlatin", "long"};
    check_prompts(&test_masks[0], names, sizeof names / sizeof names[0]);
}

/* The last mask takes every feature away and leaves WebGPU's default limits: the embedding of 170
 * MB is in two parts. */
static void short_prompts_bare(void **state)
{
    (void)state;
    const char *const names[] = {"plain", "code", "nonlatin"};
    check_prompts(&test_masks[test_mask_count - 1], names, sizeof names / sizeof names[0]);
}

/* The two best tokens after places within a prompt, on both sides of the window's length. */
static void places_within_the_prompt(void **state)
{
    (void)state;
    const char *path = test_gemma_model();
    temper_error err = {0};
    temper_session *session = NULL;
    temper_device *device = test_device(&test_masks[0]);
    temper_engine *engine = test_engine(device, path, 0);
    json_t *golden = test_golden("model/gemma3-270m/long.json");
    const json_t *places = json_object_get(golden, "places");
    temper_tokens ids = test_ids(json_object_get(golden, "ids"));
    float *logits = calloc(temper_engine_info(engine)->vocabulary, sizeof *logits);
    assert_non_null(logits);
    assert_ok(temper_session_open(engine, &(temper_session_desc){.context = 1024}, &session, &err));
    assert_true(json_array_size(places) >= 5);
    for (size_t i = 0; i < json_array_size(places); i++) {
        const json_t *place = json_array_get(places, i);
        const size_t at = (size_t)json_integer_value(json_object_get(place, "position"));
        const temper_tokens part = {ids.ids, at + 1};
        assert_ok(temper_session_logits_from(session, part, at, logits, &err));
        const double worst =
            test_worst(logits, json_object_get(place, "ids"), json_object_get(place, "logits"),
                       json_number_value(json_object_get(place, "range")));
        print_message("place %zu: off by %.2g of the range\n", at, worst);
        assert_true(worst <= LIMIT);
    }
    free(logits);
    free(ids.ids);
    temper_session_close(session);
    temper_engine_close(engine);
    temper_device_release(device);
    json_decref(golden);
}

static void tokens_are_sentencepieces(void **state)
{
    (void)state;
    const char *path = test_gemma_model();
    temper_error err = {0};
    temper_engine *engine = NULL;
    const temper_engine_desc desc = {.model = path, .vocabulary_only = true};
    assert_ok(temper_engine_open(&desc, &engine, &err));
    json_t *golden = test_golden("model/gemma3-270m/tokens.json");
    const json_t *cases = json_object_get(golden, "cases");
    assert_true(json_array_size(cases) > 50);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *text = json_object_get(json_array_get(cases, i), "text");
        temper_tokens wanted = test_ids(json_object_get(json_array_get(cases, i), "ids"));
        temper_tokens found = {0};
        assert_ok(temper_tokenize(engine, json_string_value(text), json_string_length(text), 0,
                                  &found, &err));
        if (found.count != wanted.count ||
            (found.count > 0 &&
             memcmp(found.ids, wanted.ids, found.count * sizeof *found.ids) != 0))
            fail_msg("\"%s\": other tokens", json_string_value(text));
        temper_free(found.ids);
        free(wanted.ids);
    }
    temper_engine_close(engine);
    json_decref(golden);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_sentencepieces),
        cmocka_unit_test(all_prompts_with_everything),
        cmocka_unit_test(places_within_the_prompt),
        cmocka_unit_test(short_prompts_bare),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
