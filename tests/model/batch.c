/*
 * batch.c - many answers at once: each is the one that a session gives, whoever comes and goes
 * beside it; room, cancelling, callbacks, threads, and failures of every kind in the middle.
 */
#include "support/texts.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "gpu/gpu.h"
#include "infer/decoder.h"

#define MODEL "tiny/llama-q4_1.gguf"

enum { IDS_BELOW = 250, MANY = 16 };

/* Of a pass of batches that are opened from now on; 0: as the device has it. */
static uint32_t pass_steps;

typedef struct bench {
    temper_device *device;
    temper_engine *engine;
    temper_session *session; /* the yardstick, with the batch's context and cache */
    temper_batch *batch;
    double limit;
} bench;

/* Where a key or a value lies between two steps of a rounded cache, the last bit of a sum decides
 * which one it gets: passes of one row and of several may differ by a step of a few values. */
#define ROUNDED_LIMIT 1e-3

static bench open_bench(const char *path, uint32_t max_rows, const temper_batch_desc *desc)
{
    temper_error err = {0};
    bench b = {.device = test_device(&test_masks[0])};
    b.engine = test_engine(b.device, path, max_rows);
    b.limit = desc->kv == TEMPER_KV_F32 ? TINY_LIMIT : ROUNDED_LIMIT;
    const temper_session_desc alone = {.context = desc->context, .kv = desc->kv};
    assert_ok(temper_session_open(b.engine, &alone, &b.session, &err));
    decoder_assume_steps(pass_steps);
    assert_ok(temper_batch_open(b.engine, desc, &b.batch, &err));
    decoder_assume_steps(0);
    return b;
}

static void close_bench(bench *b)
{
    temper_batch_close(b->batch);
    temper_session_close(b->session);
    temper_engine_close(b->engine);
    test_nothing_left(b->device);
    temper_device_release(b->device);
}

static texts_judge judge_of(const bench *b)
{
    return (texts_judge){b->engine, b->session, b->limit};
}

/* ---- requests and replies ------------------------------------------------------------------- */

typedef struct caller {
    temper_request request;
    reply wanted, got;
    uint64_t id;
} caller;

/* Callbacks find the caller by its request's user. */
static bool on_text(const char *text, size_t length, void *user)
{
    caller *c = user;
    return texts_collect(text, length, &c->got);
}

static void on_done(uint64_t id, const temper_result *result, const temper_error *failure,
                    void *user)
{
    caller *c = user;
    assert_int_equal(c->id, id);
    texts_keep(&c->got, &c->request, result, failure);
}

static void submit(temper_batch *batch, caller *c)
{
    temper_error err = {0};
    memset(&c->got, 0, sizeof c->got);
    c->request.user = c;
    if (c->request.on_text == NULL)
        c->request.on_text = on_text;
    assert_ok(temper_batch_submit(batch, &c->request, on_done, &c->id, &err));
}

static void step_until_idle(temper_batch *batch)
{
    temper_error err = {0};
    bool more = true;
    for (unsigned steps = 0; more; steps++) {
        assert_ok(temper_batch_step(batch, &more, &err));
        assert_true(steps < 100000);
    }
}

static void free_callers(caller *callers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(callers[i].request.prompt.ids);
    free(callers);
}

/* Requests of different lengths, limits and sampling; each is answered alone first. */
static caller *make_callers(const bench *b, size_t count, float temperature)
{
    caller *callers = calloc(count, sizeof *callers);
    for (size_t i = 0; i < count; i++) {
        const size_t length = 1 + (i * 53 + 7) % 130 + (i % 5 == 4 ? 180 : 0);
        callers[i].request = (temper_request){
            .prompt = texts_ids(length, (uint32_t)i + 1, IDS_BELOW),
            .max_tokens = 3 + i * 5 % 29,
            .sampling = {.temperature = temperature, .seed = 1000 + i},
        };
        texts_alone(b->session, &callers[i].request, &callers[i].wanted);
    }
    return callers;
}

/* ---- the same as alone ---------------------------------------------------------------------- */

/* Submits some at first and then one every third step, so that they arrive and leave in the middle.
 */
static void run_staggered(temper_batch *batch, caller *callers, size_t count)
{
    temper_error err = {0};
    size_t next = 0;
    bool more = true;
    for (unsigned steps = 0; more || next < count; steps++) {
        while (next < count && (next < 3 || steps >= 3 * next))
            submit(batch, &callers[next++]);
        assert_ok(temper_batch_step(batch, &more, &err));
    }
}

static void check_replies(const bench *b, const caller *callers, size_t count, const char *what)
{
    const texts_judge judge = judge_of(b);
    char name[160];
    for (size_t i = 0; i < count; i++) {
        const caller *c = &callers[i];
        snprintf(name, sizeof name, "%s, request %zu", what, i);
        assert_int_equal(c->got.done, 1);
        if (c->got.status != TEMPER_OK)
            fail_msg("%s: %s", name, c->got.failure);
        const size_t same = texts_same(&judge, &c->request, &c->wanted, &c->got, name);
        assert_int_equal(c->got.prompt_tokens, c->request.prompt.count);
        if (same < c->wanted.count)
            continue;
        assert_int_equal(c->got.text_length, c->wanted.text_length);
        assert_memory_equal(c->got.text, c->wanted.text, c->wanted.text_length);
    }
}

