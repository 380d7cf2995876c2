/*
 * decoder.h - several texts advance together through one network, a pass at a time: what sessions
 * (a decoder of one slot) and batches stand on.
 *
 * A slot holds a text: the ids that the host knows, of which the first `cached` have their keys and
 * values in the cache. A text advances by passes over the ids that are not cached; the pass that
 * takes the last one chooses the id after it. So a prompt is read in chunks, an answer grows id by
 * id, and a text whose blocks were taken away is simply read again.
 *
 * A pass is submitted before the one before it is read (decoder_step): the device never waits for
 * the host. The id that a pass chose stays on the device until then and is named by its place.
 * Where the texts of a pass take an id each and the network is small, the pass is several steps in
 * one submit: what lies between two submits costs a GPU some 35 us, as much as many a layer. Only
 * proposals need everything read first: a pass that checks n of them has n + 1 rows of one text,
 * and as many of its choices count as agree with what was proposed. Since a choice depends on the
 * logits, the seed and the position alone, what is proposed never changes the text.
 *
 * When the cache has no block left for an older text, idle slots give theirs, then the youngest
 * text does, and is read again later.
 *
 * Files: decoder.c (opening, beginning, ending), blocks.c (who has which block), compose.c (what
 * goes into a pass, and reading it), propose.c (proposals).
 */
#ifndef TEMPER_INFER_DECODER_H
#define TEMPER_INFER_DECODER_H

#include "infer/answer.h"
#include "infer/pace.h"
#include "infer/runner.h"

enum {
    DECODER_MAX_PROPOSALS = TEMPER_MAX_SPECULATION,
    DECODER_MAX_SLOTS = 256,
};

#define DECODER_NO_PLACE UINT32_MAX

typedef struct decoder_slot {
    answer *answer;      /* being made here, borrowed; NULL: idle, and the text may be built upon */
    uint64_t serial;     /* of the answer, 1 and up in the order in which they began */
    uint64_t used;       /* the decoder's clock when it was last active */
    uint32_t *ids;       /* [context] */
    uint32_t count;      /* ids known to the host */
    uint32_t unread;     /* ids after them that passes choose and the host has not read */
    uint32_t chosen;     /* the place of the last one, or DECODER_NO_PLACE where there is none */
    uint32_t cached;     /* positions that submitted passes compute */
    uint32_t drafted;    /* the same of the draft model */
    uint32_t remembered; /* ids that the history holds, where penalties want it */
    uint32_t proposals;  /* of the pass being composed */
    uint32_t proposed[DECODER_MAX_PROPOSALS]; /* ids, or places among what the draft model chose */
    pace pace;
} decoder_slot;

/* What a submitted pass does for one slot. */
typedef struct decoder_part {
    uint32_t slot;
    uint64_t serial;       /* of the slot's answer: another one means that it has ended */
    uint32_t first, rows;  /* positions computed, in a pass of several steps each of one row */
    uint32_t first_choice; /* of the pass's choices */
    uint32_t choices;      /* of a step. 0: none yet; 1 + proposals */
    uint32_t proposed[DECODER_MAX_PROPOSALS]; /* as the slot's */
} decoder_part;

/* A submitted pass that is not read yet; count 0: none. */
typedef struct decoder_flight {
    decoder_part *parts; /* [slots] */
    uint32_t count;
    gpu_ticket ticket;
    uint32_t steps;           /* each chooses RUNNER_STEP_ROWS places after the one before */
    uint32_t choices, drafts; /* ids that come back: chosen, and proposed by the draft model */
    bool logprobs;
    uint32_t best;
    bool checks; /* proposals: what follows depends on how many are right */
} decoder_flight;

typedef struct decoder_desc {
    uint32_t slots;   /* 1 to DECODER_MAX_SLOTS, at most the engine's rows a step */
    uint32_t context; /* of one text */
    uint32_t blocks;  /* of the cache */
    op_cache_type cache;
    uint32_t prompt_rows; /* of prompts in a pass while others decode */
    uint32_t proposals;   /* at once; 0: none */
    temper_engine *draft; /* who proposes; NULL: the text itself */
} decoder_desc;

