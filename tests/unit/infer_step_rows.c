/*
 * infer_step_rows.c - how many rows of a prompt are computed at once where nobody says so.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/infer.h"
#include "model/shapes.h"

static model_config shape(const char *name)
{
    model_config config;
    error err = {0};
    assert_int_equal(model_shape_find(name, &config, &err), TEMPER_OK);
    return config;
}

static void a_cpu_and_a_gpu_without_matrices_take_short_steps(void **state)
{
    (void)state;
    const model_config config = shape("llama-1b");
    assert_int_equal(infer_step_rows(true, false, &config), 128);
    assert_int_equal(infer_step_rows(true, true, &config), 128);
    assert_int_equal(infer_step_rows(false, false, &config), 512);
    assert_int_equal(infer_max_rows(NULL, &config, false, 0), 512);
    assert_int_equal(infer_max_rows(NULL, &config, false, 7), 7);
}

static void matrix_units_take_long_steps_that_fit(void **state)
{
    (void)state;
    model_config config = shape("llama-1b");
    assert_int_equal(infer_step_rows(false, true, &config), 2048);
    config = shape("smollm2-135m");
    assert_int_equal(infer_step_rows(false, true, &config), 2048);
    config = shape("llama-8b"); /* 521 MiB for 2048 */
    assert_int_equal(infer_step_rows(false, true, &config), 1024);
    config.ffn *= 64;
    assert_int_equal(infer_step_rows(false, true, &config), 512);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cpu_and_a_gpu_without_matrices_take_short_steps),
        cmocka_unit_test(matrix_units_take_long_steps_that_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
