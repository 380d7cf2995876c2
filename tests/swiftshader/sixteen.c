/*
 * sixteen.c - the default model on a second software driver with other limits (no f16, subgroups of
 * 4, 256 invocations): a prompt of sixteen tokens and the first words of its answer.
 */
#include "support/model_test.h"

static void sixteen_tokens(void **state)
{
    (void)state;
    temper_error err = {0};
    temper_session *session = NULL;
    temper_device *device = test_device(&test_masks[0]);
    temper_engine *engine = test_engine(device, test_default_model(), 0);
    assert_ok(temper_session_open(engine, &(temper_session_desc){.context = 256}, &session, &err));
    test_smollm2_prompt(engine, session, "sixteen", 8);
    temper_session_close(session);
    temper_engine_close(engine);
    temper_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sixteen_tokens)};
    return cmocka_run_group_tests_name("swiftshader_sixteen", tests, NULL, NULL);
}
