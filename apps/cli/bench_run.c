#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "profile.h"

enum { MOST_TRIES = 4 }; /* of a run whose clock moved */

void bench_name(const bench_test *test, char text[32])
{
    snprintf(text, 32, "%s%llu", test->kind == BENCH_PROMPT ? "pp" : "tg",
             (unsigned long long)test->tokens);
}

/* `count` ids that no call before gave, so that nothing is reused from one run to the next. */
static temper_tokens random_ids(uint64_t count, uint32_t vocabulary)
{
    static uint32_t calls;
    temper_tokens tokens = {malloc((size_t)(count + 1) * sizeof(uint32_t)), (size_t)count};
    uint32_t state = ++calls * 2654435761u + 12345u;
    for (size_t i = 0; tokens.ids != NULL && i < count; i++) {
        state = state * 1664525u + 1013904223u;
        tokens.ids[i] = (state >> 8) % vocabulary;
    }
    return tokens;
}

/* ---- one run --------------------------------------------------------------------------------- */

/* The ids of a run: what is in the cache before, then the prompt that is timed. An answer needs one
 * id to begin with. */
static temper_tokens ids_of(const bench_place *place, const bench_test *test)
{
    const uint64_t timed = test->kind == BENCH_PROMPT ? test->tokens : 1;
    return random_ids(test->depth + timed, temper_engine_info(place->engine)->vocabulary);
}

/* Brings into the cache what is not timed. */
static temper_status fill_cache(const bench_place *place, const bench_test *test, temper_tokens ids,
                                temper_error *err)
{
    temper_result result;
    const size_t count = test->kind == BENCH_PROMPT ? (size_t)test->depth : ids.count;
    if (count == 0)
        return TEMPER_OK;
    const temper_request request = {.prompt = {ids.ids, count}, .no_tokens = true};
    return temper_session_generate(place->session, &request, &result, err);
}

/* What is timed. */
static temper_status run(const bench_place *place, const bench_test *test, temper_tokens ids,
                         double *seconds, temper_error *err)
{
    temper_result result;
    const bool prompt = test->kind == BENCH_PROMPT;
    /* The first token ends the prompt; those after it are the ones timed. */
    const temper_request request = {
        .prompt = ids, .no_tokens = prompt, .max_tokens = prompt ? 0 : test->tokens + 1};
    temper_status status = temper_session_generate(place->session, &request, &result, err);
    if (status != TEMPER_OK)
        return status;
    *seconds = prompt ? result.prompt_seconds : result.decode_seconds;
    if (!prompt && result.token_count != test->tokens + 1)
        return error_set(err, TEMPER_INTERNAL, "%zu tokens came out instead of %llu",
                         result.token_count, (unsigned long long)test->tokens + 1);
    return TEMPER_OK;
}

/* ---- many runs ------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void summarise(bench_row *row, double *seconds, size_t count)
{
    const double tokens = (double)row->test.tokens;
    double sum = 0.0, squares = 0.0;
    for (size_t i = 0; i < count; i++)
        sum += tokens / seconds[i];
    const double mean = sum / (double)count;
    for (size_t i = 0; i < count; i++)
        squares += (tokens / seconds[i] - mean) * (tokens / seconds[i] - mean);
    row->deviation = count > 1 ? sqrt(squares / (double)(count - 1)) : 0.0;
    qsort(seconds, count, sizeof *seconds, by_value);
    row->ms = 1000.0 * seconds[count / 2];
    row->speed = tokens / seconds[count / 2];
}

/* What one run cost, from the device's counters before and after it. */
static void count_work(const bench_place *place, bench_row *row, const temper_device_stats *before,
                       double seconds)
{
    const temper_device_stats now = temper_device_get_stats(temper_engine_device(place->engine));
    double operations[GPU_UNITS], all = 0.0;
    const double bytes = (double)(now.work_bytes - before->work_bytes);
    for (uint32_t unit = 0; unit < GPU_UNITS; unit++) {
        operations[unit] = (double)(now.work_operations[unit] - before->work_operations[unit]);
        all += operations[unit];
    }
    row->dispatches = now.dispatches - before->dispatches;
    row->submits = now.submits - before->submits;
    row->bytes = now.live_bytes;
    row->peak_bytes = now.peak_bytes;
    row->gbps = bytes / seconds * 1e-9;
    row->tflops = all / seconds * 1e-12;
    row->share = check_peak_seconds(place->peak, bytes, operations) / seconds;
}

/* A run between two canaries: again where the card's clock moved meanwhile. */
static temper_status run_steadily(const bench_place *place, const bench_test *test, double *seconds,
                                  temper_device_stats *before, bool *steady, temper_error *err)
{
    temper_status status = TEMPER_OK;
    *steady = false;
    for (uint32_t i = 0; status == TEMPER_OK && !*steady && i < MOST_TRIES && !cli_interrupted();
         i++) {
        bool up = false, still = false;
        temper_tokens ids = ids_of(place, test);
        if (ids.ids == NULL)
            return error_set(err, TEMPER_NO_MEMORY, "no memory for a prompt");
        status = fill_cache(place, test, ids, err);
        if (status == TEMPER_OK)
            status = check_canary_await(place->canary, &up, err);
        *before = temper_device_get_stats(temper_engine_device(place->engine));
        if (status == TEMPER_OK)
            status = run(place, test, ids, seconds, err);
        free(ids.ids);
        if (status == TEMPER_OK)
            status = check_canary_look(place->canary, &still, err);
        *steady = up && still;
    }
    return status;
}