static void check_model(const char *path, uint32_t max_rows, const temper_batch_desc *desc)
{
    bench b = open_bench(path, max_rows, desc);
    const float temperatures[] = {0.0f, 0.8f};
    char what[128];
    for (size_t t = 0; t < 2; t++) {
        caller *callers = make_callers(&b, MANY, temperatures[t]);
        snprintf(what, sizeof what, "%s at %g", path, (double)temperatures[t]);
        run_staggered(b.batch, callers, MANY);
        check_replies(&b, callers, MANY, what);
        free_callers(callers, MANY);
    }
    assert_int_equal(temper_batch_get_stats(b.batch).running, 0);
    assert_int_equal(temper_batch_get_stats(b.batch).finished, 2 * MANY);
    close_bench(&b);
}

/* Windows, caps, learned positions, norms of heads, long-rope: whatever depends on a row's
 * position.
 */
static void each_answer_is_the_one_alone(void **state)
{
    (void)state;
    static const char *const models[] = {
        "tiny/llama-f32.gguf",      "tiny/llama-q4_1.gguf", "arch/gemma3.gguf",
        "arch/mistral-window.gguf", "arch/gpt2.gguf",       "arch/qwen3.gguf",
        "arch/phi3-longrope.gguf",
    };
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        check_model(models[i], 64, &(temper_batch_desc){.sequences = MANY, .context = 384});
}

/* Fewer places than requests, few rows a step, rounded caches. */
static void whatever_the_room(void **state)
{
    (void)state;
    check_model(MODEL, 5, &(temper_batch_desc){.sequences = 5, .context = 384});
    check_model(MODEL, 32, &(temper_batch_desc){.sequences = 3, .context = 400, .prompt_rows = 1});
    check_model(MODEL, 1, &(temper_batch_desc){.sequences = 1, .context = 384});
    check_model(MODEL, 0, &(temper_batch_desc){.context = 512, .positions = 16 * 512});
    check_model(MODEL, 32, &(temper_batch_desc){.context = 384, .kv = TEMPER_KV_F16});
    check_model(MODEL, 32, &(temper_batch_desc){.context = 384, .kv = TEMPER_KV_Q8});
}

static void forty_answers_in_one_pass(void **state)
{
    (void)state;
    enum { COUNT = 40 };
    bench b = open_bench(MODEL, 64, &(temper_batch_desc){.sequences = COUNT, .context = 384});
    caller *callers = make_callers(&b, COUNT, 0.8f);
    for (size_t i = 0; i < COUNT; i++)
        submit(b.batch, &callers[i]);
    step_until_idle(b.batch);
    check_replies(&b, callers, COUNT, "forty");
    free_callers(callers, COUNT);
    close_bench(&b);
}

/* The model that people use: short texts, since a CPU takes 60 ms a token. */
static void the_default_model(void **state)
{
    (void)state;
    temper_error err = {0};
    bench b = {.device = test_device(&test_masks[0])};
    b.engine = test_engine(b.device, test_default_model(), 0);
    assert_ok(
        temper_session_open(b.engine, &(temper_session_desc){.context = 256}, &b.session, &err));
    assert_ok(temper_batch_open(b.engine, &(temper_batch_desc){.sequences = 8, .context = 256},
                                &b.batch, &err));
    static const char *const starts[] = {"The sky", "Once upon a time, in a", "def sort(list):\n",
                                         "Water boils at"};
    const texts_judge judge = {b.engine, b.session, SMOLLM2_LIMIT};
    caller *callers = calloc(MANY, sizeof *callers);
    for (size_t i = 0; i < MANY; i++) {
        temper_request *r = &callers[i].request;
        *r = (temper_request){.max_tokens = 3 + i % 4,
                              .sampling = {.temperature = i % 2 == 0 ? 0.0f : 0.8f, .seed = i}};
        assert_ok(temper_tokenize(b.engine, starts[i / 2 % 4], SIZE_MAX, 0, &r->prompt, &err));
        texts_alone(b.session, r, &callers[i].wanted);
    }
    run_staggered(b.batch, callers, MANY);
    for (size_t i = 0; i < MANY; i++) {
        assert_int_equal(callers[i].got.status, TEMPER_OK);
        texts_same(&judge, &callers[i].request, &callers[i].wanted, &callers[i].got, "default");
        temper_free(callers[i].request.prompt.ids);
    }
    free(callers);
    close_bench(&b);
}

/* Everything that a request may ask for, side by side: penalties, biases, filters, stops, scores.
 */
