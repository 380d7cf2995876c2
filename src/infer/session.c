#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/mem.h"
#include "infer/infer.h"
#include "text/stream.h"

enum {
    SCORE_SLOT_BYTES = 256
}; /* a group of MODEL_LOGIT_ROWS scores, at the largest offset alignment there is */

struct temper_session {
    temper_engine *engine; /* one reference */
    kv_cache *cache;
    uint32_t context;
    gpu_buffer
        *ids; /* u32 [max_rows]: the rows of a step; the sampler writes the next id to the first */
    gpu_buffer *history;    /* u32 [context + 1]: the text so far, for penalties */
    gpu_buffer *biases;     /* op_logit_bias [TEMPER_MAX_BIASES] */
    gpu_buffer *scored;     /* op_scored [1 + TEMPER_MAX_LOGPROBS]: of the last choice */
    gpu_buffer *surprise;   /* f32 [1]: the negative log-likelihood of the last choice */
    gpu_buffer *row_info;   /* op_row_info [max_rows] */
    gpu_buffer *targets;    /* u32 [groups][64]: what temper_session_score scores */
    gpu_buffer *scores;     /* f32 [groups][64] */
    op_row_info *host_rows; /* [max_rows] */
    uint32_t *timeline;     /* [context]: the ids whose keys and values are cached */
    uint32_t cached;
    token_list answer;
    temper_logprob *logprobs; /* [logprob_capacity] behind the last result */
    size_t logprob_capacity;
};

static temper_status out_of_memory(error *err)
{
    return error_set(err, TEMPER_NO_MEMORY, "no memory for a session");
}

static uint32_t score_groups(const model *m)
{
    return ceil_div_u32(m->max_rows, MODEL_LOGIT_ROWS);
}

static gpu_view score_slot(gpu_buffer *buffer, uint32_t group)
{
    return (gpu_view){buffer, (uint64_t)group * SCORE_SLOT_BYTES, SCORE_SLOT_BYTES};
}

/* ---- opening and closing -------------------------------------------------------------------- */

