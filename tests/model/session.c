/*
 * session.c - how engines and sessions behave: reuse, steadiness, limits, bad values, failures in
 * the middle.
 */
#include "support/model_test.h"

#include <math.h>
#include <unistd.h>

#include "base/mem.h"
#include "gpu/gpu.h"
#include "infer/infer.h"

#define MODEL "tiny/llama-q4_1.gguf"

/* The tests run twice: on the device as it is, and on one with nothing but WebGPU's defaults. */
static const device_mask *mask;

typedef struct bench {
    temper_device *device;
    temper_engine *engine;
    temper_session *session;
} bench;

static bench open_bench(uint32_t context)
{
    temper_error err = {0};
    bench b = {.device = test_device(mask)};
    b.engine = test_engine(b.device, MODEL, 32);
    assert_ok(temper_session_open(b.engine, &(temper_session_desc){.context = context}, &b.session,
                                  &err));
    return b;
}

static void close_bench(bench *b)
{
    temper_session_close(b->session);
    temper_engine_close(b->engine);
    test_nothing_left(b->device);
    temper_device_release(b->device);
}

/* `count` ids that depend on the seed; free with free(). */
static temper_tokens some_ids(size_t count, uint32_t seed)
{
    temper_tokens tokens = {calloc(count, sizeof(uint32_t)), count};
    for (size_t i = 0; i < count; i++)
        tokens.ids[i] = (uint32_t)((i * 37 + seed * 101 + i * i * 3) % 250);
    return tokens;
}

typedef struct answer {
    uint32_t ids[64];
    size_t count;
} answer;

static answer ask(temper_session *session, temper_tokens prompt, uint64_t max)
{
    temper_error err = {0};
    temper_result result;
    const temper_request request = {.prompt = prompt, .max_tokens = max};
    assert_ok(temper_session_generate(session, &request, &result, &err));
    answer a = {.count = result.token_count};
    assert_true(a.count <= 64);
    memcpy(a.ids, result.tokens, a.count * sizeof a.ids[0]);
    return a;
}

static void assert_same(const answer *a, const answer *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->ids, b->ids, a->count * sizeof a->ids[0]);
}

/* ---- the same text, whatever is cached ------------------------------------------------------ */

static void the_same_request_gives_the_same_tokens(void **state)
{
    (void)state;
    bench b = open_bench(512);
    temper_tokens first = some_ids(300, 1), second = some_ids(280, 2);
    const answer a1 = ask(b.session, first, 24);
    const answer a2 = ask(b.session, first, 24);
    const answer other = ask(b.session, second, 24);
    const answer a3 = ask(b.session, first, 24);
    assert_true(a1.count > 0);
    assert_same(&a1, &a2);
    assert_same(&a1, &a3);
    assert_true(other.count != a1.count ||
                memcmp(other.ids, a1.ids, sizeof a1.ids[0] * a1.count) != 0);
    free(first.ids);
    free(second.ids);
    close_bench(&b);
}

/* The whole text is passed again with what was generated: only the new part is computed. */
static void a_longer_prompt_reuses_what_is_cached(void **state)
{
    (void)state;
    temper_error err = {0};
    temper_result result;
    bench b = open_bench(512);
    temper_tokens prompt = some_ids(120, 3);
    assert_ok(temper_session_generate(
        b.session, &(temper_request){.prompt = prompt, .max_tokens = 8}, &result, &err));
    assert_int_equal(result.reused_tokens, 0);
    assert_int_equal(result.token_count, 8);
    temper_tokens longer = {calloc(140, sizeof(uint32_t)), 128};
    memcpy(longer.ids, prompt.ids, 120 * sizeof(uint32_t));
    memcpy(longer.ids + 120, result.tokens, 8 * sizeof(uint32_t));
    assert_ok(temper_session_generate(
        b.session, &(temper_request){.prompt = longer, .max_tokens = 8}, &result, &err));
    assert_true(result.reused_tokens >= 127);
    answer reused = {.count = result.token_count};
    memcpy(reused.ids, result.tokens, reused.count * sizeof(uint32_t));
    temper_session *fresh = NULL;
    assert_ok(temper_session_open(b.engine, &(temper_session_desc){.context = 512}, &fresh, &err));
    const answer anew = ask(fresh, longer, 8);
    assert_same(&reused, &anew);
    temper_session_close(fresh);
    free(prompt.ids);
    free(longer.ids);
    close_bench(&b);
}

