/*
 * speculate.c - proposals never change a text: looked up or from a draft model, at any temperature,
 * in sessions and batches; what they gain, what bad ones cost, and failures in the middle of them.
 */
#include "support/texts.h"

#include <math.h>
#include <unistd.h>

#include "base/mem.h"
#include "gpu/gpu.h"
#include "infer/decoder.h"
#include "ref/ref.h"

#define MODEL "tiny/llama-q4_1.gguf"

enum { IDS_BELOW = 250 };

typedef struct bench {
    temper_device *device;
    temper_engine *engine, *draft;
    temper_session *plain, *session;
    double limit;
} bench;

/* draft: a model's path, NULL: looked up. */
static bench open_bench(const char *path, const char *draft, uint32_t tokens, uint32_t context)
{
    temper_error err = {0};
    bench b = {.device = test_device(&test_masks[0]), .limit = TINY_LIMIT};
    b.engine = test_engine(b.device, path, 32);
    if (draft != NULL)
        b.draft = test_engine(b.device, draft, 32);
    const temper_session_desc plain = {.context = context};
    const temper_session_desc speculating = {.context = context, .speculation = {tokens, b.draft}};
    assert_ok(temper_session_open(b.engine, &plain, &b.plain, &err));
    assert_ok(temper_session_open(b.engine, &speculating, &b.session, &err));
    return b;
}

static void close_bench(bench *b)
{
    temper_session_close(b->plain);
    temper_session_close(b->session);
    temper_engine_close(b->engine);
    temper_engine_close(b->draft);
    test_nothing_left(b->device);
    temper_device_release(b->device);
}

/* Sums over many answers. */
typedef struct totals {
    uint64_t tokens, passes, proposed, accepted;
} totals;

static void add(totals *t, const reply *r)
{
    t->tokens += r->count;
    t->passes += r->passes;
    t->proposed += r->proposed;
    t->accepted += r->accepted;
}

static void check_request(const bench *b, const temper_request *request, totals *t,
                          const char *what)
{
    const texts_judge judge = {b->engine, b->plain, b->limit};
    static reply wanted, got;
    texts_alone(b->plain, request, &wanted);
    texts_alone(b->session, request, &got);
    const size_t same = texts_same(&judge, request, &wanted, &got, what);
    if (same == wanted.count) {
        assert_int_equal(got.text_length, wanted.text_length);
        assert_memory_equal(got.text, wanted.text, wanted.text_length);
    }
    assert_int_equal(wanted.proposed, 0);
    assert_true(got.accepted <= got.proposed);
    add(t, &got);
}

/* ---- the same text --------------------------------------------------------------------------- */

static totals check_model(const char *path, const char *draft, uint32_t tokens)
{
    totals t = {0};
    bench b = open_bench(path, draft, tokens, 512);
    for (uint32_t i = 0; i < TEXTS_SAMPLINGS; i++) {
        char what[160];
        temper_request request = {.prompt = texts_ids(1 + 61 * i, i + 1, IDS_BELOW),
                                  .max_tokens = 60,
                                  .logprobs = i % 2 == 0,
                                  .best = i,
                                  .sampling = texts_samplings[i]};
        snprintf(what, sizeof what, "%s with %s, %u at once, sampling %u", path,
                 draft == NULL ? "lookup" : draft, tokens, i);
        check_request(&b, &request, &t, what);
        free(request.prompt.ids);
    }
    close_bench(&b);
    return t;
}

/* Windows, caps, learned positions, long-rope: rejected proposals leave nothing behind in any. */
static void looking_up_never_changes_the_text(void **state)
{
    (void)state;
    static const char *const models[] = {"tiny/llama-f32.gguf",     MODEL,
                                         "arch/gemma3.gguf",        "arch/mistral-window.gguf",
                                         "arch/phi3-longrope.gguf", "arch/gpt2.gguf"};
    totals all = {0};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        const totals t = check_model(models[i], NULL, i % 2 == 0 ? 4 : 16);
        all.proposed += t.proposed;
        all.accepted += t.accepted;
    }
    check_model(MODEL, NULL, 1);
    /* Right ones and wrong ones: both ways were taken. */
    assert_true(all.accepted > 50 && all.accepted < all.proposed);
}

