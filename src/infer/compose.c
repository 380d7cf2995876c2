/*
 * compose.c - what goes into a pass, and what comes out of it.
 */
#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "infer/decoder.h"

/* ---- what goes in --------------------------------------------------------------------------- */

/* Rows that are left in the pass being composed. */
typedef struct budget {
    uint32_t rows;    /* of all kinds */
    uint32_t prompt;  /* of them, of prompts */
    bool prompts_end; /* an older prompt waits for blocks: younger ones do not overtake it */
} budget;

/* Blocks that the slot could have without anybody else's answer giving way. */
static uint32_t blocks_within_reach(const decoder *d, uint32_t slot)
{
    uint32_t blocks = kv_cache_free(d->runner.cache) + kv_cache_held(d->runner.cache, slot);
    for (uint32_t i = 0; i < d->desc.slots; i++)
        if (d->slots[i].answer == NULL && i != slot)
            blocks += kv_cache_held(d->runner.cache, i);
    return blocks;
}

/* A prompt begins when there is room for all of it and its first token: else it would take blocks
 * and then wait. The oldest may begin in any case, since the others give way to it. */
static bool may_begin(const decoder *d, uint32_t slot)
{
    const decoder_slot *s = &d->slots[slot];
    const uint32_t positions = (uint32_t)min_u64((uint64_t)s->count + 1, d->desc.context);
    return d->order[0] == slot || kv_cache_blocks_for(positions) <= blocks_within_reach(d, slot);
}

/* Rows of the slot that the budget has room for; their blocks are reserved. 0: none now. */
static temper_status plan_slot(decoder *d, uint32_t slot, budget *left, uint32_t *rows, error *err)
{
    decoder_slot *s = &d->slots[slot];
    const uint32_t pending = decoder_pending(s);
    bool granted = false;
    *rows = 0;
    /* A text whose blocks were taken away begins again once its last id is read. */
    if (pending != 1 && s->unread > 0)
        return TEMPER_OK;
    if (pending != 1 && (left->prompts_end || !may_begin(d, slot))) {
        left->prompts_end = true;
        return TEMPER_OK;
    }
    if (pending == 1)
        *rows = (uint32_t)min_u64(1 + s->proposals, left->rows);
    else
        *rows = (uint32_t)min_u64(pending, min_u64(left->prompt, left->rows));
    if (*rows == 0)
        return TEMPER_OK;
    const temper_status status = decoder_reserve(d, slot, s->cached + *rows, true, &granted, err);
    if (!granted)
        *rows = 0;
    left->rows -= *rows;
    left->prompt -= pending != 1 ? *rows : 0;
    return status;
}

/* True when the pass that takes the last of its pending ids chooses a token. */
static bool chooses(const decoder_slot *s)
{
    return s->answer->limit > 0;
}

/* How often the pass is repeated: only where nothing but single ids is taken, where nobody waits
 * who could join sooner, and no further than the texts go or blocks are free. */
static temper_status plan_steps(decoder *d, error *err)
{
    decoder_flight *f = &d->next;
    uint32_t steps = f->count > 0 && f->count <= RUNNER_STEP_ROWS ? d->steps / f->count : 1;
    for (uint32_t i = 0; steps > 1 && i < f->count; i++) {
        const decoder_slot *s = &d->slots[f->parts[i].slot];
        if (f->parts[i].rows != 1 || f->parts[i].choices != 1)
            return TEMPER_OK;
        steps = (uint32_t)min_u64(steps, decoder_left(s));
        steps = (uint32_t)min_u64(steps, d->desc.context - s->cached);
    }
    for (uint32_t i = 0; steps > 1 && i < f->count; i++) {
        const uint32_t slot = f->parts[i].slot;
        bool granted = false;
        const temper_status status =
            decoder_reserve(d, slot, d->slots[slot].cached + steps, false, &granted, err);
        if (status != TEMPER_OK || !granted)
            return status;
    }
    f->steps = (uint32_t)max_u64(steps, 1);
    return TEMPER_OK;
}

