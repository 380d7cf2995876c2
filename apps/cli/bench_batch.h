/*
 * bench_batch.h - `temper bench --batch N`: answers that are written together.
 */
#ifndef TEMPER_CLI_BENCH_BATCH_H
#define TEMPER_CLI_BENCH_BATCH_H

#include "cli.h"

typedef struct bench_batch_options {
    uint32_t batch;         /* answers at once, 1 to 256 */
    uint64_t tokens, depth; /* of each answer, and in the context before it */
    uint64_t repeats;       /* runs that count, 1 or more */
    temper_kv kv;
    const char *format;  /* "md", "csv" or "json" */
    const char *options; /* what the table says of the model and the device */
} bench_batch_options;

/* Measures one answer alone and `batch` together, and prints a row for each: tokens a second of all
 * together. TEMPER_STOPPED after Ctrl-C. */
temper_status bench_batch(temper_engine *engine, const bench_batch_options *o, temper_error *err);

#endif
