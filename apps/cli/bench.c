/*
 * bench.c - `temper bench`: how fast prompts are read, answers written and models loaded.
 *
 * Each test runs once to warm up and then `-r` times, between looks at the card's clock; tokens per
 * second are the median. The numbers are refused when the device computes wrongly: the prompt's
 * answer, decoded row by row, must be the one computed at once.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "bench_batch.h"
#include "profile.h"

enum { MOST_TESTS = 2 * COUNTS_CAPACITY * COUNTS_CAPACITY };

static struct bench_options {
    const char *shape, *type, *format, *write;
    count_list prompts, tokens, depths;
    uint64_t repeats, rows, batch;
    temper_kv kv;
    bool load, fresh;
} opt = {.type = "Q4_0",
         .format = "md",
         .prompts = {{512}, 1},
         .tokens = {{128}, 1},
         .depths = {{0}, 1},
         .repeats = 5};

static const option bench_options[] = {
    {"--shape", OPTION_TEXT, &opt.shape, "NAME",
     "random weights of a known shape: llama-1b, smollm2-135m, ..."},
    {"--type", OPTION_TEXT, &opt.type, "TYPE", "their type: Q4_0 (default), Q4_K, Q8_0, F16 ..."},
    {"-p", OPTION_COUNTS, &opt.prompts, "N,N,...",
     "tokens of the prompt tests; 0: none (default 512)"},
    {"-n", OPTION_COUNTS, &opt.tokens, "N,N,...",
     "tokens of the generation tests; 0: none (default 128)"},
    {"-d", OPTION_COUNTS, &opt.depths, "N,N,...",
     "tokens in the context before each test (default 0)"},
    {"-r", OPTION_COUNT, &opt.repeats, "N", "runs that count (default 5)"},
    {"--batch", OPTION_COUNT, &opt.batch, "N",
     "instead: N answers together, beside one alone (1 to 256)"},
    {"--rows", OPTION_COUNT, &opt.rows, "N",
     "most rows of a prompt at once (default: by the device)"},
    {"--load", OPTION_FLAG, &opt.load, NULL,
     "time loading too: of the model, or of a file of the shape that is written for it"},
    {"--write", OPTION_TEXT, &opt.write, "FILE",
     "write the shape as a GGUF file, for other engines, and do nothing else"},
    {"--fresh", OPTION_FLAG, &opt.fresh, NULL, "measure the card's peak again"},
    {"-o", OPTION_TEXT, &opt.format, "FORMAT", "md (default), csv or json"},
    {NULL, OPTION_FLAG, NULL, NULL, NULL},
};

static const option *const tables[] = {bench_options,     profile_options,    cli_cache_options,
                                       cli_widen_options, cli_device_options, NULL};

/* What a run of the command found. */
typedef struct bench_report {
    temper_adapter device;
    char options[512];
    check_peak peak;
    bench_row rows[MOST_TESTS];
    size_t count;
    bool loaded;
    bench_load load;
} bench_report;

/* ---- telling --------------------------------------------------------------------------------- */

static void options_text(const temper_engine *engine, const char *path, char *text, size_t size)
{
    const temper_model_info *info = temper_engine_info(engine);
    snprintf(text, size, "%s%s%s kv=%s products=%s%s%s%s%s%s%s", path != NULL ? path : opt.shape,
             path != NULL ? "" : " ", path != NULL ? "" : opt.type, cli_cache.kv, info->products,
             cli_device.exact ? " exact" : "", info->lossy != TEMPER_LOSSY_NONE ? " lossy=" : "",
             temper_lossy_name(info->lossy), cli_device.robust ? " robust" : "",
             cli_device.without != NULL ? " without " : "",
             cli_device.without != NULL ? cli_device.without : "");
}