static void each_with_its_own_sampling(void **state)
{
    (void)state;
    static const temper_logit_bias forced = {77, 1e4f};
    static const temper_logit_bias few[] = {{3, 4.0f}, {200, -INFINITY}, {17, 2.5f}};
    static const char *const stops[] = {"t", "xyz"};
    const temper_sampling samplings[] = {
        {0},
        {.repeat_penalty = 1.3f},
        {.biases = &forced, .bias_count = 1},
        {.temperature = 1.2f, .top_k = 20, .seed = 4},
        {.temperature = 0.9f, .presence_penalty = 2.0f, .penalty_window = -1, .seed = 5},
        {.temperature = 1.5f, .min_p = 0.05f, .biases = few, .bias_count = 3, .seed = 6},
        {.frequency_penalty = 1.0f, .penalty_window = 5},
        {.temperature = 0.8f, .top_p = 0.9f, .seed = 7},
    };
    enum { COUNT = sizeof samplings / sizeof samplings[0] };
    bench b = open_bench(MODEL, 32, &(temper_batch_desc){.sequences = COUNT, .context = 256});
    caller *callers = calloc(COUNT, sizeof *callers);
    for (size_t i = 0; i < COUNT; i++) {
        callers[i].request = (temper_request){
            .prompt = texts_ids(20 + 9 * i, (uint32_t)i + 40, IDS_BELOW),
            .max_tokens = 24,
            .logprobs = i % 3 != 1,
            .best = (uint32_t)i % 5,
            .sampling = samplings[i],
            .stops = i % 4 == 3 ? stops : NULL,
            .stop_count = i % 4 == 3 ? 2 : 0,
        };
        texts_alone(b.session, &callers[i].request, &callers[i].wanted);
    }
    run_staggered(b.batch, callers, COUNT);
    check_replies(&b, callers, COUNT, "samplings");
    for (size_t i = 0; i < COUNT; i++) {
        const reply *w = &callers[i].wanted, *g = &callers[i].got;
        assert_int_equal(g->logprob_count, w->logprob_count);
        for (size_t p = 0; p < w->logprob_count; p++) {
            const bool same = g->logprobs[p].id == w->logprobs[p].id;
            const double off =
                fabs((double)g->logprobs[p].logprob - (double)w->logprobs[p].logprob);
            /* Of two that are as good as equal either may stand first. */
            if (!(off < 1e-3) || (!same && p % (1 + callers[i].request.best) == 0))
                fail_msg("request %zu, entry %zu: id %u (%g), alone %u (%g)", i, p,
                         g->logprobs[p].id, (double)g->logprobs[p].logprob, w->logprobs[p].id,
                         (double)w->logprobs[p].logprob);
        }
    }
    free_callers(callers, COUNT);
    close_bench(&b);
}

/* ---- room ----------------------------------------------------------------------------------- */

/* A pool of two contexts for eight: answers give their blocks away and say the same. */
static void a_small_pool_takes_longer_and_says_the_same(void **state)
{
    (void)state;
    enum { COUNT = 8 };
    bench b = open_bench(
        MODEL, 64, &(temper_batch_desc){.sequences = COUNT, .context = 768, .positions = 1536});
    caller *callers = calloc(COUNT, sizeof *callers);
    for (size_t i = 0; i < COUNT; i++) {
        /* Each needs another block in the middle of its answer. */
        callers[i].request = (temper_request){
            .prompt = texts_ids(236 + 5 * (i % 3) + 256 * (i % 2), (uint32_t)i + 60, IDS_BELOW),
            .max_tokens = 40,
            .sampling = {.temperature = i % 2 == 0 ? 0.0f : 1.0f,
                         .seed = i,
                         .repeat_penalty = i % 3 == 0 ? 1.2f : 0.0f,
                         ENDLESS}};
        texts_alone(b.session, &callers[i].request, &callers[i].wanted);
    }
    for (size_t i = 0; i < COUNT; i++)
        submit(b.batch, &callers[i]);
    step_until_idle(b.batch);
    check_replies(&b, callers, COUNT, "small pool");
    const temper_batch_stats stats = temper_batch_get_stats(b.batch);
    assert_int_equal(stats.blocks, 6);
    assert_int_equal(stats.free_blocks, 6);
    assert_true(stats.evictions > 0);
    free_callers(callers, COUNT);
    close_bench(&b);
}

static void the_queue_is_full_by_name(void **state)
{
    (void)state;
    temper_error err = {0};
    bench b =
        open_bench(MODEL, 32, &(temper_batch_desc){.sequences = 2, .context = 384, .waiting = 3});
    caller *callers = make_callers(&b, 6, 0.0f);
    caller extra = {.request = callers[0].request};
    for (size_t i = 0; i < 3; i++)
        submit(b.batch, &callers[i]);
    extra.request.user = &extra;
    assert_fails(temper_batch_submit(b.batch, &extra.request, on_done, NULL, &err), TEMPER_FULL,
                 "3 requests are waiting");
    assert_ok(temper_batch_step(b.batch, NULL, &err));
    assert_int_equal(temper_batch_get_stats(b.batch).running, 2);
    assert_int_equal(temper_batch_get_stats(b.batch).waiting, 1);
    for (size_t i = 3; i < 5; i++)
        submit(b.batch, &callers[i]);
    assert_fails(temper_batch_submit(b.batch, &extra.request, on_done, NULL, &err), TEMPER_FULL,
                 "waiting");
    step_until_idle(b.batch);
    submit(b.batch, &callers[5]);
    step_until_idle(b.batch);
    check_replies(&b, callers, 6, "queue");
    assert_int_equal(extra.got.done, 0);
    free_callers(callers, 6);
    close_bench(&b);
}

