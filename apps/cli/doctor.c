/*
 * doctor.c - `temper doctor`: what there is to compute on, and whether it computes right.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "check/check.h"
#include "cli.h"

enum { MAX_ADAPTERS = 16 };

static bool as_json;

static const option doctor_options[] = {
    {"--json", OPTION_FLAG, &as_json, NULL,
     "one JSON object: webgpu, adapters, device, rows, self_test"},
    {NULL, OPTION_FLAG, NULL, NULL, NULL},
};

static const option *const tables[] = {doctor_options, cli_device_options, NULL};

static json_t *limits_json(const temper_adapter *adapter)
{
    json_t *limits = json_object();
    for (uint32_t i = 0; i < adapter->limit_count; i++)
        json_object_set_new(limits, adapter->limits[i].name,
                            json_integer((json_int_t)adapter->limits[i].value));
    return limits;
}

static json_t *adapter_json(const temper_adapter *a)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:b, s:s, s:o}", "name", a->name,
                     "driver", a->driver, "backend", a->backend, "type", a->type, "features",
                     a->features, "subgroup_min", (int)a->subgroup_min, "subgroup_max",
                     (int)a->subgroup_max, "usable", a->usable, "reason", a->reason, "limits",
                     limits_json(a));
}

static void print_adapter(const char *title, const temper_adapter *a)
{
    cli_print("%s%s (%s, %s)\n", title, a->name, a->backend, a->type);
    if (a->driver[0] != '\0')
        cli_print("    driver     %s\n", a->driver);
    if (!a->usable) {
        cli_print("    not usable: %s\n", a->reason);
        return;
    }
    cli_print("    features   %s\n", a->features[0] == '\0' ? "(none)" : a->features);
    if (a->subgroup_max > 0)
        cli_print("    subgroups  %u to %u lanes\n", a->subgroup_min, a->subgroup_max);
}

/* Of each op so many quick cases, spread over all of them: a self-test is to end soon on a CPU too,
 * which compiles every kernel first. `temper kernels test` has the others. */
enum { CASES_OF_AN_OP = 16 };

static bool is_quick(uint32_t i, const char *op)
{
    const check_case c = check_case_at(i);
    return strcmp(c.op, op) == 0 && c.cost == CHECK_QUICK;
}

static temper_status run_case(gpu_device *device, uint32_t i, uint32_t *run, uint32_t *wrong,
                              temper_error *err)
{
    const check_case c = check_case_at(i);
    check_result result = {0};
    const temper_status status = check_run(device, i, NULL, &result, err);
    if (status != TEMPER_OK)
        return status;
    (*run)++;
    if (!result.ok) {
        (*wrong)++;
        fprintf(stderr, "temper doctor: %s/%s is wrong by %g, more than %g %s\n", c.op, c.name,
                result.error, result.limit, result.detail);
    }
    return TEMPER_OK;
}

static temper_status test_op(gpu_device *device, const char *op, uint32_t *run, uint32_t *wrong,
                             temper_error *err)
{
    const uint32_t count = check_case_count();
    uint32_t quick = 0, seen = 0;
    for (uint32_t i = 0; i < count; i++)
        quick += is_quick(i, op);
    for (uint32_t i = 0; i < count && !cli_interrupted(); i++) {
        if (!is_quick(i, op))
            continue;
        const bool taken = quick <= CASES_OF_AN_OP ||
                           seen * CASES_OF_AN_OP / quick != (seen + 1) * CASES_OF_AN_OP / quick;
        const temper_status status = taken ? run_case(device, i, run, wrong, err) : TEMPER_OK;
        if (status != TEMPER_OK)
            return status;
        seen++;
    }
    return TEMPER_OK;
}

/* Runs cases of every op on the device; counts them, and those that were wrong. */
static temper_status self_test(gpu_device *device, uint32_t *run, uint32_t *wrong,
                               temper_error *err)
{
    for (uint32_t i = 0; i < check_case_count() && !cli_interrupted(); i++) {
        const check_case c = check_case_at(i);
        bool known = false;
        for (uint32_t before = 0; before < i && !known; before++)
            known = strcmp(check_case_at(before).op, c.op) == 0;
        const temper_status status = known ? TEMPER_OK : test_op(device, c.op, run, wrong, err);
        if (status != TEMPER_OK)
            return status;
    }
    return TEMPER_OK;
}