static json_t *row_json(const bench_report *r, const bench_row *row)
{
    char name[32];
    bench_name(&row->test, name);
    json_t *json =
        json_pack("{s:s, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:I}", "test", name, "depth",
                  (json_int_t)row->test.depth, "tokens_per_second", row->speed, "stddev",
                  row->deviation, "ms", row->ms, "dispatches", (json_int_t)row->dispatches,
                  "submits", (json_int_t)row->submits, "bytes", (json_int_t)row->bytes,
                  "peak_bytes", (json_int_t)row->peak_bytes);
    json_object_set_new(json, "adapter", cli_json_text(r->device.name, strlen(r->device.name)));
    json_object_set_new(json, "options", cli_json_text(r->options, strlen(r->options)));
    json_object_set_new(json, "gbps", json_real(row->gbps));
    json_object_set_new(json, "tflops", json_real(row->tflops));
    json_object_set_new(json, "share", json_real(row->share));
    json_object_set_new(json, "steady", json_boolean(row->steady));
    json_object_set_new(json, "driver", cli_json_text(r->device.driver, strlen(r->device.driver)));
    json_object_set_new(json, "version", json_string(temper_version()));
    return json;
}

static json_t *load_json(const bench_report *r)
{
    const bench_load *l = &r->load;
    json_t *json = json_pack("{s:s, s:f, s:f, s:I, s:I, s:I, s:I}", "test", "load", "ms",
                             l->seconds * 1e3, "gbps", (double)l->file_bytes / l->seconds * 1e-9,
                             "file_bytes", (json_int_t)l->file_bytes, "largest_bytes",
                             (json_int_t)l->largest_bytes, "host_bytes", (json_int_t)l->host_bytes,
                             "resident_bytes", (json_int_t)l->resident_bytes);
    json_object_set_new(json, "cold_ms",
                        l->cold_seconds > 0 ? json_real(l->cold_seconds * 1e3) : json_null());
    json_object_set_new(json, "adapter", cli_json_text(r->device.name, strlen(r->device.name)));
    json_object_set_new(json, "options", cli_json_text(r->options, strlen(r->options)));
    return json;
}

static void print_json(const bench_report *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->count; i++)
        json_array_append_new(list, row_json(r, &r->rows[i]));
    if (r->loaded)
        json_array_append_new(list, load_json(r));
    cli_print_json(list);
}

/* A field of CSV: quotes doubled. */
static void put_field(const char *text)
{
    cli_print("\"");
    for (; *text != '\0'; text++)
        cli_print(*text == '"' ? "\"\"" : "%c", *text);
    cli_print("\"");
}

static void print_csv(const bench_report *r)
{
    cli_print("test,depth,tokens_per_second,stddev,ms,dispatches,submits,bytes,peak_bytes,adapter,"
              "options,gbps,tflops,share,steady\n");
    for (size_t i = 0; i < r->count; i++) {
        const bench_row *row = &r->rows[i];
        char name[32];
        bench_name(&row->test, name);
        cli_print("%s,%llu,%.2f,%.2f,%.3f,%llu,%llu,%llu,%llu,", name,
                  (unsigned long long)row->test.depth, row->speed, row->deviation, row->ms,
                  (unsigned long long)row->dispatches, (unsigned long long)row->submits,
                  (unsigned long long)row->bytes, (unsigned long long)row->peak_bytes);
        put_field(r->device.name);
        cli_print(",");
        put_field(r->options);
        cli_print(",%.3f,%.4f,%.4f,%d\n", row->gbps, row->tflops, row->share, row->steady);
    }
    if (r->loaded) {
        cli_print("load,0,,,%.3f,,,%llu,,", r->load.seconds * 1e3,
                  (unsigned long long)r->load.file_bytes);
        put_field(r->device.name);
        cli_print(",");
        put_field(r->options);
        cli_print(",%.3f,,,\n", (double)r->load.file_bytes / r->load.seconds * 1e-9);
    }
}

static void print_load(const bench_load *l)
{
    char file[32], host[32], largest[32], resident[32];
    cli_print("\nload: %s in %.3f s, %.2f GB/s", cli_bytes(l->file_bytes, file), l->seconds,
              (double)l->file_bytes / l->seconds * 1e-9);
    if (l->cold_seconds > 0)
        cli_print("; %.3f s, %.2f GB/s from the disk", l->cold_seconds,
                  (double)l->file_bytes / l->cold_seconds * 1e-9);
    cli_print("\nhost memory: the loader %s at the most (largest tensor %s), the process %s\n",
              cli_bytes(l->host_bytes, host), cli_bytes(l->largest_bytes, largest),
              cli_bytes(l->resident_bytes, resident));
}

