/*
 * decoder.c - opening and closing a decoder; texts that come into its slots and leave them.
 */
#include "infer/decoder.h"

#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "base/mem.h"
#include "op/rows.h"

/* ---- opening and closing -------------------------------------------------------------------- */

static temper_status out_of_memory(error *err)
{
    return error_set(err, TEMPER_NO_MEMORY, "no memory for the texts of a decoder");
}

static temper_status open_slots(decoder *d, error *err)
{
    const uint32_t n = d->desc.slots;
    d->slots = mem_calloc(n, sizeof *d->slots);
    d->order = mem_calloc(n, sizeof *d->order);
    d->flight.parts = mem_calloc(n, sizeof *d->flight.parts);
    d->next.parts = mem_calloc(n, sizeof *d->next.parts);
    if (d->slots == NULL || d->order == NULL || d->flight.parts == NULL || d->next.parts == NULL)
        return out_of_memory(err);
    for (uint32_t i = 0; i < n; i++) {
        d->slots[i].chosen = DECODER_NO_PLACE;
        d->slots[i].ids = mem_calloc(d->desc.context, sizeof *d->slots[i].ids);
        if (d->slots[i].ids == NULL)
            return out_of_memory(err);
    }
    return TEMPER_OK;
}

/* Multiply-adds of a row, nearly. */
static double work_of(const temper_model_info *i)
{
    const double width = i->width, heads = (double)(2 * i->q_heads + 2 * i->kv_heads) * i->head_dim;
    return i->layers * width * (heads + 3.0 * i->ffn) + width * i->vocabulary;
}

/* What a pass of one row leaves to others differs: a GPU reads the weights for one row and has its
 * arithmetic to spare, a CPU has not. How far the host's part of a pass shows is measured where the
 * device waits for it. A small network takes the longer the more layers it has, each a few
 * dispatches that wait for each other. */
static pace_costs costs_of(const temper_engine *engine, const temper_engine *draft)
{
    const bool software = op_device_is_software(engine->device->gpu);
    pace_costs costs = {.wait = software ? 0.05f : 0.25f, .row = software ? 0.4f : 0.03f};
    if (draft == NULL)
        return costs;
    const double work = work_of(&draft->info) / work_of(&engine->info);
    const double layers = (double)draft->info.layers / engine->info.layers;
    costs.draft = (float)(software || work > layers ? work : layers);
    return costs;
}

static uint32_t assumed_steps;

void decoder_assume_steps(uint32_t steps)
{
    assumed_steps = steps;
}

/* Steps of a pass of one text: so many that little of its time lies between two submits, and so few
 * that on a slow GPU ids still come one by one to the eye, and that few steps are lost when a text
 * ends. In four bits 5e9 multiply-adds are 3 GB to be read. */
static uint32_t steps_of(const temper_engine *engine, const decoder_desc *desc)
{
    enum { MOST = 4 };
    if (desc->proposals > 0)
        return 1;
    if (assumed_steps > 0)
        return assumed_steps * desc->slots;
    if (op_device_is_software(engine->device->gpu))
        return 1;
    const double steps = 5e9 / work_of(&engine->info);
    return steps < 1 ? 1 : steps > MOST ? MOST : (uint32_t)steps;
}

static const pace_costs *assumed;

void decoder_assume_costs(const pace_costs *costs)
{
    assumed = costs;
}

static temper_status open_runners(decoder *d, error *err)
{
    const decoder_desc *desc = &d->desc;
    const kv_cache_shape shape = {.sequences = desc->slots,
                                  .positions = desc->context,
                                  .blocks = desc->blocks,
                                  .type = desc->cache};
    const uint32_t rows = d->engine->net->max_rows;
    const uint32_t places = (uint32_t)min_u64((uint64_t)desc->slots * (1 + desc->proposals), rows);
    const uint32_t drafts = d->draft_engine != NULL ? desc->slots * desc->proposals : 0;
    const uint64_t choice = 2 * sizeof(uint32_t) + (1 + TEMPER_MAX_LOGPROBS) * sizeof(op_scored);
    const uint64_t choices = max_u64(places, (uint64_t)d->steps * RUNNER_STEP_ROWS);
    d->readback = mem_alloc((size_t)(choices * choice + drafts * sizeof(uint32_t)));
    if (d->readback == NULL)
        return out_of_memory(err);
    temper_status status =
        texts_open(d->engine->device->gpu, desc->slots, desc->context, &d->texts, err);
    if (status == TEMPER_OK)
        status = runner_open(&d->runner, d->engine->net, &d->texts, shape, places, d->steps, err);
    if (status == TEMPER_OK && d->draft_engine != NULL)
        status = runner_open(&d->draft, d->draft_engine->net, &d->texts, shape, drafts, 1, err);
    return status == TEMPER_OK ? gpu_finish(d->engine->device->gpu, err) : status;
}