/* A copy of a tiny model in another type: a draft model that is often right and often wrong. */
static const char *rough_copy(const char *path)
{
    static char out[64];
    char from[4096];
    temper_error err = {0};
    temper_quantize_result result;
    snprintf(from, sizeof from, "%s/%s", TEST_GOLDEN, path);
    snprintf(out, sizeof out, "/tmp/temper-draft-XXXXXX");
    const int file = mkstemp(out);
    assert_true(file >= 0);
    close(file);
    assert_ok(temper_quantize(from, out, "Q4_0", NULL, NULL, NULL, &result, &err));
    return out;
}

static void a_draft_never_changes_the_text(void **state)
{
    (void)state;
    const char *rough = rough_copy("tiny/llama-f32.gguf");
    const totals t = check_model("tiny/llama-f32.gguf", rough, 4);
    assert_true(t.accepted > 50 && t.accepted < t.proposed);
    unlink(rough);
    /* Other weights altogether: nearly always wrong, and the text is the same. */
    check_model("tiny/llama-f32.gguf", MODEL, 3);
}

/* A model that proposes to itself is right, at every temperature: its noise is the same. */
static void a_model_agrees_with_itself(void **state)
{
    (void)state;
    bench b = open_bench(MODEL, MODEL, 4, 512);
    totals t = {0};
    for (uint32_t i = 0; i < 4; i++) {
        temper_request request = {.prompt = texts_ids(20 + 90 * i, i + 30, IDS_BELOW),
                                  .max_tokens = 50,
                                  .sampling = {.temperature = 0.5f * (float)i,
                                               .seed = i,
                                               .repeat_penalty = i == 3 ? 1.2f : 0.0f,
                                               ENDLESS}};
        check_request(&b, &request, &t, "itself");
        free(request.prompt.ids);
    }
    /* All but where rounding decides. The last pass of an answer may propose less. */
    assert_true(t.accepted >= t.proposed - 4);
    assert_int_equal(t.tokens, 200);
    assert_true(t.passes <= 60);
    close_bench(&b);
}

/* The model that people use, on a text that repeats itself. */
static void the_default_model(void **state)
{
    (void)state;
    temper_error err = {0};
    bench b = {.device = test_device(&test_masks[0]), .limit = SMOLLM2_LIMIT};
    b.engine = test_engine(b.device, test_default_model(), 0);
    const temper_session_desc speculating = {.context = 256, .speculation = {.tokens = 6}};
    assert_ok(
        temper_session_open(b.engine, &(temper_session_desc){.context = 256}, &b.plain, &err));
    assert_ok(temper_session_open(b.engine, &speculating, &b.session, &err));
    totals t = {0};
    for (int i = 0; i < 2; i++) {
        temper_request request = {.max_tokens = 24,
                                  .sampling = {.temperature = i == 0 ? 0.0f : 0.8f, .seed = 3}};
        assert_ok(temper_tokenize(b.engine, "Count: 1 2 3 4 5 6\nCount: 1 2 3 4 5 6\nCount:",
                                  SIZE_MAX, 0, &request.prompt, &err));
        check_request(&b, &request, &t, "default");
        temper_free(request.prompt.ids);
    }
    assert_true(t.accepted >= 12);
    assert_true(t.passes < t.tokens);
    close_bench(&b);
}

/* ---- the distribution ------------------------------------------------------------------------ */

enum { DRAWS = 2048, KEPT = 12, VOCABULARY_MOST = 512 };

/* Probabilities after a text, in double, of logits that other tests hold against goldens. */
static void distribution(const bench *b, const temper_sampling *s, temper_tokens text, double *p)
{
    temper_error err = {0};
    float logits[VOCABULARY_MOST];
    uint8_t keep[VOCABULARY_MOST];
    const uint32_t vocabulary = temper_engine_info(b->engine)->vocabulary;
    const ref_sample_params params = {
        .temperature = (double)s->temperature, .top_p = 1.0, .top_k = s->top_k};
    double sum = 0.0;
    assert_ok(temper_session_logits(b->plain, text, logits, &err));
    ref_sample_keep(logits, vocabulary, &params, keep);
    for (uint32_t t = 0; t < vocabulary; t++) {
        p[t] = keep[t] ? exp((double)logits[t] / params.temperature) : 0.0;
        sum += p[t];
    }
    for (uint32_t t = 0; t < vocabulary; t++)
        p[t] /= sum;
}

