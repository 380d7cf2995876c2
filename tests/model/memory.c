/*
 * memory.c - the memory estimate of a file against what the device counted at its fullest, while
 * the model was loaded, read a prompt and answered: part by part, for every architecture, the real
 * models, several contexts and rows a step.
 */
#include "support/model_test.h"

#include <dirent.h>

#include "gpu/gpu.h"
#include "infer/infer.h"

typedef struct memory_case {
    const char *path; /* below tests/golden, or absolute */
    uint32_t context; /* 0: the default */
    uint32_t max_rows;
    uint32_t prompt; /* ids to be read before the answer */
    temper_kv kv;
} memory_case;

static void expect_near(const memory_case *c, const char *part, uint64_t estimated, uint64_t taken,
                        double share)
{
    const double off = ((double)estimated - (double)taken) / (double)taken;
    if (!(off > -share && off < share))
        fail_msg("%s, context %u, %s: %llu bytes taken, %llu estimated", c->path, c->context, part,
                 (unsigned long long)taken, (unsigned long long)estimated);
}

static void answer(temper_session *session, uint32_t prompt)
{
    temper_error err = {0};
    temper_result result;
    temper_tokens ids = {calloc(prompt, sizeof *ids.ids), prompt};
    assert_non_null(ids.ids);
    for (uint32_t i = 0; i < prompt; i++)
        ids.ids[i] = 3 + i % 200;
    const temper_request request = {.prompt = ids,
                                    .max_tokens = 3,
                                    .logprobs = true,
                                    .best = 3,
                                    .sampling = {.temperature = 1}};
    assert_ok(temper_session_generate(session, &request, &result, &err));
    free(ids.ids);
}

/* A device of its own for each case: its peaks are the case's. */
static void check(const device_mask *mask, const memory_case *c)
{
    char full[4096];
    temper_error err = {0};
    temper_file *file = NULL;
    temper_engine *engine = NULL;
    temper_session *session = NULL;
    temper_memory_estimate estimate;
    temper_device *device = test_device(mask);
    snprintf(full, sizeof full, "%s%s", c->path[0] == '/' ? "" : TEST_GOLDEN "/", c->path);
    const temper_estimate_desc wanted = {
        .device = device, .context = c->context, .kv = c->kv, .max_rows = c->max_rows};
    assert_ok(temper_file_open(full, NULL, &file, &err));
    assert_ok(temper_file_estimate(file, &wanted, &estimate, &err));
    temper_file_close(file);
    /* Nothing was made for it. */
    assert_int_equal(temper_device_get_stats(device).peak_bytes, 0);

    const temper_engine_desc desc = {.model = full, .device = device, .max_rows = c->max_rows};
    assert_ok(temper_engine_open(&desc, &engine, &err));
    assert_ok(temper_session_open(
        engine, &(temper_session_desc){.context = c->context, .kv = c->kv}, &session, &err));
    assert_int_equal(estimate.context, temper_session_context(session));
    answer(session, c->prompt);
    const gpu_counters counters = gpu_device_counters(device->gpu);
    expect_near(c, "weights", estimate.weights, counters.peak_bytes[GPU_PURPOSE_WEIGHTS], 0.05);
    expect_near(c, "cache", estimate.cache, counters.peak_bytes[GPU_PURPOSE_CACHE], 0.05);
    expect_near(c, "scratch", estimate.scratch, counters.peak_bytes[GPU_PURPOSE_SCRATCH], 0.05);
    expect_near(c, "in all", estimate.total, counters.peak_total, 0.05);
    assert_int_equal(estimate.total, estimate.weights + estimate.cache + estimate.scratch);
    print_message("%s, context %u: %llu bytes, %.2f %% of them estimated\n", c->path,
                  estimate.context, (unsigned long long)counters.peak_total,
                  100.0 * (double)estimate.total / (double)counters.peak_total);
    temper_session_close(session);
    temper_engine_close(engine);
    temper_device_release(device);
}

/* Fused and single matrices, biases, several kinds of rope, learned positions, padded vocabularies:
 * every file of a folder below tests/golden. */
