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
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
