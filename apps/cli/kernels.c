/*
 * kernels.c - `temper kernels`: the cases of every op against the double references, and their
 * times. Listing rows is kernels_list.c, choosing them kernels_tune.c.
 */
#include "kernels.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

static struct kernels_options {
    bool json, guard, heavy, fresh;
} opt;

static const option test_options[] = {
    {"--json", OPTION_FLAG, &opt.json, NULL, "one JSON object a case"},
    {"--guard", OPTION_FLAG, &opt.guard, NULL, "look for writes past every buffer"},
    {"--heavy", OPTION_FLAG, &opt.heavy, NULL, "cases that take minutes on a slow device too"},
    {NULL, OPTION_FLAG, NULL, NULL, NULL},
};

static const option bench_options[] = {
    {"--fresh", OPTION_FLAG, &opt.fresh, NULL, "measure the card's peak again"},
    {NULL, OPTION_FLAG, NULL, NULL, NULL},
};

static const option *const test_tables[] = {test_options, cli_device_options, NULL};
static const option *const bench_tables[] = {test_options, bench_options, cli_device_options, NULL};

bool kernels_options(const char *name, const char *usage, const char *about, int argc, char **argv,
                     const option *const *tables, const char **positional, size_t most, int *code)
{
    *code = 0;
    if (args_want_help(argc, argv, tables)) {
        *code = args_help(usage, about, tables);
        return false;
    }
    *code = args_parse(name, argc, argv, tables, positional, most);
    return *code == 0;
}

size_t kernels_count(const char *const *patterns)
{
    size_t count = 0;
    while (count < MOST_PATTERNS && patterns[count] != NULL)
        count++;
    return count;
}

static bool case_wanted(const check_case *c, const char *const *patterns)
{
    const size_t count = kernels_count(patterns);
    bool wanted = count == 0;
    for (size_t i = 0; i < count; i++)
        wanted = wanted || check_matches(c, patterns[i]);
    return wanted;
}

/* A name that nothing has is told, and not passed over because another one was found. */
static int check_patterns(const char *command, const char *const *patterns)
{
    for (size_t k = 0; k < kernels_count(patterns); k++) {
        bool found = false;
        for (uint32_t i = 0; !found && i < check_case_count(); i++) {
            const check_case c = check_case_at(i);
            found = check_matches(&c, patterns[k]);
        }
        if (!found)
            return cli_usage_error(command, "no case is called \"%.200s\"", patterns[k]);
    }
    return 0;
}

/* ---- cases ----------------------------------------------------------------------------------- */

typedef struct tally {
    uint32_t run, failed, left_out, unsteady;
} tally;

/* A number that was not measured is null. */
static void set_number(json_t *row, const char *name, bool there, double value)
{
    json_object_set_new(row, name, there ? json_real(value) : json_null());
}

static void print_case(const check_case *c, const check_result *r)
{
    if (opt.json) {
        json_t *row = json_pack("{s:s, s:s, s:b, s:b, s:f, s:f, s:s}", "name", c->op, "case",
                                c->name, "ok", r->ok, "skipped", r->skipped, "error", r->error,
                                "limit", r->limit, "detail", r->detail);
        set_number(row, "us", r->timed, r->us);
        set_number(row, "gbps", r->timed, r->gbps);
        set_number(row, "tflops", r->timed, r->tflops);
        set_number(row, "share", r->timed && r->share > 0, r->share);
        json_object_set_new(row, "unit",
                            r->timed ? json_string(check_unit_name(r->unit)) : json_null());
        json_object_set_new(row, "steady", r->timed ? json_boolean(r->steady) : json_null());
        cli_print_json(row);
        return;
    }
    char name[256];
    snprintf(name, sizeof name, "%s/%s", c->op, c->name);
    cli_print("%-5s %-60s %.2g of %.2g",
              r->skipped ? "skip"
              : r->ok    ? "ok"
                         : "WRONG",
              name, r->error, r->limit);
    if (r->timed)
        cli_print("  %10.1f us%s %8.1f GB/s %8.3f TFLOP/s %-6s %4.0f %%", r->us,
                  r->steady ? " " : "~", r->gbps, r->tflops, check_unit_name(r->unit),
                  100.0 * r->share);
    cli_print(r->detail[0] == '\0' ? "\n" : "  %s\n", r->detail);
}

static temper_status run_cases(gpu_device *device, const char *const *patterns,
                               const check_timing *timing, tally *t, temper_error *err)
{
    for (uint32_t i = 0; i < check_case_count() && !cli_interrupted() && !cli_output_failed();
         i++) {
        const check_case c = check_case_at(i);
        if (!case_wanted(&c, patterns))
            continue;
        if (c.cost == CHECK_HEAVY && !opt.heavy) {
            t->left_out++;
            continue;
        }
        check_result result = {0};
        const temper_status status = check_run(device, i, timing, &result, err);
        if (status != TEMPER_OK)
            return status;
        t->run++;
        t->failed += result.ok ? 0 : 1;
        t->unsteady += result.timed && !result.steady ? 1 : 0;
        print_case(&c, &result);
        cli_write("", 0);
    }
    return TEMPER_OK;
}