static temper_status open_buffers(temper_session *s, error *err)
{
    const model *m = s->engine->net;
    const uint64_t scores = (uint64_t)score_groups(m) * SCORE_SLOT_BYTES;
    const struct {
        gpu_buffer **buffer;
        uint64_t bytes;
        const char *label;
    } rows[] = {
        {&s->ids, m->max_rows * sizeof(uint32_t), "ids"},
        {&s->history, ((uint64_t)s->context + 1) * sizeof(uint32_t), "history"},
        {&s->biases, TEMPER_MAX_BIASES * sizeof(op_logit_bias), "logit biases"},
        {&s->scored, (1 + TEMPER_MAX_LOGPROBS) * sizeof(op_scored), "best logits"},
        {&s->surprise, sizeof(float), "surprise"},
        {&s->row_info, m->max_rows * sizeof(op_row_info), "row positions"},
        {&s->targets, scores, "scored ids"},
        {&s->scores, scores, "scores"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const temper_status status = gpu_buffer_create(m->device, rows[i].bytes, GPU_PURPOSE_INPUT,
                                                       rows[i].label, rows[i].buffer, err);
        if (status != TEMPER_OK)
            return status;
    }
    return TEMPER_OK;
}

/* Every pipeline that this session's calls can need exists when this returns. */
static temper_status prepare(temper_session *s, error *err)
{
    model *m = s->engine->net;
    const uint32_t vocabulary = m->config.vocabulary;
    gpu_recorder *rec = gpu_record_prepare(m->device);
    const op_sample_params greedy = {0};
    const op_sample_params drawn = {.temperature = 1.0f, .top_k = 1, .top_p = 0.5f, .min_p = 0.1f};
    const op_penalties penalties = {.count = 1};
    op_bias_logits(rec, model_logits(m), gpu_whole(s->biases), vocabulary, 1);
    op_penalize(rec, model_logits(m), gpu_whole(s->history), vocabulary, &penalties);
    op_best(rec, model_logits(m), gpu_whole(s->ids), gpu_whole(s->scored), vocabulary, 1);
    op_sample(rec, model_logits(m), gpu_whole(s->ids), 1, vocabulary, &greedy);
    op_sample(rec, model_logits(m), gpu_whole(s->ids), 1, vocabulary, &drawn);
    op_nll(rec, model_logits(m), score_slot(s->targets, 0), score_slot(s->scores, 0), 1,
           vocabulary);
    const temper_status status = gpu_submit(rec, NULL, err);
    return status == TEMPER_OK ? model_reserve(m, s->cache, err) : status;
}

static temper_status open_session(temper_session *s, error *err)
{
    model *m = s->engine->net;
    s->timeline = mem_calloc(s->context, sizeof *s->timeline);
    s->host_rows = mem_calloc(m->max_rows, sizeof *s->host_rows);
    if (s->timeline == NULL || s->host_rows == NULL)
        return out_of_memory(err);
    temper_status status = kv_cache_open(m->device, &m->config, s->context, &s->cache, err);
    if (status == TEMPER_OK)
        status = open_buffers(s, err);
    if (status == TEMPER_OK)
        status = prepare(s, err);
    return status == TEMPER_OK ? gpu_finish(m->device, err) : status;
}

static void close_parts(temper_session *s)
{
    kv_cache_close(s->cache);
    gpu_buffer_destroy(s->ids);
    gpu_buffer_destroy(s->history);
    gpu_buffer_destroy(s->biases);
    gpu_buffer_destroy(s->scored);
    gpu_buffer_destroy(s->surprise);
    mem_free(s->logprobs);
    gpu_buffer_destroy(s->row_info);
    gpu_buffer_destroy(s->targets);
    gpu_buffer_destroy(s->scores);
    mem_free(s->host_rows);
    mem_free(s->timeline);
    token_list_free(&s->answer);
    temper_engine_close(s->engine);
    mem_free(s);
}

temper_status temper_session_open(temper_engine *engine, const temper_session_desc *desc,
                                  temper_session **out, temper_error *err)
{
    assert(engine != NULL && out != NULL);
    if (engine->net == NULL)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "an engine that holds only a vocabulary cannot run sessions");
    uint32_t context = desc == NULL ? 0 : desc->context;
    if (context == 0)
        context = engine->info.default_context;
    if (context > engine->info.context)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "a context of %u is more than the %u positions the model was trained "
                         "for",
                         context, engine->info.context);
    temper_status status = infer_enter(engine->device, err);
    if (status != TEMPER_OK)
        return status;
    temper_session *s = mem_calloc(1, sizeof *s);
    if (s == NULL) {
        infer_leave(engine->device);
        return out_of_memory(err);
    }
    s->engine = infer_engine_retain(engine);
    s->context = context;
    status = open_session(s, err);
    infer_leave(engine->device);
    if (status != TEMPER_OK) {
        close_parts(s);
        return status;
    }
    *out = s;
    return TEMPER_OK;
}

void temper_session_close(temper_session *session)
{
    if (session != NULL)
        close_parts(session);
}