/* Cache lengths: decoding one token after n must say what a prompt of n + 1 says, across block
 * edges. */
static void decoding_agrees_with_a_prompt_of_any_length(void **state)
{
    (void)state;
    temper_error err = {0};
    bench b = open_bench(1100);
    temper_session *fresh = NULL;
    const uint32_t vocabulary = temper_engine_info(b.engine)->vocabulary;
    float *stepped = calloc(vocabulary, sizeof *stepped),
          *whole = calloc(vocabulary, sizeof *whole);
    temper_tokens ids = some_ids(1100, 4);
    assert_ok(temper_session_open(b.engine, &(temper_session_desc){.context = 1100}, &fresh, &err));
    const size_t checked[] = {1,   2,   31,  32,  33,  63,  64,  65,   255, 256,
                              257, 361, 362, 363, 511, 512, 513, 1024, 1025};
    size_t next = 0;
    for (size_t n = 1; n <= 1025; n++) {
        assert_ok(temper_session_logits(b.session, (temper_tokens){ids.ids, n}, stepped, &err));
        if (n != checked[next])
            continue;
        next++;
        /* Another first id empties the cache of the fresh session. */
        uint32_t other = 249;
        assert_ok(temper_session_logits(fresh, (temper_tokens){&other, 1}, whole, &err));
        assert_ok(temper_session_logits(fresh, (temper_tokens){ids.ids, n}, whole, &err));
        for (uint32_t i = 0; i < vocabulary; i++)
            if (!(fabsf(stepped[i] - whole[i]) <= 2e-4f))
                fail_msg("length %zu, logit %u: %g stepped, %g at once", n, i, (double)stepped[i],
                         (double)whole[i]);
    }
    assert_int_equal(next, sizeof checked / sizeof checked[0]);
    free(stepped);
    free(whole);
    free(ids.ids);
    temper_session_close(fresh);
    close_bench(&b);
}

static void scores_agree_with_logits(void **state)
{
    (void)state;
    temper_error err = {0};
    bench b = open_bench(256);
    const uint32_t vocabulary = temper_engine_info(b.engine)->vocabulary;
    float *logits = calloc(vocabulary, sizeof *logits), nll[100];
    temper_tokens ids = some_ids(100, 5);
    assert_ok(temper_session_score(b.session, ids, 1, nll, &err));
    for (size_t n = 1; n < 100; n += 7) {
        assert_ok(temper_session_logits(b.session, (temper_tokens){ids.ids, n}, logits, &err));
        double sum = 0.0;
        for (uint32_t i = 0; i < vocabulary; i++)
            sum += exp((double)logits[i]);
        const double wanted = log(sum) - (double)logits[ids.ids[n]];
        assert_true(fabs(wanted - (double)nll[n - 1]) < 1e-4);
    }
    float part[40];
    assert_ok(temper_session_score(b.session, ids, 60, part, &err));
    for (size_t i = 0; i < 40; i++)
        assert_true(fabsf(part[i] - nll[59 + i]) < 1e-5f);
    assert_fails(temper_session_score(b.session, ids, 0, nll, &err), TEMPER_BAD_ARGUMENT,
                 "place 0 of 100");
    assert_fails(temper_session_score(b.session, ids, 100, nll, &err), TEMPER_BAD_ARGUMENT,
                 "place 100 of 100");
    free(logits);
    free(ids.ids);
    close_bench(&b);
}

/* ---- steadiness ----------------------------------------------------------------------------- */

