/*
 * logits.c - temper_session_logits_from: the logits of many places of a prompt at once, against the
 * goldens, whatever is cached and however many rows a step takes.
 */
#include "support/model_test.h"

/* The golden positions among places [first, count) of a prompt. */
static void check(const json_t *prompt, const float *logits, size_t first, size_t count,
                  uint32_t vocabulary, const char *what)
{
    const double range = json_number_value(json_object_get(prompt, "range"));
    const json_t *rows = json_object_get(prompt, "logits");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const size_t at = (size_t)json_integer_value(json_object_get(row, "position"));
        if (at < first || at >= count)
            continue;
        const double worst = test_worst(logits + (at - first) * vocabulary, NULL,
                                        json_object_get(row, "values"), range);
        if (!(worst <= TINY_LIMIT))
            fail_msg("%s, places %zu to %zu: place %zu is off by %g of the range", what, first,
                     count, at, worst);
    }
}

static void of_many_places(void **state)
{
    static const uint32_t row_counts[] = {1, 7, 16, 33, 512};
    (void)state;
    temper_error err = {0};
    temper_device *device = test_device(&test_masks[0]);
    json_t *golden = test_golden("tiny/llama-q4_1.json");
    const json_t *prompt = json_array_get(json_object_get(golden, "prompts"), 2);
    temper_tokens ids = test_ids(json_object_get(prompt, "ids"));
    assert_int_equal(ids.count, 300);
    for (size_t i = 0; i < sizeof row_counts / sizeof row_counts[0]; i++) {
        char what[32];
        temper_session *session = NULL;
        temper_engine *engine = test_engine(device, "tiny/llama-q4_1.gguf", row_counts[i]);
        const uint32_t vocabulary = temper_engine_info(engine)->vocabulary;
        float *logits = calloc(ids.count * vocabulary, sizeof *logits);
        assert_non_null(logits);
        snprintf(what, sizeof what, "%u rows a step", row_counts[i]);
        assert_ok(
            temper_session_open(engine, &(temper_session_desc){.context = 300}, &session, &err));
        assert_ok(temper_session_logits_from(session, ids, 0, logits, &err));
        check(prompt, logits, 0, ids.count, vocabulary, what);
        /* Over what is cached, in parts as a caller with little memory takes them. */
        for (size_t first = 100; first < ids.count; first += 40) {
            const temper_tokens part = {ids.ids, first + 40};
            assert_ok(temper_session_logits_from(session, part, first, logits, &err));
            check(prompt, logits, first, first + 40, vocabulary, what);
        }
        assert_ok(temper_session_logits_from(session, ids, 299, logits, &err));
        check(prompt, logits, 299, ids.count, vocabulary, what);
        free(logits);
        temper_session_close(session);
        temper_engine_close(engine);
    }
    test_nothing_left(device);
    temper_device_release(device);
    free(ids.ids);
    json_decref(golden);
}

/* Each by its own words. */
static void wrong_calls(void **state)
{
    (void)state;
    temper_error err = {0};
    temper_session *session = NULL;
    temper_device *device = test_device(&test_masks[0]);
    temper_engine *engine = test_engine(device, "tiny/llama-q4_1.gguf", 0);
    float *logits = calloc(temper_engine_info(engine)->vocabulary, sizeof *logits);
    uint32_t ids[9] = {87, 260, 35, 274, 117, 113, 104, 111, 285};
    assert_non_null(logits);
    assert_ok(temper_session_open(engine, &(temper_session_desc){.context = 8}, &session, &err));
    assert_fails(temper_session_logits_from(session, (temper_tokens){ids, 3}, 3, logits, &err),
                 TEMPER_BAD_ARGUMENT, "place 3 of 3");
    assert_fails(temper_session_logits_from(session, (temper_tokens){ids, 0}, 0, logits, &err),
                 TEMPER_BAD_ARGUMENT, "place 0 of 0");
    assert_fails(temper_session_logits_from(session, (temper_tokens){ids, 9}, 8, logits, &err),
                 TEMPER_CONTEXT_FULL, "9 tokens");
    ids[2] = 291;
    assert_fails(temper_session_logits_from(session, (temper_tokens){ids, 4}, 3, logits, &err),
                 TEMPER_BAD_ARGUMENT, "id 291 at place 2");
    free(logits);
    temper_session_close(session);
    temper_engine_close(engine);
    temper_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_many_places),
        cmocka_unit_test(wrong_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
