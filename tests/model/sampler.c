/*
 * sampler.c - penalties, biases and log-probabilities in a session, against the same arithmetic on
 * the host over logits that a second session computes.
 */
#include "support/model_test.h"

#include <math.h>

#include "ref/ref.h"

/* The tests run under each. */
static const device_mask *mask;

enum { STEPS = 40, VOCABULARY_MOST = 512 };

typedef struct fixture {
    temper_device *device;
    temper_engine *engine;
    temper_session *session, *other;
    uint32_t vocabulary;
    temper_tokens prompt;
} fixture;

static fixture open_fixture(void)
{
    static uint32_t ids[24];
    temper_error err = {0};
    fixture f = {.device = test_device(mask)};
    f.engine = test_engine(f.device, "tiny/llama-q4_1.gguf", 32);
    f.vocabulary = temper_engine_info(f.engine)->vocabulary;
    assert_true(f.vocabulary <= VOCABULARY_MOST);
    const temper_session_desc desc = {.context = 256};
    assert_ok(temper_session_open(f.engine, &desc, &f.session, &err));
    assert_ok(temper_session_open(f.engine, &desc, &f.other, &err));
    for (uint32_t i = 0; i < 24; i++)
        ids[i] = (i * 29 + 3) % 60;
    f.prompt = (temper_tokens){ids, 24};
    return f;
}

static void close_fixture(fixture *f)
{
    temper_session_close(f->session);
    temper_session_close(f->other);
    temper_engine_close(f->engine);
    temper_device_release(f->device);
}

/* Logits after `count` ids, with biases and penalties applied on the host in double. */
static void simulate(const fixture *f, const temper_sampling *s, const uint32_t *text, size_t count,
                     double *out)
{
    temper_error err = {0};
    float raw[VOCABULARY_MOST];
    uint32_t ids[8];
    float biases[8];
    double biased[VOCABULARY_MOST];
    const size_t window = s->penalty_window < 0    ? count
                          : s->penalty_window == 0 ? 64
                                                   : (size_t)s->penalty_window;
    const size_t n = window < count ? window : count;
    assert_ok(temper_session_logits(f->other, (temper_tokens){(uint32_t *)text, count}, raw, &err));
    for (size_t i = 0; i < s->bias_count; i++) {
        ids[i] = s->biases[i].id;
        biases[i] = s->biases[i].bias;
    }
    ref_bias_logits(raw, ids, biases, (uint32_t)s->bias_count, f->vocabulary, biased);
    for (uint32_t t = 0; t < f->vocabulary; t++)
        raw[t] = (float)biased[t];
    ref_penalize(raw, text + count - n, (uint32_t)n, f->vocabulary,
                 s->repeat_penalty > 0.0f ? (double)s->repeat_penalty : 1.0,
                 (double)s->presence_penalty, (double)s->frequency_penalty, out);
}

