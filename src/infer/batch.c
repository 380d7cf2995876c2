/*
 * batch.c - many answers in the making at once: requests come in from any thread, one thread steps.
 */
#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "base/lock.h"
#include "base/mem.h"
#include "infer/decoder.h"
#include "infer/job.h"

enum { DEFAULT_SEQUENCES = 16, DEFAULT_WAITING = 256, DEFAULT_BLOCKS = 4 };

struct temper_batch {
    temper_engine *engine; /* the decoder keeps it alive */
    decoder *decoder;
    job **running; /* [slots] */
    uint32_t waiting_limit;
    atomic_flag stepping;
    lock *lock; /* over everything below, and over what stands in `running` */
    job_list waiting;
    uint64_t ids;
    error failure; /* of the device: nothing is taken any more */
    temper_batch_stats stats;
};

/* ---- opening -------------------------------------------------------------------------------- */

/* Resolves the descriptor's defaults. */
static temper_status describe(temper_engine *engine, const temper_batch_desc *wanted,
                              decoder_desc *out, error *err)
{
    decoder_desc d = {.slots = wanted->sequences > 0 ? wanted->sequences : DEFAULT_SEQUENCES};
    temper_status status = infer_check_context(engine, wanted->context, &d.context, err);
    if (status == TEMPER_OK)
        status = infer_cache_type(wanted->kv, &d.cache, err);
    if (status != TEMPER_OK)
        return status;
    const uint32_t rows = engine->net->max_rows;
    const uint32_t most = (uint32_t)min_u64(DECODER_MAX_SLOTS, rows);
    if (wanted->sequences == 0)
        d.slots = (uint32_t)min_u64(d.slots, most);
    if (d.slots > most)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "%u sequences in a batch; it must be 1 to %u, since each takes a row of a "
                         "step and the engine has %u (max_rows)",
                         d.slots, most, rows);
    if (wanted->prompt_rows > rows)
        return error_set(err, TEMPER_BAD_ARGUMENT, "prompt_rows is %u; it must be 1 to %u",
                         wanted->prompt_rows, rows);
    const uint64_t one = kv_cache_blocks_for(d.context), all = one * d.slots;
    const uint64_t blocks = ceil_div(wanted->positions, KV_BLOCK_POSITIONS);
    if (wanted->positions > 0 && blocks < one)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "a cache of %llu positions; it must hold one context, %u",
                         (unsigned long long)wanted->positions, d.context);
    const uint64_t usual = max_u64(max_u64(one, all / 4), (uint64_t)DEFAULT_BLOCKS * d.slots);
    d.blocks = (uint32_t)min_u64(wanted->positions > 0 ? blocks : usual, all);
    d.prompt_rows = wanted->prompt_rows > 0 ? wanted->prompt_rows : (rows + 3) / 4;
    *out = d;
    return decoder_set_speculation(engine, &wanted->speculation, out, err);
}

