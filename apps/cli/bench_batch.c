/*
 * bench_batch.c - answers that are written together.
 */
#include "bench_batch.h"

#include <stdlib.h>

#include "base/error.h"

/* What came of all requests of a run. */
typedef struct outcome {
    uint64_t tokens; /* after each answer's first */
    double seconds;  /* of the answer that took the longest, from its first token on */
    temper_error failure;
} outcome;

static void on_done(uint64_t id, const temper_result *result, const temper_error *failure,
                    void *user)
{
    outcome *o = user;
    (void)id;
    if (failure->status != TEMPER_OK) {
        error_set(&o->failure, failure->status, "%s", failure->text);
        return;
    }
    o->tokens += result->token_count > 0 ? result->token_count - 1 : 0;
    o->seconds = result->decode_seconds > o->seconds ? result->decode_seconds : o->seconds;
}

/* `count` prompts of `length` ids, one behind the other, that no call before gave. */
static uint32_t *random_prompts(uint32_t count, uint64_t length, uint32_t vocabulary)
{
    static uint32_t calls;
    const uint64_t ids = count * length;
    uint32_t *all = malloc((size_t)ids * sizeof *all), state = ++calls * 2654435761u + 54321u;
    for (uint64_t i = 0; all != NULL && i < ids; i++) {
        state = state * 1664525u + 1013904223u;
        all[i] = (state >> 8) % vocabulary;
    }
    return all;
}

/* Submits a request for each prompt and steps until all have ended. */
static temper_status run(temper_batch *batch, uint32_t *prompts, uint32_t count, uint64_t length,
                         uint64_t tokens, outcome *o, temper_error *err)
{
    temper_status status = TEMPER_OK;
    bool more = true;
    *o = (outcome){0};
    for (uint32_t i = 0; status == TEMPER_OK && i < count; i++) {
        const temper_request request = {.prompt = {prompts + i * length, (size_t)length},
                                        .no_tokens = tokens == 0,
                                        .max_tokens = tokens,
                                        .user = o};
        status = temper_batch_submit(batch, &request, on_done, NULL, err);
    }
    while (status == TEMPER_OK && more && !cli_interrupted())
        status = temper_batch_step(batch, &more, err);
    if (status == TEMPER_OK && o->failure.status != TEMPER_OK)
        status = error_set(err, o->failure.status, "%s", o->failure.text);
    return status;
}

temper_status bench_batch_open(temper_engine *engine, uint32_t count, uint64_t context,
                               temper_batch **out, temper_error *err)
{
    const temper_batch_desc desc = {.sequences = count,
                                    .context = (uint32_t)context,
                                    .positions = count * ((context + 255) / 256 * 256)};
    return temper_batch_open(engine, &desc, out, err);
}

temper_status bench_batch_run(temper_engine *engine, temper_batch *batch, uint32_t count,
                              uint64_t depth, uint64_t tokens, bench_batch_result *result,
                              temper_error *err)
{
    const uint64_t length = depth + 1;
    outcome o;
    uint32_t *prompts = random_prompts(count, length, temper_engine_info(engine)->vocabulary);
    if (prompts == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for %u prompts", count);
    /* The texts are in the cache but for their last ids, so that all answers begin in one pass. */
    temper_status status = run(batch, prompts, count, length, 0, &o, err);
    result->before = temper_device_get_stats(temper_engine_device(engine));
    /* The first tokens end the prompts; those after them are the ones timed. */
    if (status == TEMPER_OK)
        status = run(batch, prompts, count, length, tokens + 1, &o, err);
    free(prompts);
    result->tokens = o.tokens;
    result->seconds = o.seconds;
    if (status == TEMPER_OK && cli_interrupted())
        return error_set(err, TEMPER_STOPPED, "stopped");
    if (status == TEMPER_OK && (o.tokens == 0 || o.seconds <= 0.0))
        return error_set(err, TEMPER_INTERNAL, "%u answers of %llu tokens were empty", count,
                         (unsigned long long)tokens);
    return status;
}
