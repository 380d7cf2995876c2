#include "infer/answer.h"

#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/mem.h"

temper_status answer_check(const temper_engine *engine, const temper_request *request,
                           uint32_t context, error *err)
{
    const temper_tokens prompt = request->prompt;
    const uint32_t vocabulary = engine->info.vocabulary;
    temper_status status = infer_check_sampling(&request->sampling, err);
    if (status == TEMPER_OK)
        status = infer_check_biases(&request->sampling, vocabulary, err);
    if (status == TEMPER_OK && request->best > TEMPER_MAX_LOGPROBS)
        status = error_set(err, TEMPER_BAD_ARGUMENT, "best is %u; it must be 0 to %d",
                           request->best, TEMPER_MAX_LOGPROBS);
    return status == TEMPER_OK ? infer_check_prompt(prompt, vocabulary, context, err) : status;
}

temper_status answer_begin(answer *a, temper_engine *engine, const temper_request *request,
                           uint32_t context, error *err)
{
    assert(a->stream == NULL && request->prompt.count <= context);
    const uint64_t room = context - request->prompt.count;
    a->engine = engine;
    a->request = request;
    a->tokens.count = 0;
    a->limit = request->max_tokens == 0 ? room : min_u64(room, request->max_tokens);
    if (request->no_tokens)
        a->limit = 0;
    a->reused = 0;
    a->ended = false;
    a->finish = TEMPER_FINISH_LENGTH;
    error_clear(&a->failure);
    a->begun = clock_seconds();
    a->first_token = a->done = 0.0;
    a->passes = a->proposed = a->accepted = 0;
    strbuf_clear(&a->text);
    /* A random shape has no tokenizer, and so no text. */
    if (engine->tok == NULL)
        return TEMPER_OK;
    return text_stream_open(engine->tok, request->stops, request->stop_count, &a->stream, err);
}

static void close_stream(answer *a)
{
    text_stream_close(a->stream);
    a->stream = NULL;
}

static void finish(answer *a, temper_finish how)
{
    a->ended = true;
    a->finish = how;
    a->done = clock_seconds();
    if (a->first_token <= 0.0)
        a->first_token = a->done;
    close_stream(a);
}

/* Hands the text out; false when the callback wants no more. */
static bool emit(answer *a)
{
    bool more = true;
    if (a->text.length > 0 && a->request->on_text != NULL)
        more = a->request->on_text(a->text.data, a->text.length, a->request->user);
    strbuf_clear(&a->text);
    return more;
}

void answer_fail(answer *a, temper_status status, const char *text)
{
    if (a->ended)
        return;
    error_set(&a->failure, status, "%s", text);
    finish(a, a->finish);
}

void answer_end(answer *a, temper_finish how)
{
    error failure = {0};
    if (a->ended)
        return;
    if (a->stream != NULL && how != TEMPER_FINISH_CANCELLED) {
        const temper_status status = text_stream_finish(a->stream, &a->text, &failure);
        if (status != TEMPER_OK) {
            answer_fail(a, status, failure.text);
            return;
        }
        /* A stop string that was complete but waited for an earlier one counts now. */
        if (text_stream_stopped(a->stream) && how == TEMPER_FINISH_LENGTH)
            how = TEMPER_FINISH_STOP;
        emit(a);
    }
    finish(a, how);
}

void answer_progress(answer *a, size_t done)
{
    const temper_request *request = a->request;
    if (!a->ended && request->on_prompt != NULL &&
        !request->on_prompt(done, request->prompt.count, request->user))
        answer_end(a, TEMPER_FINISH_CANCELLED);
}

/* Keeps the log-probabilities of the token that comes next. */
static temper_status keep_logprobs(answer *a, const answer_choice *chosen, error *err)
{
    const size_t width = 1 + a->request->best, first = a->tokens.count * width;
    if (first + width > a->logprob_capacity) {
        const size_t capacity = (first + width) * 2;
        temper_logprob *larger = mem_realloc(a->logprobs, capacity * sizeof *larger);
        if (larger == NULL)
            return error_set(err, TEMPER_NO_MEMORY, "no memory for log-probabilities");
        a->logprobs = larger;
        a->logprob_capacity = capacity;
    }
    /* The surprise is log(sum) - logit of the chosen token, so the sum follows from its logit. */
    const float log_sum = chosen->surprise + chosen->scored[0].logit;
    for (size_t i = 0; i < width; i++)
        a->logprobs[first + i] =
            (temper_logprob){chosen->scored[i].id, chosen->scored[i].logit - log_sum};
    return TEMPER_OK;
}

/* The id is a token of the answer: it joins the lists and the text. */
static temper_status add(answer *a, const answer_choice *chosen, bool *stopped, error *err)
{
    temper_status status = a->request->logprobs ? keep_logprobs(a, chosen, err) : TEMPER_OK;
    if (status == TEMPER_OK)
        status = token_list_push(&a->tokens, chosen->id, err);
    if (status == TEMPER_OK && a->stream != NULL)
        status = text_stream_push(a->stream, chosen->id, &a->text, stopped, err);
    return status;
}

static temper_status check_id(const answer *a, uint32_t id, error *err)
{
    if (id == OP_NO_TOKEN)
        return error_set(err, TEMPER_NOT_FINITE,
                         "the model's scores of token %zu of the answer are not finite numbers: "
                         "the weights, or the device's arithmetic, are broken",
                         a->tokens.count);
    if (id >= a->engine->info.vocabulary)
        return error_set(err, TEMPER_INTERNAL, "the device chose id %u of a vocabulary of %u", id,
                         a->engine->info.vocabulary);
    return TEMPER_OK;
}

void answer_take(answer *a, const answer_choice *chosen)
{
    error failure = {0};
    bool stopped = false;
    if (a->ended)
        return;
    if (a->first_token <= 0.0)
        a->first_token = clock_seconds();
    temper_status status = check_id(a, chosen->id, &failure);
    const bool end = status == TEMPER_OK && temper_ends(a->engine, chosen->id);
    if (status == TEMPER_OK && !end)
        status = add(a, chosen, &stopped, &failure);
    if (status != TEMPER_OK)
        answer_fail(a, status, failure.text);
    else if (end || stopped)
        answer_end(a, TEMPER_FINISH_STOP);
    else if (!emit(a))
        answer_end(a, TEMPER_FINISH_CANCELLED);
    else if (a->tokens.count >= a->limit)
        answer_end(a, TEMPER_FINISH_LENGTH);
}

void answer_result(const answer *a, temper_result *out)
{
    *out = (temper_result){
        .tokens = a->tokens.ids,
        .token_count = a->tokens.count,
        .finish = a->finish,
        .logprobs = a->request->logprobs ? a->logprobs : NULL,
    };
    if (a->failure.status != TEMPER_OK)
        return;
    out->prompt_tokens = a->request->prompt.count;
    out->reused_tokens = a->reused;
    out->prompt_seconds = a->first_token - a->begun;
    out->decode_seconds = a->done - a->first_token;
    out->passes = a->passes;
    out->proposed = a->proposed;
    out->accepted = a->accepted;
}

void answer_close(answer *a)
{
    close_stream(a);
    strbuf_free(&a->text);
    token_list_free(&a->tokens);
    mem_free(a->logprobs);
    *a = (answer){0};
}
