/*
 * tools.c - `temper kernels` and `temper doctor`.
 */
#include "support/program.h"

/* Calls `each` with every line of the output, an object; returns how many there were. */
static size_t for_each_line(const char *const *args, void (*each)(const json_t *row))
{
    size_t count = 0;
    program_result r = program_run(args);
    assert_int_equal(r.code, 0);
    for (char *at = r.out; *at != '\0'; count++) {
        const size_t length = strcspn(at, "\n");
        assert_int_equal(at[length], '\n');
        json_t *row = json_loadb(at, length, 0, NULL);
        assert_true(json_is_object(row));
        each(row);
        json_decref(row);
        at += length + 1;
    }
    program_free(&r);
    return count;
}

static void check_row(const json_t *row)
{
    static const char *const fields[] = {"name", "op", "row", "kernel", "needs", "why"};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        assert_true(json_is_string(json_object_get(row, fields[i])));
    assert_true(json_is_boolean(json_object_get(row, "runs")));
}

static void check_row_of_add(const json_t *row)
{
    check_row(row);
    assert_string_equal(json_string_value(json_object_get(row, "op")), "add");
}

static void kernels_are_listed(void **state)
{
    (void)state;
    const size_t all = for_each_line(ARGS("kernels", "list", "--json"), check_row);
    assert_true(all >= 8);
    const size_t one = for_each_line(ARGS("kernels", "list", "add", "--json"), check_row_of_add);
    const size_t more = for_each_line(ARGS("kernels", "list", "add", "n*", "--json"), check_row);
    assert_true(one >= 1 && more > one && more < all);
    program_result r = program_run(ARGS("kernels", "list", "add"));
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "runs"));
    assert_int_equal(r.err_length, 0);
    program_free(&r);
    assert_refuses(2, "\"multiply\"", "kernels", "list", "multiply");
    assert_refuses(2, "\"multiply\"", "kernels", "list", "add", "multiply", "--json");
}

static void check_case(const json_t *row)
{
    assert_string_equal(json_string_value(json_object_get(row, "name")), "add");
    assert_true(json_is_string(json_object_get(row, "case")));
    assert_true(json_is_true(json_object_get(row, "ok")));
    const char *const unmeasured[] = {"us", "gbps", "tflops", "share"};
    for (size_t i = 0; i < 4; i++)
        assert_true(json_is_null(json_object_get(row, unmeasured[i])));
    assert_true(json_number_value(json_object_get(row, "error")) <=
                json_number_value(json_object_get(row, "limit")));
}

static void kernels_are_tested(void **state)
{
    (void)state;
    const size_t all = for_each_line(ARGS("kernels", "test", "add", "--json"), check_case);
    assert_true(all >= 2);
    assert_int_equal(for_each_line(ARGS("kernels", "test", "add/1", "--json"), check_case), 1);
    assert_int_equal(for_each_line(ARGS("kernels", "test", "add/*", "add", "--json"), check_case),
                     all);
    assert_int_equal(for_each_line(ARGS("kernels", "test", "add", "--json", "--guard", "--robust",
                                        "--no-feature", "f16,subgroups"),
                                   check_case),
                     all);
    program_result r = program_run(ARGS("kernels", "test", "add", "nll*"));
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "add/1"));
    assert_non_null(strstr(r.out, "nll/"));
    assert_non_null(strstr(r.err, " 0 wrong"));
    program_free(&r);
    assert_refuses(2, "\"multiply\"", "kernels", "test", "multiply");
    assert_refuses(2, "\"multiply\"", "kernels", "test", "add", "multiply", "--json");
    assert_refuses(1, "\"f17\"", "kernels", "test", "--no-feature", "f17");
    assert_refuses(1, "\"nothing\"", "kernels", "list", "--device", "nothing");
}

static void doctor_tells_what_there_is(void **state)
{
    (void)state;
    json_t *report = program_json(
        ARGS("doctor", "--json", "--no-feature", "f16", "--limit", "maxBufferSize=268435456"));
    assert_string_equal(json_string_value(json_object_get(report, "webgpu")), temper_webgpu());
    const json_t *adapter = json_array_get(json_object_get(report, "adapters"), 0);
    assert_true(json_is_true(json_object_get(adapter, "usable")));
    assert_non_null(json_object_get(json_object_get(adapter, "limits"), "maxBufferSize"));
    const json_t *device = json_object_get(report, "device");
    assert_null(strstr(json_string_value(json_object_get(device, "features")), "f16"));
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(device, "limits"), "maxBufferSize")),
        268435456);
    const json_t *row;
    size_t index;
    json_array_foreach(json_object_get(report, "rows"), index, row)
    {
        assert_true(json_is_string(json_object_get(row, "op")));
        assert_true(json_is_boolean(json_object_get(row, "runs")));
    }
    assert_true(index >= 8);
    const json_t *test = json_object_get(report, "self_test");
    assert_true(json_integer_value(json_object_get(test, "cases")) > 50);
    assert_int_equal(json_integer_value(json_object_get(test, "wrong")), 0);
    json_decref(report);
}

static void doctor_in_words(void **state)
{
    (void)state;
    program_result r = program_run(ARGS("doctor"));
    assert_int_equal(r.code, 0);
    assert_int_equal(strncmp(r.out, "0  ", 3), 0);
    assert_non_null(strstr(r.out, "chosen: "));
    assert_non_null(strstr(r.out, temper_webgpu()));
    assert_non_null(strstr(r.out, "kernel rows"));
    assert_non_null(strstr(r.out, " 0 wrong"));
    assert_int_equal(r.err_length, 0);
    program_free(&r);
    assert_refuses(1, "\"no such adapter\"", "doctor", "--device", "no such adapter");
    assert_refuses(1, "\"warp\"", "doctor", "--no-feature", "warp", "--json");
    assert_refuses(1, "\"maxThreads\"", "doctor", "--limit", "maxThreads=1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_are_listed),
        cmocka_unit_test(kernels_are_tested),
        cmocka_unit_test(doctor_tells_what_there_is),
        cmocka_unit_test(doctor_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