/* What a request shares with a text that has ended is not computed again. */
static void the_next_turn_reuses_the_last(void **state)
{
    (void)state;
    bench b = open_bench(MODEL, 32, &(temper_batch_desc){.sequences = 3, .context = 256});
    caller first = {.request = {.prompt = texts_ids(90, 70, IDS_BELOW), .max_tokens = 8}};
    caller other = {.request = {.prompt = texts_ids(80, 71, IDS_BELOW), .max_tokens = 8}};
    submit(b.batch, &first);
    submit(b.batch, &other);
    step_until_idle(b.batch);
    assert_int_equal(first.got.reused, 0);
    caller next = {.request = {.prompt = texts_ids(120, 72, IDS_BELOW), .max_tokens = 8}};
    const size_t shared = 90 + first.got.count;
    memcpy(next.request.prompt.ids, first.request.prompt.ids, 90 * sizeof(uint32_t));
    memcpy(next.request.prompt.ids + 90, first.got.ids, first.got.count * sizeof(uint32_t));
    texts_alone(b.session, &next.request, &next.wanted);
    submit(b.batch, &next);
    step_until_idle(b.batch);
    check_replies(&b, &next, 1, "next turn");
    assert_true(next.got.reused >= shared - 1 && next.got.reused <= shared);
    free(first.request.prompt.ids);
    free(other.request.prompt.ids);
    free(next.request.prompt.ids);
    close_bench(&b);
}

/* A long prompt does not keep an answer waiting: a token comes with every step. */
static void a_newcomer_does_not_stall_the_others(void **state)
{
    (void)state;
    temper_error err = {0};
    bench b = open_bench(MODEL, 64,
                         &(temper_batch_desc){.sequences = 2, .context = 512, .prompt_rows = 16});
    caller writer = {.request = {.prompt = texts_ids(5, 80, IDS_BELOW),
                                 .max_tokens = 60,
                                 .sampling = {ENDLESS}}};
    caller reader = {.request = {.prompt = texts_ids(300, 81, IDS_BELOW), .max_tokens = 2}};
    submit(b.batch, &writer);
    for (int i = 0; i < 4; i++)
        assert_ok(temper_batch_step(b.batch, NULL, &err));
    submit(b.batch, &reader);
    unsigned steps = 0;
    while (reader.got.done == 0) {
        assert_ok(temper_batch_step(b.batch, NULL, &err));
        steps++;
    }
    /* 300 ids in chunks of 16 take 19 passes, and each pass of all gave the writer a token. */
    assert_true(steps >= 19 && steps <= 23);
    step_until_idle(b.batch);
    assert_int_equal(writer.got.count, 60);
    assert_int_equal(temper_batch_get_stats(b.batch).passes, 60);
    free(writer.request.prompt.ids);
    free(reader.request.prompt.ids);
    close_bench(&b);
}

/* ---- values --------------------------------------------------------------------------------- */