uint32_t temper_session_context(const temper_session *session)
{
    assert(session != NULL);
    return session->context;
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* Queues the positions of `rows` rows from `first` on. */
static temper_status write_rows(temper_session *s, uint32_t first, uint32_t rows, error *err)
{
    for (uint32_t i = 0; i < rows; i++)
        s->host_rows[i] = (op_row_info){.position = first + i, .table_offset = 0};
    return gpu_write(s->engine->net->device, s->row_info, 0, s->host_rows,
                     rows * sizeof(op_row_info), err);
}

static model_step step_of(const temper_session *s, uint32_t first, uint32_t rows)
{
    return (model_step){.rows = rows,
                        .longest = first + rows,
                        .cache = s->cache,
                        .ids = gpu_whole(s->ids),
                        .row_info = gpu_whole(s->row_info)};
}

/* What comes back from the choice of a token: the id, and with logprobs its surprise and the best.
 */
static uint64_t choice_bytes(const temper_request *request)
{
    return sizeof(uint32_t) +
           (request->logprobs ? sizeof(float) + (1 + request->best) * sizeof(op_scored) : 0);
}

/* Records the choice of the id at `position` from the first logits row, and its way back to the
 * host. Under penalties the id joins the history on the device, where the next choice looks. */
static void record_choice(temper_session *s, gpu_recorder *rec, const temper_request *request,
                          uint32_t position)
{
    const uint32_t vocabulary = s->engine->net->config.vocabulary;
    const gpu_view logits = model_logits(s->engine->net);
    const gpu_view chosen = {s->ids, 0, sizeof(uint32_t)};
    const op_sample_params params = infer_sample_params(&request->sampling, position);
    const op_penalties penalties = infer_penalties(&request->sampling, position);
    op_bias_logits(rec, logits, gpu_whole(s->biases), vocabulary,
                   (uint32_t)request->sampling.bias_count);
    op_penalize(rec, logits, gpu_whole(s->history), vocabulary, &penalties);
    op_sample(rec, logits, gpu_whole(s->ids), 1, vocabulary, &params);
    if (penalties.count > 0)
        gpu_record_copy(rec, chosen,
                        (gpu_view){s->history, position * sizeof(uint32_t), sizeof(uint32_t)});
    gpu_record_readback(rec, chosen);
    if (!request->logprobs)
        return;
    op_nll(rec, logits, gpu_whole(s->ids), gpu_whole(s->surprise), 1, vocabulary);
    op_best(rec, logits, gpu_whole(s->ids), gpu_whole(s->scored), vocabulary, request->best);
    gpu_record_readback(rec, gpu_whole(s->surprise));
    gpu_record_readback(rec, (gpu_view){s->scored, 0, (1 + request->best) * sizeof(op_scored)});
}

/* Checks a prompt and drops from the timeline what it does not share. At least `recompute` of its
 * last ids are computed anew. Returns through *start where to begin. */
static temper_status align(temper_session *s, temper_tokens prompt, size_t recompute,
                           uint32_t *start, error *err)
{
    const uint32_t vocabulary = s->engine->info.vocabulary;
    if (prompt.count == 0 || prompt.ids == NULL)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "the prompt is empty: it needs at least one token");
    if (prompt.count > s->context)
        return error_set(err, TEMPER_CONTEXT_FULL,
                         "the prompt has %zu tokens and the context %u: shorten the prompt or ask "
                         "for a larger context (--ctx)",
                         prompt.count, s->context);
    for (size_t i = 0; i < prompt.count; i++)
        if (prompt.ids[i] >= vocabulary)
            return error_set(err, TEMPER_BAD_ARGUMENT,
                             "id %u at place %zu is not in the vocabulary of %u", prompt.ids[i], i,
                             vocabulary);
    uint32_t common = 0;
    const uint32_t most = (uint32_t)min_u64(s->cached, prompt.count - recompute);
    while (common < most && s->timeline[common] == prompt.ids[common])
        common++;
    s->cached = common;
    *start = common;
    return TEMPER_OK;
}

/* What a chunk of a prompt is followed by. */
typedef struct chunk_end {
    const temper_request *choose; /* choose the next id after the last chunk */
    bool logits;                  /* read the last row's logits back after the last chunk */
} chunk_end;

/* Submits rows [first, first + rows) of the prompt. */
static temper_status submit_chunk(temper_session *s, temper_tokens prompt, uint32_t first,
                                  uint32_t rows, const chunk_end *end, gpu_ticket *ticket,
                                  error *err)
{
    model *m = s->engine->net;
    temper_status status =
        gpu_write(m->device, s->ids, 0, prompt.ids + first, rows * sizeof(uint32_t), err);
    if (status == TEMPER_OK)
        status = write_rows(s, first, rows, err);
    if (status != TEMPER_OK)
        return status;
    const bool last = first + rows == prompt.count;
    gpu_recorder *rec = gpu_record_begin(m->device);
    model_step step = step_of(s, first, rows);
    if (last && (end->choose != NULL || end->logits)) {
        step.logit_first = rows - 1;
        step.logit_rows = 1;
    }
    model_record_step(m, rec, &step);
    if (last && end->choose != NULL)
        record_choice(s, rec, end->choose, (uint32_t)prompt.count);
    if (last && end->logits)
        gpu_record_readback(
            rec, (gpu_view){model_logits(m).buffer, 0, m->config.vocabulary * sizeof(float)});
    return gpu_submit(rec, ticket, err);
}