/* The 99.9 % quantile of chi square (Wilson and Hilferty). */
static double chi_square_limit(double degrees)
{
    const double a = 2.0 / (9.0 * degrees);
    return degrees * pow(1.0 - a + 3.09 * sqrt(a), 3.0);
}

/* Counts against probabilities; what is expected less than five times is counted together. */
static void check_counts(const uint32_t *counts, const double *p, uint32_t n, const char *what)
{
    double chi = 0.0, rest = 0.0, rest_seen = 0.0;
    uint32_t bins = 0;
    for (uint32_t t = 0; t < n; t++) {
        const double expected = DRAWS * p[t];
        if (expected < 5.0) {
            rest += expected;
            rest_seen += counts[t];
        } else {
            chi += (counts[t] - expected) * (counts[t] - expected) / expected;
            bins++;
        }
    }
    if (rest >= 5.0) {
        chi += (rest_seen - rest) * (rest_seen - rest) / rest;
        bins++;
    }
    assert_true(bins > 5);
    print_message("%s: chi square %.1f over %u bins\n", what, chi, bins);
    if (!(chi <= chi_square_limit(bins - 1.0)))
        fail_msg("%s: chi square %.1f over %u bins", what, chi, bins);
}

/* 2048 seeds: the first two tokens are distributed as the model says, though a draft model proposed
 * both and was right about as often as wrong. */
static void draws_follow_the_distribution(void **state)
{
    (void)state;
    temper_error err = {0};
    const char *rough = rough_copy("tiny/llama-f32.gguf");
    bench b = open_bench("tiny/llama-f32.gguf", rough, 2, 128);
    const uint32_t vocabulary = temper_engine_info(b.engine)->vocabulary;
    temper_tokens prompt = texts_ids(20, 40, IDS_BELOW);
    temper_request request = {
        .prompt = prompt, .max_tokens = 3, .sampling = {.temperature = 1.2f, .top_k = KEPT}};
    double first[VOCABULARY_MOST], second[VOCABULARY_MOST] = {0}, after[VOCABULARY_MOST];
    assert_true(vocabulary <= VOCABULARY_MOST);
    distribution(&b, &request.sampling, prompt, first);
    uint32_t text[21], counts[2][VOCABULARY_MOST] = {{0}};
    memcpy(text, prompt.ids, 20 * sizeof *text);
    for (uint32_t u = 0; u < vocabulary; u++) {
        text[20] = u;
        assert_false(temper_ends(b.engine, u) && first[u] > 0.0);
        if (first[u] > 0.0)
            distribution(&b, &request.sampling, (temper_tokens){text, 21}, after);
        for (uint32_t v = 0; first[u] > 0.0 && v < vocabulary; v++)
            second[v] += first[u] * after[v];
    }
    totals t = {0};
    for (uint32_t draw = 0; draw < DRAWS; draw++) {
        temper_result result;
        request.sampling.seed = draw;
        assert_ok(temper_session_generate(b.session, &request, &result, &err));
        counts[0][result.tokens[0]]++;
        /* An end token is none of the answer. */
        if (result.token_count > 1)
            counts[1][result.tokens[1]]++;
        else
            for (uint32_t v = 0; v < vocabulary; v++)
                counts[1][v] += temper_ends(b.engine, v) && second[v] > 0.0;
        t.proposed += result.proposed;
        t.accepted += result.accepted;
    }
    print_message("%llu of %llu proposals were right\n", (unsigned long long)t.accepted,
                  (unsigned long long)t.proposed);
    assert_true(t.accepted > DRAWS / 4 && t.accepted < t.proposed * 9 / 10);
    check_counts(counts[0], first, vocabulary, "first token");
    check_counts(counts[1], second, vocabulary, "second token");
    free(prompt.ids);
    unlink(rough);
    close_bench(&b);
}