static void print_md(const bench_report *r)
{
    const check_peak *p = &r->peak;
    char bytes[32];
    bool steady = true;
    cli_print("%s on %s\n\n", r->options, r->device.name);
    if (r->count > 0)
        cli_print("| test | depth | tok/s | +- | ms | GB/s | TFLOP/s | share | dispatches | "
                  "submits | peak memory |\n|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < r->count; i++) {
        const bench_row *row = &r->rows[i];
        char name[32];
        bench_name(&row->test, name);
        cli_print("| %s | %llu | %.1f%s | %.1f | %.2f | %.1f | %.3f | %.0f %% | %llu | %llu | %s "
                  "|\n",
                  name, (unsigned long long)row->test.depth, row->speed, row->steady ? "" : "~",
                  row->deviation, row->ms, row->gbps, row->tflops, 100.0 * row->share,
                  (unsigned long long)row->dispatches, (unsigned long long)row->submits,
                  cli_bytes(row->peak_bytes, bytes));
        steady = steady && row->steady;
    }
    if (r->count > 0)
        cli_print("\nshare: of %.0f GB/s read, %.3g TFLOP/s f32, %.3g TOP/s dot4, %.3g TFLOP/s "
                  "matrix%s\n",
                  p->read_bytes * 1e-9, p->operations[GPU_UNIT_F32] * 1e-12,
                  p->operations[GPU_UNIT_DOT4] * 1e-12, p->operations[GPU_UNIT_MATRIX] * 1e-12,
                  p->steady ? "" : " (measured while the clock moved: --fresh measures again)");
    if (!steady)
        cli_print("~: the card's clock moved during a run\n");
    if (r->loaded)
        print_load(&r->load);
}

static void print_report(const bench_report *r)
{
    if (strcmp(opt.format, "json") == 0)
        print_json(r);
    else if (strcmp(opt.format, "csv") == 0)
        print_csv(r);
    else
        print_md(r);
}

/* ---- the tests ------------------------------------------------------------------------------- */

static size_t list_tests(bench_test tests[MOST_TESTS])
{
    size_t count = 0;
    for (size_t d = 0; d < opt.depths.count; d++) {
        for (size_t i = 0; i < opt.prompts.count; i++)
            if (opt.prompts.items[i] > 0)
                tests[count++] =
                    (bench_test){BENCH_PROMPT, opt.prompts.items[i], opt.depths.items[d]};
        for (size_t i = 0; i < opt.tokens.count; i++)
            if (opt.tokens.items[i] > 0)
                tests[count++] =
                    (bench_test){BENCH_ANSWER, opt.tokens.items[i], opt.depths.items[d]};
    }
    return count;
}

/* The context that the longest test needs; the check of the output needs 64. */
static uint64_t context_for(const bench_test *tests, size_t count)
{
    uint64_t most = 64;
    for (size_t i = 0; i < count; i++) {
        const uint64_t own =
            tests[i].depth + tests[i].tokens + (tests[i].kind == BENCH_ANSWER ? 2 : 0);
        most = own > most ? own : most;
    }
    return most;
}

static temper_status run_tests(const bench_place *place, const bench_test *tests, size_t count,
                               bench_report *report, temper_error *err)
{
    temper_status status = bench_check(place, err);
    for (size_t i = 0; status == TEMPER_OK && i < count; i++) {
        char name[32];
        bench_name(&tests[i], name);
        cli_progress("%s at depth %llu", name, (unsigned long long)tests[i].depth);
        status = bench_measure(place, &tests[i], &report->rows[report->count++], err);
        cli_progress_clear();
    }
    for (size_t i = 0; status == TEMPER_OK && profile_wanted() && i < count; i++)
        status = bench_profile(place, &tests[i], err);
    return status == TEMPER_OK ? profile_finish(report->device.name, err) : status;
}

/* The peak, and a clock to look at, from a device of its own on the same card. */
static temper_status with_clock(bench_place *place, const bench_test *tests, size_t count,
                                bench_report *report, temper_error *err)
{
    gpu_device *device = NULL;
    check_timer *timer = NULL;
    const temper_device_desc desc = cli_device_desc(false);
    temper_status status = check_open(&desc, false, &device, err);
    if (status == TEMPER_OK)
        status = check_peak_get(device, cli_tune_folder(), opt.fresh, &report->peak, err);
    if (status == TEMPER_OK)
        status = check_timer_open(device, &timer, err);
    if (status == TEMPER_OK) {
        place->canary = check_timer_canary(timer);
        place->peak = &report->peak;
        status = run_tests(place, tests, count, report, err);
    }
    check_timer_close(timer);
    gpu_device_release(device);
    return status;
}

