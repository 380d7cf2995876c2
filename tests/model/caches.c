/*
 * caches.c - KV caches in f16 and q8: how far answers may be from those with an f32 cache, that
 * they are the same however a text came into the cache, what they take, and what is refused.
 */
#include "support/model_test.h"

#include <math.h>

#define MODEL "tiny/llama-q4_1.gguf"

/* What a type may cost. Measured with the default model and its long prompt: f16 is off by 2.2e-4
 * of the logits' range and 4e-6 of the summed score, q8 by 5.3e-3 and 6e-4. */
typedef struct kind {
    const char *name;
    temper_kv kv;
    double logits, nll;
    uint32_t bits; /* that a value takes, in heads of 64 */
} kind;

static const kind kinds[] = {
    {"f16", TEMPER_KV_F16, 1e-3, 1e-4, 16},
    {"q8", TEMPER_KV_Q8, 2e-2, 5e-3, 10},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static temper_session *open_session(temper_engine *engine, uint32_t context, temper_kv kv)
{
    temper_error err = {0};
    temper_session *session = NULL;
    const temper_session_desc desc = {.context = context, .kv = kv};
    assert_ok(temper_session_open(engine, &desc, &session, &err));
    return session;
}

/* Largest difference of two lists as a share of the range of the first. */
static double worst_of(const float *a, const float *b, uint32_t count)
{
    double low = INFINITY, high = -INFINITY, worst = 0.0;
    for (uint32_t i = 0; i < count; i++) {
        const double difference = fabs((double)a[i] - (double)b[i]);
        low = fmin(low, (double)a[i]);
        high = fmax(high, (double)a[i]);
        if (!(difference <= worst))
            worst = difference;
    }
    return worst / (high - low);
}

/* `count` ids that depend on their place; free with free(). */
static temper_tokens some_ids(size_t count, uint32_t vocabulary)
{
    temper_tokens tokens = {calloc(count, sizeof(uint32_t)), count};
    for (size_t i = 0; i < count; i++)
        tokens.ids[i] = (uint32_t)(i * 37 + i * i * 3 + 11) % vocabulary;
    return tokens;
}

/* The golden prompt "long" as ids, as much of it as passes the first block of a cache. */
static temper_tokens long_text(void)
{
    enum { TOKENS = 288 };
    json_t *golden = test_golden("model/smollm2-135m/long.json");
    temper_tokens tokens = test_ids(json_object_get(golden, "ids"));
    json_decref(golden);
    assert_true(tokens.count >= TOKENS);
    tokens.count = TOKENS;
    return tokens;
}

static void logits_and_scores_stay_close(void **state)
{
    (void)state;
    temper_error err = {0};
    temper_device *device = test_device(&test_masks[0]);
    temper_engine *engine = test_engine(device, test_default_model(), 0);
    const uint32_t vocabulary = temper_engine_info(engine)->vocabulary;
    temper_tokens text = long_text();
    const size_t first = text.count / 2, scored = text.count - first;
    float *wanted = calloc(vocabulary, sizeof *wanted), *got = calloc(vocabulary, sizeof *got);
    float *wanted_nll = calloc(scored, sizeof *wanted_nll), *nll = calloc(scored, sizeof *nll);
    temper_session *exact = open_session(engine, 2048, TEMPER_KV_F32);
    assert_ok(temper_session_score(exact, text, first, wanted_nll, &err));
    assert_ok(temper_session_logits(exact, text, wanted, &err));
    temper_session_close(exact);
    for (size_t k = 0; k < KINDS; k++) {
        temper_session *session = open_session(engine, 2048, kinds[k].kv);
        assert_ok(temper_session_score(session, text, first, nll, &err));
        assert_ok(temper_session_logits(session, text, got, &err));
        double sum = 0.0, wanted_sum = 0.0;
        for (size_t i = 0; i < scored; i++) {
            sum += (double)nll[i];
            wanted_sum += (double)wanted_nll[i];
        }
        const double worst = worst_of(wanted, got, vocabulary);
        print_message("%s: logits off by %.2g of the range, scores %.6f and %.6f\n", kinds[k].name,
                      worst, sum, wanted_sum);
        assert_true(worst > 0.0 && worst <= kinds[k].logits);
        assert_true(fabs(sum - wanted_sum) <= kinds[k].nll * wanted_sum);
        temper_session_close(session);
    }
    temper_engine_close(engine);
    test_nothing_left(device);
    temper_device_release(device);
    free(wanted);
    free(got);
    free(wanted_nll);
    free(nll);
    free(text.ids);
}

/* A text read at once, and token by token at its beginning and over the edge of the first block,
 * with a stretch between: what is stored is the same, so the logits are, but for sums in another
 * order and the rare number that they push over the edge of a step. */
static void it_does_not_matter_how_a_text_came_in(void **state)
{
    (void)state;
    temper_error err = {0};
    for (size_t m = 0; m < test_mask_count; m++) {
        temper_device *device = test_device(&test_masks[m]);
        temper_engine *engine = test_engine(device, MODEL, 32);
        const uint32_t vocabulary = temper_engine_info(engine)->vocabulary;
        temper_tokens text = some_ids(290, vocabulary);
        float *whole = calloc(vocabulary, sizeof *whole),
              *steps = calloc(vocabulary, sizeof *steps);
        for (size_t k = 0; k < KINDS; k++) {
            temper_session *session = open_session(engine, 512, kinds[k].kv);
            assert_ok(temper_session_logits(session, text, whole, &err));
            temper_session_close(session);
            session = open_session(engine, 512, kinds[k].kv);
            for (size_t n = 1; n <= text.count; n += n == 8 ? 232 : 1)
                assert_ok(
                    temper_session_logits(session, (temper_tokens){text.ids, n}, steps, &err));
            const double worst = worst_of(whole, steps, vocabulary);
            print_message("%s: off by %.2g of the range\n", kinds[k].name, worst);
            assert_true(worst <= kinds[k].logits);
            temper_session_close(session);
        }
        temper_engine_close(engine);
        temper_device_release(device);
        free(whole);
        free(steps);
        free(text.ids);
    }
}

static void the_same_request_gives_the_same_tokens(void **state)
{
    (void)state;
    temper_error err = {0};
    temper_device *device = test_device(&test_masks[0]);
    temper_engine *engine = test_engine(device, MODEL, 32);
    temper_tokens a = some_ids(280, 250), b = some_ids(270, 240);
    for (size_t k = 0; k < KINDS; k++) {
        temper_session *session = open_session(engine, 512, kinds[k].kv);
        uint32_t answers[3][24] = {{0}};
        size_t counts[3];
        for (int turn = 0; turn < 3; turn++) {
            const temper_request request = {.prompt = turn == 1 ? b : a, .max_tokens = 24};
            temper_result result;
            assert_ok(temper_session_generate(session, &request, &result, &err));
            counts[turn] = result.token_count;
            memcpy(answers[turn], result.tokens, counts[turn] * sizeof(uint32_t));
        }
        assert_true(counts[0] > 2 && counts[0] == counts[2]);
        assert_memory_equal(answers[0], answers[2], sizeof answers[0]);
        temper_session_close(session);
    }
    free(a.ids);
    free(b.ids);
    temper_engine_close(engine);
    temper_device_release(device);
}

/* 30 layers, K and V, 3 heads of 64, 512 positions; an entry of the block table per 256. */
static void a_cache_takes_what_its_type_says(void **state)
{
    (void)state;
    temper_device *device = test_device(&test_masks[0]);
    temper_engine *engine = test_engine(device, test_default_model(), 0);
    for (size_t k = 0; k < KINDS; k++) {
        temper_session *session = open_session(engine, 512, kinds[k].kv);
        assert_int_equal(temper_device_get_stats(device).cache_bytes,
                         30ull * 2 * 3 * 64 * 512 * kinds[k].bits / 8);
        temper_session_close(session);
    }
    temper_engine_close(engine);
    temper_device_release(device);
}

static void what_is_none_is_refused(void **state)
{
    (void)state;
    temper_error err = {0};
    temper_session *session = NULL;
    temper_file *file = NULL;
    temper_memory_estimate estimate;
    temper_device *device = test_device(&test_masks[0]);
    temper_engine *engine = test_engine(device, MODEL, 32);
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", TEST_GOLDEN, MODEL);
    assert_ok(temper_file_open(path, NULL, &file, &err));
    for (int wrong = -1; wrong <= 3; wrong += 4) {
        char told[32];
        snprintf(told, sizeof told, "kv is %d", wrong);
        const temper_session_desc desc = {.kv = (temper_kv)wrong};
        assert_fails(temper_session_open(engine, &desc, &session, &err), TEMPER_BAD_ARGUMENT, told);
        assert_null(session);
        assert_fails(temper_file_estimate(file, &(temper_estimate_desc){.kv = (temper_kv)wrong},
                                          &estimate, &err),
                     TEMPER_BAD_ARGUMENT, told);
    }
    temper_file_close(file);
    temper_engine_close(engine);
    temper_device_release(device);
}

/* Where f32 does not bind, the message names the way out, and f16 takes it. */
static void a_smaller_type_fits_where_f32_does_not(void **state)
{
    (void)state;
    temper_error err = {0};
    temper_session *session = NULL;
    /* 3 heads of 64, 32 blocks of 256: 6 MiB in f32. The embedding is bound in parts. */
    const char *const limits[] = {"maxStorageBufferBindingSize=4194304"};
    temper_device *device = NULL;
    assert_ok(temper_device_open(&(temper_device_desc){.limits = limits, .limit_count = 1}, &device,
                                 &err));
    temper_engine *engine = test_engine(device, test_default_model(), 32);
    assert_fails(temper_session_open(engine, NULL, &session, &err), TEMPER_UNSUPPORTED, "--kv f16");
    session = open_session(engine, 8192, TEMPER_KV_F16);
    temper_session_close(session);
    temper_engine_close(engine);
    temper_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_and_scores_stay_close),
        cmocka_unit_test(it_does_not_matter_how_a_text_came_in),
        cmocka_unit_test(the_same_request_gives_the_same_tokens),
        cmocka_unit_test(a_cache_takes_what_its_type_says),
        cmocka_unit_test(what_is_none_is_refused),
        cmocka_unit_test(a_smaller_type_fits_where_f32_does_not),
    };
    return cmocka_run_group_tests_name("model_caches", tests, NULL, NULL);
}