/* ---- what it gains and costs ----------------------------------------------------------------- */

/* A text that loops is written several tokens a pass. */
static void loops_take_few_passes(void **state)
{
    (void)state;
    bench b = open_bench(MODEL, NULL, 8, 512);
    const temper_logit_bias loop[] = {{77, 1e4f}};
    temper_request request = {.prompt = texts_ids(10, 50, IDS_BELOW),
                              .max_tokens = 100,
                              .sampling = {.biases = loop, .bias_count = 1}};
    totals t = {0};
    check_request(&b, &request, &t, "loop");
    assert_int_equal(t.tokens, 100);
    assert_true(t.passes <= 40);
    free(request.prompt.ids);
    close_bench(&b);
}

/* A draft model that knows nothing is left alone most of the time. */
static void bad_drafts_are_left_alone(void **state)
{
    (void)state;
    bench b = open_bench("tiny/llama-f32.gguf", MODEL, 4, 512);
    temper_request request = {.prompt = texts_ids(10, 51, IDS_BELOW),
                              .max_tokens = 300,
                              .sampling = {.temperature = 2.0f, .seed = 5, ENDLESS}};
    totals t = {0};
    check_request(&b, &request, &t, "bad draft");
    assert_int_equal(t.tokens, 300);
    /* At this temperature the shared noise makes even such a model right now and then. A proposal
     * costs a third of a pass at most (see assume_costs): all of them less than a tenth of the
     * answer. */
    assert_true(t.proposed > 0);
    assert_true((double)t.proposed * 0.33 - (double)t.accepted <= 300.0 / 10.0);
    free(request.prompt.ids);
    close_bench(&b);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void an_answer_ends_where_it_would(void **state)
{
    (void)state;
    static const char *const stops[] = {"tt", "qqq"};
    static const temper_logit_bias loop[] = {{77, 1e4f}};
    bench b = open_bench("tiny/llama-f32.gguf", NULL, 8, 128);
    totals t = {0};
    temper_tokens ids = texts_ids(128, 52, IDS_BELOW);
    const temper_request requests[] = {
        {.prompt = {ids.ids, 8}, .max_tokens = 1},
        {.prompt = {ids.ids, 8}, .max_tokens = 2},
        {.prompt = {ids.ids, 9}, .max_tokens = 33},
        {.prompt = {ids.ids, 8}, .no_tokens = true},
        {.prompt = {ids.ids, 100}, .sampling = {ENDLESS}}, /* to the end of the context */
        {.prompt = {ids.ids, 100}, .sampling = {.biases = loop, .bias_count = 1}},
        {.prompt = {ids.ids, 20}, .max_tokens = 31, .sampling = {.biases = loop, .bias_count = 1}},
        {.prompt = {ids.ids, 127}, .sampling = {ENDLESS}},
        {.prompt = {ids.ids, 128}},
        {.prompt = {ids.ids, 30}, .max_tokens = UINT64_MAX},
        {.prompt = {ids.ids, 12}, .stops = stops, .stop_count = 2},
    };
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++)
        check_request(&b, &requests[i], &t, "ends");
    assert_true(t.accepted > 0);
    free(ids.ids);
    close_bench(&b);
}

typedef struct stopper {
    reply got;
    size_t after;
} stopper;

static bool stop_after(const char *text, size_t length, void *user)
{
    stopper *s = user;
    texts_collect(text, length, &s->got);
    return s->got.pieces < s->after;
}