/* One submit and one small readback a token, and nothing created. */
static void steady_decoding_creates_nothing(void **state)
{
    (void)state;
    bench b = open_bench(512);
    temper_tokens prompt = some_ids(40, 6);
    /* Once through the same lengths: each split of the positions binds its own buffers. */
    ask(b.session, prompt, 64);
    const temper_device_stats before = temper_device_get_stats(b.device);
    const uint64_t allocations = mem_allocation_count();
    const answer a = ask(b.session, prompt, 64);
    const temper_device_stats after = temper_device_get_stats(b.device);
    assert_true(a.count > 4);
    assert_int_equal(after.buffers_created, before.buffers_created);
    assert_int_equal(after.pipelines_created, before.pipelines_created);
    assert_int_equal(after.bind_groups_created, before.bind_groups_created);
    assert_int_equal(after.live_bytes, before.live_bytes);
    /* The prompt's one chunk (its last id) and a step a token, of which one may be thrown away. */
    assert_true(after.submits - before.submits <= a.count + 1);
    assert_true(after.readbacks - before.readbacks <= a.count + 1);
    /* On the host: opening the text stream and growing the answer's list, not something for every
     * token. */
    assert_true(mem_allocation_count() - allocations < 40);
    free(prompt.ids);
    close_bench(&b);
}

static void a_hundred_generations_keep_the_memory(void **state)
{
    (void)state;
    bench b = open_bench(256);
    uint64_t live = 0, host = 0;
    for (uint32_t i = 0; i < 100; i++) {
        temper_tokens prompt = some_ids(10 + i % 50, i);
        ask(b.session, prompt, 4);
        free(prompt.ids);
        if (i == 20) {
            live = temper_device_get_stats(b.device).live_bytes;
            host = mem_live_bytes();
        }
    }
    assert_int_equal(temper_device_get_stats(b.device).live_bytes, live);
    assert_int_equal(mem_live_bytes(), host);
    close_bench(&b);
}

static void twenty_loads_leave_nothing(void **state)
{
    (void)state;
    temper_error err = {0};
    temper_device *device = test_device(mask);
    uint64_t live = 0, host = 0;
    for (int i = 0; i < 20; i++) {
        temper_session *session = NULL;
        temper_engine *engine = test_engine(device, MODEL, 32);
        temper_tokens prompt = some_ids(20, 7);
        assert_ok(temper_session_open(engine, NULL, &session, &err));
        ask(session, prompt, 4);
        /* The session keeps the engine alive. */
        temper_engine_close(engine);
        temper_session_close(session);
        free(prompt.ids);
        test_nothing_left(device);
        if (i == 1) {
            live = temper_device_get_stats(device).live_bytes;
            host = mem_live_bytes();
        }
    }
    assert_int_equal(temper_device_get_stats(device).live_bytes, live);
    assert_int_equal(mem_live_bytes(), host);
    temper_device_release(device);
}

/* ---- limits and values ---------------------------------------------------------------------- */

static void the_context_is_a_limit_and_never_cuts(void **state)
{
    (void)state;
    temper_error err = {0};
    temper_result result;
    bench b = open_bench(64);
    temper_tokens ids = some_ids(65, 8);
    assert_fails(
        temper_session_generate(b.session, &(temper_request){.prompt = ids}, &result, &err),
        TEMPER_CONTEXT_FULL, "65 tokens and the context 64");
    ids.count = 64;
    assert_ok(temper_session_generate(b.session, &(temper_request){.prompt = ids}, &result, &err));
    assert_int_equal(result.token_count, 0);
    assert_int_equal(result.finish, TEMPER_FINISH_LENGTH);
    ids.count = 60;
    assert_ok(temper_session_generate(
        b.session, &(temper_request){.prompt = ids, .max_tokens = UINT64_MAX}, &result, &err));
    assert_true(result.token_count <= 4);
    ids.count = 0;
    assert_fails(
        temper_session_generate(b.session, &(temper_request){.prompt = ids}, &result, &err),
        TEMPER_BAD_ARGUMENT, "the prompt is empty");
    ids.count = 3;
    ids.ids[2] = 100000;
    assert_fails(
        temper_session_generate(b.session, &(temper_request){.prompt = ids}, &result, &err),
        TEMPER_BAD_ARGUMENT, "id 100000 at place 2");
    free(ids.ids);
    temper_session *session = NULL;
    assert_fails(
        temper_session_open(b.engine, &(temper_session_desc){.context = 1u << 30}, &session, &err),
        TEMPER_BAD_ARGUMENT, "a context of 1073741824");
    close_bench(&b);
}

