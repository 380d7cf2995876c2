/*
 * op_masks.c - the quick cases again with what other devices lack: no f16, no subgroups, no
 * immediates, WebGPU's default limits with the bounds checks on; and limits so tight that every
 * grid folds and every weight is split.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gpu/op_common.h"

enum { LIMITS = 16, LIMIT_BYTES = 80 };

static void default_limits(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t value;
    } table[] = {
#define X(field, name, initial, higher) {name, initial},
        GPU_LIMIT_TABLE(X)
#undef X
    };
    char text[LIMITS][LIMIT_BYTES];
    const char *limits[LIMITS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strncmp(table[i].name, "max", 3) == 0) {
            snprintf(text[count], LIMIT_BYTES, "%s=%" PRIu64, table[i].name, table[i].value);
            limits[count] = text[count];
            count++;
        }
    const temper_device_desc desc = {
        .without = "f16,subgroups,subgroup-matrix,immediates",
        .limits = limits,
        .limit_count = count,
        .robust = true,
    };
    run_cases(&desc, true, CHECK_QUICK);
}

static void tight_limits(void **state)
{
    (void)state;
    static const char *const limits[] = {"maxComputeWorkgroupsPerDimension=1031",
                                         "maxStorageBufferBindingSize=20971520"};
    const temper_device_desc desc = {.limits = limits, .limit_count = 2};
    run_cases(&desc, false, CHECK_QUICK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(default_limits),
                                       cmocka_unit_test(tight_limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