/* Stopped among tokens that one pass brought, and then asked again: nothing is left of the rest. */
static void a_callback_may_stop_in_the_middle(void **state)
{
    (void)state;
    temper_error err = {0};
    temper_result result;
    bench b = open_bench(MODEL, NULL, 8, 256);
    const temper_logit_bias loop[] = {{77, 1e4f}};
    temper_request request = {.prompt = texts_ids(10, 53, IDS_BELOW),
                              .max_tokens = 60,
                              .sampling = {.biases = loop, .bias_count = 1},
                              .on_text = stop_after};
    totals t = {0};
    for (size_t after = 2; after < 14; after += 3) {
        static stopper s;
        s = (stopper){.after = after};
        request.user = &s;
        assert_ok(temper_session_generate(b.session, &request, &result, &err));
        assert_int_equal(result.finish, TEMPER_FINISH_CANCELLED);
        assert_int_equal(s.got.pieces, after);
        temper_request other = {.prompt = texts_ids(40, 54, IDS_BELOW), .max_tokens = 20};
        memcpy(other.prompt.ids, request.prompt.ids, 10 * sizeof(uint32_t));
        memcpy(other.prompt.ids + 10, result.tokens,
               (result.token_count < 5 ? result.token_count : 5) * sizeof(uint32_t));
        check_request(&b, &other, &t, "after a stop");
        free(other.prompt.ids);
    }
    free(request.prompt.ids);
    close_bench(&b);
}

/* ---- in a batch ------------------------------------------------------------------------------ */

typedef struct caller {
    temper_request request;
    reply wanted, got;
} caller;

static bool on_text(const char *text, size_t length, void *user)
{
    return texts_collect(text, length, &((caller *)user)->got);
}

static void on_done(uint64_t id, const temper_result *result, const temper_error *failure,
                    void *user)
{
    caller *c = user;
    (void)id;
    texts_keep(&c->got, &c->request, result, failure);
}

/* Twice as many requests as places; a pool that is too small for all. */
static void check_batch(const bench *b, const temper_batch_desc *desc, const char *what)
{
    enum { COUNT = 8 };
    temper_error err = {0};
    temper_batch *batch = NULL;
    const texts_judge judge = {b->engine, b->plain, b->limit};
    caller *callers = calloc(COUNT, sizeof *callers);
    bool more = true;
    assert_ok(temper_batch_open(b->engine, desc, &batch, &err));
    for (uint32_t i = 0; i < COUNT; i++) {
        caller *c = &callers[i];
        c->request = (temper_request){.prompt = texts_ids(5 + 70 * (i % 4), i + 60, IDS_BELOW),
                                      .max_tokens = 30 + i,
                                      .sampling = texts_samplings[i % TEXTS_SAMPLINGS]};
        texts_alone(b->plain, &c->request, &c->wanted);
        c->request.on_text = on_text;
        c->request.user = c;
        assert_ok(temper_batch_submit(batch, &c->request, on_done, NULL, &err));
    }
    while (more)
        assert_ok(temper_batch_step(batch, &more, &err));
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(callers[i].got.done, 1);
        assert_int_equal(callers[i].got.status, TEMPER_OK);
        texts_same(&judge, &callers[i].request, &callers[i].wanted, &callers[i].got, what);
        free(callers[i].request.prompt.ids);
    }
    const temper_batch_stats stats = temper_batch_get_stats(batch);
    assert_true(stats.accepted > 0 && stats.accepted <= stats.proposed);
    temper_batch_close(batch);
    free(callers);
}

static void batches_speculate(void **state)
{
    (void)state;
    const char *rough = rough_copy("tiny/llama-f32.gguf");
    bench b = open_bench("tiny/llama-f32.gguf", rough, 4, 384);
    const temper_speculation drafted = {4, b.draft}, looked_up = {6, NULL};
    check_batch(&b, &(temper_batch_desc){.sequences = 4, .context = 384, .speculation = looked_up},
                "lookup");
    check_batch(&b, &(temper_batch_desc){.sequences = 4, .context = 384, .speculation = drafted},
                "draft");
    check_batch(&b,
                &(temper_batch_desc){
                    .sequences = 8, .context = 384, .positions = 768, .speculation = drafted},
                "draft, small pool");
    unlink(rough);
    close_bench(&b);
}

/* ---- steadiness and failures ----------------------------------------------------------------- */

