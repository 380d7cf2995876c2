/*
 * op_masks.c - the quick cases again under every mask, guard bands on: what other devices lack,
 * with the WebGPU library's bounds checks off and on; and under limits so tight that every grid
 * folds and every weight is split.
 */
#include <assert.h>

#include "gpu/op_common.h"
#include "support/masks.h"

static void under_mask(void **state)
{
    const temper_device_desc desc = test_mask_desc(*state);
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

/* False where the mask only takes away what the adapter does not have: it is another one then. */
static bool takes_something(const device_mask *mask, uint32_t offered)
{
    uint32_t features = 0;

    if (mask->without == NULL || mask->default_limits)
        return true;
    return gpu_features_parse(mask->without, &features, NULL) != TEMPER_OK ||
           (features & offered) != 0;
}

enum { TESTS_MOST = 32 };

/* With an argument: only the mask of that name. */
int main(int argc, char **argv)
{
    struct CMUnitTest tests[TESTS_MOST] = {cmocka_unit_test(tight_limits)};
    gpu_adapter_info first = {0};
    size_t count = 1;
    uint32_t adapters;

    assert(test_mask_count < TESTS_MOST);
    gpu_adapters(&first, 1, &adapters, NULL);
    /* gpu_op has the first, with all that costs more. */
    for (size_t i = argc > 1 ? 0 : 1; i < test_mask_count; i++)
        if (takes_something(&test_masks[i], first.features))
            tests[count++] = (struct CMUnitTest){.name = test_masks[i].name,
                                                 .test_func = under_mask,
                                                 .initial_state = (void *)&test_masks[i]};
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return _cmocka_run_group_tests("gpu_op_masks", tests, count, NULL, NULL);
}
