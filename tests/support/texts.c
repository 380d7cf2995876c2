#include "support/texts.h"

#include <math.h>

#include "ref/ref.h"

const temper_logit_bias texts_endless[2] = {{0, -INFINITY}, {2, -INFINITY}};

const temper_sampling texts_samplings[TEXTS_SAMPLINGS] = {
    {0},
    {.temperature = 0.8f, .seed = 11},
    {.temperature = 1.5f, .seed = 12, .top_k = 40},
    {.repeat_penalty = 1.2f},
    {.temperature = 0.7f,
     .seed = 13,
     .top_p = 0.9f,
     .presence_penalty = 0.5f,
     .penalty_window = 12},
    {.temperature = 1.0f, .seed = 14, .min_p = 0.1f, ENDLESS},
};

temper_tokens texts_ids(size_t count, uint32_t seed, uint32_t below)
{
    temper_tokens tokens = {calloc(count + 1, sizeof(uint32_t)), count};
    assert_non_null(tokens.ids);
    for (size_t i = 0; i < count; i++)
        tokens.ids[i] = (uint32_t)((i * 37 + seed * 101 + i * i * 3 + seed * i * 7) % below);
    return tokens;
}

bool texts_collect(const char *text, size_t length, void *user)
{
    reply *r = user;
    assert_true(r->text_length + length < sizeof r->text);
    memcpy(r->text + r->text_length, text, length);
    r->text_length += length;
    r->pieces++;
    return true;
}

void texts_keep(reply *r, const temper_request *request, const temper_result *result,
                const temper_error *failure)
{
    assert_true(result->token_count <= REPLY_MOST);
    r->count = result->token_count;
    if (r->count > 0)
        memcpy(r->ids, result->tokens, r->count * sizeof *r->ids);
    r->prompt_tokens = result->prompt_tokens;
    r->reused = result->reused_tokens;
    r->finish = result->finish;
    r->passes = result->passes;
    r->proposed = result->proposed;
    r->accepted = result->accepted;
    r->status = failure->status;
    snprintf(r->failure, sizeof r->failure, "%s", failure->text);
    r->logprob_count = request->logprobs ? r->count * (1 + request->best) : 0;
    assert_true(r->logprob_count <= REPLY_MOST);
    if (r->logprob_count > 0)
        memcpy(r->logprobs, result->logprobs, r->logprob_count * sizeof *r->logprobs);
    r->done++;
}

void texts_alone(temper_session *session, const temper_request *request, reply *out)
{
    temper_error err = {0};
    temper_result result;
    temper_request own = *request;
    memset(out, 0, sizeof *out);
    own.on_text = texts_collect;
    own.on_prompt = NULL;
    own.user = out;
    assert_ok(temper_session_generate(session, &own, &result, &err));
    texts_keep(out, request, &result, &err);
}

/* What decides the choice after `count` ids, for every token; returns the range of the logits. */
static double scores_after(const texts_judge *judge, const temper_sampling *s, uint32_t *text,
                           size_t count, double *out)
{
    temper_error err = {0};
    const uint32_t vocabulary = temper_engine_info(judge->engine)->vocabulary;
    float *raw = calloc(vocabulary, sizeof *raw),
          *biases = calloc(s->bias_count + 1, sizeof *biases);
    uint32_t *ids = calloc(s->bias_count + 1, sizeof *ids);
    const size_t window = s->penalty_window < 0    ? count
                          : s->penalty_window == 0 ? 64
                                                   : (size_t)s->penalty_window;
    const size_t n = window < count ? window : count;
    double lowest = INFINITY, highest = -INFINITY;
    assert_ok(temper_session_logits(judge->session, (temper_tokens){text, count}, raw, &err));
    for (uint32_t t = 0; t < vocabulary; t++) {
        lowest = fmin(lowest, (double)raw[t]);
        highest = fmax(highest, (double)raw[t]);
    }
    for (size_t i = 0; i < s->bias_count; i++) {
        ids[i] = s->biases[i].id;
        biases[i] = s->biases[i].bias;
    }
    ref_bias_logits(raw, ids, biases, (uint32_t)s->bias_count, vocabulary, out);
    for (uint32_t t = 0; t < vocabulary; t++)
        raw[t] = (float)out[t];
    ref_penalize(raw, text + count - n, (uint32_t)n, vocabulary,
                 s->repeat_penalty > 0.0f ? (double)s->repeat_penalty : 1.0,
                 (double)s->presence_penalty, (double)s->frequency_penalty, out);
    for (uint32_t t = 0; s->temperature > 1e-6f && t < vocabulary; t++)
        out[t] = out[t] / (double)s->temperature + ref_gumbel(s->seed, (uint32_t)count, t);
    free(raw);
    free(ids);
    free(biases);
    return highest - lowest;
}

/* The score of a reply's token at a place; where the reply ended there, of its likeliest end token.
 */
static double score_of(const texts_judge *judge, const reply *r, size_t at, const double *scores)
{
    double best = -INFINITY;
    if (at < r->count)
        return scores[r->ids[at]];
    assert_int_equal(r->finish, TEMPER_FINISH_STOP);
    for (uint32_t t = 0; t < temper_engine_info(judge->engine)->vocabulary; t++)
        if (temper_ends(judge->engine, t))
            best = fmax(best, scores[t]);
    return best;
}

/* The replies part at token `at`: were the two tokens as good as equal? */
static void check_parting(const texts_judge *judge, const temper_request *request, const reply *a,
                          const reply *b, size_t at, const char *what)
{
    const temper_sampling *s = &request->sampling;
    const size_t prompt = request->prompt.count;
    uint32_t *text = calloc(prompt + at, sizeof *text);
    double *scores = calloc(temper_engine_info(judge->engine)->vocabulary, sizeof *scores);
    memcpy(text, request->prompt.ids, prompt * sizeof *text);
    if (at > 0)
        memcpy(text + prompt, a->ids, at * sizeof *text);
    const double range = scores_after(judge, s, text, prompt + at, scores);
    const double heat = s->temperature > 1e-6f ? (double)s->temperature : 1.0;
    const double gap =
        fabs(score_of(judge, a, at, scores) - score_of(judge, b, at, scores)) * heat / range;
    if (!(gap <= 2.0 * judge->limit))
        fail_msg("%s: token %zu differs (%u and %u of %zu and %zu), the scores by %g of the range",
                 what, at, at < a->count ? a->ids[at] : 0, at < b->count ? b->ids[at] : 0, a->count,
                 b->count, gap);
    print_message("%s: the texts part at token %zu, where scores differ by %g of the range\n", what,
                  at, gap);
    free(text);
    free(scores);
}

size_t texts_same(const texts_judge *judge, const temper_request *request, const reply *a,
                  const reply *b, const char *what)
{
    size_t at = 0;
    while (at < a->count && at < b->count && a->ids[at] == b->ids[at])
        at++;
    if (at < a->count || at < b->count)
        check_parting(judge, request, a, b, at, what);
    else
        assert_int_equal(a->finish, b->finish);
    return at;
}