static void limits_of_requests(void **state)
{
    (void)state;
    temper_error err = {0};
    bench b = open_bench(MODEL, 32, &(temper_batch_desc){.sequences = 4, .context = 64});
    temper_tokens ids = texts_ids(65, 90, IDS_BELOW);
    caller none = {.request = {.prompt = {ids.ids, 40}, .no_tokens = true}};
    caller huge = {.request = {.prompt = {ids.ids, 60}, .max_tokens = UINT64_MAX}};
    caller whole = {.request = {.prompt = {ids.ids, 64}}};
    caller one = {.request = {.prompt = {ids.ids, 1}, .max_tokens = 1}};
    caller *all[] = {&none, &huge, &whole, &one};
    for (size_t i = 0; i < 4; i++) {
        texts_alone(b.session, &all[i]->request, &all[i]->wanted);
        submit(b.batch, all[i]);
    }
    step_until_idle(b.batch);
    for (size_t i = 0; i < 4; i++)
        check_replies(&b, all[i], 1, "limits");
    assert_int_equal(none.got.count, 0);
    assert_int_equal(whole.got.count, 0);
    assert_int_equal(none.got.finish, TEMPER_FINISH_LENGTH);
    assert_true(huge.got.count <= 4);

    const float nan_value = NAN;
    const struct {
        temper_request request;
        temper_status status;
        const char *part;
    } rows[] = {
        {{.prompt = {ids.ids, 65}}, TEMPER_CONTEXT_FULL, "65 tokens and the context 64"},
        {{.prompt = {ids.ids, 0}}, TEMPER_BAD_ARGUMENT, "the prompt is empty"},
        {{.prompt = {&(uint32_t){100000}, 1}}, TEMPER_BAD_ARGUMENT, "id 100000 at place 0"},
        {{.prompt = {ids.ids, 4}, .sampling = {.temperature = nan_value}},
         TEMPER_BAD_ARGUMENT,
         "temperature is"},
        {{.prompt = {ids.ids, 4}, .stops = &(const char *){""}, .stop_count = 1},
         TEMPER_BAD_ARGUMENT,
         "stop"},
        {{.prompt = {ids.ids, 4}, .best = 33}, TEMPER_BAD_ARGUMENT, "best is 33"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_fails(temper_batch_submit(b.batch, &rows[i].request, NULL, NULL, &err),
                     rows[i].status, rows[i].part);
    free(ids.ids);
    close_bench(&b);
}

static void limits_of_batches(void **state)
{
    (void)state;
    temper_error err = {0};
    temper_device *device = test_device(&test_masks[0]);
    temper_engine *engine = test_engine(device, MODEL, 32);
    const struct {
        temper_batch_desc desc;
        const char *part;
    } rows[] = {
        {{.sequences = 33}, "33 sequences in a batch; it must be 1 to 32"},
        {{.sequences = 1000}, "1000 sequences"},
        {{.context = 1u << 30}, "a context of 1073741824"},
        {{.context = 512, .positions = 256},
         "a cache of 256 positions; it must hold one context, 512"},
        {{.prompt_rows = 33}, "prompt_rows is 33; it must be 1 to 32"},
        {{.speculation = {.tokens = 17}}, "speculation of 17 tokens"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        temper_batch *batch = NULL;
        assert_fails(temper_batch_open(engine, &rows[i].desc, &batch, &err), TEMPER_BAD_ARGUMENT,
                     rows[i].part);
        assert_null(batch);
    }
    temper_engine_close(engine);
    test_nothing_left(device);
    temper_device_release(device);
}

/* ---- cancelling and callbacks --------------------------------------------------------------- */

static bool cancel_after(const char *text, size_t length, void *user);

typedef struct stopper {
    caller caller;
    temper_batch *batch;
    size_t after;   /* pieces */
    bool by_return; /* returns false; else asks by id */
    temper_session *session;
    temper_status inside, stepped;
} stopper;

static bool cancel_after(const char *text, size_t length, void *user)
{
    stopper *s = user; /* its caller comes first */
    temper_error err = {0};
    temper_result result;
    uint32_t id = 1;
    const temper_request again = {.prompt = {&id, 1}, .max_tokens = 1};
    texts_collect(text, length, &s->caller.got);
    s->inside = temper_session_generate(s->session, &again, &result, &err);
    memset(&err, 0, sizeof err);
    s->stepped = temper_batch_step(s->batch, NULL, &err);
    if (s->caller.got.pieces < s->after)
        return true;
    return s->by_return ? false : temper_batch_cancel(s->batch, s->caller.id);
}

static void an_answer_can_be_cancelled(void **state)
{
    (void)state;
    temper_error err = {0};
    bench b = open_bench(MODEL, 32, &(temper_batch_desc){.sequences = 4, .context = 256});
    caller *others = make_callers(&b, 3, 0.8f);
    stopper stoppers[2];
    for (size_t i = 0; i < 3; i++)
        submit(b.batch, &others[i]);
    for (size_t i = 0; i < 2; i++) {
        stoppers[i] = (stopper){.batch = b.batch, .after = 4, .by_return = i == 0};
        stoppers[i].session = b.session;
        stoppers[i].caller.request =
            (temper_request){.prompt = texts_ids(30, 100 + (uint32_t)i, IDS_BELOW),
                             .sampling = {ENDLESS},
                             .on_text = cancel_after};
        submit(b.batch, &stoppers[i].caller);
    }
    caller waiting = {.request = {.prompt = texts_ids(10, 102, IDS_BELOW)}};
    submit(b.batch, &waiting);
    assert_true(temper_batch_cancel(b.batch, waiting.id));
    assert_false(temper_batch_cancel(b.batch, 999));
    assert_ok(temper_batch_step(b.batch, NULL, &err));
    assert_int_equal(waiting.got.done, 1);
    assert_int_equal(waiting.got.finish, TEMPER_FINISH_CANCELLED);
    assert_int_equal(waiting.got.count, 0);
    assert_false(temper_batch_cancel(b.batch, waiting.id));
    step_until_idle(b.batch);
    check_replies(&b, others, 3, "beside cancelled ones");
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(stoppers[i].caller.got.done, 1);
        assert_int_equal(stoppers[i].caller.got.status, TEMPER_OK);
        assert_int_equal(stoppers[i].caller.got.finish, TEMPER_FINISH_CANCELLED);
        /* Asked for by id it takes effect at the next pass: what this one chose still comes. */
        assert_true(stoppers[i].caller.got.pieces <= 4 + (i == 1) * (1 + 4 * pass_steps));
        assert_int_equal(stoppers[i].inside, TEMPER_BUSY);
        assert_int_equal(stoppers[i].stepped, TEMPER_BUSY);
        free(stoppers[i].caller.request.prompt.ids);
    }
    free(waiting.request.prompt.ids);
    free_callers(others, 3);
    close_bench(&b);
}

static bool stop_in_prompt(size_t done, size_t total, void *user)
{
    caller *c = user;
    assert_int_equal(total, c->request.prompt.count);
    c->got.reused = done;
    return done < 100;
}

static void a_prompt_can_be_cancelled(void **state)
{
    (void)state;
    bench b = open_bench(MODEL, 32, &(temper_batch_desc){.sequences = 2, .context = 512});
    caller stopped = {
        .request = {.prompt = texts_ids(400, 110, IDS_BELOW), .on_prompt = stop_in_prompt}};
    caller *other = make_callers(&b, 1, 0.0f);
    submit(b.batch, &stopped);
    submit(b.batch, &other[0]);
    step_until_idle(b.batch);
    assert_int_equal(stopped.got.finish, TEMPER_FINISH_CANCELLED);
    assert_int_equal(stopped.got.count, 0);
    check_replies(&b, other, 1, "beside a cancelled prompt");
    free(stopped.request.prompt.ids);
    free_callers(other, 1);
    close_bench(&b);
}

typedef struct chain {
    caller caller;
    temper_batch *batch;
    unsigned left;
} chain;

/* The next request comes out of the end of the last one. */
static void submit_next(uint64_t id, const temper_result *result, const temper_error *failure,
                        void *user)
{
    chain *c = user;
    temper_error err = {0};
    assert_int_equal(c->caller.id, id);
    assert_int_equal(failure->status, TEMPER_OK);
    assert_int_equal(result->token_count, 2);
    if (c->left-- > 0)
        assert_ok(
            temper_batch_submit(c->batch, &c->caller.request, submit_next, &c->caller.id, &err));
}

static void callbacks_may_submit(void **state)
{
    (void)state;
    temper_error err = {0};
    bench b = open_bench(MODEL, 32, &(temper_batch_desc){.sequences = 2, .context = 128});
    chain c = {.batch = b.batch, .left = 5};
    c.caller.request = (temper_request){.prompt = texts_ids(12, 120, IDS_BELOW),
                                        .max_tokens = 2,
                                        .sampling = {ENDLESS},
                                        .user = &c};
    assert_ok(temper_batch_submit(b.batch, &c.caller.request, submit_next, &c.caller.id, &err));
    step_until_idle(b.batch);
    assert_int_equal(temper_batch_get_stats(b.batch).finished, 6);
    assert_int_equal(temper_batch_get_stats(b.batch).tokens, 12);
    free(c.caller.request.prompt.ids);
    close_bench(&b);
}

/* Closing ends what is left, each with its one on_done. */
static void closing_ends_what_is_left(void **state)
{
    (void)state;
    temper_error err = {0};
    bench b = open_bench(MODEL, 32, &(temper_batch_desc){.sequences = 2, .context = 384});
    caller *callers = make_callers(&b, 5, 0.0f);
    for (size_t i = 0; i < 5; i++) {
        callers[i].request.max_tokens = 0;
        submit(b.batch, &callers[i]);
    }
    for (int i = 0; i < 3; i++)
        assert_ok(temper_batch_step(b.batch, NULL, &err));
    temper_batch_close(b.batch);
    b.batch = NULL;
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(callers[i].got.done, 1);
        assert_int_equal(callers[i].got.finish, TEMPER_FINISH_CANCELLED);
    }
    free_callers(callers, 5);
    close_bench(&b);
}

/* Sessions of the same engine work between the steps of a batch. */
static void sessions_between_steps(void **state)
{
    (void)state;
    temper_error err = {0};
    bench b = open_bench(MODEL, 32, &(temper_batch_desc){.sequences = 3, .context = 384});
    caller *callers = make_callers(&b, 3, 0.8f);
    caller *alone = make_callers(&b, 4, 0.0f);
    bool more = true;
    for (size_t i = 0; i < 3; i++)
        submit(b.batch, &callers[i]);
    for (size_t i = 0; more; i++) {
        assert_ok(temper_batch_step(b.batch, &more, &err));
        texts_alone(b.session, &alone[i % 4].request, &alone[i % 4].got);
        assert_int_equal(alone[i % 4].got.count, alone[i % 4].wanted.count);
        assert_memory_equal(alone[i % 4].got.ids, alone[i % 4].wanted.ids,
                            alone[i % 4].got.count * sizeof(uint32_t));
    }
    check_replies(&b, callers, 3, "with sessions between");
    free_callers(callers, 3);
    free_callers(alone, 4);
    close_bench(&b);
}

/* ---- steadiness ----------------------------------------------------------------------------- */

static void steady_batches_create_nothing(void **state)
{
    (void)state;
    bench b = open_bench(MODEL, 64, &(temper_batch_desc){.sequences = 8, .context = 256});
    caller callers[8] = {0};
    temper_device_stats before = {0}, after = {0};
    uint64_t host = 0, allocations = 0, counted = 0;
    for (int round = 0; round < 3; round++) {
        before = temper_device_get_stats(b.device);
        host = mem_live_bytes();
        allocations = mem_allocation_count();
        for (size_t i = 0; i < 8; i++) {
            if (round == 0)
                callers[i].request =
                    (temper_request){.prompt = texts_ids(20 + 3 * i, 130 + (uint32_t)i, IDS_BELOW),
                                     .max_tokens = 40 - 2 * i,
                                     .sampling = {.temperature = i % 2 == 0 ? 0.0f : 0.7f,
                                                  .repeat_penalty = i % 4 == 0 ? 1.1f : 0.0f,
                                                  ENDLESS}};
            submit(b.batch, &callers[i]);
        }
        step_until_idle(b.batch);
        after = temper_device_get_stats(b.device);
        counted = mem_allocation_count() - allocations;
    }
    assert_int_equal(after.buffers_created, before.buffers_created);
    assert_int_equal(after.pipelines_created, before.pipelines_created);
    assert_int_equal(after.bind_groups_created, before.bind_groups_created);
    assert_int_equal(after.live_bytes, before.live_bytes);
    assert_int_equal(mem_live_bytes(), host);
    /* One submit a pass; on the host a request's own copies and lists, nothing for a token. */
    assert_true(after.submits - before.submits <= 60);
    assert_true(counted < 8 * 40);
    for (size_t i = 0; i < 8; i++)
        free(callers[i].request.prompt.ids);
    close_bench(&b);
}

/* ---- threads -------------------------------------------------------------------------------- */

enum { THREADS = 3, PER_THREAD = 12 };

typedef struct sender {
    temper_batch *batch;
    caller *callers; /* [PER_THREAD] */
    atomic_uint *ended;
} sender;

typedef struct sent {
    caller *caller;
    atomic_uint *ended;
} sent;

static void count_done(uint64_t id, const temper_result *result, const temper_error *failure,
                       void *user)
{
    sent *s = user;
    (void)id;
    texts_keep(&s->caller->got, &s->caller->request, result, failure);
    atomic_fetch_add(s->ended, 1);
    free(s);
}

static void *send_requests(void *user)
{
    sender *s = user;
    for (size_t i = 0; i < PER_THREAD; i++) {
        temper_error err = {0};
        sent *note = malloc(sizeof *note);
        *note = (sent){&s->callers[i], s->ended};
        s->callers[i].request.user = note;
        uint64_t id = 0;
        while (temper_batch_submit(s->batch, &s->callers[i].request, count_done, &id, &err) ==
               TEMPER_FULL)
            memset(&err, 0, sizeof err);
        assert_int_equal(err.status, TEMPER_OK);
        (void)temper_batch_get_stats(s->batch);
        if (i % 4 == 3)
            temper_batch_cancel(s->batch, id);
    }
    return NULL;
}

static void requests_come_from_any_thread(void **state)
{
    (void)state;
    temper_error err = {0};
    bench b =
        open_bench(MODEL, 32, &(temper_batch_desc){.sequences = 4, .context = 384, .waiting = 4});
    caller *callers = make_callers(&b, THREADS * PER_THREAD, 0.8f);
    pthread_t threads[THREADS];
    sender senders[THREADS];
    atomic_uint ended = 0;
    for (size_t t = 0; t < THREADS; t++) {
        senders[t] = (sender){b.batch, callers + t * PER_THREAD, &ended};
        assert_int_equal(pthread_create(&threads[t], NULL, send_requests, &senders[t]), 0);
    }
    while (atomic_load(&ended) < THREADS * PER_THREAD)
        assert_ok(temper_batch_step(b.batch, NULL, &err));
    for (size_t t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    const texts_judge judge = judge_of(&b);
    for (size_t i = 0; i < THREADS * PER_THREAD; i++) {
        const caller *c = &callers[i];
        assert_int_equal(c->got.done, 1);
        assert_int_equal(c->got.status, TEMPER_OK);
        if (c->got.finish != TEMPER_FINISH_CANCELLED)
            texts_same(&judge, &c->request, &c->wanted, &c->got, "threads");
    }
    free_callers(callers, THREADS * PER_THREAD);
    close_bench(&b);
}

/* ---- failures ------------------------------------------------------------------------------- */

static bool lose_at_third(const char *text, size_t length, void *user)
{
    caller *c = user;
    texts_collect(text, length, &c->got);
    if (c->got.pieces == 3)
        gpu_lose(((temper_device *)(uintptr_t)c->wanted.passes)->gpu);
    return true;
}

/* Everybody hears of a lost device, those who wait too; then nothing is taken any more. */
static void a_device_lost_in_the_middle(void **state)
{
    (void)state;
    bench b = open_bench(MODEL, 32, &(temper_batch_desc){.sequences = 3, .context = 256});
    caller callers[6] = {0};
    for (size_t i = 0; i < 6; i++) {
        callers[i].request = (temper_request){
            .prompt = texts_ids(30 + i, 140 + (uint32_t)i, IDS_BELOW), .sampling = {ENDLESS}};
        if (i == 1) {
            callers[i].request.on_text = lose_at_third;
            callers[i].wanted.passes = (uint64_t)(uintptr_t)b.device;
        }
        submit(b.batch, &callers[i]);
    }
    temper_error err = {0};
    bool more = true;
    temper_status status = TEMPER_OK;
    while (status == TEMPER_OK && more)
        status = temper_batch_step(b.batch, &more, &err);
    assert_int_equal(status, TEMPER_DEVICE_LOST);
    assert_false(more);
    memset(&err, 0, sizeof err);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(callers[i].got.done, 1);
        assert_int_equal(callers[i].got.status, TEMPER_DEVICE_LOST);
        assert_non_null(strstr(callers[i].got.failure, "lost"));
    }
    assert_fails(temper_batch_submit(b.batch, &callers[0].request, on_done, NULL, &err),
                 TEMPER_DEVICE_LOST, "lost");
    assert_fails(temper_batch_step(b.batch, &more, &err), TEMPER_DEVICE_LOST, "lost");
    for (size_t i = 0; i < 6; i++)
        free(callers[i].request.prompt.ids);
    close_bench(&b);
}

/* Lost between two steps: the next one says so to everybody. */
static void a_device_lost_between_steps(void **state)
{
    (void)state;
    temper_error err = {0};
    bool more = true;
    bench b = open_bench(MODEL, 32, &(temper_batch_desc){.sequences = 2, .context = 256});
    caller *callers = make_callers(&b, 4, 0.0f);
    for (size_t i = 0; i < 4; i++)
        submit(b.batch, &callers[i]);
    assert_ok(temper_batch_step(b.batch, &more, &err));
    gpu_lose(b.device->gpu);
    assert_fails(temper_batch_step(b.batch, &more, &err), TEMPER_DEVICE_LOST, "lost");
    assert_false(more);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(callers[i].got.done, 1);
        assert_int_equal(callers[i].got.status, TEMPER_DEVICE_LOST);
    }
    free_callers(callers, 4);
    close_bench(&b);
}

