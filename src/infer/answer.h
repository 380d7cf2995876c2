/*
 * answer.h - one answer in the making: from the ids that a model chose to text, until it ends by a
 * token, a stop string, its length, its caller or a failure.
 *
 *     answer a = {0};
 *     temper_status status = answer_begin(&a, engine, &request, context, err);
 *     while (status == TEMPER_OK && !a.ended)
 *         answer_take(&a, next_choice());
 *     answer_result(&a, &result);
 *     answer_close(&a);
 *
 * What goes wrong with one answer ends that answer: it keeps the error, and others go on.
 */
#ifndef TEMPER_INFER_ANSWER_H
#define TEMPER_INFER_ANSWER_H

#include "infer/infer.h"
#include "text/stream.h"

typedef struct answer {
    temper_engine *engine;         /* borrowed */
    const temper_request *request; /* borrowed until the answer has ended */
    text_stream *stream;           /* NULL: no tokenizer, and so no text */
    strbuf text;                   /* to be handed out */
    token_list tokens;             /* chosen so far, without the one that ended the answer */
    temper_logprob *logprobs;      /* [tokens][1 + best], with room for logprob_capacity */
    size_t logprob_capacity;
    uint64_t limit; /* tokens it may have */
    size_t reused;  /* ids of the prompt that were cached */
    bool ended;
    temper_finish finish;
    error failure; /* status TEMPER_OK: none */
    double begun, first_token, done;
    uint64_t passes, proposed, accepted; /* of speculation: see temper_result */
} answer;

/* What a pass chose for one answer. */
typedef struct answer_choice {
    uint32_t id;
    float surprise;          /* with logprobs: its negative log-likelihood */
    const op_scored *scored; /* with logprobs: the id itself, then the best, 1 + best or more */
} answer_choice;

/* TEMPER_BAD_ARGUMENT or TEMPER_CONTEXT_FULL when the request cannot be begun: a value out of
 * range, a prompt that is empty, holds ids that are none or does not fit `context`. */
temper_status answer_check(const temper_engine *engine, const temper_request *request,
                           uint32_t context, error *err);

/* Begins with a request that answer_check accepts. An answer may be begun again once it has ended:
 * it keeps the memory of its lists. */
temper_status answer_begin(answer *a, temper_engine *engine, const temper_request *request,
                           uint32_t context, error *err);

/* Tells how far the prompt is; the caller may end the answer there. */
void answer_progress(answer *a, size_t done);

/* Takes the next token. Nothing happens to an answer that has ended. */
void answer_take(answer *a, const answer_choice *chosen);

/* Ends it: hands out the text that was held back unless it was cancelled. */
void answer_end(answer *a, temper_finish finish);

/* Ends it with an error. */
void answer_fail(answer *a, temper_status status, const char *text);

/* What the caller gets; views into the answer. */
void answer_result(const answer *a, temper_result *out);

/* Frees everything; the answer is all zero then. */
void answer_close(answer *a);

#endif
