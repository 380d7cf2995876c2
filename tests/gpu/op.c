/*
 * op.c - the case list with everything the adapter offers, guard bands on, the library's bounds
 * checks off.
 */
#include "gpu/op_common.h"

static void all_features(void **state)
{
    (void)state;
    const temper_device_desc desc = {0};
    run_cases(&desc, true, CHECK_NORMAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_features)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