/* Decides what the pass does for each slot, the oldest answer first. */
static temper_status plan(decoder *d, error *err)
{
    decoder_flight *f = &d->next;
    budget left = {.rows = d->engine->net->max_rows};
    uint32_t decoding = 0;
    for (uint32_t i = 0; i < d->active; i++) {
        const decoder_slot *s = &d->slots[d->order[i]];
        if (decoder_decodes(s))
            decoding += 1 + s->proposals;
    }
    assert(decoding <= left.rows);
    left.prompt = left.rows - decoding;
    if (decoding > 0)
        left.prompt = (uint32_t)min_u64(left.prompt, d->desc.prompt_rows);
    f->ticket = (gpu_ticket){0};
    f->count = 0;
    f->steps = 1;
    f->checks = false;
    uint32_t running = 0;
    for (uint32_t i = 0; i < d->active; i++) {
        const uint32_t slot = d->order[i];
        decoder_slot *s = &d->slots[slot];
        uint32_t rows = 0;
        if (!decoder_runs(s))
            continue;
        running++;
        const uint32_t pending = decoder_pending(s);
        const temper_status status = plan_slot(d, slot, &left, &rows, err);
        if (status != TEMPER_OK)
            return status;
        if (rows == 0)
            continue;
        decoder_part *part = &f->parts[f->count++];
        *part = (decoder_part){.slot = slot, .serial = s->serial, .first = s->cached, .rows = rows};
        if (rows >= pending && chooses(s))
            part->choices = 1 + rows - pending;
        memcpy(part->proposed, s->proposed, sizeof part->proposed);
        f->checks = f->checks || part->choices > 1;
    }
    return running == f->count ? plan_steps(d, err) : TEMPER_OK;
}

/* ---- making the pass ------------------------------------------------------------------------ */

/* The id at a position of a slot's text, or the place where it is: beyond the last one stand
 * proposals. */
static uint32_t source_of(const decoder_slot *s, uint32_t position)
{
    if (position < s->count)
        return s->ids[position];
    return s->chosen != DECODER_NO_PLACE ? OP_CHOSEN + s->chosen : s->proposed[position - s->count];
}

temper_status decoder_remember(decoder *d, uint32_t slot, error *err)
{
    decoder_slot *s = &d->slots[slot];
    const uint32_t known = s->remembered;
    if (known >= s->count)
        return TEMPER_OK;
    s->remembered = s->count;
    return texts_write(&d->texts, d->engine->device->gpu, slot, known, s->ids + known,
                       s->count - known, err);
}

/* Penalties look at the ids before a choice: those that the device does not know by itself are
 * queued. Ids that the draft model proposed are put there by its own passes. */
static temper_status write_history(decoder *d, const decoder_part *part, error *err)
{
    const decoder_slot *s = &d->slots[part->slot];
    const uint32_t proposals = part->choices > 1 ? part->choices - 1 : 0;
    if (part->choices == 0 || infer_penalties(&s->answer->request->sampling, 1).count == 0)
        return TEMPER_OK;
    const temper_status status = decoder_remember(d, part->slot, err);
    if (status != TEMPER_OK || d->draft_engine != NULL)
        return status;
    return texts_write(&d->texts, d->engine->device->gpu, part->slot, s->count, part->proposed,
                       proposals, err);
}

/* Puts the rows in order: those that choose first. */
static void add_rows(decoder *d)
{
    decoder_flight *f = &d->next;
    runner *r = &d->runner;
    runner_begin(r, f->count, 0);
    for (uint32_t i = 0; i < f->count; i++) {
        decoder_part *part = &f->parts[i];
        const decoder_slot *s = &d->slots[part->slot];
        const uint32_t end = part->first + part->rows;
        part->first_choice = r->choice_count;
        for (uint32_t p = end - part->choices; p < end; p++)
            runner_add_choice(r, part->slot, p, source_of(s, p), s->answer->request,
                              part->choices == 1);
    }
    for (uint32_t i = 0; i < f->count; i++) {
        const decoder_part *part = &f->parts[i];
        const uint32_t end = part->first + part->rows - part->choices;
        for (uint32_t p = part->first; p < end; p++)
            runner_add(r, part->slot, p, source_of(&d->slots[part->slot], p));
    }
}

