/*
 * session.c - sessions: opening them, answers, logits and scores.
 */
#include "infer/session.h"

#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "base/mem.h"

/* ---- opening and closing -------------------------------------------------------------------- */

static void close_parts(temper_session *s)
{
    gpu_buffer_destroy(s->targets);
    gpu_buffer_destroy(s->scores);
    answer_close(&s->answer);
    decoder_close(s->decoder);
    mem_free(s);
}

static temper_status open_parts(temper_session *s, const decoder_desc *desc, error *err)
{
    const uint64_t bytes = s->engine->net->max_rows * sizeof(uint32_t);
    gpu_device *device = s->engine->device->gpu;
    temper_status status = decoder_open(s->engine, desc, &s->decoder, err);
    if (status == TEMPER_OK)
        status =
            gpu_buffer_create(device, bytes, GPU_PURPOSE_INPUT, "scored ids", &s->targets, err);
    if (status == TEMPER_OK)
        status = gpu_buffer_create(device, bytes, GPU_PURPOSE_INPUT, "scores", &s->scores, err);
    return status;
}

temper_status temper_session_open(temper_engine *engine, const temper_session_desc *desc,
                                  temper_session **out, temper_error *err)
{
    assert(engine != NULL && out != NULL);
    static const temper_session_desc defaults;
    if (desc == NULL)
        desc = &defaults;
    decoder_desc inner = {.slots = 1, .prompt_rows = UINT32_MAX};
    temper_status status = infer_check_context(engine, desc->context, &inner.context, err);
    if (status == TEMPER_OK)
        status = infer_cache_type(desc->kv, &inner.cache, err);
    if (status == TEMPER_OK)
        status = decoder_set_speculation(engine, &desc->speculation, &inner, err);
    if (status == TEMPER_OK)
        status = infer_enter(engine->device, err);
    if (status != TEMPER_OK)
        return status;
    inner.blocks = kv_cache_blocks_for(inner.context);
    temper_session *s = mem_calloc(1, sizeof *s);
    if (s == NULL) {
        status = error_set(err, TEMPER_NO_MEMORY, "no memory for a session");
    } else {
        s->engine = engine;
        status = open_parts(s, &inner, err);
    }
    infer_leave(engine->device);
    if (status != TEMPER_OK) {
        if (s != NULL)
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
    return session->decoder->desc.context;
}

/* ---- answers -------------------------------------------------------------------------------- */

static temper_status generate(temper_session *s, const temper_request *request, error *err)
{
    decoder *d = s->decoder;
    answer *a = &s->answer;
    temper_status status = answer_begin(a, s->engine, request, d->desc.context, err);
    if (status == TEMPER_OK)
        status = decoder_begin(d, 0, a, err);
    if (status != TEMPER_OK) {
        answer_fail(a, status, "not begun");
        return status;
    }
    while (!a->ended)
        decoder_step(d, NULL); /* what fails, the answer keeps */
    if (a->failure.status != TEMPER_OK)
        status = error_set(err, a->failure.status, "%s", a->failure.text);
    decoder_end(d, 0);
    decoder_settle(d);
    return status;
}

temper_status temper_session_generate(temper_session *session, const temper_request *request,
                                      temper_result *result, temper_error *err)
{
    assert(session != NULL && request != NULL && result != NULL);
    *result = (temper_result){0};
    temper_status status =
        answer_check(session->engine, request, session->decoder->desc.context, err);
    if (status == TEMPER_OK)
        status = infer_enter(session->engine->device, err);
    if (status != TEMPER_OK)
        return status;
    status = generate(session, request, err);
    answer_result(&session->answer, result);
    infer_leave(session->engine->device);
    return status;
}

/* ---- logits and scores ---------------------------------------------------------------------- */

temper_status session_add_rows(decoder *d, uint32_t first, uint32_t rows, error *err)
{
    bool granted = false;
    const temper_status status = decoder_reserve(d, 0, first + rows, false, &granted, err);
    assert(status != TEMPER_OK || granted);
    runner_begin(&d->runner, 1, 0);
    for (uint32_t p = first; status == TEMPER_OK && p < first + rows; p++)
        runner_add(&d->runner, 0, p, d->slots[0].ids[p]);
    return status;
}

/* Submits ids [first, first + rows); with `logits`, those after the last one come back. */
static temper_status submit_rows(decoder *d, uint32_t first, uint32_t rows, bool logits,
                                 gpu_ticket *ticket, error *err)
{
    model *m = d->engine->net;
    gpu_recorder *rec = NULL;
    temper_status status = session_add_rows(d, first, rows, err);
    if (status == TEMPER_OK)
        status = runner_record(&d->runner, NULL, &rec, err);
    if (status != TEMPER_OK)
        return status;
    if (logits) {
        model_record_head(m, rec, rows - 1, 1);
        gpu_record_readback(
            rec, (gpu_view){model_logits(m).buffer, 0, m->config.vocabulary * sizeof(float)});
    }
    return gpu_submit(rec, ticket, err);
}

/* One chunk is submitted while the one before it runs. */
static temper_status compute_logits(decoder *d, temper_tokens text, float *logits, error *err)
{
    gpu_device *device = d->engine->device->gpu;
    decoder_slot *s = &d->slots[0];
    gpu_ticket running = {0};
    temper_status status = TEMPER_OK;
    decoder_align(d, 0, text, 1);
    while (status == TEMPER_OK && s->cached < s->count) {
        const uint32_t rows = (uint32_t)min_u64(d->engine->net->max_rows, s->count - s->cached);
        gpu_ticket next = {0};
        status = submit_rows(d, s->cached, rows, s->cached + rows == s->count, &next, err);
        const temper_status waited = gpu_wait(device, running, NULL, 0, err);
        status = status == TEMPER_OK ? waited : status;
        running = next;
        s->cached += rows;
    }
    if (status == TEMPER_OK)
        status = gpu_wait(device, running, logits, d->engine->info.vocabulary * sizeof(float), err);
    else
        gpu_discard(device, running);
    return status;
}

temper_status temper_session_logits(temper_session *session, temper_tokens prompt, float *logits,
                                    temper_error *err)
{
    assert(session != NULL && logits != NULL);
    decoder *d = session->decoder;
    temper_status status =
        infer_check_prompt(prompt, session->engine->info.vocabulary, d->desc.context, err);
    if (status == TEMPER_OK)
        status = infer_enter(session->engine->device, err);
    if (status != TEMPER_OK)
        return status;
    status = compute_logits(d, prompt, logits, err);
    if (status != TEMPER_OK)
        decoder_forget(d, 0);
    infer_leave(session->engine->device);
    return status;
}

/* Computes ids [begin, begin + rows) and the scores of those that follow the rows from `from` on.
 */
static temper_status score_chunk(temper_session *s, const uint32_t *ids, uint32_t begin,
                                 uint32_t rows, uint32_t from, float *nll, error *err)
{
    decoder *d = s->decoder;
    model *m = s->engine->net;
    const uint32_t scored = rows - from;
    const uint64_t bytes = scored * sizeof(float);
    gpu_recorder *rec = NULL;
    gpu_ticket ticket = {0};
    temper_status status = session_add_rows(d, begin, rows, err);
    if (status == TEMPER_OK && scored > 0)
        status = gpu_write(m->device, s->targets, 0, ids + begin + from + 1, bytes, err);
    if (status == TEMPER_OK)
        status = runner_record(&d->runner, NULL, &rec, err);
    if (status != TEMPER_OK)
        return status;
    for (uint32_t row = from; row < rows; row += MODEL_LOGIT_ROWS) {
        const uint32_t n = (uint32_t)min_u64(MODEL_LOGIT_ROWS, rows - row);
        model_record_head(m, rec, row, n);
        op_nll(rec, model_logits(m), gpu_whole(s->targets), gpu_whole(s->scores), row - from, n,
               m->config.vocabulary);
    }
    if (scored > 0)
        gpu_record_readback(rec, (gpu_view){s->scores, 0, bytes});
    status = gpu_submit(rec, &ticket, err);
    return status == TEMPER_OK ? gpu_wait(m->device, ticket, scored > 0 ? nll : NULL, bytes, err)
                               : status;
}

static temper_status score(temper_session *s, temper_tokens text, uint32_t first, float *nll,
                           error *err)
{
    decoder_slot *slot = &s->decoder->slots[0];
    temper_status status = TEMPER_OK;
    decoder_align(s->decoder, 0, text, text.count - first + 1);
    /* The last id is only a target: its own keys and values are not needed. */
    while (status == TEMPER_OK && slot->cached + 1 < slot->count) {
        const uint32_t begin = slot->cached;
        const uint32_t rows = (uint32_t)min_u64(s->engine->net->max_rows, slot->count - 1 - begin);
        const uint32_t from = first - 1 > begin ? (uint32_t)min_u64(first - 1 - begin, rows) : 0;
        status = score_chunk(s, text.ids, begin, rows, from, nll, err);
        nll += rows - from;
        slot->cached += rows;
    }
    return status;
}

temper_status session_begin_reading(temper_session *session, temper_tokens text, error *err)
{
    const temper_status status = infer_check_prompt(text, session->engine->info.vocabulary,
                                                    session->decoder->desc.context, err);
    return status == TEMPER_OK ? infer_enter(session->engine->device, err) : status;
}

temper_status session_end_reading(temper_session *session, temper_status status)
{
    if (status != TEMPER_OK)
        decoder_forget(session->decoder, 0);
    infer_leave(session->engine->device);
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
    const temper_status status = session_begin_reading(session, prompt, err);
    if (status != TEMPER_OK)
        return status;
    return session_end_reading(session, score(session, prompt, (uint32_t)first, nll, err));
}