static json_t *rows_json(gpu_device *device)
{
    json_t *rows = json_array();
    check_row row;
    for (uint32_t i = 0; check_row_at(device, i, &row); i++)
        json_array_append_new(
            rows, json_pack("{s:s, s:s, s:b}", "op", row.op, "row", row.row, "runs", row.runs));
    return rows;
}

static void print_rows(gpu_device *device)
{
    check_row row;
    cli_print("\nkernel rows\n");
    for (uint32_t i = 0; check_row_at(device, i, &row); i++)
        cli_print("    %-12s %-16s %s\n", row.op, row.row, row.runs ? "runs" : "does not run here");
}

/* The device that the options choose, and its self-test. */
static temper_status examine(const temper_device *device, json_t *report, uint32_t *wrong,
                             temper_error *err)
{
    gpu_device *gpu = NULL;
    temper_adapter chosen;
    uint32_t run = 0;
    temper_device_describe(device, &chosen);
    const temper_device_desc desc = cli_device_desc(false);
    temper_status status = check_open(&desc, true, &gpu, err);
    if (status == TEMPER_OK && !as_json) {
        print_adapter("\nchosen: ", &chosen);
        cli_print("    library    %s\n", temper_webgpu());
        for (uint32_t i = 0; i < chosen.limit_count; i++)
            cli_print("    %-34s %llu\n", chosen.limits[i].name,
                      (unsigned long long)chosen.limits[i].value);
        print_rows(gpu);
        fflush(stdout);
    }
    if (status == TEMPER_OK)
        status = self_test(gpu, &run, wrong, err);
    if (status == TEMPER_OK && as_json) {
        json_object_set_new(report, "device", adapter_json(&chosen));
        json_object_set_new(report, "rows", rows_json(gpu));
        json_object_set_new(report, "self_test",
                            json_pack("{s:i, s:i}", "cases", (int)run, "wrong", (int)*wrong));
    } else if (status == TEMPER_OK) {
        cli_print("\nself-test: %u cases, %u wrong\n", run, *wrong);
    }
    gpu_device_release(gpu);
    return status;
}

int command_doctor(int argc, char **argv)
{
    if (args_want_help(argc, argv, tables))
        return args_help("temper doctor [OPTIONS]",
                         "Lists the adapters, the features and limits of the chosen one, the "
                         "kernel rows they allow,\n"
                         "and computes every op's quick cases against their references.",
                         tables);
    const char *none = NULL;
    const int usage = args_parse("doctor", argc, argv, tables, &none, 0);
    if (usage != 0)
        return usage;
    temper_error err = {0};
    temper_adapter *adapters = calloc(MAX_ADAPTERS, sizeof *adapters);
    uint32_t count = 0, wrong = 0;
    if (adapters == NULL)
        error_set(&err, TEMPER_NO_MEMORY, "no memory for a list of adapters");
    temper_status status =
        adapters == NULL ? err.status : temper_adapters(adapters, MAX_ADAPTERS, &count, &err);
    /* A wrong option is told before anything is shown. */
    temper_device *device = NULL;
    temper_error why = {0};
    if (status == TEMPER_OK && cli_open_device(&device, &why) == TEMPER_BAD_ARGUMENT)
        status = error_set(&err, why.status, "%s", why.text);
    json_t *report = json_pack("{s:s}", "webgpu", temper_webgpu()), *list = json_array();
    for (uint32_t i = 0; status == TEMPER_OK && i < count && i < MAX_ADAPTERS; i++) {
        char title[16];
        snprintf(title, sizeof title, "%u  ", i);
        if (as_json)
            json_array_append_new(list, adapter_json(&adapters[i]));
        else
            print_adapter(title, &adapters[i]);
    }
    json_object_set_new(report, "adapters", list);
    if (status == TEMPER_OK)
        status = device != NULL ? examine(device, report, &wrong, &err)
                                : error_set(&err, why.status, "%s", why.text);
    if (status == TEMPER_OK && as_json && !cli_interrupted())
        cli_print_json(json_incref(report));
    json_decref(report);
    temper_device_release(device);
    free(adapters);
    if (status != TEMPER_OK)
        return cli_fail("doctor", &err);
    if (cli_interrupted())
        return EXIT_INTERRUPTED;
    const int code = cli_finish("doctor");
    return code != 0 ? code : wrong > 0 ? EXIT_FAILED : 0;
}
