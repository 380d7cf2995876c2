/*
 * session.h - a session from inside: what session.c (opening, steps, prompts, logits, scores) and
 * generate.c (choosing tokens, decoding) share.
 */
#ifndef TEMPER_INFER_SESSION_H
#define TEMPER_INFER_SESSION_H

#include "infer/infer.h"

struct temper_session {
    temper_engine *engine; /* one reference */
    kv_cache *cache;
    uint32_t context;
    gpu_buffer
        *ids; /* u32 [max_rows]: the rows of a step; the sampler writes the next id to the first */
    gpu_buffer *history;    /* u32 [context + 1]: the text so far, for penalties */
    gpu_buffer *biases;     /* op_logit_bias [TEMPER_MAX_BIASES] */
    gpu_buffer *choice;     /* op_sample_params [1] */
    gpu_buffer *sampler;    /* op_sample_scratch_bytes of one row */
    gpu_buffer *scored;     /* op_scored [1 + TEMPER_MAX_LOGPROBS]: of the last choice */
    gpu_buffer *surprise;   /* f32 [1]: the negative log-likelihood of the last choice */
    gpu_buffer *row_info;   /* op_row_info [max_rows] */
    gpu_buffer *targets;    /* u32 [groups][64]: what temper_session_score scores */
    gpu_buffer *scores;     /* f32 [groups][64] */
    op_row_info *host_rows; /* [max_rows] */
    uint32_t *timeline;     /* [context]: the ids whose keys and values are cached */
    uint32_t cached;
    token_list answer;
    temper_logprob *logprobs; /* [logprob_capacity] behind the last result */
    size_t logprob_capacity;
};

/* What a chunk of a prompt is followed by. */
typedef struct session_end {
    const temper_request *choose; /* choose the next id after the last chunk */
    bool logits;                  /* read the last row's logits back after the last chunk */
} session_end;

/* Checks a prompt and drops from the timeline what it does not share. At least `recompute` of its
 * last ids are computed anew. Returns through *start where to begin. */
temper_status session_align(temper_session *s, temper_tokens prompt, size_t recompute,
                            uint32_t *start, error *err);

/* Queues the positions of `rows` rows from `first` on, and the step over them. */
temper_status session_write_rows(temper_session *s, uint32_t first, uint32_t rows, error *err);
model_step session_step(const temper_session *s, uint32_t first, uint32_t rows);

/* Computes the prompt from `start` on. One chunk is submitted while the one before it runs; *last
 * is the ticket of the final chunk, still to be waited for. *stopped: on_prompt asked to stop, and
 * no ticket is left. */
temper_status session_prefill(temper_session *s, const temper_request *request, uint32_t start,
                              const session_end *end, gpu_ticket *last, bool *stopped, error *err);

/* Records the choice of the id at `position` from the first logits row, and its way back to the
 * host. */
void session_record_choice(temper_session *s, gpu_recorder *rec, const temper_request *request,
                           uint32_t position);

#endif
