/*
 * text.c - `temper tokenize`: ids and pieces, special tokens, BOS, and files that hold a vocabulary
 * and nothing else.
 */
#include "support/program.h"

#define VOCAB(name) TEST_PARTS "/vocab/ggml-vocab-" name ".gguf"

/* The ids of a call as text: "87 260". For free(). */
static char *ids_of(const char *const *args)
{
    char *text = calloc(1, 65536);
    json_t *result = program_json(args);
    assert_int_equal(json_object_size(result), 2);
    const json_t *ids = json_object_get(result, "ids"), *id;
    assert_int_equal(json_array_size(ids), json_array_size(json_object_get(result, "pieces")));
    size_t index;
    json_array_foreach(ids, index, id)
    {
        const size_t at = strlen(text);
        snprintf(text + at, 65536 - at, index == 0 ? "%d" : " %d", (int)json_integer_value(id));
    }
    json_decref(result);
    return text;
}

#define assert_ids(wanted, ...)                                                                    \
    do {                                                                                           \
        char *ids_of_call = ids_of(ARGS("tokenize", __VA_ARGS__, "--json"));                       \
        assert_string_equal(ids_of_call, wanted);                                                  \
        free(ids_of_call);                                                                         \
    } while (0)

static void json_has_ids_and_pieces(void **state)
{
    (void)state;
    json_t *result =
        program_json(ARGS("tokenize", TINY("q4_1"), "--json", "-p", "The T<|im_end|>"));
    json_t *wanted = json_pack("{s:[i,i,i,i,i], s:[s,s,s,s,s]}", "ids", 87, 260, 35, 87, 2,
                               "pieces", "T", "he", " ", "T", "<|im_end|>");
    assert_true(json_equal(result, wanted));
    json_decref(result);
    json_decref(wanted);
    program_expect(ARGS("tokenize", TINY("q4_1"), "-p", "The T"), "87 260 35 87\n");
    program_expect(ARGS("tokenize", TINY("q4_1"), "--pieces", "-p", "The\n"),
                   "      87  T\n     260  he\n      13  \\n\n");
    assert_ids("", TINY("q4_1"), "-p", "");
}

static void special_tokens(void **state)
{
    (void)state;
    assert_ids("87 2 87", TINY("q4_1"), "-p", "T<|im_end|>T");
    assert_ids("87 63 127 108 112 98 104 262 127 65 87", TINY("q4_1"), "-p", "T<|im_end|>T",
               "--no-special");
}

/* BOS only where it is asked for, whatever the file says; and only one. */
static void bos(void **state)
{
    (void)state;
    assert_ids("87", TINY("f16"), "-p", "T");
    assert_ids("1 87", TINY("f16"), "-p", "T", "--bos");
    assert_ids("1 87", TINY("q4_1"), "--bos", "-p", "T");
    assert_ids("1", TINY("q4_1"), "--bos", "-p", "");
    assert_ids("1 87", TINY("q4_1"), "--bos", "-p", "<|im_start|>T");
}

static void text_comes_from_anywhere(void **state)
{
    (void)state;
    const char *path = program_file("text", "T\r\nT\0T", 6);
    char *from_file = ids_of(ARGS("tokenize", TINY("q4_1"), "--json", "-f", path));
    program_result r = program_call_all(&(program_call){
        .args = ARGS("tokenize", TINY("q4_1")), .input = "T\r\nT\0T", .input_length = 6});
    assert_int_equal(r.code, 0);
    assert_int_equal(strlen(from_file) + 1, r.out_length);
    assert_memory_equal(r.out, from_file, strlen(from_file));
    /* T, CR, LF (or both as one), T, NUL, T: the NUL did not end it. */
    assert_string_equal(from_file + strlen(from_file) - 2, "87");
    program_free(&r);
    free(from_file);
    assert_refuses(1, "-p and -f", "tokenize", TINY("q4_1"), "-p", "x", "-f", path);
    assert_refuses(1, "/nowhere", "tokenize", TINY("q4_1"), "-f", "/nowhere", "--json");
}

/* A megabyte through a pipe. */
static void much_text(void **state)
{
    (void)state;
    enum { MUCH = 1 << 20 };
    char *text = malloc(MUCH + 1);
    for (size_t i = 0; i < MUCH; i++)
        text[i] = "The kernel reads.\n"[i % 18];
    text[MUCH] = '\0';
    program_result r = program_call_all(&(program_call){
        .args = ARGS("tokenize", TINY("q4_1"), "--json"), .input = text, .input_length = MUCH});
    json_t *result = program_parse(&r);
    size_t bytes = 0, index;
    const json_t *piece;
    json_array_foreach(json_object_get(result, "pieces"), index, piece)
    {
        bytes += json_string_length(piece);
    }
    assert_int_equal(bytes, MUCH);
    json_decref(result);
    program_free(&r);
    free(text);
}

/* What is in no character's encoding is a piece of U+FFFD in JSON, and valid UTF-8 on a line. */
static void pieces_are_valid_utf8(void **state)
{
    (void)state;
    json_t *result = program_json(ARGS("tokenize", TINY("q4_1"), "--json", "-p", "\xff\xc3\x01"));
    const json_t *pieces = json_object_get(result, "pieces");
    assert_string_equal(json_string_value(json_array_get(pieces, 0)), "\xef\xbf\xbd");
    json_decref(result);
    program_result r =
        program_run(ARGS("tokenize", TINY("q4_1"), "--pieces", "-p", "\xff\xc3\x01\033[0m"));
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "\\xff\n"));
    assert_non_null(strstr(r.out, "\\x1b\n"));
    program_free(&r);
}

static void vocabularies_without_tensors(void **state)
{
    (void)state;
    assert_ids("15496 995", VOCAB("gpt-2"), "-p", "Hello world");
    assert_ids("9906 1917", VOCAB("llama-bpe"), "-p", "Hello world");
    assert_ids("128000 9906", VOCAB("llama-bpe"), "--bos", "-p", "Hello");
    assert_ids("9707 1879", VOCAB("qwen2"), "-p", "Hello world");
    static const char *const files[] = {VOCAB("gpt-2"), VOCAB("llama-bpe"), VOCAB("bert-bge"),
                                        VOCAB("falcon"), VOCAB("llama-spm")};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        json_t *result = program_json(ARGS("inspect", files[i], "--json"));
        assert_int_equal(json_array_size(json_object_get(result, "tensors")), 0);
        assert_non_null(
            json_object_get(json_object_get(result, "metadata"), "tokenizer.ggml.tokens"));
        assert_non_null(json_object_get(json_object_get(result, "memory"), "error"));
        json_decref(result);
        /* It cannot be run, and says why. */
        assert_refuses(1, files[i], "run", files[i], "--raw", "-p", "x", "--json");
        assert_refuses(1, files[i], "eval", "next", files[i], "-p", "x", "--json");
    }
    assert_refuses(1, "no tensors", "run", VOCAB("gpt-2"), "--raw", "-p", "x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_has_ids_and_pieces),
        cmocka_unit_test(special_tokens),
        cmocka_unit_test(bos),
        cmocka_unit_test(text_comes_from_anywhere),
        cmocka_unit_test(much_text),
        cmocka_unit_test(pieces_are_valid_utf8),
        cmocka_unit_test(vocabularies_without_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
