/*
 * bench.c - `temper bench`: how fast a prompt is read and an answer written.
 *
 * Each test runs once to warm up and then `-r` times; tokens per second are the median. The numbers
 * are refused when the device computes wrongly: the prompt's answer, decoded row by row, must be
 * the one computed at once.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "bench_batch.h"
#include "cli.h"

enum { MAX_REPEATS = 1000 };

static struct bench_options {
    const char *shape, *type, *format;
    uint64_t prompt, tokens, depth, repeats, rows, batch;
    temper_kv kv;
    bool profile;
} opt = {.type = "Q4_0", .format = "md", .prompt = 512, .tokens = 128, .repeats = 5, .rows = 512};

static const option bench_options[] = {
    {"--shape", OPTION_TEXT, &opt.shape, "NAME",
     "random weights of a known shape: llama-1b, smollm2-135m, ..."},
    {"--type", OPTION_TEXT, &opt.type, "TYPE", "their type: Q4_0 (default), Q8_0, F16, F32"},
    {"-p", OPTION_COUNT, &opt.prompt, "N", "tokens of the prompt test; 0: none (default 512)"},
    {"-n", OPTION_COUNT, &opt.tokens, "N", "tokens of the generation test; 0: none (default 128)"},
    {"-d", OPTION_COUNT, &opt.depth, "N", "tokens in the context before each test (default 0)"},
    {"-r", OPTION_COUNT, &opt.repeats, "N", "runs that count (default 5)"},
    {"--batch", OPTION_COUNT, &opt.batch, "N",
     "instead: N answers together, beside one alone (1 to 256)"},
    {"--rows", OPTION_COUNT, &opt.rows, "N", "most rows of a prompt at once (default 512)"},
    {"--profile", OPTION_FLAG, &opt.profile, NULL, "time by kernel, to stderr"},
    {"-o", OPTION_TEXT, &opt.format, "FORMAT", "md (default), csv or json"},
    {NULL, OPTION_FLAG, NULL, NULL, NULL},
};

static const option *const tables[] = {bench_options, cli_cache_options, cli_widen_options,
                                       cli_device_options, NULL};

typedef struct bench_row {
    char test[32];
    double speed, deviation, ms; /* tokens per second, of the median run; its milliseconds */
    uint64_t dispatches, submits, bytes, peak_bytes;
} bench_row;

