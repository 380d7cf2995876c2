/*
 * propose.c - proposals for the next pass: looked up in the text itself, or from a smaller network
 * over the same tokens.
 *
 * The draft model chooses as the network itself does: with the same sampling, the same seed and the
 * same noise at the same position, so that where the two agree on the probabilities they agree on
 * the token, at any temperature (Daliri, Musco, Suresh, "Coupling without communication and
 * drafter-invariant speculative decoding", 2024).
 */
#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "infer/decoder.h"
#include "infer/lookup.h"

/* The draft model proposes when it has read all of a text but its last ids; what it lags behind
 * more than that it reads in passes of their own. */
enum { DRAFT_LAG = 2 };

static bool has_draft(const decoder *d)
{
    return d->draft_engine != NULL;
}

/* Proposals that the slot's next pass could check; `ahead`: ids that will be known by then beside
 * those that are. */
static uint32_t wanted(const decoder *d, const decoder_slot *s, uint32_t ahead)
{
    const answer *a = s->answer;
    const uint64_t tokens =
        a->tokens.count + ahead + 1; /* with the one that the pass gives anyway */
    const uint32_t known = s->count + ahead;
    if (a->ended || a->limit <= tokens || known >= d->desc.context)
        return 0;
    uint32_t n = (uint32_t)min_u64(pace_length(&s->pace), a->limit - tokens);
    n = (uint32_t)min_u64(n, d->desc.context - known);
    if (has_draft(d))
        n = (uint32_t)min_u64(n, d->draft_context > known ? d->draft_context - known : 0);
    return n;
}

bool decoder_wants_to_propose(decoder *d)
{
    uint32_t ids[DECODER_MAX_PROPOSALS];
    for (uint32_t i = 0; i < d->active && d->desc.proposals > 0; i++) {
        const decoder_slot *s = &d->slots[d->order[i]];
        const uint32_t n = decoder_decodes(s) ? wanted(d, s, 1) : 0;
        if (n > 0 && (has_draft(d) ? s->count - s->drafted <= DRAFT_LAG
                                   : lookup_propose(s->ids, s->count, n, ids) > 0))
            return true;
    }
    return false;
}

/* ---- the draft model ------------------------------------------------------------------------ */

static temper_status check_draft(const temper_engine *engine, const temper_engine *draft,
                                 uint32_t slots, error *err)
{
    const tokenizer *a = engine->tok, *b = draft->tok;
    const uint32_t size = engine->info.vocabulary;
    if (draft->net == NULL)
        return error_set(err, TEMPER_BAD_ARGUMENT, "the draft model is a vocabulary only");
    if (draft->device != engine->device)
        return error_set(err, TEMPER_BAD_ARGUMENT, "the draft model is on another device");
    if (draft->net->max_rows < DRAFT_LAG * slots)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "the draft model takes %u rows a step, and %u texts need %u: open it with "
                         "more (max_rows)",
                         draft->net->max_rows, slots, DRAFT_LAG * slots);
    if (draft->info.vocabulary != size)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "the draft model has %u tokens and the model %u: it must have the same",
                         draft->info.vocabulary, size);
    if ((a == NULL) != (b == NULL))
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "the draft model and the model must both have a vocabulary, or none");
    if (a != NULL && strcmp(tokenizer_kind(a), tokenizer_kind(b)) != 0)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "the draft model's vocabulary is %s and the model's %s: it must be the "
                         "same",
                         tokenizer_kind(b), tokenizer_kind(a));
    for (uint32_t id = 0; a != NULL && id < size; id++) {
        size_t n = 0, m = 0;
        const char *x = tokenizer_piece(a, id, true, &n), *y = tokenizer_piece(b, id, true, &m);
        if (n != m || memcmp(x, y, n) != 0)
            return error_set(err, TEMPER_BAD_ARGUMENT,
                             "token %u is \"%.*s\" to the draft model and \"%.*s\" to the model: "
                             "their vocabularies must be the same",
                             id, (int)min_u64(m, 64), y, (int)min_u64(n, 64), x);
    }
    return TEMPER_OK;
}

temper_status decoder_set_speculation(const temper_engine *engine, const temper_speculation *wanted,
                                      decoder_desc *desc, error *err)
{
    if (wanted->tokens > DECODER_MAX_PROPOSALS)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "speculation of %u tokens at once; it must be 0 to %d", wanted->tokens,
                         DECODER_MAX_PROPOSALS);
    desc->proposals = wanted->tokens;
    desc->draft = wanted->tokens > 0 ? wanted->draft : NULL;
    return desc->draft != NULL ? check_draft(engine, desc->draft, desc->slots, err) : TEMPER_OK;
}

/* Submits a pass of the draft model; nothing of it is read. */
static temper_status submit_draft(decoder *d, error *err)
{
    gpu_recorder *rec = NULL;
    const temper_status status = runner_record(&d->draft, d->draft.chosen, &rec, err);
    return status == TEMPER_OK ? gpu_submit(rec, NULL, err) : status;
}

