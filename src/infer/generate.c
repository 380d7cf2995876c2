/*
 * generate.c - answers: the choice of each token, and the decoding that runs one step ahead of the
 * host.
 */
#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/mem.h"
#include "infer/session.h"
#include "text/stream.h"

/* ---- the choice of a token ------------------------------------------------------------------ */

/* What comes back from the choice of a token: the id, and with logprobs its surprise and the best.
 */
static uint64_t choice_bytes(const temper_request *request)
{
    return sizeof(uint32_t) +
           (request->logprobs ? sizeof(float) + (1 + request->best) * sizeof(op_scored) : 0);
}

/* Records the choice of the id at `position` from the first logits row, and its way back to the
 * host. Under penalties the id joins the history on the device, where the next choice looks. */
void session_record_choice(temper_session *s, gpu_recorder *rec, const temper_request *request,
                           uint32_t position)
{
    const uint32_t vocabulary = s->engine->net->config.vocabulary;
    const gpu_view logits = model_logits(s->engine->net);
    const gpu_view chosen = {s->ids, 0, sizeof(uint32_t)};
    const op_sample_params params = infer_sample_params(&request->sampling, position);
    const op_penalties penalties = infer_penalties(&request->sampling, position);
    op_bias_logits(rec, logits, gpu_whole(s->biases), 0, vocabulary, 0,
                   (uint32_t)request->sampling.bias_count);
    op_penalize(rec, logits, gpu_whole(s->history), 0, vocabulary, &penalties);
    error failure = {0};
    if (gpu_write(s->engine->net->device, s->choice, 0, &params, sizeof params, &failure) !=
        TEMPER_OK)
        gpu_record_fail(rec, failure.status, "%s", failure.text);
    op_sample(rec, logits, gpu_whole(s->choice), gpu_whole(s->sampler), gpu_whole(s->ids), 0, 1,
              vocabulary, &params);
    if (penalties.count > 0)
        gpu_record_copy(rec, chosen,
                        (gpu_view){s->history, position * sizeof(uint32_t), sizeof(uint32_t)});
    gpu_record_readback(rec, chosen);
    if (!request->logprobs)
        return;
    op_nll(rec, logits, gpu_whole(s->ids), gpu_whole(s->surprise), 0, 1, vocabulary);
    op_best(rec, logits, gpu_whole(s->ids), gpu_whole(s->scored), 0, 1, vocabulary, request->best);
    gpu_record_readback(rec, gpu_whole(s->surprise));
    gpu_record_readback(rec, (gpu_view){s->scored, 0, (1 + request->best) * sizeof(op_scored)});
}

/* ---- an answer ------------------------------------------------------------------------------ */

/* The state of one answer. */
typedef struct answer_run {
    temper_session *session;
    const temper_request *request;
    temper_result *result;
    text_stream *stream;
    strbuf text;
    uint64_t limit;     /* tokens the answer may have */
    gpu_ticket current; /* the submit that chooses the next id */
    double first_token;
} answer_run;

/* Submits the step that takes the id in ids[0] at position `cached` and chooses the one after it.
 */
static temper_status submit_decode(answer_run *run, gpu_ticket *ticket, error *err)
{
    temper_session *s = run->session;
    model *m = s->engine->net;
    const temper_status status = session_write_rows(s, s->cached, 1, err);
    if (status != TEMPER_OK)
        return status;
    gpu_recorder *rec = gpu_record_begin(m->device);
    model_step step = session_step(s, s->cached, 1);
    step.logit_rows = 1;
    model_record_step(m, rec, &step);
    session_record_choice(s, rec, run->request, s->cached + 1);
    return gpu_submit(rec, ticket, err);
}

/* Hands the text out; false when the callback wants no more. */
static bool emit(answer_run *run)
{
    bool more = true;
    if (run->text.length > 0 && run->request->on_text != NULL)
        more = run->request->on_text(run->text.data, run->text.length, run->request->user);
    strbuf_clear(&run->text);
    return more;
}