/* `count` ids that differ with `seed`, so that nothing is reused from one run to the next. */
static temper_tokens random_ids(uint64_t count, uint32_t vocabulary, uint32_t seed)
{
    temper_tokens tokens = {malloc((size_t)(count + 1) * sizeof(uint32_t)), (size_t)count};
    uint32_t state = seed * 2654435761u + 12345u;
    for (size_t i = 0; tokens.ids != NULL && i < count; i++) {
        state = state * 1664525u + 1013904223u;
        tokens.ids[i] = (state >> 8) % vocabulary;
    }
    return tokens;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void summarise(bench_row *row, double *seconds, size_t count, uint64_t tokens)
{
    double sum = 0.0, squares = 0.0;
    for (size_t i = 0; i < count; i++) {
        const double speed = (double)tokens / seconds[i];
        sum += speed;
        squares += speed * speed;
    }
    const double mean = sum / (double)count;
    row->deviation =
        count > 1 ? sqrt(fmax(0.0, (squares - sum * mean) / (double)(count - 1))) : 0.0;
    qsort(seconds, count, sizeof *seconds, by_value);
    row->ms = 1000.0 * seconds[count / 2];
    row->speed = (double)tokens / seconds[count / 2];
}

/* One run: `depth` ids are in the cache, then the prompt's `count` or the answer's `count` tokens
 * are timed. */
static temper_status run_once(temper_session *session, const temper_model_info *info,
                              bool prompt_test, uint32_t seed, double *seconds, temper_error *err)
{
    const uint64_t before = opt.depth + (prompt_test ? 0 : 1);
    const uint64_t count = prompt_test ? opt.prompt : opt.tokens;
    temper_tokens ids = random_ids(before + (prompt_test ? count : 0), info->vocabulary, seed);
    temper_result result;
    if (ids.ids == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for a prompt");
    temper_status status = TEMPER_OK;
    if (prompt_test) {
        if (opt.depth > 0)
            status = temper_session_generate(
                session,
                &(temper_request){.prompt = {ids.ids, (size_t)opt.depth}, .no_tokens = true},
                &result, err);
        if (status == TEMPER_OK)
            status = temper_session_generate(
                session, &(temper_request){.prompt = ids, .no_tokens = true}, &result, err);
        *seconds = result.prompt_seconds;
    } else {
        /* The first token ends the prompt; those after it are the ones timed. */
        status = temper_session_generate(
            session, &(temper_request){.prompt = ids, .max_tokens = count + 1}, &result, err);
        *seconds = result.decode_seconds;
        if (status == TEMPER_OK && result.token_count != count + 1)
            status = error_set(err, TEMPER_INTERNAL, "%zu tokens came out instead of %llu",
                               result.token_count, (unsigned long long)count + 1);
    }
    free(ids.ids);
    return status;
}

static temper_status measure(temper_engine *engine, temper_session *session, bool prompt_test,
                             bench_row *row, temper_error *err)
{
    const temper_device *device = temper_engine_device(engine);
    const uint64_t tokens = prompt_test ? opt.prompt : opt.tokens;
    double seconds[MAX_REPEATS];
    snprintf(row->test, sizeof row->test, "%s%llu", prompt_test ? "pp" : "tg",
             (unsigned long long)tokens);
    temper_device_stats before = {0}, after;
    for (uint64_t i = 0; i <= opt.repeats && !cli_interrupted(); i++) {
        double once = 0.0;
        before = temper_device_get_stats(device);
        const temper_status status =
            run_once(session, temper_engine_info(engine), prompt_test, (uint32_t)i + 1, &once, err);
        if (status != TEMPER_OK)
            return status;
        if (i > 0)
            seconds[i - 1] = once;
    }
    if (cli_interrupted())
        return error_set(err, TEMPER_STOPPED, "stopped");
    after = temper_device_get_stats(device);
    summarise(row, seconds, (size_t)opt.repeats, tokens);
    row->dispatches = after.dispatches - before.dispatches;
    row->submits = after.submits - before.submits;
    row->bytes = after.live_bytes;
    row->peak_bytes = after.peak_bytes;
    return TEMPER_OK;
}

/* One more run with every dispatch timed. */
static temper_status profile(temper_engine *engine, temper_session *session, bool prompt_test,
                             temper_error *err)
{
    enum { ROWS = 32 };
    temper_device *device = temper_engine_device(engine);
    temper_profile_row rows[ROWS];
    double seconds = 0.0, sum = 0.0;
    temper_status status = temper_device_profile(device, true, err);
    if (status != TEMPER_OK)
        return status;
    status = run_once(session, temper_engine_info(engine), prompt_test, 777, &seconds, err);
    temper_error ignored = {0};
    const uint32_t count = temper_device_profile_take(device, rows, ROWS);
    temper_device_profile(device, false, &ignored);
    for (uint32_t i = 0; i < count && i < ROWS; i++)
        sum += rows[i].seconds;
    fprintf(stderr, "%s of %llu tokens, by kernel (depth included)\n",
            prompt_test ? "a prompt" : "an answer",
            (unsigned long long)(prompt_test ? opt.prompt : opt.tokens));
    for (uint32_t i = 0; i < count && i < ROWS; i++)
        fprintf(stderr, "  %-24s %8llu dispatches %12.1f us %5.1f %%\n", rows[i].kernel,
                (unsigned long long)rows[i].dispatches, rows[i].seconds * 1e6,
                sum > 0.0 ? 100.0 * rows[i].seconds / sum : 0.0);
    return status;
}

/* The logits after a short prompt, computed at once and row by row, agree; and none is NaN. */
static temper_status check_output(temper_engine *engine, temper_session *session, temper_error *err)
{
    const temper_model_info *info = temper_engine_info(engine);
    temper_tokens ids = random_ids(48, info->vocabulary, 99);
    float *whole = malloc(info->vocabulary * sizeof *whole),
          *stepped = malloc(info->vocabulary * sizeof *stepped);
    temper_status status = TEMPER_OK;
    if (ids.ids == NULL || whole == NULL || stepped == NULL)
        status = error_set(err, TEMPER_NO_MEMORY, "no memory for a check");
    if (status == TEMPER_OK)
        status = temper_session_logits(session, ids, whole, err);
    for (size_t n = 1; status == TEMPER_OK && n <= ids.count; n++) {
        /* Another first id forgets the first computation. */
        const uint32_t first = ids.ids[0];
        if (n == 1) {
            ids.ids[0] = (first + 1) % info->vocabulary;
            status = temper_session_logits(session, (temper_tokens){ids.ids, 1}, stepped, err);
            ids.ids[0] = first;
        }
        if (status == TEMPER_OK)
            status = temper_session_logits(session, (temper_tokens){ids.ids, n}, stepped, err);
    }
    double worst = 0.0, largest = 0.0;
    for (uint32_t i = 0; status == TEMPER_OK && i < info->vocabulary; i++) {
        const double difference = fabs((double)whole[i] - (double)stepped[i]);
        if (!(difference <= worst))
            worst = difference;
        largest = fmax(largest, fabs((double)whole[i]));
    }
    /* Operands of f16 are off by 1.4e-4 each, and every layer adds to it. */
    const double limit = strcmp(info->products, "f16") == 0 ? 2e-2 : 1e-3;
    if (status == TEMPER_OK && !(worst <= limit * largest && largest > 0.0))
        status = error_set(err, TEMPER_NOT_FINITE,
                           "the device computes wrongly, so no speed is told: a prompt read at "
                           "once and row by row "
                           "differ by %g, the largest logit is %g",
                           worst, largest);
    free(ids.ids);
    free(whole);
    free(stepped);
    return status;
}

/* ---- telling -------------------------------------------------------------------------------- */

static void options_text(const temper_engine *engine, const char *path, char *text, size_t size)
{
    snprintf(text, size, "%s%s%s kv=%s products=%s%s%s%s", path != NULL ? path : opt.shape,
             path != NULL ? "" : " ", path != NULL ? "" : opt.type, cli_cache.kv,
             temper_engine_info(engine)->products, cli_device.robust ? " robust" : "",
             cli_device.without != NULL ? " without " : "",
             cli_device.without != NULL ? cli_device.without : "");
}

static void print_rows(const temper_engine *engine, const char *path, const bench_row *rows,
                       size_t count)
{
    char options[512], bytes[32];
    const char *adapter = temper_device_name(temper_engine_device(engine));
    options_text(engine, path, options, sizeof options);
    if (strcmp(opt.format, "json") == 0) {
        json_t *list = json_array();
        for (size_t i = 0; i < count; i++)
            json_array_append_new(
                list, json_pack("{s:s, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:s, s:o}", "test",
                                rows[i].test, "depth", (json_int_t)opt.depth, "tokens_per_second",
                                rows[i].speed, "stddev", rows[i].deviation, "ms", rows[i].ms,
                                "dispatches", (json_int_t)rows[i].dispatches, "submits",
                                (json_int_t)rows[i].submits, "bytes", (json_int_t)rows[i].bytes,
                                "peak_bytes", (json_int_t)rows[i].peak_bytes, "adapter", adapter,
                                "options", cli_json_text(options, strlen(options))));
        cli_print_json(list);
        return;
    }
    const bool csv = strcmp(opt.format, "csv") == 0;
    if (csv)
        cli_print("test,depth,tokens_per_second,stddev,ms,dispatches,submits,bytes,peak_bytes,"
                  "adapter,options\n");
    else
        cli_print(
            "%s on %s\n\n| test | depth | tok/s | +- | ms | dispatches | submits | peak memory |\n"
            "|---|---|---|---|---|---|---|---|\n",
            options, adapter);
    for (size_t i = 0; i < count; i++) {
        if (csv)
            cli_print("%s,%llu,%.2f,%.2f,%.3f,%llu,%llu,%llu,%llu,\"%s\",\"%s\"\n", rows[i].test,
                      (unsigned long long)opt.depth, rows[i].speed, rows[i].deviation, rows[i].ms,
                      (unsigned long long)rows[i].dispatches, (unsigned long long)rows[i].submits,
                      (unsigned long long)rows[i].bytes, (unsigned long long)rows[i].peak_bytes,
                      adapter, options);
        else
            cli_print("| %s | %llu | %.1f | %.1f | %.2f | %llu | %llu | %s |\n", rows[i].test,
                      (unsigned long long)opt.depth, rows[i].speed, rows[i].deviation, rows[i].ms,
                      (unsigned long long)rows[i].dispatches, (unsigned long long)rows[i].submits,
                      cli_bytes(rows[i].peak_bytes, bytes));
    }
}

/* ---- the command ---------------------------------------------------------------------------- */

static temper_status together(temper_engine *engine, const char *path, temper_error *err)
{
    char options[512];
    options_text(engine, path, options, sizeof options);
    const bench_batch_options o = {.batch = (uint32_t)opt.batch,
                                   .tokens = opt.tokens,
                                   .depth = opt.depth,
                                   .repeats = opt.repeats,
                                   .kv = opt.kv,
                                   .format = opt.format,
                                   .options = options};
    return bench_batch(engine, &o, err);
}

static temper_status bench(temper_engine *engine, const char *path, temper_error *err)
{
    temper_session *session = NULL;
    bench_row rows[2];
    size_t count = 0;
    const uint64_t needed = opt.depth + (opt.prompt > opt.tokens + 2 ? opt.prompt : opt.tokens + 2);
    const uint64_t context = needed < 64 ? 64 : needed;
    if (context > temper_engine_info(engine)->context)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "the tests need %llu positions, the model was trained for %u",
                         (unsigned long long)context, temper_engine_info(engine)->context);
    temper_status status = temper_session_open(
        engine, &(temper_session_desc){.context = (uint32_t)context, .kv = opt.kv}, &session, err);
    if (status == TEMPER_OK)
        status = check_output(engine, session, err);
    if (opt.batch > 0) {
        temper_session_close(session);
        return status == TEMPER_OK ? together(engine, path, err) : status;
    }
    if (status == TEMPER_OK && opt.prompt > 0)
        status = measure(engine, session, true, &rows[count++], err);
    if (status == TEMPER_OK && opt.tokens > 0)
        status = measure(engine, session, false, &rows[count++], err);
    if (status == TEMPER_OK && opt.profile && opt.prompt > 0)
        status = profile(engine, session, true, err);
    if (status == TEMPER_OK && opt.profile && opt.tokens > 0)
        status = profile(engine, session, false, err);
    if (status == TEMPER_OK)
        print_rows(engine, path, rows, count);
    temper_session_close(session);
    return status;
}

static int check_usage(void)
{
    const bool known = strcmp(opt.format, "md") == 0 || strcmp(opt.format, "csv") == 0 ||
                       strcmp(opt.format, "json") == 0;
    if (!known)
        return cli_usage_error("bench", "-o is \"%s\"; it must be md, csv or json", opt.format);
    if (opt.repeats < 1 || opt.repeats > MAX_REPEATS)
        return cli_usage_error("bench", "-r is %llu; it must be 1 to %d",
                               (unsigned long long)opt.repeats, MAX_REPEATS);
    if (opt.rows < 1 || opt.rows > 4096)
        return cli_usage_error("bench", "--rows is %llu; it must be 1 to 4096",
                               (unsigned long long)opt.rows);
    if (opt.batch > 256)
        return cli_usage_error("bench", "--batch is %llu; it must be 1 to 256, or 0 for none",
                               (unsigned long long)opt.batch);
    if (opt.batch > 0 && opt.tokens == 0)
        return cli_usage_error("bench", "--batch writes answers: -n must be 1 or more");
    const uint64_t most = 1u << 30;
    if (opt.prompt > most || opt.tokens > most || opt.depth > most)
        return cli_usage_error("bench", "-p, -n and -d must be below %llu",
                               (unsigned long long)most);
    return 0;
}

int command_bench(int argc, char **argv)
{
    if (args_want_help(argc, argv, tables))
        return args_help("temper bench [MODEL | --shape NAME] [OPTIONS]",
                         "Tokens a second of a prompt (ppN) and of an answer (tgN): the median "
                         "run, one run of warm-up "
                         "not\ncounted.",
                         tables);
    const char *given = NULL;
    int usage = args_parse("bench", argc, argv, tables, &given, 1);
    if (usage == 0)
        usage = check_usage();
    if (usage == 0)
        usage = cli_kv("bench", &opt.kv);
    if (usage == 0 && given != NULL && opt.shape != NULL)
        usage = cli_usage_error("bench", "a model and --shape: use one of them");
    if (usage != 0)
        return usage;
    const char *path = opt.shape == NULL ? cli_model_path(given) : NULL;
    if (path == NULL && opt.shape == NULL)
        return EXIT_FAILED;
    cli_catch_interrupt();
    temper_error err = {0};
    temper_device *device = NULL;
    temper_engine *engine = NULL;
    temper_status status = TEMPER_OK;
    if (path != NULL) {
        status = cli_open_engine(path, (uint32_t)opt.rows, &engine, &err);
    } else if ((status = cli_open_device(&device, &err)) == TEMPER_OK) {
        const temper_engine_desc desc = {.shape = opt.shape,
                                         .shape_type = opt.type,
                                         .device = device,
                                         .max_rows = (uint32_t)opt.rows,
                                         .exact = cli_device.exact};
        status = temper_engine_open(&desc, &engine, &err);
        temper_device_release(device);
    }
    if (status == TEMPER_OK)
        status = bench(engine, path, &err);
    temper_engine_close(engine);
    return status != TEMPER_OK ? cli_fail("bench", &err) : cli_finish("bench");
}