/* One life of a batch: opened, two requests, stepped until idle. */
typedef struct life {
    temper_status status;
    caller callers[2];
    unsigned submitted;
} life;

static void live(temper_engine *engine, life *l)
{
    temper_error err = {0};
    temper_batch *batch = NULL;
    bool more = true;
    const temper_batch_desc desc = {.sequences = 2, .context = 64, .speculation = {.tokens = 3}};
    l->status = temper_batch_open(engine, &desc, &batch, &err);
    for (size_t i = 0; l->status == TEMPER_OK && i < 2; i++) {
        caller *c = &l->callers[i];
        c->request.user = c;
        l->status = temper_batch_submit(batch, &c->request, on_done, &c->id, &err);
        l->submitted += l->status == TEMPER_OK;
    }
    while (l->status == TEMPER_OK && more)
        l->status = temper_batch_step(batch, &more, &err);
    temper_batch_close(batch);
    for (size_t i = 0; i < l->submitted; i++) {
        assert_int_equal(l->callers[i].got.done, 1);
        if (l->status == TEMPER_OK)
            l->status = l->callers[i].got.status;
    }
}

static life new_life(void)
{
    life l = {.status = TEMPER_OK};
    static const char *const stops[] = {"never", "ever"};
    static const temper_logit_bias bias = {9, 1.0f};
    for (size_t i = 0; i < 2; i++)
        l.callers[i].request = (temper_request){
            .prompt = texts_ids(20 + i, 150 + (uint32_t)i, IDS_BELOW),
            .max_tokens = 5,
            .logprobs = true,
            .best = 2,
            .stops = stops,
            .stop_count = 2,
            .sampling = {.repeat_penalty = 1.1f, .biases = &bias, .bias_count = 1}};
    return l;
}

