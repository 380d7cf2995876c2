/*
 * kernels.c - `temper kernels`: the rows of every op's table, and their cases against the double
 * references.
 */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "check/check.h"
#include "cli.h"

static struct kernels_options {
    bool json, guard, heavy;
} opt;

static const option kernels_options[] = {
    {"--json", OPTION_FLAG, &opt.json, NULL, "one JSON object a row or case"},
    {NULL, OPTION_FLAG, NULL, NULL, NULL},
};

static const option test_options[] = {
    {"--guard", OPTION_FLAG, &opt.guard, NULL, "look for writes past every buffer"},
    {"--heavy", OPTION_FLAG, &opt.heavy, NULL, "cases that take minutes on a slow device too"},
    {NULL, OPTION_FLAG, NULL, NULL, NULL},
};

static const option *const list_tables[] = {kernels_options, cli_device_options, NULL};
static const option *const test_tables[] = {kernels_options, test_options, cli_device_options,
                                            NULL};

static temper_status open_device(gpu_device **out, temper_error *err)
{
    const temper_device_desc desc = {.adapter = cli_device.device,
                                     .without = cli_device.without,
                                     .limits = cli_device.limits.items,
                                     .limit_count = (uint32_t)cli_device.limits.count,
                                     .robust = cli_device.robust};
    return check_open(&desc, opt.guard, out, err);
}

/* ---- list ------------------------------------------------------------------------------------ */

static void feature_names(uint32_t features, char *text, size_t size)
{
    text[0] = '\0';
    for (uint32_t bit = 1; bit != 0 && bit <= features; bit <<= 1) {
        const size_t at = strlen(text);
        if ((features & bit) != 0)
            snprintf(text + at, size - at, "%s%s", at == 0 ? "" : ",",
                     gpu_feature_name((gpu_feature)bit));
    }
}

/* The names or patterns that a call gives; none: everything. */
enum { MOST_PATTERNS = 32 };

static size_t count_of(const char *const *patterns)
{
    size_t count = 0;
    while (count < MOST_PATTERNS && patterns[count] != NULL)
        count++;
    return count;
}

static bool row_wanted(const check_row *row, const char *const *patterns)
{
    const size_t count = count_of(patterns);
    bool wanted = count == 0;
    for (size_t i = 0; i < count; i++)
        wanted = wanted || fnmatch(patterns[i], row->op, 0) == 0 ||
                 fnmatch(patterns[i], row->kernel, 0) == 0 ||
                 fnmatch(patterns[i], row->row, 0) == 0;
    return wanted;
}

static bool case_wanted(const check_case *c, const char *const *patterns)
{
    const size_t count = count_of(patterns);
    bool wanted = count == 0;
    for (size_t i = 0; i < count; i++)
        wanted = wanted || check_matches(c, patterns[i]);
    return wanted;
}

/* A name that nothing has is told, and not passed over because another one was found. */
static int check_patterns(const char *command, gpu_device *device, const char *const *patterns,
                          bool rows)
{
    check_row row;
    for (size_t k = 0; k < count_of(patterns); k++) {
        const char *const one[MOST_PATTERNS] = {patterns[k]};
        bool found = false;
        for (uint32_t i = 0; rows && !found && check_row_at(device, i, &row); i++)
            found = row_wanted(&row, one);
        for (uint32_t i = 0; !rows && !found && i < check_case_count(); i++) {
            const check_case c = check_case_at(i);
            found = case_wanted(&c, one);
        }
        if (!found)
            return cli_usage_error(command, "no %s is called \"%.200s\"",
                                   rows ? "op, row or kernel" : "case", patterns[k]);
    }
    return 0;
}

static int kernels_list(const char *const *patterns)
{
    temper_error err = {0};
    gpu_device *device = NULL;
    if (open_device(&device, &err) != TEMPER_OK)
        return cli_fail("kernels list", &err);
    check_row row;
    const int wrong = check_patterns("kernels list", device, patterns, true);
    for (uint32_t i = 0; wrong == 0 && check_row_at(device, i, &row); i++) {
        char needs[128];
        if (!row_wanted(&row, patterns))
            continue;
        feature_names(row.features, needs, sizeof needs);
        if (opt.json)
            cli_print_json(json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:b, s:s}", "name",
                                     row.kernel, "op", row.op, "row", row.row, "kernel", row.kernel,
                                     "needs", needs, "invocations", (json_int_t)row.invocations,
                                     "workgroup_memory", (json_int_t)row.workgroup_memory, "runs",
                                     row.runs, "why", row.why));
        else
            cli_print("%-12s %-14s %s%s%s\n    %s\n", row.op, row.row,
                      row.runs ? "runs" : "does not run here", needs[0] == '\0' ? "" : ", needs ",
                      needs, row.why);
    }
    gpu_device_release(device);
    return wrong != 0 ? wrong : cli_finish("kernels list");
}