static void of_folder(const char *folder, size_t least)
{
    char full[4096];
    size_t count = 0;
    snprintf(full, sizeof full, "%s/%s", TEST_GOLDEN, folder);
    DIR *entries = opendir(full);
    assert_non_null(entries);
    for (const struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        const size_t length = strlen(entry->d_name);
        if (length < 5 || strcmp(entry->d_name + length - 5, ".gguf") != 0)
            continue;
        snprintf(full, sizeof full, "%s/%s", folder, entry->d_name);
        check(&test_masks[0], &(memory_case){full, 1024, 0, 40, (temper_kv)(count % 3)});
        count++;
    }
    closedir(entries);
    assert_true(count >= least);
}

static void every_architecture(void **state)
{
    (void)state;
    of_folder("arch", 15);
}

static void every_weight_format(void **state)
{
    (void)state;
    of_folder("quant", 5);
}

static void contexts_and_rows(void **state)
{
    static const memory_case cases[] = {
        {"tiny/llama-q4_0.gguf", 256, 0, 200, TEMPER_KV_F32},
        {"tiny/llama-q4_0.gguf", 257, 0, 10, TEMPER_KV_F32},
        {"tiny/llama-q4_0.gguf", 4096, 0, 300, TEMPER_KV_Q8},
        {"tiny/llama-f32.gguf", 0, 512, 100, TEMPER_KV_F32},
        {"tiny/llama-f16.gguf", 1000, 4096, 5, TEMPER_KV_F32},
        {"tiny/llama-wide.gguf", 2048, 512, 600, TEMPER_KV_F32},
        {"hf/llama-sharded-f16", 512, 0, 20, TEMPER_KV_F32},
        {"hf/qwen3", 512, 64, 80, TEMPER_KV_F32},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check(&test_masks[0], &cases[i]);
}

/* With every feature, and bare: matrices in several parts. */
static void the_default_model(void **state)
{
    (void)state;
    const char *path = test_default_model();
    const memory_case cases[] = {{path, 0, 0, 20, TEMPER_KV_F32},
                                 {path, 300, 0, 200, TEMPER_KV_F32},
                                 {path, 2048, 512, 5, TEMPER_KV_F16}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check(&test_masks[0], &cases[i]);
    check(&test_masks[test_mask_count - 1], &cases[1]);
}

static void of_gemma(void **state)
{
    (void)state;
    const char *path = test_gemma_model();
    check(&test_masks[0], &(memory_case){path, 1024, 0, 20, TEMPER_KV_F32});
    check(&test_masks[test_mask_count - 1], &(memory_case){path, 0, 0, 5, TEMPER_KV_F32});
}

/* Without a device there is an estimate too; what a model cannot be run with has none. */
static void without_a_device(void **state)
{
    (void)state;
    temper_error err = {0};
    temper_file *file = NULL;
    temper_memory_estimate estimate;
    assert_ok(temper_file_open(TEST_GOLDEN "/tiny/llama-q4_0.gguf", NULL, &file, &err));
    assert_ok(temper_file_estimate(file, NULL, &estimate, &err));
    assert_int_equal(estimate.context, 4096);
    assert_true(estimate.weights > 0 && estimate.cache > 0 && estimate.scratch > 0);
    const uint64_t scratch = estimate.scratch;
    assert_ok(temper_file_estimate(file, &(temper_estimate_desc){.max_rows = 16}, &estimate, &err));
    assert_true(estimate.scratch < scratch);
    assert_fails(
        temper_file_estimate(file, &(temper_estimate_desc){.context = 4097}, &estimate, &err),
        TEMPER_BAD_ARGUMENT, "4097");
    temper_file_close(file);
    assert_ok(temper_file_open(TEST_PARTS "/vocab/ggml-vocab-gpt-2.gguf", NULL, &file, &err));
    assert_fails(temper_file_estimate(file, NULL, &estimate, &err), TEMPER_UNSUPPORTED,
                 "holds no tensors");
    temper_file_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_architecture), cmocka_unit_test(every_weight_format),
        cmocka_unit_test(contexts_and_rows),  cmocka_unit_test(the_default_model),
        cmocka_unit_test(of_gemma),           cmocka_unit_test(without_a_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