static void end_life(life *l)
{
    for (size_t i = 0; i < 2; i++)
        free(l->callers[i].request.prompt.ids);
}

/* The nth buffer, then the nth allocation, of a whole life cannot be had, for every n: an error
 * each time, one on_done for each request that was taken, and nothing left behind. */
static void no_memory_at_any_moment(void **state)
{
    (void)state;
    temper_device *device = test_device(&test_masks[0]);
    temper_engine *engine = test_engine(device, MODEL, 32);
    life warm = new_life();
    live(engine, &warm);
    assert_int_equal(warm.status, TEMPER_OK);
    for (int kind = 0; kind < 2; kind++) {
        bool done = false;
        uint64_t n = 0;
        while (!done) {
            life l = new_life();
            const uint64_t before = mem_live_bytes();
            n++;
            if (kind == 0)
                gpu_fail_allocation(device->gpu, n);
            else
                mem_fail_at(n, 0);
            live(engine, &l);
            gpu_fail_allocation(device->gpu, 0);
            mem_fail_at(0, 0);
            done = l.status == TEMPER_OK;
            if (!done && l.status != TEMPER_DEVICE_MEMORY && l.status != TEMPER_NO_MEMORY)
                fail_msg("allocation %llu: status %d", (unsigned long long)n, (int)l.status);
            if (kind == 1)
                assert_true(mem_live_bytes() <= before + 4096); /* caches of the device may grow */
            end_life(&l);
            assert_true(n < 2000);
        }
        print_message("%s: %llu\n", kind == 0 ? "buffers" : "allocations", (unsigned long long)n);
        assert_true(n > (kind == 0 ? 15 : 30));
    }
    end_life(&warm);
    temper_engine_close(engine);
    test_nothing_left(device);
    temper_device_release(device);
}

