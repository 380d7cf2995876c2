/*
 * bench_batch.h - the tests of `temper bench --batch`: answers that are written together.
 */
#ifndef TEMPER_CLI_BENCH_BATCH_H
#define TEMPER_CLI_BENCH_BATCH_H

#include "cli.h"

typedef struct bench_batch_result {
    uint64_t tokens;            /* of all answers, without the first of each */
    double seconds;             /* from the first token of all to the last */
    temper_device_stats before; /* when the timed part began */
} bench_batch_result;

/* A batch for so many answers of `context` ids each. */
temper_status bench_batch_open(temper_engine *engine, uint32_t count, uint64_t context,
                               temper_batch **out, temper_error *err);

/* One run: `count` texts of `depth` ids and one more are brought into the cache, then all their
 * answers of `tokens` tokens are written together. A model may end some of them earlier: what came
 * is counted. TEMPER_STOPPED after Ctrl-C. */
temper_status bench_batch_run(temper_engine *engine, temper_batch *batch, uint32_t count,
                              uint64_t depth, uint64_t tokens, bench_batch_result *result,
                              temper_error *err);

#endif
