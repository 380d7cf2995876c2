/*
 * runner.h - a network with what its passes need: the cache of the sequences that it runs, the
 * buffers of a pass, and the choices at a pass's end.
 *
 * A pass is one step of the network over rows of any sequences. It is put together row by row, the
 * rows that choose a token first, then queued and recorded:
 *
 *     runner_begin(r, sequences, 0);
 *     runner_add_choice(r, slot, position, source, request);   // for each row that chooses
 *     runner_add(r, slot, position, from);                   // for each other row
 *     status = runner_record(r, from, &rec, err);
 *     gpu_record_readback(rec, runner_chosen(r));
 *     status = gpu_submit(rec, &ticket, err);
 *
 * A pass whose rows all choose may be repeated before it is submitted (runner_repeat): each further
 * step takes what the one before it chose, on the device.
 *
 * What a row takes (from) is the id that stands there or, where the host has not read it yet,
 * OP_CHOSEN plus its place among what a pass before chose. Passes run in order, so the next one may
 * be put together while the last one runs.
 */
#ifndef TEMPER_INFER_RUNNER_H
#define TEMPER_INFER_RUNNER_H

#include "infer/infer.h"

/* The inputs and the choices of each step of a repeated pass begin at a multiple of so many
 * entries, which is how many rows such a pass may have: 256 bytes, the most that a device may ask
 * of the offset of a view. */
enum { RUNNER_STEP_ROWS = 64 };

/* What choices look at beside logits: one for all networks that choose for the same texts. */
typedef struct texts {
    uint32_t slots, context;
    gpu_buffer *history; /* u32 [slots][context + 1]: the ids of each text, for penalties */
    gpu_buffer *biases;  /* op_logit_bias [slots][TEMPER_MAX_BIASES] */
} texts;

temper_status texts_open(gpu_device *device, uint32_t slots, uint32_t context, texts *out,
                         error *err);
void texts_close(texts *t);

/* Queues `count` ids that stand at `position` of a slot's text, for its history. */
temper_status texts_write(const texts *t, gpu_device *device, uint32_t slot, uint32_t position,
                          const uint32_t *ids, uint32_t count, error *err);

/* A token to be chosen. */
typedef struct runner_choice {
    const temper_request *request; /* its sampling, and whether log-probabilities are wanted */
    uint32_t slot, position;       /* of the token chosen */
    bool remember;                 /* put it into the history on the device */
} runner_choice;

typedef struct runner {
    model *net; /* the engine's */
    const texts *texts;
    kv_cache *cache;
    uint32_t places;      /* tokens that are chosen before the host reads them, at most */
    uint32_t most_steps;  /* of a repeated pass */
    gpu_buffer *ids;      /* u32 [max_rows] */
    gpu_buffer *sources;  /* u32 [max_rows] */
    gpu_buffer *row_info; /* op_row_info [max_rows], and of every step */
    gpu_buffer *choices;  /* op_sample_params [places] */
    gpu_buffer *sampler;  /* op_sample_scratch_bytes of MODEL_LOGIT_ROWS */
    gpu_buffer *chosen;   /* u32 [places] */
    gpu_buffer *surprise; /* f32 [places]: their negative log-likelihoods */
    gpu_buffer *scored;   /* op_scored [places][1 + TEMPER_MAX_LOGPROBS] */

    /* The pass being put together. */
    op_row_info *host_rows;        /* as row_info */
    uint32_t *host_sources;        /* [max_rows] */
    runner_choice *host_choices;   /* [places] */
    op_sample_params *host_params; /* [places] */
    uint32_t rows, choice_count, sequences, longest;
    uint32_t first_place; /* of its choices */
    uint32_t steps;       /* 1, or of a repeated pass */
    bool gathers;         /* a source is a place */
    bool in_order;        /* row i takes place taken + i, for every i */
    uint32_t taken;       /* ... a multiple of RUNNER_STEP_ROWS */
    bool logprobs;        /* somebody wants them */
    uint32_t best;        /* the most that anybody wants */
} runner;

/* Opens the cache and the buffers, and waits until every pipeline exists. places: of passes that
 * are not repeated; steps: of those that are, 1 and up. On failure runner_close frees what there
 * is. `out` is all zero before. */
temper_status runner_open(runner *out, model *net, const texts *t, kv_cache_shape shape,
                          uint32_t places, uint32_t steps, error *err);
void runner_close(runner *r);

/* sequences: that the rows will belong to, or nearly. first_place: where the chosen ids go, with
 * room for as many as there will be choices. */
void runner_begin(runner *r, uint32_t sequences, uint32_t first_place);
void runner_add(runner *r, uint32_t slot, uint32_t position, uint32_t from);

/* A row whose logits choose the token after it. */
void runner_add_choice(runner *r, uint32_t slot, uint32_t position, uint32_t from,
                       const temper_request *request, bool remember);

/* Makes the pass so many steps, up to what the runner was opened with: its rows, at most
 * RUNNER_STEP_ROWS, all choose. Step s chooses at place first_place + s RUNNER_STEP_ROWS + row, for
 * the position s after the first step's. */
void runner_repeat(runner *r, uint32_t steps);

/* Places from the first choice of the pass to its last. */
uint32_t runner_choices(const runner *r);

/* Queues the inputs of the pass and begins *rec with the step and its choices. from: the buffer
 * that places are of; NULL where no source is one. On failure there is no recording. */
temper_status runner_record(runner *r, gpu_buffer *from, gpu_recorder **rec, error *err);

/* What the choices of the pass wrote, by place. surprise and scored only where
 * runner.logprobs is set, scored with 1 + runner.best entries a choice. */
gpu_view runner_chosen(const runner *r);
gpu_view runner_surprise(const runner *r);
gpu_view runner_scored(const runner *r);

#endif
