/*
 * session.c - sessions: what they own, how prompts become steps, logits and scores.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/mem.h"
#include "infer/session.h"

/* The scores of a group of MODEL_LOGIT_ROWS rows, at the largest offset alignment there is. */
enum { SCORE_SLOT_BYTES = 256 };

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
        {&s->choice, sizeof(op_sample_params), "choice"},
        {&s->sampler, op_sample_scratch_bytes(1, m->config.vocabulary), "sampler scratch"},
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
    op_bias_logits(rec, model_logits(m), gpu_whole(s->biases), 0, vocabulary, 0, 1);
    op_penalize(rec, model_logits(m), gpu_whole(s->history), 0, vocabulary, &penalties);
    op_best(rec, model_logits(m), gpu_whole(s->ids), gpu_whole(s->scored), 0, 1, vocabulary, 1);
    op_sample(rec, model_logits(m), gpu_whole(s->choice), gpu_whole(s->sampler), gpu_whole(s->ids),
              0, 1, vocabulary, &greedy);
    op_sample(rec, model_logits(m), gpu_whole(s->choice), gpu_whole(s->sampler), gpu_whole(s->ids),
              0, 1, vocabulary, &drawn);
    op_nll(rec, model_logits(m), score_slot(s->targets, 0), score_slot(s->scores, 0), 0, 1,
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
    gpu_buffer_destroy(s->choice);
    gpu_buffer_destroy(s->sampler);
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
temper_status session_write_rows(temper_session *s, uint32_t first, uint32_t rows, error *err)
{
    for (uint32_t i = 0; i < rows; i++)
        s->host_rows[i] = (op_row_info){.position = first + i, .table_offset = 0};
    return gpu_write(s->engine->net->device, s->row_info, 0, s->host_rows,
                     rows * sizeof(op_row_info), err);
}

model_step session_step(const temper_session *s, uint32_t first, uint32_t rows)
{
    return (model_step){.rows = rows,
                        .longest = first + rows,
                        .cache = s->cache,
                        .ids = gpu_whole(s->ids),
                        .row_info = gpu_whole(s->row_info)};
}

/* Checks a prompt and drops from the timeline what it does not share. At least `recompute` of its
 * last ids are computed anew. Returns through *start where to begin. */
temper_status session_align(temper_session *s, temper_tokens prompt, size_t recompute,
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

/* Submits rows [first, first + rows) of the prompt. */
static temper_status submit_chunk(temper_session *s, temper_tokens prompt, uint32_t first,
                                  uint32_t rows, const session_end *end, gpu_ticket *ticket,
                                  error *err)
{
    model *m = s->engine->net;
    temper_status status =
        gpu_write(m->device, s->ids, 0, prompt.ids + first, rows * sizeof(uint32_t), err);
    if (status == TEMPER_OK)
        status = session_write_rows(s, first, rows, err);
    if (status != TEMPER_OK)
        return status;
    const bool last = first + rows == prompt.count;
    gpu_recorder *rec = gpu_record_begin(m->device);
    model_step step = session_step(s, first, rows);
    if (last && (end->choose != NULL || end->logits)) {
        step.logit_first = rows - 1;
        step.logit_rows = 1;
    }
    model_record_step(m, rec, &step);
    if (last && end->choose != NULL)
        session_record_choice(s, rec, end->choose, (uint32_t)prompt.count);
    if (last && end->logits)
        gpu_record_readback(
            rec, (gpu_view){model_logits(m).buffer, 0, m->config.vocabulary * sizeof(float)});
    return gpu_submit(rec, ticket, err);
}

/* Computes the prompt from `start` on. One chunk is submitted while the one before it runs; *last
 * is the ticket of the final chunk, still to be waited for. *stopped: on_prompt asked to stop, and
 * no ticket is left. */
temper_status session_prefill(temper_session *s, const temper_request *request, uint32_t start,
                              const session_end *end, gpu_ticket *last, bool *stopped, error *err)
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

/* ---- logits and scores ---------------------------------------------------------------------- */

temper_status temper_session_logits(temper_session *session, temper_tokens prompt, float *logits,
                                    temper_error *err)
{
    assert(session != NULL && logits != NULL);
    temper_status status = infer_enter(session->engine->device, err);
    if (status != TEMPER_OK)
        return status;
    const temper_request request = {.prompt = prompt};
    const session_end end = {.logits = true};
    gpu_ticket ticket = {0};
    uint32_t start = 0;
    bool stopped = false;
    status = session_align(session, prompt, 1, &start, err);
    if (status == TEMPER_OK)
        status = session_prefill(session, &request, start, &end, &ticket, &stopped, err);
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
        op_nll(rec, model_logits(m), score_slot(s->targets, group), score_slot(s->scores, group), 0,
               n, m->config.vocabulary);
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
        status = session_write_rows(s, begin, rows, err);
    if (status == TEMPER_OK && scored > 0)
        status = gpu_write(m->device, s->targets, 0, host, bytes, err);
    if (status != TEMPER_OK)
        return status;
    gpu_recorder *rec = gpu_record_begin(m->device);
    const model_step step = session_step(s, begin, rows);
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
    temper_status status = session_align(s, prompt, prompt.count - first + 1, &begin, err);
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