static temper_status run_timed(gpu_device *device, const char *const *patterns, tally *t,
                               temper_error *err)
{
    check_peak peak;
    check_timing timing = {.peak = &peak};
    temper_status status = check_peak_get(device, cli_tune_folder(), opt.fresh, &peak, err);
    if (status == TEMPER_OK)
        status = check_timer_open(device, &timing.timer, err);
    if (status == TEMPER_OK) {
        fprintf(stderr,
                "peak: %.0f GB/s read, %.3g TFLOP/s f32, %.3g TOP/s dot4, %.3g TFLOP/s matrix%s\n",
                peak.read_bytes * 1e-9, peak.operations[GPU_UNIT_F32] * 1e-12,
                peak.operations[GPU_UNIT_DOT4] * 1e-12, peak.operations[GPU_UNIT_MATRIX] * 1e-12,
                peak.steady ? "" : " (the clock moved meanwhile: --fresh measures again)");
        status = run_cases(device, patterns, &timing, t, err);
    }
    check_timer_close(timing.timer);
    return status;
}

static int run_command(const char *command, const char *const *patterns, bool timed)
{
    temper_error err = {0};
    gpu_device *device = NULL;
    tally t = {0};
    /* What runs untuned is what the tables say, wherever it is tested. */
    const temper_device_desc desc = cli_device_desc(timed);
    temper_status status = check_open(&desc, opt.guard, &device, &err);
    int code = 0;
    if (status == TEMPER_OK && (code = check_patterns(command, patterns)) == 0) {
        fprintf(stderr, "on %s\n", gpu_device_adapter(device)->name);
        status = timed ? run_timed(device, patterns, &t, &err)
                       : run_cases(device, patterns, NULL, &t, &err);
    }
    gpu_device_release(device);
    if (status != TEMPER_OK)
        return cli_fail(command, &err);
    if (code != 0)
        return code;
    if (cli_interrupted())
        return EXIT_INTERRUPTED;
    if (!cli_output_failed()) {
        fprintf(stderr, "%u cases, %u wrong", t.run, t.failed);
        if (t.left_out > 0)
            fprintf(stderr, "; %u heavy ones left out (--heavy)", t.left_out);
        if (t.unsteady > 0)
            fprintf(stderr, "; %u marked ~: the card's clock moved meanwhile", t.unsteady);
        fputc('\n', stderr);
    }
    code = cli_finish(command);
    return code != 0 ? code : t.failed > 0 ? EXIT_FAILED : 0;
}

int kernels_test(int argc, char **argv)
{
    const char *patterns[MOST_PATTERNS + 1] = {NULL};
    int code;
    return kernels_options("kernels test", "temper kernels test [PATTERN ...] [OPTIONS]",
                           "Runs the cases of every op against its double-precision reference. "
                           "PATTERN: \"matmul\", \"matmul/q4*\".",
                           argc, argv, test_tables, patterns, MOST_PATTERNS, &code)
               ? run_command("kernels test", patterns, false)
               : code;
}

int kernels_bench(int argc, char **argv)
{
    const char *patterns[MOST_PATTERNS + 1] = {NULL};
    int code;
    return kernels_options(
               "kernels bench", "temper kernels bench [PATTERN ...] [OPTIONS]",
               "The same with times: microseconds, GB/s, TFLOP/s, the unit that multiplies, and "
               "the "
               "share of what the card does at the most (measured once, then kept). A time with ~ "
               "was taken while the card's clock moved.",
               argc, argv, bench_tables, patterns, MOST_PATTERNS, &code)
               ? run_command("kernels bench", patterns, true)
               : code;
}

/* ---- the command ----------------------------------------------------------------------------- */

int command_kernels(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } subcommands[] = {
        {"list", kernels_list},
        {"test", kernels_test},
        {"bench", kernels_bench},
        {"tune", kernels_tune},
    };
    for (size_t i = 0; argc > 0 && i < sizeof subcommands / sizeof subcommands[0]; i++)
        if (strcmp(argv[0], subcommands[i].name) == 0)
            return subcommands[i].run(argc - 1, argv + 1);
    if (argc > 0 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0))
        return args_help("temper kernels list|test|bench|tune [NAME ...] [OPTIONS]",
                         "The kernel library by name: listed, against its reference, timed, and "
                         "chosen by time.",
                         test_tables);
    return cli_usage_error("kernels", "say what: list, test, bench or tune");
}
