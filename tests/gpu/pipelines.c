/*
 * pipelines.c - every kernel compiles, with parameters as immediates and in a buffer, with bounds
 * checks and without: what no case of an op reaches, another WebGPU library's compiler must take
 * all the same. Kernels that need what the device lacks are left out by name.
 */
#include "gpu/device_common.h"

#include "kernels/kernels.gen.h"
#include "support/skip.h"

/* Returns true when the device has what the kernel needs. */
static bool can_run(gpu_device *device, const gpu_kernel *kernel)
{
    const uint32_t missing = kernel->needs & ~gpu_device_features(device);
    char reason[128] = "needs";

    for (uint32_t bit = 1; bit != 0 && bit <= missing; bit <<= 1)
        if (missing & bit) {
            const size_t used = strlen(reason);
            snprintf(reason + used, sizeof reason - used, " %s",
                     gpu_feature_name((gpu_feature)bit));
        }
    if (missing != 0)
        test_skipped_case("kernel", kernel->name, reason);
    return missing == 0;
}

static void every_kernel(uint32_t without, bool robust)
{
    gpu_device *device =
        open_device(&(gpu_device_desc){.without_features = without, .robust = robust});
    uint32_t wrong = 0, compiled = 0;

    for (uint32_t i = 0; kernel_list[i] != NULL; i++) {
        error failure = {0};
        if (!can_run(device, kernel_list[i]))
            continue;
        gpu_pipeline_get(device, kernel_list[i], NULL);
        if (gpu_pipelines_wait(device, &failure) != TEMPER_OK) {
            print_error("%s\n", failure.text);
            wrong++;
        }
        compiled++;
    }
    assert_true(compiled > 20);
    assert_int_equal(wrong, 0);
    gpu_device_release(device);
}

static void as_it_is(void **state)
{
    (void)state;
    every_kernel(0, false);
}

static void with_bounds_checks(void **state)
{
    (void)state;
    every_kernel(0, true);
}

static void without_immediates(void **state)
{
    (void)state;
    every_kernel(GPU_FEATURE_IMMEDIATES, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_it_is),
        cmocka_unit_test(with_bounds_checks),
        cmocka_unit_test(without_immediates),
    };
    return cmocka_run_group_tests_name("gpu_pipelines", tests, print_adapter, NULL);
}