/* ---- test and bench -------------------------------------------------------------------------- */

typedef struct tally {
    uint32_t run, failed, left_out;
} tally;

static void print_case(const check_case *c, const check_result *r, bool timed)
{
    if (opt.json) {
        json_t *row = json_pack("{s:s, s:s, s:b, s:b, s:f, s:f, s:s}", "name", c->op, "case",
                                c->name, "ok", r->ok, "skipped", r->skipped, "error", r->error,
                                "limit", r->limit, "detail", r->detail);
        /* A number that was not measured is null: the peak, and so the share of it, never is yet.
         */
        json_object_set_new(row, "us", timed ? json_real(r->us) : json_null());
        json_object_set_new(row, "gbps", timed ? json_real(r->gbps) : json_null());
        json_object_set_new(row, "tflops", timed ? json_real(r->tflops) : json_null());
        json_object_set_new(row, "share", json_null());
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
    if (timed)
        cli_print("  %10.1f us %8.1f GB/s %8.3f TFLOP/s", r->us, r->gbps, r->tflops);
    cli_print(r->detail[0] == '\0' ? "\n" : "  %s\n", r->detail);
}

static temper_status run_cases(gpu_device *device, const char *const *patterns, bool timed,
                               tally *t, temper_error *err)
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
        const temper_status status = check_run(device, i, timed, &result, err);
        if (status != TEMPER_OK)
            return status;
        t->run++;
        t->failed += result.ok ? 0 : 1;
        print_case(&c, &result, timed);
        cli_write("", 0);
    }
    return TEMPER_OK;
}

static int kernels_test(const char *command, const char *const *patterns, bool timed)
{
    temper_error err = {0};
    gpu_device *device = NULL;
    tally t = {0};
    temper_status status = open_device(&device, &err);
    int code = 0;
    if (status == TEMPER_OK && (code = check_patterns(command, device, patterns, false)) == 0) {
        fprintf(stderr, "on %s\n", gpu_device_adapter(device)->name);
        status = run_cases(device, patterns, timed, &t, &err);
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
        fputc('\n', stderr);
    }
    code = cli_finish(command);
    return code != 0 ? code : t.failed > 0 ? EXIT_FAILED : 0;
}

int command_kernels(int argc, char **argv)
{
    static const char *const names[] = {"list", "test", "bench"};
    static const char *const commands[] = {"kernels list", "kernels test", "kernels bench"};
    static const char *const usages[] = {"temper kernels list [NAME ...] [OPTIONS]",
                                         "temper kernels test [PATTERN ...] [OPTIONS]",
                                         "temper kernels bench [PATTERN ...] [OPTIONS]"};
    static const char *const abouts[] = {"Lists the rows of every op's table: which kernel, what "
                                         "it needs, whether it runs on this device.",
                                         "Runs the cases of every op against its double-precision "
                                         "reference. PATTERN: \"matmul\", \"matmul/q4*\".",
                                         "The same with times: microseconds, GB/s and TFLOP/s."};
    size_t which = 0;
    while (which < 3 && (argc == 0 || strcmp(argv[0], names[which]) != 0))
        which++;
    if (which == 3) {
        const bool help =
            argc > 0 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0);
        if (help)
            return args_help("temper kernels list|test|bench [NAME ...] [OPTIONS]",
                             "The kernel library by name: listed, against its reference, timed.",
                             test_tables);
        return cli_usage_error("kernels", "say what: list, test or bench");
    }
    const option *const *tables = which == 0 ? list_tables : test_tables;
    if (args_want_help(argc - 1, argv + 1, tables))
        return args_help(usages[which], abouts[which], tables);
    const char *patterns[MOST_PATTERNS + 1] = {NULL};
    const int usage =
        args_parse(commands[which], argc - 1, argv + 1, tables, patterns, MOST_PATTERNS);
    if (usage != 0)
        return usage;
    return which == 0 ? kernels_list(patterns)
                      : kernels_test(commands[which], patterns, which == 2);
}