static temper_status submit(decoder *d, error *err)
{
    decoder_flight *f = &d->next;
    runner *r = &d->runner;
    gpu_recorder *rec = NULL;
    const bool drafted = f->checks && d->draft_engine != NULL;
    if (f->steps > 1)
        runner_repeat(r, f->steps);
    const temper_status status = runner_record(r, drafted ? d->draft.chosen : r->chosen, &rec, err);
    if (status != TEMPER_OK)
        return status;
    f->choices = runner_choices(r);
    f->drafts = drafted ? d->draft.places : 0;
    f->logprobs = r->logprobs;
    f->best = r->best;
    gpu_record_readback(rec, runner_chosen(r));
    if (drafted)
        gpu_record_readback(rec, gpu_whole(d->draft.chosen));
    if (f->logprobs) {
        gpu_record_readback(rec, runner_surprise(r));
        gpu_record_readback(rec, runner_scored(r));
    }
    return gpu_submit(rec, &f->ticket, err);
}

/* The slots after the submit. */
static void advance(decoder *d)
{
    const decoder_flight *f = &d->next;
    d->passes += f->steps;
    for (uint32_t i = 0; i < f->count; i++) {
        const decoder_part *part = &f->parts[i];
        decoder_slot *s = &d->slots[part->slot];
        s->cached = part->first + part->rows + f->steps - 1;
        s->used = ++d->clock;
        s->chosen = DECODER_NO_PLACE;
        if (part->choices == 1) {
            s->chosen = part->first_choice + (f->steps - 1) * RUNNER_STEP_ROWS;
            s->unread += f->steps;
            s->remembered = s->cached + 1;
            pace_skip(&s->pace);
        }
    }
}

/* Composes and submits a pass into d->next; its count stays 0 when there is nothing to do. */
static temper_status compose(decoder *d, error *err)
{
    decoder_flight *f = &d->next;
    temper_status status = decoder_propose(d, err);
    if (status == TEMPER_OK)
        status = plan(d, err);
    for (uint32_t i = 0; status == TEMPER_OK && i < f->count; i++)
        status = write_history(d, &f->parts[i], err);
    if (status == TEMPER_OK && f->count > 0) {
        add_rows(d);
        status = submit(d, err);
        if (status == TEMPER_OK)
            advance(d);
    }
    if (status != TEMPER_OK)
        f->count = 0;
    return status;
}

/* ---- what comes out ------------------------------------------------------------------------- */

/* What came back, in the order of the readbacks. */
typedef struct arrivals {
    const uint32_t *chosen, *drafts;
    const float *surprise;
    const op_scored *scored;
} arrivals;

static uint64_t readback_bytes(const decoder_flight *f)
{
    const uint64_t choice =
        sizeof(uint32_t) + (f->logprobs ? sizeof(float) + (1 + f->best) * sizeof(op_scored) : 0);
    return f->choices * choice + f->drafts * sizeof(uint32_t);
}

static arrivals unpack(const decoder_flight *f, const void *bytes)
{
    arrivals a = {.chosen = bytes};
    a.drafts = a.chosen + f->choices;
    a.surprise = (const float *)(a.drafts + f->drafts);
    a.scored = (const op_scored *)(a.surprise + f->choices);
    return a;
}

static void take_choice(decoder_slot *s, const decoder_flight *f, uint32_t place,
                        const arrivals *got)
{
    answer *a = s->answer;
    const size_t tokens = a->tokens.count;
    answer_take(a, &(answer_choice){.id = got->chosen[place],
                                    .surprise = f->logprobs ? got->surprise[place] : 0.0f,
                                    .scored = got->scored + (size_t)place * (1 + f->best)});
    if (a->tokens.count > tokens)
        s->ids[s->count++] = got->chosen[place];
}

/* A choice of each step: the passes after this one have taken the last of them, or none has. */
static void take_steps(decoder *d, const decoder_flight *f, const decoder_part *part,
                       const arrivals *got)
{
    decoder_slot *s = &d->slots[part->slot];
    s->unread -= f->steps;
    if (s->unread == 0)
        s->chosen = DECODER_NO_PLACE;
    for (uint32_t i = 0; i < f->steps && !s->answer->ended; i++) {
        s->answer->passes++;
        take_choice(s, f, part->first_choice + i * RUNNER_STEP_ROWS, got);
    }
}

