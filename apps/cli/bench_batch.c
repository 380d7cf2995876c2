/*
 * bench_batch.c - answers that are written together.
 */
#include "bench_batch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* A row of the table. */
typedef struct batch_row {
    char test[48];
    double speed, deviation, ms; /* tokens per second, of the median run; its milliseconds */
    uint64_t dispatches, submits, bytes, peak_bytes;
} batch_row;

/* ---- a run ---------------------------------------------------------------------------------- */

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

/* One run: texts of `depth` ids and one more are brought into the cache, then all their answers are
 * written together. A model may end some of them earlier: what came is counted. */
static temper_status run_once(temper_engine *engine, temper_batch *batch, uint32_t count,
                              const bench_batch_options *o, outcome *out,
                              temper_device_stats *before, temper_error *err)
{
    const uint64_t length = o->depth + 1;
    uint32_t *prompts = random_prompts(count, length, temper_engine_info(engine)->vocabulary);
    if (prompts == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for %u prompts", count);
    /* All but the last ids are in the cache then, so that all answers begin in one pass. */
    temper_status status = run(batch, prompts, count, length, 0, out, err);
    *before = temper_device_get_stats(temper_engine_device(engine));
    /* The first tokens end the prompts; those after them are the ones timed. */
    if (status == TEMPER_OK)
        status = run(batch, prompts, count, length, o->tokens + 1, out, err);
    free(prompts);
    if (status == TEMPER_OK && cli_interrupted())
        return error_set(err, TEMPER_STOPPED, "stopped");
    if (status == TEMPER_OK && (out->tokens == 0 || out->seconds <= 0.0))
        return error_set(err, TEMPER_INTERNAL, "%u answers ended at their first token", count);
    return status;
}

/* ---- many runs ------------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of `speeds`, and how far they scatter. */
static void summarise(batch_row *row, double *speeds, size_t count)
{
    double sum = 0.0, squares = 0.0;
    for (size_t i = 0; i < count; i++)
        sum += speeds[i];
    for (size_t i = 0; i < count; i++)
        squares += (speeds[i] - sum / (double)count) * (speeds[i] - sum / (double)count);
    row->deviation = count > 1 ? sqrt(squares / (double)(count - 1)) : 0.0;
    qsort(speeds, count, sizeof *speeds, by_value);
    row->speed = speeds[count / 2];
}

static temper_status measure_runs(temper_engine *engine, temper_batch *batch, uint32_t count,
                                  const bench_batch_options *o, double *speeds, batch_row *row,
                                  temper_error *err)
{
    const temper_device *device = temper_engine_device(engine);
    temper_device_stats before = {0};
    outcome out = {0};
    /* The first run warms up. */
    for (uint64_t i = 0; i <= o->repeats; i++) {
        const temper_status status = run_once(engine, batch, count, o, &out, &before, err);
        if (status != TEMPER_OK)
            return status;
        if (i > 0)
            speeds[i - 1] = (double)out.tokens / out.seconds;
    }
    const temper_device_stats after = temper_device_get_stats(device);
    snprintf(row->test, sizeof row->test, "tg%llux%u", (unsigned long long)o->tokens, count);
    summarise(row, speeds, (size_t)o->repeats);
    row->ms = 1000.0 * (double)count * (double)o->tokens / row->speed;
    row->dispatches = after.dispatches - before.dispatches;
    row->submits = after.submits - before.submits;
    row->bytes = after.live_bytes;
    row->peak_bytes = after.peak_bytes;
    return TEMPER_OK;
}

static temper_status measure(temper_engine *engine, uint32_t count, const bench_batch_options *o,
                             batch_row *row, temper_error *err)
{
    temper_batch *batch = NULL;
    const uint64_t context = o->depth + o->tokens + 2;
    if (context > temper_engine_info(engine)->context)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "the tests need %llu positions, the model was trained for %u",
                         (unsigned long long)context, temper_engine_info(engine)->context);
    const temper_batch_desc desc = {.sequences = count,
                                    .context = (uint32_t)context,
                                    .kv = o->kv,
                                    .positions = count * ((context + 255) / 256 * 256)};
    double *speeds = calloc((size_t)o->repeats, sizeof *speeds);
    if (speeds == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for %llu runs",
                         (unsigned long long)o->repeats);
    temper_status status = temper_batch_open(engine, &desc, &batch, err);
    if (status == TEMPER_OK)
        status = measure_runs(engine, batch, count, o, speeds, row, err);
    temper_batch_close(batch);
    free(speeds);
    return status;
}

/* ---- telling -------------------------------------------------------------------------------- */

static void print_json(const batch_row *rows, size_t count, const char *adapter,
                       const bench_batch_options *o)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(
            list, json_pack("{s:s, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:o, s:o}", "test",
                            rows[i].test, "depth", (json_int_t)o->depth, "tokens_per_second",
                            rows[i].speed, "stddev", rows[i].deviation, "ms", rows[i].ms,
                            "dispatches", (json_int_t)rows[i].dispatches, "submits",
                            (json_int_t)rows[i].submits, "bytes", (json_int_t)rows[i].bytes,
                            "peak_bytes", (json_int_t)rows[i].peak_bytes, "adapter",
                            cli_json_text(adapter, strlen(adapter)), "options",
                            cli_json_text(o->options, strlen(o->options))));
    cli_print_json(list);
}

static void print_text(const batch_row *rows, size_t count, const char *adapter,
                       const bench_batch_options *o)
{
    const bool csv = strcmp(o->format, "csv") == 0;
    char bytes[32];
    if (csv)
        cli_print("test,depth,tokens_per_second,stddev,ms,dispatches,submits,bytes,peak_bytes,"
                  "adapter,options\n");
    else
        cli_print("%s on %s\n\n| test | depth | tok/s of all | +- | of one alone | ms | dispatches "
                  "| submits | peak memory |\n|---|---|---|---|---|---|---|---|---|\n",
                  o->options, adapter);
    for (size_t i = 0; i < count; i++)
        if (csv)
            cli_print("%s,%llu,%.2f,%.2f,%.3f,%llu,%llu,%llu,%llu,\"%s\",\"%s\"\n", rows[i].test,
                      (unsigned long long)o->depth, rows[i].speed, rows[i].deviation, rows[i].ms,
                      (unsigned long long)rows[i].dispatches, (unsigned long long)rows[i].submits,
                      (unsigned long long)rows[i].bytes, (unsigned long long)rows[i].peak_bytes,
                      adapter, o->options);
        else
            cli_print("| %s | %llu | %.1f | %.1f | %.2f x | %.2f | %llu | %llu | %s |\n",
                      rows[i].test, (unsigned long long)o->depth, rows[i].speed, rows[i].deviation,
                      rows[i].speed / rows[0].speed, rows[i].ms,
                      (unsigned long long)rows[i].dispatches, (unsigned long long)rows[i].submits,
                      cli_bytes(rows[i].peak_bytes, bytes));
}

temper_status bench_batch(temper_engine *engine, const bench_batch_options *o, temper_error *err)
{
    const char *adapter = temper_device_name(temper_engine_device(engine));
    const uint32_t counts[2] = {1, o->batch};
    const size_t count = o->batch > 1 ? 2 : 1;
    batch_row rows[2];
    for (size_t i = 0; i < count; i++) {
        const temper_status status = measure(engine, counts[i], o, &rows[i], err);
        if (status != TEMPER_OK)
            return status;
    }
    if (strcmp(o->format, "json") == 0)
        print_json(rows, count, adapter, o);
    else
        print_text(rows, count, adapter, o);
    return TEMPER_OK;
}