temper_status bench_measure(const bench_place *place, const bench_test *test, bench_row *row,
                            temper_error *err)
{
    double seconds[BENCH_MAX_REPEATS], once = 0.0;
    temper_device_stats before = {0};
    *row = (bench_row){.test = *test, .steady = true};
    for (uint64_t i = 0; i <= place->repeats && !cli_interrupted(); i++) {
        bool steady = false;
        const temper_status status = run_steadily(place, test, &once, &before, &steady, err);
        if (status != TEMPER_OK)
            return status;
        if (i == 0) /* to warm up */
            continue;
        seconds[i - 1] = once;
        row->steady = row->steady && steady;
    }
    if (cli_interrupted())
        return error_set(err, TEMPER_STOPPED, "stopped");
    summarise(row, seconds, (size_t)place->repeats);
    count_work(place, row, &before, row->ms * 1e-3);
    return TEMPER_OK;
}

temper_status bench_profile(const bench_place *place, const bench_test *test, temper_error *err)
{
    temper_device *device = temper_engine_device(place->engine);
    char title[96], name[32];
    double seconds = 0.0;
    temper_tokens ids = ids_of(place, test);
    if (ids.ids == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for a prompt");
    bench_name(test, name);
    snprintf(title, sizeof title, "%s at depth %llu", name, (unsigned long long)test->depth);
    temper_status status = fill_cache(place, test, ids, err);
    if (status == TEMPER_OK)
        status = profile_begin(device, err);
    if (status == TEMPER_OK)
        status = run(place, test, ids, &seconds, err);
    free(ids.ids);
    if (status != TEMPER_OK)
        return status;
    /* With the token that ends the prompt. */
    const uint64_t steps = test->kind == BENCH_PROMPT ? 1 : test->tokens + 1;
    return profile_end(device, title, steps, place->peak, err);
}

/* ---- is what comes out right? ---------------------------------------------------------------- */

/* The logits after `ids`, row by row, from an empty cache. */
static temper_status stepwise(const bench_place *place, temper_tokens ids, float *logits,
                              temper_error *err)
{
    const uint32_t vocabulary = temper_engine_info(place->engine)->vocabulary;
    /* Another first id forgets what was computed before. */
    uint32_t other = (ids.ids[0] + 1) % vocabulary;
    temper_status status =
        temper_session_logits(place->session, (temper_tokens){&other, 1}, logits, err);
    for (size_t n = 1; status == TEMPER_OK && n <= ids.count; n++)
        status = temper_session_logits(place->session, (temper_tokens){ids.ids, n}, logits, err);
    return status;
}

/* Of the largest logit. Operands of f16 are off by 1.4e-4 each, and every layer adds to it. Bytes
 * are off by 30 times as much, and the order of a sum decides which of two an input becomes: 2.4e-2
 * over the 30 layers of SmolLM2-135M. */
static double limit_of(const temper_model_info *info)
{
    if (info->lossy != TEMPER_LOSSY_NONE)
        return 1e-1;
    return strcmp(info->products, "f16") == 0 ? 2e-2 : 1e-3;
}

static temper_status compare(const bench_place *place, const float *whole, const float *stepped,
                             temper_error *err)
{
    const temper_model_info *info = temper_engine_info(place->engine);
    double worst = 0.0, largest = 0.0;
    for (uint32_t i = 0; i < info->vocabulary; i++) {
        const double difference = fabs((double)whole[i] - (double)stepped[i]);
        if (!isnan(worst) && !(difference <= worst)) /* a NaN stays */
            worst = difference;
        largest = fmax(largest, fabs((double)whole[i]));
    }
    const double limit = limit_of(info);
    if (worst <= limit * largest && largest > 0.0)
        return TEMPER_OK;
    return error_set(err, TEMPER_NOT_FINITE,
                     "the device computes wrongly, so no speed is told: a prompt read at once and "
                     "row by row differ by %g, the largest logit is %g",
                     worst, largest);
}

temper_status bench_check(const bench_place *place, temper_error *err)
{
    const uint32_t vocabulary = temper_engine_info(place->engine)->vocabulary;
    temper_tokens ids = random_ids(48, vocabulary);
    float *whole = malloc(vocabulary * sizeof *whole),
          *stepped = malloc(vocabulary * sizeof *stepped);
    temper_status status = TEMPER_OK;
    if (ids.ids == NULL || whole == NULL || stepped == NULL)
        status = error_set(err, TEMPER_NO_MEMORY, "no memory for a check");
    if (status == TEMPER_OK)
        status = temper_session_logits(place->session, ids, whole, err);
    if (status == TEMPER_OK)
        status = stepwise(place, ids, stepped, err);
    if (status == TEMPER_OK)
        status = compare(place, whole, stepped, err);
    free(ids.ids);
    free(whole);
    free(stepped);
    return status;
}
