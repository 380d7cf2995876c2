/*
 * bench.h - what the files of `temper bench` share: bench.c reads options and prints, bench_run.c
 * runs prompts and answers, bench_load.c loads.
 */
#ifndef TEMPER_CLI_BENCH_H
#define TEMPER_CLI_BENCH_H

#include "check/check.h"
#include "cli.h"

enum { BENCH_MAX_REPEATS = 1000 };

typedef enum bench_kind { BENCH_PROMPT, BENCH_ANSWER } bench_kind;

/* A test: `tokens` of a prompt or of an answer, with `depth` ids in the cache before. */
typedef struct bench_test {
    bench_kind kind;
    uint64_t tokens, depth;
} bench_test;

typedef struct bench_row {
    bench_test test;
    double speed, deviation, ms;  /* tokens per second, of the median run; its milliseconds */
    uint64_t dispatches, submits; /* of a run */
    uint64_t bytes, peak_bytes;   /* of device memory: alive now, and at the most so far */
    double gbps, tflops;          /* what had to be moved and computed, over the time */
    double share;                 /* of the card's peak */
    bool steady;                  /* the card's clock was up before and after every run */
} bench_row;

/* What tests run on. */
typedef struct bench_place {
    temper_engine *engine;
    temper_session *session;
    check_canary *canary; /* of the same card, from another device on it */
    const check_peak *peak;
    uint64_t repeats;
} bench_place;

/* "pp512", "tg128" into text. */
void bench_name(const bench_test *test, char text[32]);

/* Warms up, then runs a test `repeats` times. */
temper_status bench_measure(const bench_place *place, const bench_test *test, bench_row *row,
                            temper_error *err);

/* One more run with every dispatch timed, for --profile and --trace. */
temper_status bench_profile(const bench_place *place, const bench_test *test, temper_error *err);

/* The logits after a short prompt, computed at once and row by row, agree, and none is NaN: else
 * TEMPER_NOT_FINITE, and no speed may be told. */
temper_status bench_check(const bench_place *place, temper_error *err);

/* ---- loading --------------------------------------------------------------------------------- */

typedef struct bench_load {
    double seconds;          /* from the file to the device, the median of the loads */
    double cold_seconds;     /* the same with nothing of the file in memory; 0: could not be had */
    uint64_t file_bytes;     /* read for it */
    uint64_t host_bytes;     /* that the loader had at the most at one time, a model's rest apart */
    uint64_t resident_bytes; /* of the whole process at the most, libraries and drivers with it */
    uint64_t largest_bytes;  /* the largest tensor in the file */
} bench_load;

/* Loads a model `repeats` times and once cold. */
temper_status bench_load_model(const char *path, uint64_t repeats, bench_load *out,
                               temper_error *err);

#endif