static void sampling_values_are_checked_by_name(void **state)
{
    (void)state;
    temper_error err = {0};
    temper_result result;
    bench b = open_bench(64);
    temper_tokens ids = some_ids(5, 9);
    const struct {
        temper_sampling sampling;
        const char *part;
    } rows[] = {
        {{.temperature = -1.0f}, "temperature is -1"},
        {{.temperature = NAN}, "temperature is"},
        {{.temperature = INFINITY}, "temperature is inf"},
        {{.top_p = 1.5f}, "top_p is 1.5"},
        {{.top_p = NAN}, "top_p is"},
        {{.top_p = -0.1f}, "top_p is -0.1"},
        {{.min_p = 2.0f}, "min_p is 2"},
        {{.min_p = NAN}, "min_p is"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const temper_request request = {
            .prompt = ids, .sampling = rows[i].sampling, .max_tokens = 2};
        assert_fails(temper_session_generate(b.session, &request, &result, &err),
                     TEMPER_BAD_ARGUMENT, rows[i].part);
    }
    /* Tiny temperatures are greedy. */
    const answer greedy = ask(b.session, ids, 12);
    const float tiny[] = {1e-6f, 1e-39f};
    for (size_t i = 0; i < 2; i++) {
        const temper_request request = {
            .prompt = ids, .sampling = {.temperature = tiny[i]}, .max_tokens = 12};
        assert_ok(temper_session_generate(b.session, &request, &result, &err));
        assert_int_equal(result.token_count, greedy.count);
        assert_memory_equal(result.tokens, greedy.ids, greedy.count * sizeof(uint32_t));
    }
    /* top_k of 1 and the smallest top_p are greedy at any temperature. */
    const temper_sampling narrow[] = {{.temperature = 5.0f, .top_k = 1},
                                      {.temperature = 5.0f, .top_p = 1e-30f},
                                      {.temperature = 5.0f, .min_p = 1.0f}};
    for (size_t i = 0; i < 3; i++) {
        const temper_request request = {.prompt = ids, .sampling = narrow[i], .max_tokens = 12};
        assert_ok(temper_session_generate(b.session, &request, &result, &err));
        assert_memory_equal(result.tokens, greedy.ids, greedy.count * sizeof(uint32_t));
    }
    free(ids.ids);
    close_bench(&b);
}

static void a_seed_gives_the_same_text_and_another_another(void **state)
{
    (void)state;
    temper_error err = {0};
    temper_result result;
    bench b = open_bench(256);
    temper_tokens ids = some_ids(5, 10);
    uint32_t texts[3][40];
    const uint64_t seeds[3] = {1, 1, 2};
    for (size_t i = 0; i < 3; i++) {
        const temper_request request = {
            .prompt = ids, .max_tokens = 40, .sampling = {.temperature = 1.5f, .seed = seeds[i]}};
        assert_ok(temper_session_generate(b.session, &request, &result, &err));
        memset(texts[i], 0xff, sizeof texts[i]);
        memcpy(texts[i], result.tokens, result.token_count * sizeof(uint32_t));
    }
    assert_memory_equal(texts[0], texts[1], sizeof texts[0]);
    assert_memory_not_equal(texts[0], texts[2], sizeof texts[0]);
    free(ids.ids);
    close_bench(&b);
}

/* ---- callbacks ------------------------------------------------------------------------------ */

typedef struct listener {
    bench *b;
    char text[4096];
    size_t length, calls, stop_after;
    temper_status inside;
} listener;

static bool listen(const char *text, size_t length, void *user)
{
    listener *l = user;
    temper_error err = {0};
    temper_result result;
    uint32_t id = 1;
    memcpy(l->text + l->length, text, length);
    l->length += length;
    const temper_request again = {.prompt = {&id, 1}, .max_tokens = 1};
    l->inside = temper_session_generate(l->b->session, &again, &result, &err);
    return ++l->calls != l->stop_after;
}

static void a_callback_may_stop_but_not_call_back(void **state)
{
    (void)state;
    temper_error err = {0};
    temper_result result;
    bench b = open_bench(256);
    temper_tokens ids = some_ids(9, 11);
    listener l = {.b = &b, .stop_after = 3};
    const temper_request request = {.prompt = ids, .max_tokens = 60, .on_text = listen, .user = &l};
    assert_ok(temper_session_generate(b.session, &request, &result, &err));
    assert_int_equal(result.finish, TEMPER_FINISH_CANCELLED);
    assert_int_equal(l.calls, 3);
    assert_int_equal(l.inside, TEMPER_BUSY);
    /* The session is as good as before. */
    const answer after = ask(b.session, ids, 16);
    temper_session *fresh = NULL;
    assert_ok(temper_session_open(b.engine, &(temper_session_desc){.context = 256}, &fresh, &err));
    const answer anew = ask(fresh, ids, 16);
    assert_same(&after, &anew);
    temper_session_close(fresh);
    free(ids.ids);
    close_bench(&b);
}

/* ---- failures ------------------------------------------------------------------------------- */

/* The nth buffer that a whole life of a session creates cannot be had, for every n: an error each
 * time, no text after it, and nothing left behind. */
static void no_device_memory_at_any_moment(void **state)
{
    (void)state;
    char path[4096];
    temper_device *device = test_device(mask);
    snprintf(path, sizeof path, "%s/%s", TEST_GOLDEN, MODEL);
    bool done = false;
    uint64_t n = 0;
    while (!done) {
        temper_error err = {0};
        temper_engine *engine = NULL;
        temper_session *session = NULL;
        temper_result result = {0};
        temper_tokens prompt = some_ids(20, 12);
        gpu_fail_allocation(device->gpu, ++n);
        temper_status status = temper_engine_open(
            &(temper_engine_desc){.model = path, .device = device, .max_rows = 32, .exact = true},
            &engine, &err);
        if (status == TEMPER_OK)
            status =
                temper_session_open(engine, &(temper_session_desc){.context = 64}, &session, &err);
        if (status == TEMPER_OK)
            status = temper_session_generate(
                session, &(temper_request){.prompt = prompt, .max_tokens = 3}, &result, &err);
        gpu_fail_allocation(device->gpu, 0);
        done = status == TEMPER_OK;
        if (!done) {
            assert_int_equal(status, TEMPER_DEVICE_MEMORY);
            assert_int_equal(result.token_count, 0);
            assert_true(strlen(err.text) > 0);
        }
        temper_session_close(session);
        temper_engine_close(engine);
        test_nothing_left(device);
        free(prompt.ids);
        assert_true(n < 1000);
    }
    assert_true(n > 40);
    temper_device_release(device);
}

static void no_host_memory_at_any_moment(void **state)
{
    (void)state;
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", TEST_GOLDEN, MODEL);
    temper_device *device = test_device(mask);
    temper_error first = {0};
    temper_engine *warm = NULL;
    if (temper_engine_open(&(temper_engine_desc){.model = path, .device = device}, &warm, &first) !=
        TEMPER_OK)
        fail_msg("%s", first.text);
    temper_engine_close(warm);
    bool done = false;
    /* Every allocation at first, then ever larger steps: a vocabulary makes thousands of them. */
    for (uint64_t n = 1; !done; n += 1 + n / 40) {
        temper_error err = {0};
        temper_engine *engine = NULL;
        const uint64_t before = mem_live_bytes();
        mem_fail_at(n, 0);
        const temper_status status = temper_engine_open(
            &(temper_engine_desc){.model = path, .device = device}, &engine, &err);
        mem_fail_at(0, 0);
        done = status == TEMPER_OK;
        if (!done && status != TEMPER_NO_MEMORY && status != TEMPER_DEVICE_MEMORY)
            fail_msg("allocation %llu: status %d, %s", (unsigned long long)n, (int)status,
                     err.text);
        temper_engine_close(engine);
        test_nothing_left(device);
        assert_int_equal(mem_live_bytes(), before);
    }
    temper_device_release(device);
}

static bool lose_device(size_t done, size_t total, void *user)
{
    (void)total;
    if (done >= 32)
        gpu_lose(((temper_device *)user)->gpu);
    return true;
}

static bool lose_at_text(const char *text, size_t length, void *user)
{
    (void)text;
    (void)length;
    gpu_lose(((temper_device *)user)->gpu);
    return true;
}

static bool lose_at_load(uint64_t done, uint64_t total, void *user)
{
    if (done > total / 2)
        gpu_lose(((temper_device *)user)->gpu);
    return true;
}

/* After a lost device every call says so, and everything closes. */
static void check_lost(bench *b, temper_tokens ids)
{
    temper_error err = {0};
    temper_result result;
    assert_fails(
        temper_session_generate(b->session, &(temper_request){.prompt = ids}, &result, &err),
        TEMPER_DEVICE_LOST, "lost");
    temper_session *another = NULL;
    assert_fails(temper_session_open(b->engine, NULL, &another, &err), TEMPER_DEVICE_LOST, "lost");
    temper_session_close(b->session);
    temper_engine_close(b->engine);
    temper_device_release(b->device);
}

static void a_device_lost_during_a_prompt(void **state)
{
    (void)state;
    temper_error err = {0};
    temper_result result;
    bench b = open_bench(256);
    temper_tokens ids = some_ids(200, 13);
    const temper_request request = {
        .prompt = ids, .max_tokens = 5, .on_prompt = lose_device, .user = b.device};
    assert_fails(temper_session_generate(b.session, &request, &result, &err), TEMPER_DEVICE_LOST,
                 "lost");
    assert_int_equal(result.token_count, 0);
    check_lost(&b, ids);
    free(ids.ids);
}

static void a_device_lost_during_an_answer(void **state)
{
    (void)state;
    temper_error err = {0};
    temper_result result;
    bench b = open_bench(256);
    temper_tokens ids = some_ids(20, 14);
    const temper_request request = {
        .prompt = ids, .max_tokens = 50, .on_text = lose_at_text, .user = b.device};
    assert_fails(temper_session_generate(b.session, &request, &result, &err), TEMPER_DEVICE_LOST,
                 "lost");
    assert_true(result.token_count < 50);
    check_lost(&b, ids);
    free(ids.ids);
}

static void a_device_lost_during_a_load(void **state)
{
    (void)state;
    char path[4096];
    temper_error err = {0};
    temper_engine *engine = NULL;
    temper_device *device = test_device(mask);
    snprintf(path, sizeof path, "%s/%s", TEST_GOLDEN, MODEL);
    const temper_engine_desc desc = {
        .model = path, .device = device, .progress = lose_at_load, .user = device};
    assert_fails(temper_engine_open(&desc, &engine, &err), TEMPER_DEVICE_LOST, "lost");
    assert_null(engine);
    temper_device_release(device);
}

static bool stop_load(uint64_t done, uint64_t total, void *user)
{
    (void)user;
    return done < total / 2;
}

static void a_load_can_be_stopped(void **state)
{
    (void)state;
    char path[4096];
    temper_error err = {0};
    temper_engine *engine = NULL;
    temper_device *device = test_device(mask);
    snprintf(path, sizeof path, "%s/%s", TEST_GOLDEN, MODEL);
    const temper_engine_desc desc = {.model = path, .device = device, .progress = stop_load};
    assert_fails(temper_engine_open(&desc, &engine, &err), TEMPER_STOPPED, "stopped");
    test_nothing_left(device);
    temper_device_release(device);
}

/* ---- files ---------------------------------------------------------------------------------- */

/* A copy of a tiny model with some bytes changed. */
static const char *changed_copy(const char *name, const char *find, const void *bytes,
                                size_t offset, size_t length)
{
    static char path[64];
    char from[4096];
    snprintf(from, sizeof from, "%s/tiny/llama-%s.gguf", TEST_GOLDEN, name);
    snprintf(path, sizeof path, "/tmp/temper-test-XXXXXX");
    const int file = mkstemp(path);
    FILE *in = fopen(from, "rb");
    assert_non_null(in);
    static unsigned char content[1 << 20];
    const size_t size = fread(content, 1, sizeof content, in);
    fclose(in);
    const unsigned char *at = NULL;
    for (size_t i = 0; at == NULL && i + strlen(find) < size; i++)
        if (memcmp(content + i, find, strlen(find)) == 0)
            at = content + i;
    assert_non_null(at);
    memcpy(content + (at - content) + strlen(find) + offset, bytes, length);
    assert_int_equal(write(file, content, size), (ssize_t)size);
    close(file);
    return path;
}

/* Values of the file that no network can be run with: each is refused with its key and value. */
static void values_that_make_no_network(void **state)
{
    (void)state;
    temper_device *device = test_device(mask);
    const float zero = 0.0f, nan_value = NAN;
    const uint32_t three = 3, seven = 7, big = 1u << 30;
    const struct {
        const char *model, *key;
        const void *bytes;
        temper_status status;
        const char *part;
    } rows[] = {
        {"q8_0", "llama.rope.freq_base", &zero, TEMPER_BAD_FILE, "llama.rope.freq_base is 0"},
        {"q4_1", "llama.attention.layer_norm_rms_epsilon", &nan_value, TEMPER_BAD_FILE,
         "layer_norm_rms_epsilon is"},
        {"q4_1", "llama.attention.head_count_kv", &seven, TEMPER_BAD_FILE, "no multiple of 7"},
        {"q4_1", "llama.block_count", &big, TEMPER_BAD_FILE, "llama.block_count is 1073741824"},
        {"q4_1", "llama.block_count", &three, TEMPER_BAD_FILE, "blk.2.attn_norm.weight is missing"},
        {"q4_1", "llama.feed_forward_length", &seven, TEMPER_BAD_FILE, "the configuration wants"},
        {"f16", "tokenizer.ggml.bos_token_id", &big, TEMPER_BAD_FILE, "1073741824"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        temper_error err = {0};
        temper_engine *engine = NULL;
        /* A scalar follows its key as a type of four bytes and then the value. */
        const char *path = changed_copy(rows[i].model, rows[i].key, rows[i].bytes, 4, 4);
        const temper_engine_desc desc = {.model = path, .device = device};
        assert_fails(temper_engine_open(&desc, &engine, &err), rows[i].status, rows[i].part);
        unlink(path);
    }
    test_nothing_left(device);
    temper_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_request_gives_the_same_tokens),
        cmocka_unit_test(a_longer_prompt_reuses_what_is_cached),
        cmocka_unit_test(decoding_agrees_with_a_prompt_of_any_length),
        cmocka_unit_test(scores_agree_with_logits),
        cmocka_unit_test(steady_decoding_creates_nothing),
        cmocka_unit_test(a_hundred_generations_keep_the_memory),
        cmocka_unit_test(twenty_loads_leave_nothing),
        cmocka_unit_test(the_context_is_a_limit_and_never_cuts),
        cmocka_unit_test(sampling_values_are_checked_by_name),
        cmocka_unit_test(a_seed_gives_the_same_text_and_another_another),
        cmocka_unit_test(a_callback_may_stop_but_not_call_back),
        cmocka_unit_test(no_device_memory_at_any_moment),
        cmocka_unit_test(no_host_memory_at_any_moment),
        cmocka_unit_test(a_device_lost_during_a_prompt),
        cmocka_unit_test(a_device_lost_during_an_answer),
        cmocka_unit_test(a_device_lost_during_a_load),
        cmocka_unit_test(a_load_can_be_stopped),
        cmocka_unit_test(values_that_make_no_network),
    };
    mask = &test_masks[0];
    int failed = cmocka_run_group_tests_name("model_session", tests, NULL, NULL);
    mask = &test_masks[test_mask_count - 1];
    failed += cmocka_run_group_tests_name("model_session, bare", tests, NULL, NULL);
    return failed;
}
