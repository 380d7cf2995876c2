/*
 * op_rows.c - kernel rows that a software device leaves alone because they are slower there: each
 * is preferred in turn, so that every row is proved on every machine that has what it needs.
 */
#include "gpu/op_common.h"

#include <string.h>

#include "op/rows.h"

/* Runs the quick cases of the row's op that come to it when it is preferred; returns how many were
 * wrong. Cases of lossy options say themselves which row they are for, and gpu_op runs them. */
static uint32_t run_row(gpu_device *device, const op_table *table, const op_kernel_row *row)
{
    uint32_t wrong = 0, ran = 0, direct = 0;
    const size_t length = strlen(row->name);
    const uint64_t before = op_preferred_choices();
    op_prefer_row(row->name);
    for (uint32_t i = 0; i < check_case_count(); i++) {
        const check_case c = check_case_at(i);
        if (strcmp(c.op, table->op) != 0 || c.cost != CHECK_QUICK ||
            strncmp(c.name, "lossy ", 6) == 0)
            continue;
        /* "steel: q4_f16_32" records that row itself, without a choice. */
        const bool itself = strncmp(c.name, row->name, length) == 0 && c.name[length] == ':';
        const uint64_t choices = op_preferred_choices();
        check_only_preferred(!itself);
        wrong += !run_one(device, i);
        ran += itself || op_preferred_choices() > choices;
        direct += itself;
    }
    check_only_preferred(false);
    op_prefer_row(NULL);
    /* Rows that only a caller's leave opens (16-bit fixed point) have cases of their own, by name.
     */
    for (uint32_t i = 0; i < check_case_count(); i++) {
        const check_case c = check_case_at(i);
        if (strcmp(c.op, "fused") != 0 || strstr(c.name, row->name) == NULL)
            continue;
        wrong += !run_one(device, i);
        ran++;
    }
    const uint64_t chosen = op_preferred_choices() - before;
    print_message("%s, %s: %u cases, chosen %u times, %u wrong\n", table->op, row->name, ran,
                  (unsigned)chosen, wrong);
    if (chosen == 0 && direct == 0)
        fail_msg("%s, %s: no case reaches this row", table->op, row->name);
    return wrong;
}

static void leave_out(const op_table *table, const op_kernel_row *row)
{
    char name[64], why[96];
    snprintf(name, sizeof name, "row %s", row->name);
    snprintf(why, sizeof why, "this device cannot run %s", row->name);
    test_skipped_case(table->op, name, why);
}

static void run_rows(const temper_device_desc *desc)
{
    gpu_device *device;
    error err = {0};
    if (check_open(desc, true, &device, &err) != TEMPER_OK)
        fail_msg("%s", err.text);
    print_message("%s\n", gpu_device_adapter(device)->name);
    uint32_t wrong = 0, rows = 0;
    for (uint32_t t = 0; op_tables[t] != NULL; t++) {
        for (uint32_t r = 0; r < op_tables[t]->count; r++) {
            const op_kernel_row *row = &op_tables[t]->rows[r];
            if (!row->gpu_only)
                continue;
            if (!op_row_runs(device, row)) {
                leave_out(op_tables[t], row);
                continue;
            }
            wrong += run_row(device, op_tables[t], row);
            rows++;
        }
    }
    gpu_device_release(device);
    assert_true(rows >= 5);
    assert_int_equal(wrong, 0);
}

static void with_every_feature(void **state)
{
    (void)state;
    run_rows(&(temper_device_desc){0});
}

static void with_bounds_checks(void **state)
{
    (void)state;
    run_rows(&(temper_device_desc){.robust = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_every_feature),
        cmocka_unit_test(with_bounds_checks),
    };
    return cmocka_run_group_tests_name("gpu_op_rows", tests, NULL, NULL);
}