static temper_status bench(temper_engine *engine, bench_report *report, temper_error *err)
{
    bench_test tests[MOST_TESTS];
    bench_place place = {.engine = engine, .repeats = opt.repeats};
    const size_t count = list_tests(tests);
    const uint64_t context = context_for(tests, count);
    if (count == 0)
        return TEMPER_OK;
    if (context > temper_engine_info(engine)->context)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "the tests need %llu positions, the model was trained for %u",
                         (unsigned long long)context, temper_engine_info(engine)->context);
    temper_status status = temper_session_open(
        engine, &(temper_session_desc){.context = (uint32_t)context, .kv = opt.kv}, &place.session,
        err);
    if (status == TEMPER_OK)
        status = with_clock(&place, tests, count, report, err);
    temper_session_close(place.session);
    return status;
}

/* Answers that are written together, once the output is known to be right. */
static temper_status together(temper_engine *engine, const char *options, temper_error *err)
{
    enum { CHECK_CONTEXT = 64 };
    bench_place place = {.engine = engine};
    temper_status status =
        temper_session_open(engine, &(temper_session_desc){.context = CHECK_CONTEXT, .kv = opt.kv},
                            &place.session, err);
    if (status == TEMPER_OK)
        status = bench_check(&place, err);
    temper_session_close(place.session);
    const bench_batch_options o = {.batch = (uint32_t)opt.batch,
                                   .tokens = opt.tokens.items[0],
                                   .depth = opt.depths.items[0],
                                   .repeats = opt.repeats,
                                   .kv = opt.kv,
                                   .format = opt.format,
                                   .options = options};
    return status == TEMPER_OK ? bench_batch(engine, &o, err) : status;
}

/* ---- loading --------------------------------------------------------------------------------- */

static bool show_writing(uint64_t done, uint64_t total, void *user)
{
    (void)user;
    if (done < total)
        cli_progress("writing %3u%%", (unsigned)((double)done / (double)total * 100.0));
    else
        cli_progress_clear();
    return !cli_interrupted();
}

/* Of the model, or of a file that is written for it and goes after. */
static temper_status load(const char *path, bench_report *report, temper_error *err)
{
    report->loaded = true;
    if (path != NULL)
        return bench_load_model(path, opt.repeats, &report->load, err);
    char made[4096];
    const char *folder = getenv("TMPDIR");
    const int length =
        snprintf(made, sizeof made, "%s/temper-bench-%ld.gguf",
                 folder != NULL && folder[0] != '\0' ? folder : "/tmp", (long)getpid());
    if (length < 0 || (size_t)length >= sizeof made)
        return error_set(err, TEMPER_IO, "TMPDIR is too long for a path in it");
    temper_status status = temper_write_shape(opt.shape, opt.type, made, show_writing, NULL, err);
    if (status != TEMPER_OK)
        return status;
    status = bench_load_model(made, opt.repeats, &report->load, err);
    unlink(made);
    return status;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int check_usage(const char *given)
{
    const bool known = strcmp(opt.format, "md") == 0 || strcmp(opt.format, "csv") == 0 ||
                       strcmp(opt.format, "json") == 0;
    const count_list *lists[] = {&opt.prompts, &opt.tokens, &opt.depths};
    const uint64_t most = 1u << 30;
    if (!known)
        return cli_usage_error("bench", "-o is \"%.200s\"; it must be md, csv or json", opt.format);
    if (opt.repeats < 1 || opt.repeats > BENCH_MAX_REPEATS)
        return cli_usage_error("bench", "-r is %llu; it must be 1 to %d",
                               (unsigned long long)opt.repeats, BENCH_MAX_REPEATS);
    if (opt.rows > 4096)
        return cli_usage_error("bench",
                               "--rows is %llu; it must be 1 to 4096, or 0 for the device's",
                               (unsigned long long)opt.rows);
    if (opt.batch > 256)
        return cli_usage_error("bench", "--batch is %llu; it must be 1 to 256, or 0 for none",
                               (unsigned long long)opt.batch);
    if (opt.batch > 0 && (opt.tokens.count > 1 || opt.depths.count > 1))
        return cli_usage_error("bench", "--batch takes one -n and one -d");
    if (opt.batch > 0 && opt.tokens.items[0] == 0)
        return cli_usage_error("bench", "--batch writes answers: -n must be 1 or more");
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < lists[i]->count; k++)
            if (lists[i]->items[k] > most)
                return cli_usage_error("bench", "-p, -n and -d must be below %llu",
                                       (unsigned long long)most);
    if (given != NULL && opt.shape != NULL)
        return cli_usage_error("bench", "a model and --shape: use one of them");
    if (opt.write != NULL && opt.shape == NULL)
        return cli_usage_error("bench", "--write needs a --shape");
    return 0;
}