temper_status decoder_open(temper_engine *engine, const decoder_desc *desc, decoder **out,
                           error *err)
{
    assert(desc->slots >= 1 && desc->slots <= DECODER_MAX_SLOTS &&
           desc->slots <= engine->net->max_rows && desc->proposals <= DECODER_MAX_PROPOSALS);
    decoder *d = mem_calloc(1, sizeof *d);
    if (d == NULL)
        return out_of_memory(err);
    d->engine = infer_engine_retain(engine);
    d->desc = *desc;
    if (desc->draft != NULL && desc->proposals > 0) {
        d->draft_engine = infer_engine_retain(desc->draft);
        d->draft_context = desc->draft->info.context;
    }
    d->steps = steps_of(engine, desc);
    d->costs = assumed != NULL ? *assumed : costs_of(engine, d->draft_engine);
    temper_status status = open_slots(d, err);
    if (status == TEMPER_OK)
        status = open_runners(d, err);
    if (status != TEMPER_OK) {
        decoder_close(d);
        return status;
    }
    *out = d;
    return TEMPER_OK;
}

void decoder_close(decoder *d)
{
    if (d == NULL)
        return;
    gpu_discard(d->engine->device->gpu, d->flight.ticket);
    for (uint32_t i = 0; d->slots != NULL && i < d->desc.slots; i++)
        mem_free(d->slots[i].ids);
    runner_close(&d->runner);
    runner_close(&d->draft);
    texts_close(&d->texts);
    mem_free(d->slots);
    mem_free(d->order);
    mem_free(d->flight.parts);
    mem_free(d->next.parts);
    mem_free(d->readback);
    temper_engine_close(d->engine);
    temper_engine_close(d->draft_engine);
    mem_free(d);
}

/* ---- texts ---------------------------------------------------------------------------------- */

uint32_t decoder_shared(const decoder *d, uint32_t slot, temper_tokens text, size_t recompute)
{
    const decoder_slot *s = &d->slots[slot];
    assert(text.count >= recompute);
    const uint32_t most = (uint32_t)min_u64(min_u64(s->cached, s->count), text.count - recompute);
    uint32_t shared = 0;
    while (shared < most && s->ids[shared] == text.ids[shared])
        shared++;
    return shared;
}

uint32_t decoder_align(decoder *d, uint32_t slot, temper_tokens text, size_t recompute)
{
    decoder_slot *s = &d->slots[slot];
    assert(s->answer == NULL && text.count <= d->desc.context);
    const uint32_t shared = decoder_shared(d, slot, text, recompute);
    memcpy(s->ids + shared, text.ids + shared, (text.count - shared) * sizeof *s->ids);
    s->count = (uint32_t)text.count;
    s->chosen = DECODER_NO_PLACE;
    s->unread = 0;
    s->cached = shared;
    s->drafted = (uint32_t)min_u64(s->drafted, shared);
    s->remembered = 0;
    s->proposals = 0;
    return shared;
}

temper_status decoder_begin(decoder *d, uint32_t slot, answer *a, error *err)
{
    decoder_slot *s = &d->slots[slot];
    const temper_sampling *sampling = &a->request->sampling;
    if (sampling->bias_count > 0) {
        const uint64_t at = (uint64_t)slot * TEMPER_MAX_BIASES * sizeof(op_logit_bias);
        const temper_status status =
            gpu_write(d->engine->device->gpu, d->texts.biases, at, sampling->biases,
                      sampling->bias_count * sizeof(op_logit_bias), err);
        if (status != TEMPER_OK)
            return status;
    }
    a->reused = decoder_align(d, slot, a->request->prompt, 1);
    s->answer = a;
    s->serial = ++d->serials;
    s->used = ++d->clock;
    s->pace = pace_begin(d->costs, d->desc.proposals);
    d->order[d->active++] = slot;
    return TEMPER_OK;
}

void decoder_end(decoder *d, uint32_t slot)
{
    decoder_slot *s = &d->slots[slot];
    uint32_t at = 0;
    assert(s->answer != NULL);
    while (d->order[at] != slot)
        at++;
    memmove(d->order + at, d->order + at + 1, (d->active - at - 1) * sizeof *d->order);
    d->active--;
    if (s->answer->failure.status != TEMPER_OK)
        decoder_forget(d, slot);
    s->answer = NULL;
    s->used = ++d->clock;
    s->chosen = DECODER_NO_PLACE;
    s->unread = 0;
    /* A pass may have gone on past the end: what it wrote there is nobody's. */
    s->cached = (uint32_t)min_u64(s->cached, s->count);
    s->drafted = (uint32_t)min_u64(s->drafted, s->cached);
}

void decoder_settle(decoder *d)
{
    assert(d->active == 0);
    gpu_discard(d->engine->device->gpu, d->flight.ticket);
    d->flight.ticket = (gpu_ticket){0};
    d->flight.count = 0;
}

uint32_t decoder_pending(const decoder_slot *s)
{
    return s->count + s->unread - s->cached;
}

uint64_t decoder_left(const decoder_slot *s)
{
    const answer *a = s->answer;
    const uint64_t tokens = a->tokens.count + s->unread;
    return a->limit > tokens ? a->limit - tokens : 0;
}

bool decoder_runs(const decoder_slot *s)
{
    const answer *a = s->answer;
    if (a == NULL || a->ended)
        return false;
    if (a->limit == 0)
        return s->cached < s->count;
    return decoder_left(s) > 0;
}

bool decoder_decodes(const decoder_slot *s)
{
    return decoder_runs(s) && decoder_pending(s) == 1;
}

bool decoder_has_work(const decoder *d)
{
    bool work = d->flight.count > 0;
    for (uint32_t i = 0; i < d->active; i++)
        work = work || decoder_runs(&d->slots[d->order[i]]);
    return work;
}
