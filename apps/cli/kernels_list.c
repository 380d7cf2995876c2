/*
 * kernels_list.c - `temper kernels list`: the rows of every op's table, and with --shape which of
 * them computes what, and why.
 */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "check/choice.h"
#include "kernels.h"

static struct list_options {
    text_list shapes;
    bool json;
} opt;

static const option list_options[] = {
    {"--shape", OPTION_LIST, &opt.shapes, "M,N,K,TYPE",
     "which row takes M rows times a weight [N, K], and why (repeatable)"},
    {"--json", OPTION_FLAG, &opt.json, NULL, "one JSON object a row"},
    {NULL, OPTION_FLAG, NULL, NULL, NULL},
};

static const option *const tables[] = {list_options, cli_device_options, NULL};

static bool name_wanted(const char *op, const char *row, const char *kernel,
                        const char *const *patterns)
{
    const size_t count = kernels_count(patterns);
    bool wanted = count == 0;
    for (size_t i = 0; i < count; i++)
        wanted = wanted || fnmatch(patterns[i], op, 0) == 0 ||
                 fnmatch(patterns[i], kernel, 0) == 0 || fnmatch(patterns[i], row, 0) == 0;
    return wanted;
}

/* A name that nothing has is told, and not passed over because another one was found. */
static int check_patterns(gpu_device *device, const char *const *patterns)
{
    check_row row;
    for (size_t k = 0; k < kernels_count(patterns); k++) {
        const char *const one[MOST_PATTERNS] = {patterns[k]};
        bool found = false;
        for (uint32_t i = 0; !found && check_row_at(device, i, &row); i++)
            found = name_wanted(row.op, row.row, row.kernel, one);
        if (!found)
            return cli_usage_error("kernels list", "no op, row or kernel is called \"%.200s\"",
                                   patterns[k]);
    }
    return 0;
}

/* ---- rows ------------------------------------------------------------------------------------ */

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

static void list_rows(gpu_device *device, const char *const *patterns)
{
    check_row row;
    for (uint32_t i = 0; check_row_at(device, i, &row); i++) {
        char needs[128], reason[200];
        if (!name_wanted(row.op, row.row, row.kernel, patterns))
            continue;
        feature_names(row.features, needs, sizeof needs);
        check_row_reason(device, i, reason, sizeof reason);
        if (opt.json)
            cli_print_json(json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:b, s:s, s:s}", "name",
                                     row.kernel, "op", row.op, "row", row.row, "kernel", row.kernel,
                                     "needs", needs, "invocations", (json_int_t)row.invocations,
                                     "workgroup_memory", (json_int_t)row.workgroup_memory, "runs",
                                     row.runs, "reason", reason, "why", row.why));
        else
            cli_print("%-12s %-14s %s%s%s%s%s\n    %s\n", row.op, row.row,
                      row.runs ? "runs" : "does not run here", reason[0] == '\0' ? "" : ": ",
                      reason, needs[0] == '\0' || !row.runs ? "" : ", needs ",
                      row.runs ? needs : "", row.why);
    }
}

/* ---- choices --------------------------------------------------------------------------------- */

static temper_status list_choices(gpu_device *device, const char *text, const char *const *patterns,
                                  temper_error *err)
{
    check_shape shape;
    check_choice c;
    temper_status status = check_shape_parse(text, &shape, err);
    if (status == TEMPER_OK)
        status = check_shape_allow(device, cli_device.exact, cli_lossy(), &shape, err);
    if (status == TEMPER_OK)
        status = check_shape_allow_attention(device, cli_device.exact, &shape, err);
    if (status != TEMPER_OK)
        return status;
    const char *self = cli_device.exact ? "not asked for (--exact)"
                       : shape.half     ? "passed"
                                        : "f16 products are not allowed here";
    if (!opt.json)
        cli_print("%s on %s; self-check of f16 products: %s\n", text,
                  gpu_device_adapter(device)->name, self);
    for (uint32_t i = 0; check_choice_at(device, &shape, i, &c); i++) {
        if (!name_wanted(c.op, c.row, c.kernel, patterns))
            continue;
        if (opt.json)
            cli_print_json(json_pack("{s:s, s:s, s:s, s:s, s:s, s:b, s:s, s:s}", "name", c.kernel,
                                     "op", c.op, "row", c.row, "kernel", c.kernel, "shape", text,
                                     "chosen", c.chosen, "reason", c.reason, "self_check", self));
        else
            cli_print("  %s %-13s %-15s %s\n", c.chosen ? "->" : "  ", c.op, c.row, c.reason);
    }
    return TEMPER_OK;
}

int kernels_list(int argc, char **argv)
{
    const char *patterns[MOST_PATTERNS + 1] = {NULL};
    int code;
    if (!kernels_options("kernels list", "temper kernels list [NAME ...] [OPTIONS]",
                         "Lists the rows of every op's table: which kernel, what it needs, whether "
                         "it runs on this device. With --shape: which row computes the shape, and "
                         "why none of the others does: features and limits, the shape, the "
                         "self-check, or the times of `temper kernels tune`.",
                         argc, argv, tables, patterns, MOST_PATTERNS, &code))
        return code;
    temper_error err = {0};
    gpu_device *device = NULL;
    const temper_device_desc desc = cli_device_desc(true);
    for (size_t i = 0; i < opt.shapes.count; i++) {
        check_shape shape;
        if (check_shape_parse(opt.shapes.items[i], &shape, &err) != TEMPER_OK)
            return cli_usage_error("kernels list", "%s", err.text);
    }
    temper_status status = check_open(&desc, false, &device, &err);
    code = status == TEMPER_OK ? check_patterns(device, patterns) : 0;
    if (status == TEMPER_OK && code == 0 && opt.shapes.count == 0)
        list_rows(device, patterns);
    for (size_t i = 0; status == TEMPER_OK && code == 0 && i < opt.shapes.count; i++)
        status = list_choices(device, opt.shapes.items[i], patterns, &err);
    gpu_device_release(device);
    if (status != TEMPER_OK)
        return cli_fail("kernels list", &err);
    return code != 0 ? code : cli_finish("kernels list");
}