static void steady_speculation_creates_nothing(void **state)
{
    (void)state;
    for (int drafted = 0; drafted < 2; drafted++) {
        bench b = open_bench(MODEL, drafted ? MODEL : NULL, 4, 256);
        temper_request request = {.prompt = texts_ids(30, 70, IDS_BELOW),
                                  .max_tokens = 64,
                                  .sampling = {.repeat_penalty = 1.05f, ENDLESS}};
        static reply r;
        temper_device_stats before = {0}, after = {0};
        uint64_t allocations = 0, counted = 0;
        for (int round = 0; round < 3; round++) {
            before = temper_device_get_stats(b.device);
            allocations = mem_allocation_count();
            texts_alone(b.session, &request, &r);
            after = temper_device_get_stats(b.device);
            counted = mem_allocation_count() - allocations;
        }
        assert_int_equal(r.count, 64);
        assert_true(r.proposed > 0);
        assert_int_equal(after.buffers_created, before.buffers_created);
        assert_int_equal(after.pipelines_created, before.pipelines_created);
        assert_int_equal(after.bind_groups_created, before.bind_groups_created);
        assert_int_equal(after.live_bytes, before.live_bytes);
        assert_true(counted < 40);
        free(request.prompt.ids);
        close_bench(&b);
    }
}

static bool lose(const char *text, size_t length, void *user)
{
    (void)text;
    (void)length;
    gpu_lose(((temper_device *)user)->gpu);
    return true;
}

static void a_device_lost_between_proposals(void **state)
{
    (void)state;
    temper_error err = {0};
    temper_result result;
    bench b = open_bench(MODEL, MODEL, 4, 256);
    temper_request request = {.prompt = texts_ids(30, 71, IDS_BELOW),
                              .max_tokens = 50,
                              .sampling = {ENDLESS},
                              .on_text = lose,
                              .user = b.device};
    assert_fails(temper_session_generate(b.session, &request, &result, &err), TEMPER_DEVICE_LOST,
                 "lost");
    assert_true(result.token_count < 50);
    assert_fails(temper_session_generate(b.session, &request, &result, &err), TEMPER_DEVICE_LOST,
                 "lost");
    free(request.prompt.ids);
    close_bench(&b);
}

/* The nth buffer, then the nth allocation, of a session's life with a draft model cannot be had. */
static void no_memory_at_any_moment(void **state)
{
    (void)state;
    bench b = open_bench(MODEL, MODEL, 3, 128);
    temper_request request = {.prompt = texts_ids(30, 72, IDS_BELOW),
                              .max_tokens = 8,
                              .logprobs = true,
                              .sampling = {.repeat_penalty = 1.1f, ENDLESS}};
    for (int kind = 0; kind < 2; kind++) {
        bool done = false;
        for (uint64_t n = 1; !done; n++) {
            temper_error err = {0};
            temper_result result;
            temper_session *session = NULL;
            const temper_session_desc desc = {.context = 64, .speculation = {3, b.draft}};
            if (kind == 0)
                gpu_fail_allocation(b.device->gpu, n);
            else
                mem_fail_at(n, 0);
            temper_status status = temper_session_open(b.engine, &desc, &session, &err);
            if (status == TEMPER_OK)
                status = temper_session_generate(session, &request, &result, &err);
            gpu_fail_allocation(b.device->gpu, 0);
            mem_fail_at(0, 0);
            done = status == TEMPER_OK;
            if (!done && status != TEMPER_DEVICE_MEMORY && status != TEMPER_NO_MEMORY)
                fail_msg("allocation %llu: status %d: %s", (unsigned long long)n, (int)status,
                         err.text);
            temper_session_close(session);
            assert_true(n < 1000);
        }
    }
    /* Nothing that failed has harmed what there is. */
    totals t = {0};
    check_request(&b, &request, &t, "after failures");
    free(request.prompt.ids);
    close_bench(&b);
}

/* ---- what does not fit ----------------------------------------------------------------------- */