/* Computes the prompt from `start` on. One chunk is submitted while the one before it runs; *last
 * is the ticket of the final chunk, still to be waited for. *stopped: on_prompt asked to stop, and
 * no ticket is left. */
static temper_status prefill(temper_session *s, const temper_request *request, uint32_t start,
                             const chunk_end *end, gpu_ticket *last, bool *stopped, error *err)
{
    gpu_device *device = s->engine->net->device;
    const temper_tokens prompt = request->prompt;
    gpu_ticket running = {0};
    *stopped = false;
    for (uint32_t first = start; first < prompt.count;) {
        const uint32_t rows = (uint32_t)min_u64(s->engine->net->max_rows, prompt.count - first);
        gpu_ticket next = {0};
        temper_status status = submit_chunk(s, prompt, first, rows, end, &next, err);
        if (running.serial != 0) {
            const temper_status waited = gpu_wait(device, running, NULL, 0, err);
            status = status == TEMPER_OK ? waited : status;
        }
        if (status != TEMPER_OK) {
            gpu_discard(device, next);
            s->cached = 0;
            return status;
        }
        memcpy(s->timeline + first, prompt.ids + first, rows * sizeof(uint32_t));
        running = next;
        first += rows;
        s->cached = first;
        if (request->on_prompt != NULL && !request->on_prompt(first, prompt.count, request->user)) {
            gpu_discard(device, running);
            s->cached = 0;
            *stopped = true;
            return TEMPER_OK;
        }
    }
    *last = running;
    return TEMPER_OK;
}

/* ---- generate ------------------------------------------------------------------------------- */

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
    const temper_status status = write_rows(s, s->cached, 1, err);
    if (status != TEMPER_OK)
        return status;
    gpu_recorder *rec = gpu_record_begin(m->device);
    model_step step = step_of(s, s->cached, 1);
    step.logit_rows = 1;
    model_record_step(m, rec, &step);
    record_choice(s, rec, run->request, s->cached + 1);
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
    const chunk_end end = {.choose = run->limit > 0 ? request : NULL};
    uint32_t start = 0;
    bool stopped = false;
    temper_status status = align(s, request->prompt, 1, &start, err);
    if (status == TEMPER_OK)
        status = write_sampling(s, request, err);
    if (status == TEMPER_OK)
        status = prefill(s, request, start, &end, &run->current, &stopped, err);
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

/* ---- logits and scores ---------------------------------------------------------------------- */

temper_status temper_session_logits(temper_session *session, temper_tokens prompt, float *logits,
                                    temper_error *err)
{
    assert(session != NULL && logits != NULL);
    temper_status status = infer_enter(session->engine->device, err);
    if (status != TEMPER_OK)
        return status;
    const temper_request request = {.prompt = prompt};
    const chunk_end end = {.logits = true};
    gpu_ticket ticket = {0};
    uint32_t start = 0;
    bool stopped = false;
    status = align(session, prompt, 1, &start, err);
    if (status == TEMPER_OK)
        status = prefill(session, &request, start, &end, &ticket, &stopped, err);
    if (status == TEMPER_OK)
        status = gpu_wait(session->engine->net->device, ticket, logits,
                          session->engine->info.vocabulary * sizeof(float), err);
    if (status != TEMPER_OK)
        session->cached = 0;
    infer_leave(session->engine->device);
    return status;
}

/* Records the scores of rows [from, rows) of a chunk that begins at `first`: what each says of the
 * id after it. */
static void record_scores(temper_session *s, gpu_recorder *rec, uint32_t from, uint32_t rows)
{
    model *m = s->engine->net;
    for (uint32_t group = 0; from + group * MODEL_LOGIT_ROWS < rows; group++) {
        const uint32_t row = from + group * MODEL_LOGIT_ROWS;
        const uint32_t n = (uint32_t)min_u64(MODEL_LOGIT_ROWS, rows - row);
        model_record_head(m, rec, row, n);
        op_nll(rec, model_logits(m), score_slot(s->targets, group), score_slot(s->scores, group), n,
               m->config.vocabulary);
    }
}