/* With an argument, the number, passes are so many steps. */
int main(int argc, char **argv)
{
    pass_steps = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_answer_is_the_one_alone),
        cmocka_unit_test(whatever_the_room),
        cmocka_unit_test(forty_answers_in_one_pass),
        cmocka_unit_test(the_default_model),
        cmocka_unit_test(each_with_its_own_sampling),
        cmocka_unit_test(a_small_pool_takes_longer_and_says_the_same),
        cmocka_unit_test(the_queue_is_full_by_name),
        cmocka_unit_test(the_next_turn_reuses_the_last),
        cmocka_unit_test(a_newcomer_does_not_stall_the_others),
        cmocka_unit_test(limits_of_requests),
        cmocka_unit_test(limits_of_batches),
        cmocka_unit_test(an_answer_can_be_cancelled),
        cmocka_unit_test(a_prompt_can_be_cancelled),
        cmocka_unit_test(callbacks_may_submit),
        cmocka_unit_test(closing_ends_what_is_left),
        cmocka_unit_test(sessions_between_steps),
        cmocka_unit_test(steady_batches_create_nothing),
        cmocka_unit_test(requests_come_from_any_thread),
        cmocka_unit_test(a_device_lost_in_the_middle),
        cmocka_unit_test(a_device_lost_between_steps),
        cmocka_unit_test(no_memory_at_any_moment),
    };
    return cmocka_run_group_tests_name("model_batch", tests, NULL, NULL);
}
