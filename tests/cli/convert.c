/*
 * convert.c - `temper convert` and `temper quantize`: what they write, say and refuse.
 */
#include "support/program.h"

#include <sys/stat.h>
#include <unistd.h>

#define HF(name) TEST_GOLDEN "/hf/" name

static void a_directory_becomes_a_file(void **state)
{
    (void)state;
    const char *path = program_path("llama.gguf");
    program_expect(ARGS("convert", HF("llama"), path), "");
    json_t *made = program_json(ARGS("eval", "next", path, "--ids", "1 2 3", "--json"));
    json_t *given = program_json(ARGS("eval", "next", HF("llama"), "--ids", "1 2 3", "--json"));
    assert_true(json_equal(made, given));
    json_decref(made);
    json_decref(given);
    made = program_json(ARGS("inspect", path, "--json"));
    given = program_json(ARGS("inspect", HF("llama"), "--json"));
    assert_true(json_equal(json_object_get(made, "tensors"), json_object_get(given, "tensors")));
    assert_true(json_is_object(json_object_get(given, "memory")));
    json_decref(made);
    json_decref(given);
    program_expect(ARGS("tokenize", HF("mistral"), "-p", "Hello world", "--bos"),
                   "1 281 77 282 293 293 288 274 288 289 293 291\n");
}

static void a_file_in_another_type(void **state)
{
    (void)state;
    const char *path = program_path("small.gguf");
    program_result r = program_run(ARGS("quantize", TINY("f32"), path, "--type", "Q4_K", "--json"));
    assert_int_equal(r.code, 0);
    /* 64 and 72 are no multiples of 256: said with the first tensor and its type. */
    assert_non_null(strstr(r.err, "15 of 20 tensors"));
    assert_non_null(strstr(r.err, "(token_embd.weight: Q8_0)"));
    json_t *told = program_parse(&r);
    struct stat there;
    assert_int_equal(stat(path, &there), 0);
    assert_int_equal(json_integer_value(json_object_get(told, "bytes")), there.st_size);
    assert_int_equal(json_integer_value(json_object_get(told, "fallbacks")), 15);
    json_decref(told);
    program_free(&r);
    r = program_run(ARGS("run", path, "--raw", "-p", "The", "-n", "4"));
    assert_int_equal(r.code, 0);
    program_free(&r);
    r = program_run(ARGS("quantize", path, path, "--type", "Q8_0"));
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.err, "quantised before"));
    assert_int_equal(r.out_length, 0);
    program_free(&r);
}

#define WIDE TEST_GOLDEN "/widen/llama.gguf"

/* Every command that reads weights: refused by name without --widen, a line for each type with it.
 */
static void types_without_a_layout(void **state)
{
    static const char hint[] = "token_embd.weight is IQ4_XS, which has no layout on the device: "
                               "--widen reads it as F16, each weight rounded";
    static const char line[] = "temper: token_embd.weight and 1 more (IQ4_XS): read as F16, each "
                               "weight rounded; 200.9 KiB more\n";
    const char *path = program_path("wide.gguf");
    const char *const *const calls[] = {
        ARGS("run", WIDE, "--raw", "-p", "The", "-n", "1", "--widen"),
        ARGS("bench", WIDE, "-p", "2", "-n", "1", "-r", "1", "--widen"),
        ARGS("eval", "next", WIDE, "-p", "The", "--widen"),
        ARGS("quantize", WIDE, path, "--type", "Q8_0", "--widen"),
        ARGS("convert", WIDE, path, "--widen"),
        ARGS("inspect", WIDE, "--widen"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        program_result r = program_run(calls[i]);
        if (r.code != 0 || strstr(r.err, line) == NULL)
            fail_msg("%s: code %d: %s", calls[i][0], r.code, r.err);
        program_free(&r);
    }
    assert_refuses(1, hint, "run", WIDE, "--raw", "-p", "The", "-n", "1");
    assert_refuses(1, hint, "bench", WIDE, "-p", "2", "-n", "1", "-r", "1");
    assert_refuses(1, hint, "eval", "next", WIDE, "-p", "The");
    assert_refuses(1, hint, "quantize", WIDE, program_path("none.gguf"), "--type", "Q8_0");

    /* The estimate is of what would be loaded; the converted file loads as it is. */
    json_t *told = program_json(ARGS("inspect", WIDE, "--json"));
    const json_t *memory = json_object_get(told, "memory");
    assert_non_null(strstr(json_string_value(json_object_get(memory, "error")), hint));
    json_decref(told);
    json_t *wide = program_json(ARGS("inspect", WIDE, "--json", "--widen"));
    told = program_json(ARGS("inspect", path, "--json"));
    assert_true(json_equal(json_object_get(told, "memory"), json_object_get(wide, "memory")));
    assert_true(json_equal(json_object_get(told, "tensors"), json_object_get(wide, "tensors")));
    assert_true(json_is_integer(json_object_get(json_object_get(wide, "memory"), "weights")));
    json_decref(told);
    json_decref(wide);
    /* Without --widen a converted file keeps its types. */
    program_expect(ARGS("convert", WIDE, path), "");
    told = program_json(ARGS("inspect", path, "--json"));
    const json_t *first = json_array_get(json_object_get(told, "tensors"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "type")), "IQ4_XS");
    json_decref(told);
}

static void what_is_refused(void **state)
{
    (void)state;
    const char *path = program_path("none.gguf");
    assert_refuses(2, "name a directory", "convert");
    assert_refuses(2, "name a directory", "convert", HF("llama"));
    assert_refuses(2, "one argument too many", "convert", HF("llama"), path, "x");
    assert_refuses(2, "--type", "quantize", TINY("f32"), path);
    assert_refuses(1, "\"Q3_X\"", "quantize", TINY("f32"), path, "--type", "Q3_X");
    assert_refuses(1, "no/such", "quantize", "no/such", path, "--type", "Q8_0");
    assert_refuses(1, "config.json", "convert", TEST_GOLDEN, path);
    assert_refuses(1, "a directory", "quantize", TINY("f32"), TEST_GOLDEN, "--type", "Q8_0");
    assert_refuses(1, "no regular file", "quantize", TINY("f32"), "/dev/null", "--type", "Q8_0");
    assert_refuses(1, "/no/such/folder", "convert", HF("llama"), "/no/such/folder/x.gguf");
    assert_int_not_equal(access(path, F_OK), 0);
    program_result r = program_run(ARGS("convert", "--help"));
    assert_int_equal(strncmp(r.out, "usage: temper convert", 21), 0);
    program_free(&r);
    r = program_run(ARGS("quantize", "--help"));
    assert_int_equal(strncmp(r.out, "usage: temper quantize", 22), 0);
    program_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_directory_becomes_a_file),
        cmocka_unit_test(a_file_in_another_type),
        cmocka_unit_test(types_without_a_layout),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
