/*
 * texts.h - what the tests of batches and of speculation share: requests, what came of them, and
 * whether two ways of computing gave the same text.
 */
#ifndef TEST_SUPPORT_TEXTS_H
#define TEST_SUPPORT_TEXTS_H

#include "support/model_test.h"

enum { REPLY_MOST = 512 };

/* What came of a request. */
typedef struct reply {
    uint32_t ids[REPLY_MOST];
    size_t count, prompt_tokens, reused;
    char text[4096]; /* as the callbacks got it */
    size_t text_length, pieces;
    temper_finish finish;
    temper_status status;
    char failure[TEMPER_ERROR_BYTES];
    uint64_t passes, proposed, accepted;
    temper_logprob logprobs[REPLY_MOST];
    size_t logprob_count;
    unsigned done; /* how often the request ended */
} reply;

/* Of a request's sampling: keeps the tokens of the tiny models away that end an answer. */
extern const temper_logit_bias texts_endless[2];
#define ENDLESS .biases = texts_endless, .bias_count = 2

/* Greedy and drawn, with filters, with penalties, with biases. */
enum { TEXTS_SAMPLINGS = 6 };
extern const temper_sampling texts_samplings[TEXTS_SAMPLINGS];

/* `count` ids below `below` that depend on the seed; free with free(). */
temper_tokens texts_ids(size_t count, uint32_t seed, uint32_t below);

/* An on_text that collects into the reply that is the request's user. */
bool texts_collect(const char *text, size_t length, void *user);

/* Copies a result into a reply, text aside. */
void texts_keep(reply *r, const temper_request *request, const temper_result *result,
                const temper_error *failure);

/* The request, answered by a session: the yardstick. Its callbacks are replaced. */
void texts_alone(temper_session *session, const temper_request *request, reply *out);

/* Who says whether two texts are the same, and how exact the path is. */
typedef struct texts_judge {
    temper_engine *engine;
    temper_session *session; /* computes logits */
    double limit;            /* how far a logit may be off, as a share of the logits' range */
} texts_judge;

/* Fails unless the two replies to the request hold the same tokens and ended alike. They may part
 * where the scores (logits with biases and penalties, over the temperature, with the seed's noise)
 * of the two tokens there are closer than twice the error: kernels for one row and for many round
 * differently, and each side may be off by as much. After that place the texts cannot be compared.
 * Returns how many tokens were. */
size_t texts_same(const texts_judge *judge, const temper_request *request, const reply *a,
                  const reply *b, const char *what);

#endif