/* What gpu_wait gives for the choice of a token, in the order of record_choice's readbacks. */
typedef struct choice {
    uint32_t id;
    float surprise;
    op_scored scored[1 + TEMPER_MAX_LOGPROBS];
} choice;

/* Keeps the log-probabilities of the answer's last token. */
static temper_status keep_logprobs(answer_run *run, const choice *chosen, error *err)
{
    temper_session *s = run->session;
    const size_t width = 1 + run->request->best, first = (s->answer.count - 1) * width;
    if (first + width > s->logprob_capacity) {
        const size_t capacity = (first + width) * 2;
        temper_logprob *larger = mem_realloc(s->logprobs, capacity * sizeof *larger);
        if (larger == NULL)
            return error_set(err, TEMPER_NO_MEMORY, "no memory for log-probabilities");
        s->logprobs = larger;
        s->logprob_capacity = capacity;
    }
    /* The surprise is log(sum) - logit of the chosen token, so the sum follows from its logit. */
    const float log_sum = chosen->surprise + chosen->scored[0].logit;
    for (size_t i = 0; i < width; i++)
        s->logprobs[first + i] =
            (temper_logprob){chosen->scored[i].id, chosen->scored[i].logit - log_sum};
    return TEMPER_OK;
}

/* Takes one choice. *done becomes true when the answer has ended. */
static temper_status take(answer_run *run, const choice *chosen, bool *done, error *err)
{
    temper_session *s = run->session;
    const uint32_t id = chosen->id;
    *done = true;
    if (id == OP_NO_TOKEN)
        return error_set(err, TEMPER_NOT_FINITE,
                         "the model's scores of token %zu of the answer are not finite numbers: "
                         "the weights, or the device's arithmetic, are broken",
                         s->answer.count);
    if (id >= s->engine->info.vocabulary)
        return error_set(err, TEMPER_INTERNAL, "the device chose id %u of a vocabulary of %u", id,
                         s->engine->info.vocabulary);
    run->result->finish = TEMPER_FINISH_STOP;
    if (temper_ends(s->engine, id))
        return TEMPER_OK;
    bool stopped = false;
    temper_status status = token_list_push(&s->answer, id, err);
    if (status == TEMPER_OK && run->request->logprobs)
        status = keep_logprobs(run, chosen, err);
    if (status == TEMPER_OK && run->stream != NULL)
        status = text_stream_push(run->stream, id, &run->text, &stopped, err);
    if (status != TEMPER_OK || stopped)
        return status;
    if (!emit(run)) {
        run->result->finish = TEMPER_FINISH_CANCELLED;
        return TEMPER_OK;
    }
    *done = s->answer.count >= run->limit;
    run->result->finish = TEMPER_FINISH_LENGTH;
    return TEMPER_OK;
}

/* Decodes until the answer ends. The step after an id is submitted before the id is read, so that
 * the device never waits for the host; when the answer ends there, that step is thrown away. */
static temper_status decode(answer_run *run, error *err)
{
    temper_session *s = run->session;
    gpu_device *device = s->engine->net->device;
    for (bool done = false; !done;) {
        gpu_ticket next = {0};
        temper_status status = TEMPER_OK;
        if (s->answer.count + 1 < run->limit)
            status = submit_decode(run, &next, err);
        choice chosen = {.id = OP_NO_TOKEN};
        const temper_status waited =
            gpu_wait(device, run->current, &chosen, choice_bytes(run->request), err);
        status = status == TEMPER_OK ? waited : status;
        if (s->answer.count == 0)
            run->first_token = clock_seconds();
        if (status == TEMPER_OK)
            status = take(run, &chosen, &done, err);
        if (status != TEMPER_OK || done) {
            gpu_discard(device, next);
            return status;
        }
        s->timeline[s->cached++] = chosen.id;
        run->current = next;
    }
    return TEMPER_OK;
}

