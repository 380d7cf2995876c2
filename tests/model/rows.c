/*
 * rows.c - whole models with every row of every table that the device can run, those that a
 * software device leaves alone too, and with all scratch shared that may be: a row that reads or
 * writes at a moment that model/scratch.c does not know of shows here, whatever the sizes of a
 * model are.
 */
#include "support/model_test.h"

#include <math.h>

#include "infer/infer.h"
#include "op/rows.h"

/* Calls `each` with every row preferred in turn, and once with none. */
static void for_each_row(temper_device *device, void (*each)(temper_device *device))
{
    uint32_t rows = 0;
    each(device);
    for (const op_table *const *table = op_tables; *table != NULL; table++)
        for (uint32_t i = 0; i + 1 < (*table)->count; i++) {
            const op_kernel_row *row = &(*table)->rows[i];
            /* Lossy ones have tests of their own. */
            if (row->lossy != 0 || !op_row_runs(device->gpu, row))
                continue;
            print_message("%s, %s\n", (*table)->op, row->name);
            op_prefer_row(row->name);
            each(device);
            op_prefer_row(NULL);
            rows++;
        }
    assert_true(rows >= 8);
}

static void one_model(temper_device *device)
{
    test_tiny_model(device, "tiny/llama-q4_0", 64);
}

static void every_row_in_shared_scratch(void **state)
{
    (void)state;
    temper_device *device = test_device(&test_masks[0]);
    scratch_share_all(true);
    for_each_row(device, one_model);
    scratch_share_all(false);
    test_nothing_left(device);
    temper_device_release(device);
}

static void every_architecture_in_shared_scratch(void **state)
{
    (void)state;
    static const char *const stems[] = {"arch/gemma3", "arch/gpt2",  "arch/phi3",
                                        "arch/qwen2",  "arch/qwen3", "tiny/llama-wide"};
    temper_device *device = test_device(&test_masks[0]);
    scratch_share_all(true);
    for (size_t i = 0; i < sizeof stems / sizeof stems[0]; i++)
        test_tiny_model(device, stems[i], 0);
    scratch_share_all(false);
    temper_device_release(device);
}

/* ---- rows that round ------------------------------------------------------------------------- */

enum { PROMPT = 40 };

static void logits_of(temper_device *device, bool exact, temper_lossy lossy, float *logits)
{
    static const char path[] = TEST_GOLDEN "/tiny/llama-q4_0.gguf";
    temper_error err = {0};
    temper_engine *engine = NULL;
    temper_session *session = NULL;
    uint32_t ids[PROMPT];
    const temper_engine_desc desc = {
        .model = path, .device = device, .exact = exact, .lossy = lossy};
    assert_ok(temper_engine_open(&desc, &engine, &err));
    assert_ok(temper_session_open(engine, &(temper_session_desc){.context = 64}, &session, &err));
    assert_int_equal(temper_engine_info(engine)->lossy, lossy);
    for (uint32_t i = 0; i < PROMPT; i++)
        ids[i] = (7 * i + 3) % temper_engine_info(engine)->vocabulary;
    /* A prompt at once, then a few single rows. */
    for (size_t count = PROMPT - 4; count <= PROMPT; count++)
        assert_ok(temper_session_logits(session, (temper_tokens){ids, count}, logits, &err));
    temper_session_close(session);
    temper_engine_close(engine);
}

enum { VOCABULARY = 291 };

static float want[VOCABULARY];

/* Rounded inputs are off by far less than a wrong buffer would be. Returns by how much, of the
 * largest logit. */
static double check_logits(temper_device *device, temper_lossy lossy, double limit)
{
    float got[VOCABULARY];
    double largest = 0, worst = 0;
    logits_of(device, false, lossy, got);
    for (size_t i = 0; i < VOCABULARY; i++) {
        largest = fmax(largest, fabs((double)want[i]));
        worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
        assert_true(isfinite(got[i]));
    }
    if (!(worst < limit * largest))
        fail_msg("off by %g, the largest logit is %g", worst, largest);
    return worst / largest;
}

static void close_to_exact(temper_device *device)
{
    check_logits(device, TEMPER_LOSSY_NONE, 2e-2);
}

static void every_rounding_row_in_shared_scratch(void **state)
{
    (void)state;
    temper_device *device = test_device(&test_masks[0]);
    logits_of(device, true, TEMPER_LOSSY_NONE, want);
    scratch_share_all(true);
    for_each_row(device, close_to_exact);
    scratch_share_all(false);
    temper_device_release(device);
}

/* What an option opens is used on any device: a result that is exact was none of its kernels'. */
static void every_lossy_option_in_shared_scratch(void **state)
{
    (void)state;
    temper_device *device = test_device(&test_masks[0]);
    logits_of(device, true, TEMPER_LOSSY_NONE, want);
    scratch_share_all(true);
    for (int i = TEMPER_LOSSY_INT8; temper_lossy_name((temper_lossy)i) != NULL; i++) {
        const bool halves = i != TEMPER_LOSSY_INT8;
        if (halves && !(gpu_device_features(device->gpu) & GPU_FEATURE_F16))
            continue;
        const double off = check_logits(device, (temper_lossy)i, 1e-1);
        print_message("%s: off by %.2g of the largest logit\n", temper_lossy_name((temper_lossy)i),
                      off);
        assert_true(off > 1e-5);
    }
    scratch_share_all(false);
    test_nothing_left(device);
    temper_device_release(device);
}

