/*
 * logits.c - the raw logits of many places of a prompt.
 */
#include <assert.h>

#include "base/checked.h"
#include "infer/session.h"

/* Computes ids [begin, begin + rows) and copies the logits of those rows from `from` on. The logits
 * of MODEL_LOGIT_ROWS rows are in memory at once, so each such group has a submit of its own. */
static temper_status logits_chunk(decoder *d, uint32_t begin, uint32_t rows, uint32_t from,
                                  float *logits, error *err)
{
    model *m = d->engine->net;
    const uint64_t row_bytes = m->config.vocabulary * sizeof(float);
    gpu_recorder *rec = NULL;
    temper_status status = session_add_rows(d, begin, rows, err);
    if (status == TEMPER_OK)
        status = runner_record(&d->runner, NULL, &rec, err);
    for (uint32_t row = from; status == TEMPER_OK && rec != NULL;) {
        const uint32_t n = (uint32_t)min_u64(MODEL_LOGIT_ROWS, rows - row);
        gpu_ticket ticket = {0};
        if (n > 0) {
            model_record_head(m, rec, row, n);
            gpu_record_readback(rec, (gpu_view){model_logits(m).buffer, 0, n * row_bytes});
        }
        status = gpu_submit(rec, &ticket, err);
        if (status == TEMPER_OK)
            status = gpu_wait(m->device, ticket, n > 0 ? logits : NULL, n * row_bytes, err);
        logits += (size_t)n * m->config.vocabulary;
        row += n;
        rec = status == TEMPER_OK && row < rows ? gpu_record_begin(m->device) : NULL;
    }
    return status;
}

static temper_status logits_from(decoder *d, temper_tokens prompt, uint32_t first, float *logits,
                                 error *err)
{
    decoder_slot *slot = &d->slots[0];
    temper_status status = TEMPER_OK;
    decoder_align(d, 0, prompt, prompt.count - first);
    while (status == TEMPER_OK && slot->cached < slot->count) {
        const uint32_t begin = slot->cached;
        const uint32_t rows = (uint32_t)min_u64(d->engine->net->max_rows, slot->count - begin);
        const uint32_t from = first > begin ? (uint32_t)min_u64(first - begin, rows) : 0;
        status = logits_chunk(d, begin, rows, from, logits, err);
        logits += (size_t)(rows - from) * d->engine->net->config.vocabulary;
        slot->cached += rows;
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
    const temper_status status = session_begin_reading(session, prompt, err);
    if (status != TEMPER_OK)
        return status;
    return session_end_reading(session,
                               logits_from(session->decoder, prompt, (uint32_t)first, logits, err));
}
