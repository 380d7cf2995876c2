/*
 * steps.c - passes of several steps in one submit: the same text, scores and ends as one step at a
 * time, fewer submits, nothing made anew.
 */
#include "support/texts.h"


#include "gpu/gpu.h"
#include "infer/decoder.h"

#define MODEL "tiny/llama-q4_1.gguf"

enum { IDS_BELOW = 250 };

typedef struct bench {
    temper_device *device;
    temper_engine *engine;
    temper_session *plain, *session;
} bench;

static bench open_bench(const char *path, uint32_t steps, uint32_t context)
{
    temper_error err = {0};
    bench b = {.device = test_device(&test_masks[0])};
    const temper_session_desc desc = {.context = context};
    b.engine = test_engine(b.device, path, 32);
    assert_ok(temper_session_open(b.engine, &desc, &b.plain, &err));
    decoder_assume_steps(steps);
    assert_ok(temper_session_open(b.engine, &desc, &b.session, &err));
    decoder_assume_steps(0);
    return b;
}

static void close_bench(bench *b)
{
    temper_session_close(b->plain);
    temper_session_close(b->session);
    temper_engine_close(b->engine);
    test_nothing_left(b->device);
    temper_device_release(b->device);
}

static uint64_t submits(const bench *b)
{
    return gpu_device_counters(b->device->gpu).submits;
}

/* The kernels are the same, row for row, so everything is, bit for bit. Returns how many submits
 * the session took. */
static uint64_t check(const bench *b, const temper_request *request, const char *what)
{
    static reply wanted, got;
    texts_alone(b->plain, request, &wanted);
    const uint64_t before = submits(b);
    texts_alone(b->session, request, &got);
    const uint64_t took = submits(b) - before;
    if (got.count != wanted.count || memcmp(got.ids, wanted.ids, wanted.count * 4) != 0)
        fail_msg("%s: %zu tokens, %zu alone, or not the same", what, got.count, wanted.count);
    assert_int_equal(got.finish, wanted.finish);
    assert_int_equal(got.passes, wanted.passes);
    assert_int_equal(got.text_length, wanted.text_length);
    assert_memory_equal(got.text, wanted.text, wanted.text_length);
    assert_int_equal(got.logprob_count, wanted.logprob_count);
    assert_memory_equal(got.logprobs, wanted.logprobs,
                        wanted.logprob_count * sizeof wanted.logprobs[0]);
    return took;
}

/* Windows, learned positions, long-rope, caps: whatever looks at a position. */
static void the_same_text(void **state)
{
    (void)state;
    static const char *const models[] = {MODEL, "arch/gemma3.gguf", "arch/mistral-window.gguf",
                                         "arch/gpt2.gguf", "arch/phi3-longrope.gguf"};
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        bench b = open_bench(models[m], 2 + (uint32_t)m, 256);
        for (uint32_t i = 0; i < TEXTS_SAMPLINGS; i++) {
            char what[128];
            temper_request request = {.prompt = texts_ids(1 + 31 * i, i + 1, IDS_BELOW),
                                      .max_tokens = 50,
                                      .logprobs = i % 2 == 0,
                                      .best = i,
                                      .sampling = texts_samplings[i]};
            snprintf(what, sizeof what, "%s, sampling %u", models[m], i);
            check(&b, &request, what);
            free(request.prompt.ids);
        }
        close_bench(&b);
    }
}

/* Every length, up to the end of the context; a text goes on where the last one ended. */
static void the_same_end(void **state)
{
    (void)state;
    bench b = open_bench(MODEL, 4, 64);
    temper_request request = {.prompt = texts_ids(40, 3, IDS_BELOW), .sampling = {ENDLESS}};
    for (uint32_t n = 1; n <= 26; n++) {
        request.max_tokens = n;
        check(&b, &request, "lengths");
    }
    request.max_tokens = 0; /* as far as the context goes */
    check(&b, &request, "the context");
    free(request.prompt.ids);
    static const char *const stops[] = {"t", "e"};
    request = (temper_request){.prompt = texts_ids(9, 5, IDS_BELOW),
                               .max_tokens = 40,
                               .stops = stops,
                               .stop_count = 2,
                               .sampling = {.temperature = 1.0f, .seed = 3, ENDLESS}};
    for (uint64_t seed = 1; seed < 12; seed++) {
        request.sampling.seed = seed;
        check(&b, &request, "stops");
    }
    free(request.prompt.ids);
    close_bench(&b);
}

static void fewer_submits_and_nothing_new(void **state)
{
    (void)state;
    enum { STEPS = 5, TOKENS = 101 };
    bench b = open_bench(MODEL, STEPS, 256);
    temper_request request = {
        .prompt = texts_ids(20, 7, IDS_BELOW), .max_tokens = TOKENS, .sampling = {ENDLESS}};
    gpu_counters before = {0};
    for (int i = 0; i < 3; i++) {
        if (i == 2)
            before = gpu_device_counters(b.device->gpu);
        /* The prompt chooses the first token. */
        assert_int_equal(check(&b, &request, "submits"), 1 + (TOKENS - 1) / STEPS);
    }
    const gpu_counters after = gpu_device_counters(b.device->gpu);
    assert_int_equal(after.buffers_created, before.buffers_created);
    assert_int_equal(after.bind_groups_created, before.bind_groups_created);
    assert_int_equal(after.pipelines_created, before.pipelines_created);
    free(request.prompt.ids);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_text),
        cmocka_unit_test(the_same_end),
        cmocka_unit_test(fewer_submits_and_nothing_new),
    };
    return cmocka_run_group_tests_name("model_steps", tests, NULL, NULL);
}