/* 0: as the device has it. Each answer of a batch takes a row, and a CPU's steps have fewer rows
 * than there may be answers. */
static uint32_t most_rows(void)
{
    enum { BATCH_ROWS = 512 };
    return opt.rows == 0 && opt.batch > 0 ? BATCH_ROWS : (uint32_t)opt.rows;
}

static temper_status open_engine(const char *path, temper_engine **out, temper_error *err)
{
    temper_device *device = NULL;
    if (path != NULL)
        return cli_open_engine(path, most_rows(), out, err);
    temper_status status = cli_open_device(&device, err);
    if (status != TEMPER_OK)
        return status;
    const temper_engine_desc desc = {.shape = opt.shape,
                                     .shape_type = opt.type,
                                     .device = device,
                                     .max_rows = most_rows(),
                                     .exact = cli_device.exact,
                                     .lossy = cli_lossy()};
    status = temper_engine_open(&desc, out, err);
    temper_device_release(device);
    return status;
}

static temper_status run_all(const char *path, bench_report *report, temper_error *err)
{
    temper_engine *engine = NULL;
    /* Before the tests: what they leave in the process is not the loader's. */
    temper_status status = opt.load ? load(path, report, err) : TEMPER_OK;
    if (status == TEMPER_OK)
        status = open_engine(path, &engine, err);
    if (status == TEMPER_OK) {
        options_text(engine, path, report->options, sizeof report->options);
        temper_device_describe(temper_engine_device(engine), &report->device);
        status =
            opt.batch > 0 ? together(engine, report->options, err) : bench(engine, report, err);
    }
    temper_engine_close(engine);
    return status;
}

int command_bench(int argc, char **argv)
{
    if (args_want_help(argc, argv, tables))
        return args_help(
            "temper bench [MODEL | --shape NAME] [OPTIONS]",
            "Tokens a second of prompts (ppN) and of answers (tgN): the median run, "
            "one run of warm-up not counted, each between two looks at the card's "
            "clock. GB/s and TFLOP/s are what had to be moved and computed, share what "
            "that is of the card's peak. No speed is told when the output is wrong.",
            tables);
    const char *given = NULL;
    int usage = args_parse("bench", argc, argv, tables, &given, 1);
    if (usage == 0)
        usage = check_usage(given);
    if (usage == 0)
        usage = cli_kv("bench", &opt.kv);
    if (usage != 0)
        return usage;
    const char *path = opt.shape == NULL ? cli_model_path(given) : NULL;
    if (path == NULL && opt.shape == NULL)
        return EXIT_FAILED;
    cli_catch_interrupt();
    temper_error err = {0};
    if (opt.write != NULL)
        return temper_write_shape(opt.shape, opt.type, opt.write, show_writing, NULL, &err) ==
                       TEMPER_OK
                   ? cli_finish("bench")
                   : cli_fail("bench", &err);
    bench_report *report = calloc(1, sizeof *report);
    temper_status status = report == NULL
                               ? error_set(&err, TEMPER_NO_MEMORY, "no memory for a report")
                               : run_all(path, report, &err);
    if (status == TEMPER_OK && opt.batch == 0)
        print_report(report);
    free(report);
    return status != TEMPER_OK ? cli_fail("bench", &err) : cli_finish("bench");
}