typedef struct decoder {
    temper_engine *engine, *draft_engine; /* one reference each; the second may be NULL */
    decoder_desc desc;
    texts texts;
    runner runner;
    runner draft;           /* where there is a draft model */
    uint32_t draft_context; /* positions that the draft model was trained for */
    uint32_t steps;         /* of a pass of one text, at most; more texts share them */
    pace_costs costs;
    decoder_slot *slots; /* [desc.slots] */
    uint32_t *order;     /* [desc.slots]: the active ones, in the order in which they began */
    uint32_t active;
    uint64_t clock, serials;
    decoder_flight flight, next;
    void *readback; /* of a pass, all of them */
    uint64_t passes, evictions;
} decoder;

/* Puts what a caller asks for into *desc, whose slots are known. TEMPER_BAD_ARGUMENT for too many
 * proposals, and for a draft model that cannot propose for the engine: on another device, with
 * other tokens, or with too few rows a step. */
temper_status decoder_set_speculation(const temper_engine *engine, const temper_speculation *wanted,
                                      decoder_desc *desc, error *err);

/* Opens a decoder and waits until every pipeline exists; the caller drives the device. */
temper_status decoder_open(temper_engine *engine, const decoder_desc *desc, decoder **out,
                           error *err);

/* Answers that are being made are forgotten. */
void decoder_close(decoder *d);

/* Puts a text into an idle slot, keeping what it shares with the one there; at least `recompute` of
 * its last ids are to be computed. Returns how many ids it shares. */
uint32_t decoder_align(decoder *d, uint32_t slot, temper_tokens text, size_t recompute);

/* How many ids decoder_align would keep. */
uint32_t decoder_shared(const decoder *d, uint32_t slot, temper_tokens text, size_t recompute);

/* Begins an answer in an idle slot. Both answer and request are borrowed until decoder_end. */
temper_status decoder_begin(decoder *d, uint32_t slot, answer *a, error *err);

/* The slot is idle again; its text stays as long as nobody needs its blocks. */
void decoder_end(decoder *d, uint32_t slot);

/* Forgets the pass in flight. Only when no answer is being made. */
void decoder_settle(decoder *d);

/* Submits a pass for the answers that are not ended and takes what the one before it chose. Ended
 * answers stay in their slots until decoder_end. When a pass fails, every answer fails with it, and
 * nothing that it wrote is trusted. */
temper_status decoder_step(decoder *d, error *err);

/* True while a pass is to be read or to be made. */
bool decoder_has_work(const decoder *d);

/* Forgets what is cached of a slot's text. */
void decoder_forget(decoder *d, uint32_t slot);

/* Tests only: decoders opened from now on make passes of so many steps where every slot has a text,
 * and of more where fewer have; 0 ends that. */
void decoder_assume_steps(uint32_t steps);

/* Tests only: decoders opened from now on count with these costs of speculation, so that a device
 * on which it does not pay shows that it changes nothing. NULL ends that. */
void decoder_assume_costs(const pace_costs *costs);

/* ---- what the files share ------------------------------------------------------------------- */

/* Ids of a slot's text that no pass has taken yet, those on the device included. */
uint32_t decoder_pending(const decoder_slot *s);

/* Tokens that the slot's answer may still have, beside those that passes choose already. */
uint64_t decoder_left(const decoder_slot *s);

/* True when the slot's answer needs another pass. */
bool decoder_runs(const decoder_slot *s);

/* True when that pass takes a single id: the last one there is. */
bool decoder_decodes(const decoder_slot *s);

/* Queues what the history of the slot lacks of its ids. */
temper_status decoder_remember(decoder *d, uint32_t slot, error *err);

/* Makes sure that the slot has blocks for `positions`, of every network, taking them from idle
 * slots and (with `push`) from answers that began later. *granted: whether it has them now. */
temper_status decoder_reserve(decoder *d, uint32_t slot, uint32_t positions, bool push,
                              bool *granted, error *err);

/* Decides how many proposals each slot's next pass checks, and makes them; none while a pass is in
 * flight. */
temper_status decoder_propose(decoder *d, error *err);

/* True when a slot should propose: nothing may be in flight then. */
bool decoder_wants_to_propose(decoder *d);

#endif