/* Computes rows [begin, begin + rows) and the scores of the ids after rows from `from` on. */
static temper_status score_chunk(temper_session *s, temper_tokens prompt, uint32_t begin,
                                 uint32_t rows, uint32_t from, uint32_t *host, float *nll,
                                 error *err)
{
    model *m = s->engine->net;
    const uint32_t scored = rows - from, per_slot = SCORE_SLOT_BYTES / sizeof(uint32_t);
    const uint64_t bytes = (uint64_t)ceil_div_u32(scored, MODEL_LOGIT_ROWS) * SCORE_SLOT_BYTES;
    for (uint32_t i = 0; i < scored; i++)
        host[i / MODEL_LOGIT_ROWS * per_slot + i % MODEL_LOGIT_ROWS] =
            prompt.ids[begin + from + i + 1];
    temper_status status =
        gpu_write(m->device, s->ids, 0, prompt.ids + begin, rows * sizeof(uint32_t), err);
    if (status == TEMPER_OK)
        status = write_rows(s, begin, rows, err);
    if (status == TEMPER_OK && scored > 0)
        status = gpu_write(m->device, s->targets, 0, host, bytes, err);
    if (status != TEMPER_OK)
        return status;
    gpu_recorder *rec = gpu_record_begin(m->device);
    const model_step step = step_of(s, begin, rows);
    gpu_ticket ticket = {0};
    model_record_step(m, rec, &step);
    record_scores(s, rec, from, rows);
    if (scored > 0)
        gpu_record_readback(rec, (gpu_view){s->scores, 0, bytes});
    if ((status = gpu_submit(rec, &ticket, err)) != TEMPER_OK)
        return status;
    status = gpu_wait(m->device, ticket, scored > 0 ? host : NULL, scored > 0 ? bytes : 0, err);
    for (uint32_t i = 0; status == TEMPER_OK && i < scored; i++)
        memcpy(&nll[i], &host[i / MODEL_LOGIT_ROWS * per_slot + i % MODEL_LOGIT_ROWS],
               sizeof nll[i]);
    return status;
}

static temper_status score(temper_session *s, temper_tokens prompt, size_t first, float *nll,
                           error *err)
{
    /* The last id is only a target: its own keys and values are not needed. */
    const uint32_t rows_total = (uint32_t)prompt.count - 1;
    uint32_t begin = 0;
    temper_status status = align(s, prompt, prompt.count - first + 1, &begin, err);
    if (status != TEMPER_OK)
        return status;
    uint32_t *host = mem_calloc(score_groups(s->engine->net), SCORE_SLOT_BYTES);
    if (host == NULL)
        return out_of_memory(err);
    while (status == TEMPER_OK && begin < rows_total) {
        const uint32_t rows = (uint32_t)min_u64(s->engine->net->max_rows, rows_total - begin);
        const uint32_t scored_from = (uint32_t)first - 1;
        const uint32_t from =
            scored_from > begin ? (uint32_t)min_u64(scored_from - begin, rows) : 0;
        status = score_chunk(s, prompt, begin, rows, from, host, nll, err);
        nll += rows - from;
        memcpy(s->timeline + begin, prompt.ids + begin, rows * sizeof(uint32_t));
        begin += rows;
        s->cached = begin;
    }
    mem_free(host);
    return status;
}

temper_status temper_session_score(temper_session *session, temper_tokens prompt, size_t first,
                                   float *nll, temper_error *err)
{
    assert(session != NULL && nll != NULL);
    if (first < 1 || first >= prompt.count)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "scores from place %zu of %zu ids: it must be 1 to %zu", first,
                         prompt.count, prompt.count > 0 ? prompt.count - 1 : 0);
    temper_status status = infer_enter(session->engine->device, err);
    if (status != TEMPER_OK)
        return status;
    status = score(session, prompt, first, nll, err);
    if (status != TEMPER_OK)
        session->cached = 0;
    infer_leave(session->engine->device);
    return status;
}