static void lossy_is_refused_where_it_cannot_be(void **state)
{
    static const char path[] = TEST_GOLDEN "/tiny/llama-q4_0.gguf";
    (void)state;
    temper_error err = {0};
    temper_engine *engine = NULL;
    temper_device *device = NULL;
    assert_ok(temper_device_open(&(temper_device_desc){.without = "f16"}, &device, &err));
    temper_engine_desc desc = {.model = path, .device = device, .lossy = TEMPER_LOSSY_F16_SUMS};
    assert_fails(temper_engine_open(&desc, &engine, &err), TEMPER_UNSUPPORTED, "f16-sums");
    desc.lossy = TEMPER_LOSSY_INT8;
    desc.exact = true;
    assert_fails(temper_engine_open(&desc, &engine, &err), TEMPER_BAD_ARGUMENT, "not both");
    desc.lossy = (temper_lossy)77;
    assert_fails(temper_engine_open(&desc, &engine, &err), TEMPER_BAD_ARGUMENT, "77");
    assert_null(engine);
    test_nothing_left(device);
    temper_device_release(device);
}

/* After the longest prompt shorter ones create nothing. */
static void lossy_prompts_of_any_length_create_nothing(void **state)
{
    static const char path[] = TEST_GOLDEN "/tiny/llama-q4_1.gguf";
    static const temper_lossy options[] = {TEMPER_LOSSY_INT8, TEMPER_LOSSY_F16_BLOCK};
    (void)state;
    temper_error err = {0};
    temper_device *device = test_device(&test_masks[0]);
    const bool f16 = (gpu_device_features(device->gpu) & GPU_FEATURE_F16) != 0;
    for (size_t i = 0; i < (f16 ? 2 : 1); i++) {
        temper_engine *engine = NULL;
        temper_session *session = NULL;
        uint32_t ids[PROMPT];
        float logits[VOCABULARY];
        const temper_engine_desc desc = {.model = path, .device = device, .lossy = options[i]};
        assert_ok(temper_engine_open(&desc, &engine, &err));
        assert_ok(
            temper_session_open(engine, &(temper_session_desc){.context = 64}, &session, &err));
        temper_device_stats before = {0};
        for (uint32_t count = PROMPT; count >= 3; count -= 3) {
            for (uint32_t k = 0; k < count; k++)
                ids[k] = (5 * k + 11 * count) % 250; /* none of what is cached */
            assert_ok(temper_session_logits(session, (temper_tokens){ids, count}, logits, &err));
            const temper_device_stats now = temper_device_get_stats(device);
            if (count < PROMPT) {
                assert_int_equal(now.pipelines_created, before.pipelines_created);
                assert_int_equal(now.buffers_created, before.buffers_created);
            }
            before = now;
        }
        temper_session_close(session);
        temper_engine_close(engine);
    }
    temper_device_release(device);
}

/* ---- work ------------------------------------------------------------------------------------ */

/* A profile's GB/s and shares are worth what the ops say of their work: each does. */
static void says_its_work(temper_device *device)
{
    static const char path[] = TEST_GOLDEN "/tiny/llama-q4_0.gguf";
    temper_error err = {0};
    temper_engine *engine = NULL;
    temper_session *session = NULL;
    temper_result result;
    temper_profile_row rows[64];
    uint32_t ids[PROMPT];
    const temper_engine_desc desc = {.model = path, .device = device};
    assert_ok(temper_engine_open(&desc, &engine, &err));
    assert_ok(temper_session_open(engine, &(temper_session_desc){.context = 64}, &session, &err));
    for (uint32_t i = 0; i < PROMPT; i++)
        ids[i] = (5 * i + 1) % temper_engine_info(engine)->vocabulary;
    const temper_logit_bias bias = {7, -1.0f};
    const temper_request request = {.prompt = {ids, PROMPT},
                                    .max_tokens = 3,
                                    .logprobs = true,
                                    .best = 2,
                                    .sampling = {.temperature = 1.0f,
                                                 .top_k = 5,
                                                 .repeat_penalty = 1.1f,
                                                 .biases = &bias,
                                                 .bias_count = 1}};
    assert_ok(temper_device_profile(device, true, &err));
    assert_ok(temper_session_generate(session, &request, &result, &err));
    const uint32_t count = temper_device_profile_take(device, rows, 64);
    assert_ok(temper_device_profile(device, false, &err));
    assert_true(count >= 8 && count <= 64);
    for (uint32_t i = 0; i < count; i++)
        if (rows[i].bytes == 0)
            fail_msg("%s says nothing of its work", rows[i].kernel);
    temper_session_close(session);
    temper_engine_close(engine);
}

static void every_dispatch_says_its_work(void **state)
{
    (void)state;
    temper_error err = {0};
    temper_device *device = test_device(&test_masks[0]);
    if (temper_device_profile(device, true, &err) == TEMPER_UNSUPPORTED) {
        print_message("no timestamps here: work is not looked at\n");
    } else {
        assert_ok(temper_device_profile(device, false, &err));
        for_each_row(device, says_its_work);
    }
    temper_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_in_shared_scratch),
        cmocka_unit_test(every_architecture_in_shared_scratch),
        cmocka_unit_test(every_rounding_row_in_shared_scratch),
        cmocka_unit_test(every_lossy_option_in_shared_scratch),
        cmocka_unit_test(lossy_is_refused_where_it_cannot_be),
        cmocka_unit_test(lossy_prompts_of_any_length_create_nothing),
        cmocka_unit_test(every_dispatch_says_its_work),
    };
    return cmocka_run_group_tests_name("model_rows", tests, NULL, NULL);
}