/* Lets the draft model read what it lags behind. */
static temper_status follow(decoder *d, error *err)
{
    runner *r = &d->draft;
    if (!has_draft(d))
        return TEMPER_OK;
    uint32_t left = r->net->max_rows;
    for (uint32_t i = 0; i < d->active; i++)
        if (decoder_decodes(&d->slots[d->order[i]]))
            left = (uint32_t)min_u64(left, d->desc.prompt_rows);
    runner_begin(r, d->active, 0);
    for (uint32_t i = 0; i < d->active; i++) {
        decoder_slot *s = &d->slots[d->order[i]];
        const uint32_t end = (uint32_t)min_u64(min_u64(s->count, s->cached), d->draft_context);
        if (!decoder_runs(s) || end < s->drafted + DRAFT_LAG || wanted(d, s, 0) == 0)
            continue;
        for (; s->drafted < end && left > 0; s->drafted++, left--)
            runner_add(r, d->order[i], s->drafted, s->ids[s->drafted]);
    }
    return r->rows > 0 ? submit_draft(d, err) : TEMPER_OK;
}

/* The rows of the draft model's pass number `index` for a slot: the last one chooses the proposal,
 * after what the slot's text has more than the draft model has read. */
static void add_choice(decoder *d, uint32_t slot, uint32_t index)
{
    decoder_slot *s = &d->slots[slot];
    const uint32_t place = d->draft.first_place + d->draft.choice_count;
    const uint32_t position = s->count - 1 + index;
    runner_add_choice(&d->draft, slot, position,
                      index == 0 ? s->ids[position] : s->proposed[index - 1], s->answer->request,
                      true);
    s->proposed[index] = OP_CHOSEN + place;
}

/* Submits the draft model's passes, one for each proposal of the slot that has the most. */
static temper_status draft(decoder *d, error *err)
{
    temper_status status = TEMPER_OK;
    bool more = true;
    for (uint32_t index = 0; status == TEMPER_OK && more; index++) {
        more = false;
        runner_begin(&d->draft, d->active, index * d->desc.slots);
        for (uint32_t i = 0; i < d->active; i++)
            if (d->slots[d->order[i]].proposals > index) {
                add_choice(d, d->order[i], index);
                more = true;
            }
        for (uint32_t i = 0; index == 0 && i < d->active; i++) {
            decoder_slot *s = &d->slots[d->order[i]];
            for (uint32_t p = s->drafted; s->proposals > 0 && p + 1 < s->count; p++)
                runner_add(&d->draft, d->order[i], p, s->ids[p]);
        }
        if (more)
            status = submit_draft(d, err);
    }
    for (uint32_t i = 0; i < d->active; i++) {
        decoder_slot *s = &d->slots[d->order[i]];
        if (s->proposals > 0)
            s->drafted = s->count - 1 + s->proposals;
    }
    return status;
}

/* ---- who proposes how many ------------------------------------------------------------------ */

/* Proposals of one slot, at most `most`: looked up now, or to be made by the draft model. */
static temper_status propose_for(decoder *d, uint32_t slot, uint32_t most, error *err)
{
    decoder_slot *s = &d->slots[slot];
    bool granted = false;
    uint32_t n = (uint32_t)min_u64(wanted(d, s, 0), most);
    if (n == 0 || (has_draft(d) && s->count - s->drafted > DRAFT_LAG))
        return TEMPER_OK;
    /* No other answer gives way to mere proposals. */
    const temper_status status = decoder_reserve(d, slot, s->count + n, false, &granted, err);
    if (status != TEMPER_OK || !granted)
        return status;
    s->proposals = has_draft(d) ? n : lookup_propose(s->ids, s->count, n, s->proposed);
    return has_draft(d) && infer_penalties(&s->answer->request->sampling, 1).count > 0
               ? decoder_remember(d, slot, err)
               : TEMPER_OK;
}

/* Rows that proposals may have: those that nobody needs for a token or a prompt. */
static uint32_t spare_rows(const decoder *d)
{
    const uint32_t rows = d->engine->net->max_rows;
    uint32_t taken = 0, prompts = 0;
    for (uint32_t i = 0; i < d->active; i++) {
        const decoder_slot *s = &d->slots[d->order[i]];
        taken += decoder_decodes(s);
        if (decoder_runs(s) && !decoder_decodes(s))
            prompts = d->desc.prompt_rows;
    }
    return rows - (uint32_t)min_u64(rows, (uint64_t)taken + prompts);
}

temper_status decoder_propose(decoder *d, error *err)
{
    uint32_t left = spare_rows(d);
    bool any = false;
    for (uint32_t i = 0; i < d->active; i++)
        d->slots[d->order[i]].proposals = 0;
    temper_status status = d->desc.proposals > 0 ? follow(d, err) : TEMPER_OK;
    if (status != TEMPER_OK || d->flight.count > 0 || d->desc.proposals == 0)
        return status;
    for (uint32_t i = 0; status == TEMPER_OK && i < d->active; i++) {
        decoder_slot *s = &d->slots[d->order[i]];
        if (!decoder_decodes(s) || s->chosen != DECODER_NO_PLACE)
            continue;
        status = propose_for(d, d->order[i], left, err);
        left -= s->proposals;
        any = any || s->proposals > 0;
    }
    return status == TEMPER_OK && any && has_draft(d) ? draft(d, err) : status;
}