static uint32_t largest(const double *logits, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* Greedy decoding under the sampling values is what the host finds; returns how many different
 * tokens came out. */
static size_t check_greedy(fixture *f, const temper_sampling *sampling)
{
    temper_error err = {0};
    temper_result result;
    uint32_t text[24 + STEPS];
    double logits[VOCABULARY_MOST];
    size_t different = 0;
    const temper_request request = {
        .prompt = f->prompt, .max_tokens = STEPS, .sampling = *sampling};
    assert_ok(temper_session_generate(f->session, &request, &result, &err));
    assert_true(result.token_count > 0);
    memcpy(text, f->prompt.ids, 24 * sizeof text[0]);
    for (size_t i = 0; i < result.token_count; i++) {
        simulate(f, sampling, text, 24 + i, logits);
        const uint32_t wanted = largest(logits, f->vocabulary);
        /* The two sessions round differently: a near tie may go either way. */
        if (result.tokens[i] != wanted && !(logits[wanted] - logits[result.tokens[i]] < 1e-3))
            fail_msg("token %zu is %u, the host says %u", i, result.tokens[i], wanted);
        text[24 + i] = result.tokens[i];
        bool seen = false;
        for (size_t j = 0; j < i; j++)
            seen = seen || result.tokens[j] == result.tokens[i];
        different += !seen;
    }
    return different;
}

static void penalties_weaken_what_was_said(void **state)
{
    (void)state;
    fixture f = open_fixture();
    const size_t plain = check_greedy(&f, &(temper_sampling){0});
    const temper_sampling rows[] = {
        {.repeat_penalty = 1.3f},
        {.repeat_penalty = 1.3f, .penalty_window = 3},
        {.repeat_penalty = 1.3f, .penalty_window = -1},
        {.repeat_penalty = 1.3f, .penalty_window = 1 << 20},
        {.presence_penalty = 2.0f},
        {.frequency_penalty = 1.0f},
        {.repeat_penalty = 1.1f, .presence_penalty = 0.3f, .frequency_penalty = 0.5f},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check_greedy(&f, &rows[i]);
    /* A presence penalty beyond every gap leaves no token twice. */
    const size_t fresh =
        check_greedy(&f, &(temper_sampling){.presence_penalty = 1e4f, .penalty_window = -1});
    assert_int_equal(fresh, STEPS);
    assert_true(plain < STEPS);
    close_fixture(&f);
}

static void biases_change_the_choice(void **state)
{
    (void)state;
    temper_error err = {0};
    temper_result result;
    fixture f = open_fixture();
    const temper_request plain = {.prompt = f.prompt, .max_tokens = 1};
    assert_ok(temper_session_generate(f.session, &plain, &result, &err));
    const uint32_t first = result.tokens[0];
    const temper_logit_bias banned = {first, -INFINITY}, forced = {77, 1e4f};
    check_greedy(&f, &(temper_sampling){.biases = &banned, .bias_count = 1});
    check_greedy(&f, &(temper_sampling){.biases = &forced, .bias_count = 1});
    temper_request request = {
        .prompt = f.prompt, .max_tokens = 3, .sampling = {.biases = &banned, .bias_count = 1}};
    assert_ok(temper_session_generate(f.session, &request, &result, &err));
    assert_int_not_equal(result.tokens[0], first);
    request.sampling.biases = &forced;
    assert_ok(temper_session_generate(f.session, &request, &result, &err));
    for (size_t i = 0; i < result.token_count; i++)
        assert_int_equal(result.tokens[i], 77);

    const temper_logit_bias twice[] = {{5, 1.0f}, {5, 2.0f}}, nan_bias = {5, NAN},
                            infinite = {5, INFINITY}, far = {100000, 1.0f};
    request.sampling.biases = twice;
    request.sampling.bias_count = 2;
    assert_fails(temper_session_generate(f.session, &request, &result, &err), TEMPER_BAD_ARGUMENT,
                 "id 5 has two");
    const struct {
        const temper_logit_bias *bias;
        const char *part;
    } rows[] = {{&nan_bias, "of id 5 is"}, {&infinite, "of id 5 is inf"}, {&far, "id 100000"}};
    request.sampling.bias_count = 1;
    for (size_t i = 0; i < 3; i++) {
        request.sampling.biases = rows[i].bias;
        assert_fails(temper_session_generate(f.session, &request, &result, &err),
                     TEMPER_BAD_ARGUMENT, rows[i].part);
    }
    close_fixture(&f);
}

static void log_probabilities_are_those_of_the_distribution(void **state)
{
    (void)state;
    temper_error err = {0};
    temper_result result;
    fixture f = open_fixture();
    uint32_t text[24 + STEPS];
    double logits[VOCABULARY_MOST];
    const temper_request request = {
        .prompt = f.prompt,
        .max_tokens = 12,
        .logprobs = true,
        .best = 4,
        .sampling = {.temperature = 1.2f, .seed = 5, .repeat_penalty = 1.2f}};
    assert_ok(temper_session_generate(f.session, &request, &result, &err));
    assert_non_null(result.logprobs);
    memcpy(text, f.prompt.ids, 24 * sizeof text[0]);
    for (size_t i = 0; i < result.token_count; i++) {
        const temper_logprob *row = &result.logprobs[i * 5];
        simulate(&f, &request.sampling, text, 24 + i, logits);
        double sum = 0.0;
        for (uint32_t t = 0; t < f.vocabulary; t++)
            sum += exp(logits[t]);
        assert_int_equal(row[0].id, result.tokens[i]);
        for (size_t p = 0; p < 5; p++) {
            const double wanted = logits[row[p].id] - log(sum);
            if (!(fabs(wanted - (double)row[p].logprob) < 1e-3))
                fail_msg("token %zu, place %zu: %g, the host says %g", i, p, (double)row[p].logprob,
                         wanted);
            assert_true(p < 2 || row[p].logprob <= row[p - 1].logprob);
        }
        assert_true(fabs(logits[row[1].id] - logits[largest(logits, f.vocabulary)]) < 1e-3);
        text[24 + i] = result.tokens[i];
    }
    temper_request bad = request;
    bad.best = TEMPER_MAX_LOGPROBS + 1;
    assert_fails(temper_session_generate(f.session, &bad, &result, &err), TEMPER_BAD_ARGUMENT,
                 "best is 33");
    close_fixture(&f);
}

static void penalty_values_are_checked_by_name(void **state)
{
    (void)state;
    temper_error err = {0};
    temper_result result;
    fixture f = open_fixture();
    const struct {
        temper_sampling sampling;
        const char *part;
    } rows[] = {
        {{.repeat_penalty = -1.0f}, "repeat_penalty is -1"},
        {{.repeat_penalty = NAN}, "repeat_penalty is"},
        {{.repeat_penalty = INFINITY}, "repeat_penalty is inf"},
        {{.presence_penalty = NAN}, "presence_penalty is"},
        {{.frequency_penalty = INFINITY}, "frequency_penalty is inf"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const temper_request request = {
            .prompt = f.prompt, .max_tokens = 2, .sampling = rows[i].sampling};
        assert_fails(temper_session_generate(f.session, &request, &result, &err),
                     TEMPER_BAD_ARGUMENT, rows[i].part);
    }
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(penalties_weaken_what_was_said),
        cmocka_unit_test(biases_change_the_choice),
        cmocka_unit_test(log_probabilities_are_those_of_the_distribution),
        cmocka_unit_test(penalty_values_are_checked_by_name),
    };
    int failed = 0;
    for (size_t m = 0; m < test_mask_count; m++) {
        mask = &test_masks[m];
        failed += cmocka_run_group_tests_name(mask->name, tests, NULL, NULL);
    }
    return failed;
}
