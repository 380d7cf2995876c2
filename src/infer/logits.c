/*
 * logits.c - the raw logits of many places of a prompt.
 */
#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "infer/session.h"

/* Computes rows [begin, begin + rows) and copies the logits of those from `from` on. The logits of
 * MODEL_LOGIT_ROWS rows are in memory at once, so each such group has a submit of its own. */
static temper_status logits_chunk(temper_session *s, temper_tokens prompt, uint32_t begin,
                                  uint32_t rows, uint32_t from, float *logits, error *err)
{
    model *m = s->engine->net;
    const uint64_t row_bytes = m->config.vocabulary * sizeof(float);
    temper_status status =
        gpu_write(m->device, s->ids, 0, prompt.ids + begin, rows * sizeof(uint32_t), err);
    if (status == TEMPER_OK)
        status = session_write_rows(s, begin, rows, err);
    for (uint32_t row = from; status == TEMPER_OK && row < rows; row += MODEL_LOGIT_ROWS) {
        const uint32_t n = (uint32_t)min_u64(MODEL_LOGIT_ROWS, rows - row);
        gpu_recorder *rec = gpu_record_begin(m->device);
        gpu_ticket ticket = {0};
        if (row == from) {
            const model_step step = session_step(s, begin, rows);
            model_record_step(m, rec, &step);
        }
        model_record_head(m, rec, row, n);
        gpu_record_readback(rec, (gpu_view){model_logits(m).buffer, 0, n * row_bytes});
        status = gpu_submit(rec, &ticket, err);
        if (status == TEMPER_OK)
            status = gpu_wait(m->device, ticket, logits, n * row_bytes, err);
        logits += (size_t)n * m->config.vocabulary;
    }
    return status;
}

static temper_status logits_from(temper_session *s, temper_tokens prompt, size_t first,
                                 float *logits, error *err)
{
    const uint32_t max_rows = s->engine->net->max_rows;
    uint32_t begin = 0;
    temper_status status = session_align(s, prompt, prompt.count - first, &begin, err);
    if (status != TEMPER_OK)
        return status;
    /* Whole chunks before the first place that matters run as those of any prompt. */
    const uint32_t before = ((uint32_t)first - begin) / max_rows * max_rows;
    if (before > 0) {
        const temper_request request = {.prompt = {prompt.ids, begin + before}};
        const session_end end = {0};
        gpu_ticket last = {0};
        bool stopped = false;
        status = session_prefill(s, &request, begin, &end, &last, &stopped, err);
        if (status == TEMPER_OK)
            status = gpu_wait(s->engine->net->device, last, NULL, 0, err);
        begin += before;
    }
    while (status == TEMPER_OK && begin < prompt.count) {
        const uint32_t rows = (uint32_t)min_u64(max_rows, prompt.count - begin);
        const uint32_t from = first > begin ? (uint32_t)first - begin : 0;
        status = logits_chunk(s, prompt, begin, rows, from, logits, err);
        logits += (size_t)(rows - from) * s->engine->net->config.vocabulary;
        memcpy(s->timeline + begin, prompt.ids + begin, rows * sizeof(uint32_t));
        begin += rows;
        s->cached = begin;
    }
    return status;
}

temper_status temper_session_logits_from(temper_session *session, temper_tokens prompt,
                                         size_t first, float *logits, temper_error *err)
{
    assert(session != NULL && logits != NULL);
    if (first >= prompt.count)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "logits from place %zu of %zu ids: it must be 0 to %zu", first,
                         prompt.count, prompt.count > 0 ? prompt.count - 1 : 0);
    temper_status status = infer_enter(session->engine->device, err);
    if (status != TEMPER_OK)
        return status;
    status = logits_from(session, prompt, first, logits, err);
    if (status != TEMPER_OK)
        session->cached = 0;
    infer_leave(session->engine->device);
    return status;
}