/* A copy of a model with some bytes of a token changed. */
static const char *other_token(const char *path, const char *from, const char *to)
{
    static char out[64];
    static unsigned char content[1 << 20];
    char full[4096];
    snprintf(full, sizeof full, "%s/%s", TEST_GOLDEN, path);
    snprintf(out, sizeof out, "/tmp/temper-tokens-XXXXXX");
    const int file = mkstemp(out);
    FILE *in = fopen(full, "rb");
    assert_non_null(in);
    const size_t size = fread(content, 1, sizeof content, in);
    fclose(in);
    size_t at = 0;
    while (at + strlen(from) < size && memcmp(content + at, from, strlen(from)) != 0)
        at++;
    memcpy(content + at, to, strlen(to));
    assert_int_equal(write(file, content, size), (ssize_t)size);
    close(file);
    return out;
}

static void check_refused(temper_engine *engine, temper_engine *draft, const char *part)
{
    temper_error err = {0};
    temper_session *session = NULL;
    temper_batch *batch = NULL;
    const temper_speculation speculation = {4, draft};
    const temper_session_desc one = {.context = 64, .speculation = speculation};
    const temper_batch_desc many = {.sequences = 4, .context = 64, .speculation = speculation};
    assert_fails(temper_session_open(engine, &one, &session, &err), TEMPER_BAD_ARGUMENT, part);
    assert_fails(temper_batch_open(engine, &many, &batch, &err), TEMPER_BAD_ARGUMENT, part);
    assert_null(session);
    assert_null(batch);
}

static void drafts_that_do_not_fit(void **state)
{
    (void)state;
    temper_error err = {0};
    temper_device *device = test_device(&test_masks[0]), *second = test_device(&test_masks[0]);
    temper_engine *engine = test_engine(device, MODEL, 32);
    temper_engine *elsewhere = test_engine(second, MODEL, 32);
    check_refused(engine, elsewhere, "another device");
    temper_engine *small = test_engine(device, "arch/gemma3.gguf", 32);
    check_refused(engine, small, "tokens and the model 291");
    const char *changed = other_token(MODEL, "<|im_start|>", "<|im_stArt|>");
    temper_engine *renamed = test_engine(device, changed, 32);
    check_refused(engine, renamed, "token 1 is \"<|im_stArt|>\" to the draft model");
    unlink(changed);
    temper_engine *words = NULL;
    char full[4096];
    snprintf(full, sizeof full, "%s/%s", TEST_GOLDEN, MODEL);
    assert_ok(temper_engine_open(&(temper_engine_desc){.model = full, .vocabulary_only = true},
                                 &words, &err));
    check_refused(engine, words, "a vocabulary only");
    temper_engine *narrow = test_engine(device, MODEL, 1);
    check_refused(engine, narrow, "rows a step");
    temper_session *session = NULL;
    const temper_session_desc many = {.context = 64, .speculation = {.tokens = 17}};
    assert_fails(temper_session_open(engine, &many, &session, &err), TEMPER_BAD_ARGUMENT,
                 "speculation of 17 tokens at once; it must be 0 to 16");
    temper_engine *all[] = {engine, elsewhere, small, renamed, words, narrow};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        temper_engine_close(all[i]);
    test_nothing_left(device);
    temper_device_release(device);
    temper_device_release(second);
}

/* Proposals pay here as on a GPU with a small draft model: else a CPU would hardly make any. */
static int assume_costs(void **state)
{
    static const pace_costs cheap = {.wait = 0.25f, .row = 0.03f, .draft = 0.05f};
    (void)state;
    decoder_assume_costs(&cheap);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(looking_up_never_changes_the_text),
        cmocka_unit_test(a_draft_never_changes_the_text),
        cmocka_unit_test(a_model_agrees_with_itself),
        cmocka_unit_test(the_default_model),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(loops_take_few_passes),
        cmocka_unit_test(bad_drafts_are_left_alone),
        cmocka_unit_test(an_answer_ends_where_it_would),
        cmocka_unit_test(a_callback_may_stop_in_the_middle),
        cmocka_unit_test(batches_speculate),
        cmocka_unit_test(steady_speculation_creates_nothing),
        cmocka_unit_test(a_device_lost_between_proposals),
        cmocka_unit_test(no_memory_at_any_moment),
        cmocka_unit_test(drafts_that_do_not_fit),
    };
    return cmocka_run_group_tests_name("model_speculate", tests, assume_costs, NULL);
}