/* Queues what the sampler reads beside the logits: the prompt's ids, and the biases. */
static temper_status write_sampling(temper_session *s, const temper_request *request, error *err)
{
    gpu_device *device = s->engine->net->device;
    const temper_sampling *sampling = &request->sampling;
    temper_status status = TEMPER_OK;
    if (infer_penalties(sampling, 1).count > 0)
        status = gpu_write(device, s->history, 0, request->prompt.ids,
                           request->prompt.count * sizeof(uint32_t), err);
    if (status == TEMPER_OK && sampling->bias_count > 0)
        status = gpu_write(device, s->biases, 0, sampling->biases,
                           sampling->bias_count * sizeof(op_logit_bias), err);
    return status;
}

static temper_status generate(answer_run *run, error *err)
{
    temper_session *s = run->session;
    const temper_request *request = run->request;
    const double begin = clock_seconds();
    const session_end end = {.choose = run->limit > 0 ? request : NULL};
    uint32_t start = 0;
    bool stopped = false;
    temper_status status = session_align(s, request->prompt, 1, &start, err);
    if (status == TEMPER_OK)
        status = write_sampling(s, request, err);
    if (status == TEMPER_OK)
        status = session_prefill(s, request, start, &end, &run->current, &stopped, err);
    if (status != TEMPER_OK)
        return status;
    run->result->prompt_tokens = request->prompt.count;
    run->result->reused_tokens = start;
    if (stopped) {
        run->result->finish = TEMPER_FINISH_CANCELLED;
        return TEMPER_OK;
    }
    run->result->finish = TEMPER_FINISH_LENGTH;
    status = run->limit > 0 ? decode(run, err)
                            : gpu_wait(s->engine->net->device, run->current, NULL, 0, err);
    if (run->limit == 0)
        run->first_token = clock_seconds();
    run->result->prompt_seconds = run->first_token - begin;
    run->result->decode_seconds = clock_seconds() - run->first_token;
    if (status != TEMPER_OK || run->stream == NULL)
        return status;
    status = text_stream_finish(run->stream, &run->text, err);
    if (text_stream_stopped(run->stream) && run->result->finish == TEMPER_FINISH_LENGTH)
        run->result->finish = TEMPER_FINISH_STOP;
    if (status == TEMPER_OK)
        emit(run);
    return status;
}

temper_status temper_session_generate(temper_session *session, const temper_request *request,
                                      temper_result *result, temper_error *err)
{
    assert(session != NULL && request != NULL && result != NULL);
    *result = (temper_result){0};
    temper_status status = infer_check_sampling(&request->sampling, err);
    if (status == TEMPER_OK)
        status = infer_check_biases(&request->sampling, session->engine->info.vocabulary, err);
    if (status == TEMPER_OK && request->best > TEMPER_MAX_LOGPROBS)
        status = error_set(err, TEMPER_BAD_ARGUMENT, "best is %u; it must be 0 to %d",
                           request->best, TEMPER_MAX_LOGPROBS);
    if (status != TEMPER_OK)
        return status;
    if ((status = infer_enter(session->engine->device, err)) != TEMPER_OK)
        return status;
    session->answer.count = 0;
    const uint64_t room = session->context - min_u64(session->context, request->prompt.count);
    answer_run run = {.session = session,
                      .request = request,
                      .result = result,
                      .limit =
                          request->max_tokens == 0 ? room : min_u64(room, request->max_tokens)};
    if (request->no_tokens)
        run.limit = 0;
    /* A random shape has no tokenizer, and so no text. */
    if (session->engine->tok != NULL)
        status = text_stream_open(session->engine->tok, request->stops, request->stop_count,
                                  &run.stream, err);
    if (status == TEMPER_OK)
        status = generate(&run, err);
    if (status != TEMPER_OK)
        session->cached = 0; /* nothing that a failed step wrote is trusted */
    text_stream_close(run.stream);
    strbuf_free(&run.text);
    result->tokens = session->answer.ids;
    result->token_count = session->answer.count;
    result->logprobs = request->logprobs ? session->logprobs : NULL;
    infer_leave(session->engine->device);
    return status;
}