static temper_status open_parts(temper_batch *b, const decoder_desc *desc, error *err)
{
    b->running = mem_calloc(desc->slots, sizeof *b->running);
    b->lock = lock_open();
    if (b->running == NULL || b->lock == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for a batch");
    const temper_status status = decoder_open(b->engine, desc, &b->decoder, err);
    if (status == TEMPER_OK)
        b->stats.blocks = b->stats.free_blocks = kv_cache_blocks(b->decoder->runner.cache);
    return status;
}

static void close_parts(temper_batch *b)
{
    decoder_close(b->decoder);
    lock_close(b->lock);
    mem_free(b->running);
    mem_free(b);
}

temper_status temper_batch_open(temper_engine *engine, const temper_batch_desc *desc,
                                temper_batch **out, temper_error *err)
{
    assert(engine != NULL && out != NULL);
    static const temper_batch_desc defaults;
    decoder_desc inner;
    if (desc == NULL)
        desc = &defaults;
    temper_status status = describe(engine, desc, &inner, err);
    if (status == TEMPER_OK)
        status = infer_enter(engine->device, err);
    if (status != TEMPER_OK)
        return status;
    temper_batch *b = mem_calloc(1, sizeof *b);
    if (b == NULL) {
        status = error_set(err, TEMPER_NO_MEMORY, "no memory for a batch");
    } else {
        b->engine = engine;
        b->waiting_limit = desc->waiting > 0 ? desc->waiting : DEFAULT_WAITING;
        atomic_flag_clear(&b->stepping);
        status = open_parts(b, &inner, err);
    }
    infer_leave(engine->device);
    if (status != TEMPER_OK) {
        if (b != NULL)
            close_parts(b);
        return status;
    }
    *out = b;
    return TEMPER_OK;
}

/* ---- requests ------------------------------------------------------------------------------- */

temper_status temper_batch_submit(temper_batch *batch, const temper_request *request,
                                  temper_on_done on_done, uint64_t *id, temper_error *err)
{
    assert(batch != NULL && request != NULL);
    const uint32_t context = batch->decoder->desc.context;
    temper_status status = answer_check(batch->engine, request, context, err);
    if (status != TEMPER_OK)
        return status;
    error failure = {0};
    job *j = job_open(batch->engine, request, on_done, context, &failure);
    if (j == NULL)
        return error_set(err, failure.status, "%s", failure.text);
    lock_take(batch->lock);
    status = batch->failure.status;
    if (status != TEMPER_OK)
        error_set(err, status, "%s", batch->failure.text);
    else if (batch->waiting.count >= batch->waiting_limit)
        status = error_set(err, TEMPER_FULL, "%u requests are waiting already: try again later",
                           batch->waiting.count);
    if (status == TEMPER_OK) {
        j->id = ++batch->ids;
        if (id != NULL)
            *id = j->id;
        job_list_push(&batch->waiting, j);
    }
    lock_give(batch->lock);
    if (status != TEMPER_OK)
        job_close(j);
    return status;
}

bool temper_batch_cancel(temper_batch *batch, uint64_t id)
{
    assert(batch != NULL);
    lock_take(batch->lock);
    job *found = job_list_find(&batch->waiting, id);
    for (uint32_t i = 0; found == NULL && i < batch->decoder->desc.slots; i++)
        if (batch->running[i] != NULL && batch->running[i]->id == id)
            found = batch->running[i];
    if (found != NULL)
        atomic_store(&found->cancelled, true);
    lock_give(batch->lock);
    return found != NULL;
}

temper_batch_stats temper_batch_get_stats(temper_batch *batch)
{
    assert(batch != NULL);
    lock_take(batch->lock);
    temper_batch_stats stats = batch->stats;
    stats.waiting = batch->waiting.count;
    lock_give(batch->lock);
    return stats;
}

/* ---- stepping ------------------------------------------------------------------------------- */

/* The idle slot whose text shares the most with the prompt; of equal ones that of the longest ago.
 */
static uint32_t choose_slot(const decoder *d, temper_tokens prompt)
{
    uint32_t best = d->desc.slots, most = 0;
    for (uint32_t i = 0; i < d->desc.slots; i++) {
        const decoder_slot *s = &d->slots[i];
        if (s->answer != NULL)
            continue;
        const uint32_t shared = decoder_shared(d, i, prompt, 1);
        if (best == d->desc.slots || shared > most ||
            (shared == most && s->used < d->slots[best].used)) {
            best = i;
            most = shared;
        }
    }
    return best;
}

static void put(temper_batch *b, uint32_t slot, job *j)
{
    lock_take(b->lock);
    b->running[slot] = j;
    lock_give(b->lock);
}

static job *next_waiting(temper_batch *b)
{
    lock_take(b->lock);
    job *j = job_list_pop(&b->waiting);
    lock_give(b->lock);
    return j;
}

/* Requests that wait take the slots that are idle. */
static void admit(temper_batch *b)
{
    decoder *d = b->decoder;
    while (d->active < d->desc.slots) {
        job *j = next_waiting(b);
        if (j == NULL)
            return;
        error failure = {0};
        const uint32_t slot = choose_slot(d, j->request.prompt);
        if (decoder_begin(d, slot, &j->answer, &failure) == TEMPER_OK)
            put(b, slot, j);
        else
            job_fail(j, &failure);
    }
}

static void drop_cancelled(temper_batch *b)
{
    job_list cancelled = {0};
    lock_take(b->lock);
    job_list_take_cancelled(&b->waiting, &cancelled);
    lock_give(b->lock);
    for (job *j = job_list_pop(&cancelled); j != NULL; j = job_list_pop(&cancelled))
        job_cancel(j);
    for (uint32_t i = 0; i < b->decoder->desc.slots; i++)
        if (b->running[i] != NULL && atomic_load(&b->running[i]->cancelled))
            answer_end(&b->running[i]->answer, TEMPER_FINISH_CANCELLED);
}

/* Answers that have ended leave their slots. */
static void release(temper_batch *b)
{
    decoder *d = b->decoder;
    for (uint32_t i = 0; i < d->desc.slots; i++) {
        job *j = b->running[i];
        if (j == NULL || !j->answer.ended)
            continue;
        decoder_end(d, i);
        put(b, i, NULL);
        lock_take(b->lock);
        b->stats.tokens += j->answer.tokens.count;
        b->stats.proposed += j->answer.proposed;
        b->stats.accepted += j->answer.accepted;
        b->stats.finished++;
        lock_give(b->lock);
        job_finish(j);
    }
    if (d->active == 0)
        decoder_settle(d);
}

/* After a failure of the device nobody is answered any more. */
static void fail_waiting(temper_batch *b, const error *failure)
{
    lock_take(b->lock);
    if (b->failure.status == TEMPER_OK)
        b->failure = *failure;
    job_list waiting = b->waiting;
    b->waiting = (job_list){0};
    lock_give(b->lock);
    for (job *j = job_list_pop(&waiting); j != NULL; j = job_list_pop(&waiting))
        job_fail(j, failure);
}

static bool tell(temper_batch *b)
{
    const decoder *d = b->decoder;
    uint32_t held = 0;
    for (uint32_t i = 0; i < d->active; i++)
        held += kv_cache_held(d->runner.cache, d->order[i]);
    lock_take(b->lock);
    b->stats.running = d->active;
    b->stats.free_blocks = b->stats.blocks - held;
    b->stats.passes = d->passes;
    b->stats.evictions = d->evictions;
    const bool more = d->active > 0 || b->waiting.count > 0;
    lock_give(b->lock);
    return more;
}

static temper_status step(temper_batch *b, error *failure)
{
    gpu_device *device = b->engine->device->gpu;
    drop_cancelled(b);
    release(b);
    admit(b);
    const temper_status status =
        decoder_has_work(b->decoder) ? decoder_step(b->decoder, failure) : TEMPER_OK;
    release(b);
    error lost = {0};
    if (gpu_device_status(device, &lost) != TEMPER_OK)
        fail_waiting(b, &lost);
    return status;
}

/* The device was lost outside of a step. */
static void fail_running(temper_batch *b, const error *failure)
{
    for (uint32_t i = 0; i < b->decoder->desc.slots; i++)
        if (b->running[i] != NULL)
            answer_fail(&b->running[i]->answer, failure->status, failure->text);
    release(b);
    fail_waiting(b, failure);
}

temper_status temper_batch_step(temper_batch *batch, bool *more, temper_error *err)
{
    assert(batch != NULL);
    error failure = {0};
    if (atomic_flag_test_and_set(&batch->stepping))
        return error_set(err, TEMPER_BUSY, "the batch is being stepped by another call");
    temper_status status = infer_enter(batch->engine->device, &failure);
    if (status == TEMPER_OK) {
        status = step(batch, &failure);
        infer_leave(batch->engine->device);
    } else if (status != TEMPER_BUSY) {
        fail_running(batch, &failure);
    }
    const bool left = tell(batch);
    if (more != NULL)
        *more = left;
    atomic_flag_clear(&batch->stepping);
    return status == TEMPER_OK ? TEMPER_OK : error_set(err, status, "%s", failure.text);
}

void temper_batch_close(temper_batch *batch)
{
    if (batch == NULL)
        return;
    const bool stepping = atomic_flag_test_and_set(&batch->stepping);
    assert(!stepping && "closed from a callback");
    (void)stepping;
    for (uint32_t i = 0; i < batch->decoder->desc.slots; i++)
        if (batch->running[i] != NULL)
            answer_end(&batch->running[i]->answer, TEMPER_FINISH_CANCELLED);
    release(batch);
    for (job *j = next_waiting(batch); j != NULL; j = next_waiting(batch))
        job_cancel(j);
    close_parts(batch);
}