/* The choices that agree with what was proposed, and the one after them. */
static void take_checked(decoder *d, const decoder_flight *f, const decoder_part *part,
                         const arrivals *got)
{
    decoder_slot *s = &d->slots[part->slot];
    answer *a = s->answer;
    const uint32_t proposals = part->choices - 1;
    uint32_t accepted = 0;
    bool agrees = true;
    a->passes++;
    for (uint32_t i = 0; i < part->choices && agrees && !a->ended; i++) {
        const uint32_t c = part->first_choice + i;
        take_choice(s, f, c, got);
        if (i == proposals)
            break;
        const uint32_t proposed = part->proposed[i];
        agrees =
            got->chosen[c] == (proposed < OP_CHOSEN ? proposed : got->drafts[proposed - OP_CHOSEN]);
        accepted += agrees;
    }
    a->proposed += proposals;
    a->accepted += accepted;
    pace_learn(&s->pace, proposals, accepted);
    s->cached = (uint32_t)min_u64(part->first + 1 + accepted, s->count);
    s->drafted = (uint32_t)min_u64(s->drafted, s->count - 1);
    s->remembered = (uint32_t)min_u64(s->remembered, part->first + 1);
}

/* Waits for the pass in flight and takes what it chose. */
static temper_status read_flight(decoder *d, error *err)
{
    decoder_flight *f = &d->flight;
    const uint64_t bytes = readback_bytes(f);
    const gpu_ticket ticket = f->ticket;
    const uint32_t count = f->count;
    f->ticket = (gpu_ticket){0};
    f->count = 0;
    const temper_status status =
        gpu_wait(d->engine->device->gpu, ticket, bytes > 0 ? d->readback : NULL, bytes, err);
    if (status != TEMPER_OK)
        return status;
    const arrivals got = unpack(f, d->readback);
    for (uint32_t i = 0; i < count; i++) {
        const decoder_part *part = &f->parts[i];
        decoder_slot *s = &d->slots[part->slot];
        if (s->answer == NULL || s->serial != part->serial || s->answer->ended)
            continue;
        if (s->answer->tokens.count == 0)
            answer_progress(s->answer,
                            min_u64(part->first + part->rows, s->answer->request->prompt.count));
        if (part->choices == 1)
            take_steps(d, f, part, &got);
        else if (part->choices > 1)
            take_checked(d, f, part, &got);
        else if (s->answer->limit == 0 && part->first + part->rows == s->count)
            answer_end(s->answer, TEMPER_FINISH_LENGTH);
    }
    return TEMPER_OK;
}

/* ---- a step --------------------------------------------------------------------------------- */

/* A pass failed, and with it every answer: nothing that it wrote is trusted. */
static void fail_all(decoder *d, const error *failure)
{
    gpu_discard(d->engine->device->gpu, d->flight.ticket);
    gpu_discard(d->engine->device->gpu, d->next.ticket);
    d->flight.ticket = d->next.ticket = (gpu_ticket){0};
    d->flight.count = d->next.count = 0;
    for (uint32_t i = 0; i < d->active; i++) {
        decoder_slot *s = &d->slots[d->order[i]];
        answer_fail(s->answer, failure->status, failure->text);
        s->chosen = DECODER_NO_PLACE;
        s->unread = 0;
        decoder_forget(d, d->order[i]);
    }
}

static temper_status step(decoder *d, error *err)
{
    temper_status status = TEMPER_OK;
    if (d->flight.count > 0 && (d->flight.checks || decoder_wants_to_propose(d)))
        status = read_flight(d, err);
    if (status == TEMPER_OK)
        status = compose(d, err);
    if (status == TEMPER_OK && d->flight.count > 0)
        status = read_flight(d, err);
    const decoder_flight read = d->flight;
    d->flight = d->next;
    d->next = read;
    return status;
}

temper_status decoder_step(decoder *d, error *err)
{
    error failure = {0};
    const temper_status status = step(d, &failure);
    if (status == TEMPER_OK)
        return TEMPER_OK;
    fail_all(d, &failure);
    return error_set(err, status, "%s", failure.text);
}
