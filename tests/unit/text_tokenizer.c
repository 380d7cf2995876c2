/*
 * text_tokenizer.c - the tokenizer on a vocabulary of 267 tokens made here: special tokens, BOS,
 * broken text, and files that are wrong.
 */
#include "text_files.h"

#include "base/mem.h"

static void assert_encodes(const tokenizer *tok, const char *text, size_t length, bool special,
                           const uint32_t *expected, size_t count)
{
    token_list ids = {0};

    encode_to(tok, text, length, special, &ids);
    if (ids.count != count)
        fail_msg("\"%s\": %zu ids, not %zu", text == NULL ? "" : text, ids.count, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(ids.ids[i], expected[i]);
    token_list_free(&ids);
}

#define ENCODES(tok, text, special, ...)                                                           \
    do {                                                                                           \
        static const uint32_t expected_[] = {__VA_ARGS__};                                         \
        assert_encodes(tok, text, sizeof(text) - 1, special, expected_,                            \
                       sizeof expected_ / sizeof *expected_);                                      \
    } while (0)

static void merges_by_rank(void **state)
{
    tokenizer *tok = open_small_tokenizer("gpt-2");
    (void)state;

    ENCODES(tok, "hello", true, SMALL_HELLO);
    ENCODES(tok, " hello", true, SMALL_SPACE_HELLO);
    ENCODES(tok, "hell", true, SMALL_HE, SMALL_LL);
    ENCODES(tok, "lll", true, SMALL_LL, 'l');   /* the leftmost of two equal pairs */
    ENCODES(tok, "llll", true, SMALL_LL, SMALL_LL);
    ENCODES(tok, "helo", true, SMALL_HE, 'l', 'o');
    ENCODES(tok, "hello hello", true, SMALL_HELLO, SMALL_SPACE_HELLO);
    assert_encodes(tok, "", 0, true, NULL, 0);
    assert_encodes(tok, NULL, 0, true, NULL, 0);
    tokenizer_close(tok);
}

static void special_tokens_leftmost_and_longest(void **state)
{
    tokenizer *tok = open_small_tokenizer("gpt-2");
    (void)state;

    ENCODES(tok, "<|im_end|>", true, SMALL_END);
    ENCODES(tok, "<|im_end|>\n", true, SMALL_END_LONG);
    ENCODES(tok, "<|im_end|>\r", true, SMALL_END, '\r');
    ENCODES(tok, "hello<|im_end|>hello", true, SMALL_HELLO, SMALL_END, SMALL_HELLO);
    ENCODES(tok, "<s><s>", true, SMALL_BOS, SMALL_BOS);
    ENCODES(tok, "<|im_en", true, '<', '|', 'i', 'm', '_', 'e', 'n');
    ENCODES(tok, "<<s>", true, '<', SMALL_BOS);
    ENCODES(tok, "<unk>", true, SMALL_UNKNOWN);
    /* Without parsing, marks are text; user-defined tokens are matched all the same. */
    ENCODES(tok, "<s>", false, '<', 's', '>');
    ENCODES(tok, "<unk>", false, '<', 'u', 'n', 'k', '>');
    ENCODES(tok, "xa by", false, 'x', SMALL_ADDED, 'y');
    ENCODES(tok, "xa by", true, 'x', SMALL_ADDED, 'y');
    tokenizer_close(tok);
}

static void pieces_and_spellings(void **state)
{
    tokenizer *tok = open_small_tokenizer("gpt-2");
    size_t length;
    (void)state;

    assert_int_equal(tokenizer_size(tok), SMALL_COUNT);
    const char *piece = tokenizer_piece(tok, SMALL_SPACE_HELLO, false, &length);
    assert_int_equal(length, 6);
    assert_memory_equal(piece, " hello", 6);
    piece = tokenizer_spelling(tok, SMALL_SPACE_HELLO, &length);
    assert_int_equal(length, 7);
    assert_memory_equal(piece, "\xC4\xA0hello", 7);
    tokenizer_piece(tok, SMALL_END, false, &length);
    assert_int_equal(length, 0);
    piece = tokenizer_piece(tok, SMALL_END, true, &length);
    assert_int_equal(length, 10);
    assert_memory_equal(piece, "<|im_end|>", 10);
    tokenizer_piece(tok, SMALL_UNKNOWN, false, &length);
    assert_int_equal(length, 0);
    piece = tokenizer_piece(tok, SMALL_ADDED, false, &length);
    assert_int_equal(length, 3);
    assert_memory_equal(piece, "a b", 3);
    tokenizer_piece(tok, SMALL_EMPTY, true, &length);
    assert_int_equal(length, 0);
    piece = tokenizer_piece(tok, 0, false, &length);
    assert_int_equal(length, 1);
    assert_int_equal(piece[0], 0);
    tokenizer_close(tok);
}

static void broken_text_is_encoded_byte_by_byte(void **state)
{
    tokenizer *tok = open_small_tokenizer("llama-bpe");
    (void)state;

    ENCODES(tok, "\xFF", true, 0xFF);
    ENCODES(tok, "hello\xE2\x82hello", true, SMALL_HELLO, 0xE2, 0x82, SMALL_HELLO);
    ENCODES(tok, "\xF0\x9F\x98", true, 0xF0, 0x9F, 0x98);
    ENCODES(tok, "a\0b", true, 'a', 0, 'b');
    ENCODES(tok, "\0\0", false, 0, 0);
    for (int first = 0; first < 256; first++) {
        for (int second = 0; second < 256; second++) {
            const char text[4] = {'h', (char)first, (char)second, 'e'};
            assert_round_trip(tok, text, sizeof text, true);
        }
    }
    tokenizer_close(tok);
}

static void exactly_one_bos(void **state)
{
    static const struct {
        const char *text;
        bool add, parse;
        size_t count, bos_count;
    } rows[] = {
        {"hello", true, true, 2, 1},      {"<s>hello", true, true, 2, 1},
        {"hello", false, true, 1, 0},     {"<s>hello", false, true, 2, 1},
        {"", true, true, 1, 1},           {"<s>", true, true, 1, 1},
        {"<s>hello", true, false, 5, 1},  /* "<s>" is three bytes of text here */
    };
    tokenizer *tok = open_small_tokenizer("gpt-2");
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        token_list ids = {0};
        error err = {0};
        /* What is in the list already stays. */
        assert_int_equal(token_list_push(&ids, SMALL_BOS, &err), TEMPER_OK);
        assert_int_equal(tokenizer_encode_prompt(tok, rows[i].text, strlen(rows[i].text),
                                                 rows[i].parse, rows[i].add, &ids, &err),
                         TEMPER_OK);
        size_t bos_count = 0;
        for (size_t k = 1; k < ids.count; k++)
            bos_count += ids.ids[k] == SMALL_BOS;
        assert_int_equal(ids.count, 1 + rows[i].count);
        assert_int_equal(bos_count, rows[i].bos_count);
        if (bos_count > 0)
            assert_int_equal(ids.ids[1], SMALL_BOS);
        token_list_free(&ids);
    }
    tokenizer_close(tok);
}

static void no_bos_to_add(void **state)
{
    model_file file = {0};
    token_list ids = {0};
    error err = {0};
    (void)state;

    put_string(&file, "tokenizer.ggml.model", "gpt2");
    put_string(&file, "tokenizer.ggml.pre", "llama-bpe");
    put_small_tokens(&file);
    put_small_merges(&file);
    tokenizer *tok = open_made_tokenizer(&file);
    assert_int_equal(tokenizer_bos(tok), TOKEN_NONE);
    assert_int_equal(tokenizer_eos(tok), TOKEN_NONE);
    assert_false(tokenizer_adds_bos(tok));   /* llama-bpe would, if there were one */
    assert_int_equal(tokenizer_encode_prompt(tok, "hello", 5, true, true, &ids, &err), TEMPER_OK);
    assert_int_equal(ids.count, 1);
    /* Without token types nothing is special. */
    encode_to(tok, "<s>", 3, true, &ids);
    assert_int_equal(ids.count, 3);
    token_list_free(&ids);
    tokenizer_close(tok);
}

static void eot_and_eom_end_a_generation_too(void **state)
{
    model_file file = {0};
    (void)state;

    put_small_vocabulary(&file, "gpt-2");
    put_u32(&file, "tokenizer.ggml.eot_token_id", SMALL_HELLO);
    put_u32(&file, "tokenizer.ggml.eom_token_id", 'x');
    put_bool(&file, "tokenizer.ggml.add_bos_token", true);
    put_bool(&file, "tokenizer.ggml.add_eos_token", true);
    tokenizer *tok = open_made_tokenizer(&file);
    assert_true(tokenizer_ends(tok, SMALL_END));
    assert_true(tokenizer_ends(tok, SMALL_HELLO));
    assert_true(tokenizer_ends(tok, 'x'));
    assert_false(tokenizer_ends(tok, 'y'));
    assert_false(tokenizer_ends(tok, SMALL_BOS));
    assert_false(tokenizer_ends(tok, SMALL_COUNT));
    assert_false(tokenizer_ends(tok, UINT32_MAX));
    assert_true(tokenizer_adds_bos(tok));
    assert_true(tokenizer_adds_eos(tok));
    tokenizer_close(tok);
}

static void whole_words_only_where_the_family_says_so(void **state)
{
    /* "oho" is a token that no merge makes. */
    static const char *const pres[] = {"llama-bpe", "smaug-bpe", "qwen2"};
    (void)state;

    for (int i = 0; i < 3; i++) {
        model_file file = {0};
        put_string(&file, "tokenizer.ggml.model", "gpt2");
        put_string(&file, "tokenizer.ggml.pre", pres[i]);
        put_array(&file, "tokenizer.ggml.tokens", GGUF_STRING, 3);
        gguf_put_string(&file.keys, "o");
        gguf_put_string(&file.keys, "h");
        gguf_put_string(&file.keys, "oho");
        put_array(&file, "tokenizer.ggml.merges", GGUF_STRING, 0);
        tokenizer *tok = open_made_tokenizer(&file);
        if (i < 2)
            ENCODES(tok, "oho", true, 2);
        else
            ENCODES(tok, "oho", true, 0, 1, 0);
        ENCODES(tok, "ohx", true, 0, 1);   /* no token for "x": it vanishes */
        tokenizer_close(tok);
    }
}

/* ---- files that are wrong -------------------------------------------------------------------- */

typedef void (*file_maker)(model_file *file);

static void make_no_model(model_file *file)
{
    put_string(file, "tokenizer.ggml.pre", "gpt-2");
    put_small_tokens(file);
}

static void make_model_number(model_file *file)
{
    put_u32(file, "tokenizer.ggml.model", 2);
}

static void make_no_pre(model_file *file)
{
    put_string(file, "tokenizer.ggml.model", "gpt2");
    put_small_tokens(file);
    put_small_merges(file);
}

static void make_unknown_pre(model_file *file)
{
    put_small_vocabulary(file, "next-years-model");
}

static void make_default_pre(model_file *file)
{
    put_small_vocabulary(file, "default");
}

static void start_file(model_file *file)
{
    put_string(file, "tokenizer.ggml.model", "gpt2");
    put_string(file, "tokenizer.ggml.pre", "gpt-2");
}

static void make_no_tokens(model_file *file)
{
    start_file(file);
}

static void make_empty_tokens(model_file *file)
{
    start_file(file);
    put_array(file, "tokenizer.ggml.tokens", GGUF_STRING, 0);
}

static void make_integer_tokens(model_file *file)
{
    start_file(file);
    put_array(file, "tokenizer.ggml.tokens", GGUF_UINT32, 1);
    gguf_put_u32(&file->keys, 1);
}

static void make_one_string_of_tokens(model_file *file)
{
    start_file(file);
    put_string(file, "tokenizer.ggml.tokens", "a");
}

static void make_token_twice(model_file *file)
{
    start_file(file);
    put_array(file, "tokenizer.ggml.tokens", GGUF_STRING, 3);
    gguf_put_string(&file->keys, "a");
    gguf_put_string(&file->keys, "b");
    gguf_put_string(&file->keys, "a");
}

static void make_few_types(model_file *file)
{
    start_file(file);
    put_small_tokens(file);
    put_array(file, "tokenizer.ggml.token_type", GGUF_INT32, 1);
    gguf_put_u32(&file->keys, 1);
}

static void make_type_seven(model_file *file)
{
    start_file(file);
    put_array(file, "tokenizer.ggml.tokens", GGUF_STRING, 1);
    gguf_put_string(&file->keys, "a");
    put_array(file, "tokenizer.ggml.token_type", GGUF_INT32, 1);
    gguf_put_u32(&file->keys, 7);
}

static void make_float_types(model_file *file)
{
    start_file(file);
    put_array(file, "tokenizer.ggml.tokens", GGUF_STRING, 1);
    gguf_put_string(&file->keys, "a");
    put_array(file, "tokenizer.ggml.token_type", GGUF_FLOAT32, 1);
    gguf_put_u32(&file->keys, 0x3F800000);
}

static void make_long_special(model_file *file)
{
    char spelling[1026] = {0};

    memset(spelling, 'a', 1025);
    start_file(file);
    put_array(file, "tokenizer.ggml.tokens", GGUF_STRING, 1);
    gguf_put_string(&file->keys, spelling);
    put_array(file, "tokenizer.ggml.token_type", GGUF_INT32, 1);
    gguf_put_u32(&file->keys, 3);
    put_array(file, "tokenizer.ggml.merges", GGUF_STRING, 0);
}

static void make_no_merges(model_file *file)
{
    start_file(file);
    put_small_tokens(file);
}

static void put_one_merge(model_file *file, const char *merge)
{
    start_file(file);
    put_small_tokens(file);
    put_array(file, "tokenizer.ggml.merges", GGUF_STRING, 1);
    gguf_put_string(&file->keys, merge);
}

static void make_merge_of_one(model_file *file)
{
    put_one_merge(file, "hello");
}

static void make_merge_empty(model_file *file)
{
    put_one_merge(file, "");
}

static void make_merge_open(model_file *file)
{
    put_one_merge(file, "he ");
}

static void make_merge_left(model_file *file)
{
    put_one_merge(file, "zz h");
}

static void make_merge_right(model_file *file)
{
    put_one_merge(file, "h zz");
}

static void make_merge_result(model_file *file)
{
    put_one_merge(file, "x y");
}

static void put_id(model_file *file, const char *key, uint32_t id)
{
    start_file(file);
    put_small_tokens(file);
    put_small_merges(file);
    put_u32(file, key, id);
}

static void make_bos_past_the_end(model_file *file)
{
    put_id(file, "tokenizer.ggml.bos_token_id", SMALL_COUNT);
}

static void make_eos_past_the_end(model_file *file)
{
    put_id(file, "tokenizer.ggml.eos_token_id", UINT32_MAX);
}

static void make_eot_past_the_end(model_file *file)
{
    put_id(file, "tokenizer.ggml.eot_token_id", 1u << 31);
}

static void make_eom_past_the_end(model_file *file)
{
    put_id(file, "tokenizer.ggml.eom_token_id", SMALL_COUNT + 5);
}

static void make_bos_string(model_file *file)
{
    start_file(file);
    put_small_tokens(file);
    put_small_merges(file);
    put_string(file, "tokenizer.ggml.bos_token_id", "1");
}

static void make_adds_missing_bos(model_file *file)
{
    start_file(file);
    put_small_tokens(file);
    put_small_merges(file);
    put_bool(file, "tokenizer.ggml.add_bos_token", true);
}

static void wrong_files_are_refused_by_name(void **state)
{
    static const struct {
        file_maker make;
        temper_status status;
        const char *says[2];
    } rows[] = {
        {make_no_model, TEMPER_BAD_FILE, {"tokenizer.ggml.model", ""}},
        {make_model_number, TEMPER_BAD_FILE, {"tokenizer.ggml.model", "string"}},
        {make_no_pre, TEMPER_UNSUPPORTED, {"tokenizer.ggml.pre is missing", "llama-bpe"}},
        {make_unknown_pre, TEMPER_UNSUPPORTED, {"\"next-years-model\"", "smollm"}},
        {make_default_pre, TEMPER_UNSUPPORTED, {"\"default\"", "gpt-2"}},
        {make_no_tokens, TEMPER_BAD_FILE, {"tokenizer.ggml.tokens", "missing"}},
        {make_empty_tokens, TEMPER_BAD_FILE, {"tokenizer.ggml.tokens", "empty"}},
        {make_integer_tokens, TEMPER_BAD_FILE, {"tokenizer.ggml.tokens", "uint32"}},
        {make_one_string_of_tokens, TEMPER_BAD_FILE, {"tokenizer.ggml.tokens", "string"}},
        {make_token_twice, TEMPER_BAD_FILE, {"\"a\"", "token 0 and token 2"}},
        {make_few_types, TEMPER_BAD_FILE, {"token_type", "267"}},
        {make_type_seven, TEMPER_BAD_FILE, {"token 0", "type 7"}},
        {make_float_types, TEMPER_BAD_FILE, {"token_type", "float32"}},
        {make_long_special, TEMPER_BAD_FILE, {"token 0", "1025"}},
        {make_no_merges, TEMPER_BAD_FILE, {"tokenizer.ggml.merges", "missing"}},
        {make_merge_of_one, TEMPER_BAD_FILE, {"merge 0", "\"hello\""}},
        {make_merge_empty, TEMPER_BAD_FILE, {"merge 0", "\"\""}},
        {make_merge_open, TEMPER_BAD_FILE, {"merge 0", "two pieces"}},
        {make_merge_left, TEMPER_BAD_FILE, {"\"zz h\"", "left piece"}},
        {make_merge_right, TEMPER_BAD_FILE, {"\"h zz\"", "right piece"}},
        {make_merge_result, TEMPER_BAD_FILE, {"\"x y\"", "result"}},
        {make_bos_past_the_end, TEMPER_BAD_FILE, {"bos_token_id is 267", "267 tokens"}},
        {make_eos_past_the_end, TEMPER_BAD_FILE, {"eos_token_id", "4294967295"}},
        {make_eot_past_the_end, TEMPER_BAD_FILE, {"eot_token_id", "2147483648"}},
        {make_eom_past_the_end, TEMPER_BAD_FILE, {"eom_token_id", "272"}},
        {make_bos_string, TEMPER_BAD_FILE, {"bos_token_id", "string"}},
        {make_adds_missing_bos, TEMPER_BAD_FILE, {"add_bos_token is true", "bos_token_id"}},
    };
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        model_file file = {0};
        error err = {0};
        tokenizer *tok = NULL;

        rows[i].make(&file);
        gguf_file *gguf = open_model_file(&file);
        const uint64_t live = mem_live_bytes();
        const temper_status status = tokenizer_open(gguf, &tok, &err);
        if (status != rows[i].status || strstr(err.text, rows[i].says[0]) == NULL
            || strstr(err.text, rows[i].says[1]) == NULL
            || strncmp(err.text, "made.gguf: ", 11) != 0
            || strstr(err.text + 1, "made.gguf") != NULL)
            fail_msg("row %zu: status %d, \"%s\"", i, (int)status, err.text);
        assert_null(tok);
        assert_int_equal(mem_live_bytes(), live);
        assert_int_equal(tokenizer_open(gguf, &tok, NULL), rows[i].status);
        gguf_close(gguf);
        free_model_file(&file);
    }
}

/* Tokens of every odd kind in one file that is not wrong. */
static void odd_spellings_are_kept(void **state)
{
    static const struct {
        const char *spelling;
        int type;
        const char *piece;
    } rows[] = {
        {"<0x0A>", 6, "\n"},
        {"<0xfF>", 6, "\xFF"},
        {"<0xGG>", 6, "<0xGG>"},
        {"<0x0A>>", 6, "<0x0A>>"},
        {"\xE2\x96\x81x", 1, "\xE2\x96\x81x"},
        {"two words", 1, "two words"},
        {"\xFF\xFE", 1, "\xFF\xFE"},
        {"\xC4\xA0", 0, " "},
        {"\xC4\xA0\xC4\xA0", 5, "  "},
        {"\xC4\xA0y", 4, "\xC4\xA0y"},
    };
    enum { COUNT = sizeof rows / sizeof *rows };
    model_file file = {0};
    (void)state;

    start_file(&file);
    put_array(&file, "tokenizer.ggml.tokens", GGUF_STRING, COUNT);
    for (int i = 0; i < COUNT; i++)
        gguf_put_string(&file.keys, rows[i].spelling);
    put_array(&file, "tokenizer.ggml.token_type", GGUF_INT32, COUNT);
    for (int i = 0; i < COUNT; i++)
        gguf_put_u32(&file.keys, (uint32_t)rows[i].type);
    put_array(&file, "tokenizer.ggml.merges", GGUF_STRING, 0);
    tokenizer *tok = open_made_tokenizer(&file);
    for (uint32_t i = 0; i < COUNT; i++) {
        size_t length;
        const char *piece = tokenizer_piece(tok, i, false, &length);
        assert_int_equal(length, strlen(rows[i].piece));
        assert_memory_equal(piece, rows[i].piece, length);
    }
    tokenizer_close(tok);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void nth_allocation_fails_while_opening(void **state)
{
    model_file file = {0};
    (void)state;

    put_small_vocabulary(&file, "smollm");
    gguf_file *gguf = open_model_file(&file);
    for (int all_after = 0; all_after < 2; all_after++) {
        for (uint64_t nth = 1;; nth++) {
            error err = {0};
            tokenizer *tok = NULL;
            const uint64_t live = mem_live_bytes(), calls = mem_allocation_count();

            assert_true(nth < 1000);
            mem_fail_at(nth, all_after);
            const temper_status status = tokenizer_open(gguf, &tok, &err);
            mem_fail_at(0, 0);
            const bool reached = mem_allocation_count() - calls >= nth;
            /* PCRE2 gets along without memory for its machine code: success is possible. */
            if (status == TEMPER_OK) {
                ENCODES(tok, "hello1", true, SMALL_HELLO, '1');
            } else {
                assert_true(reached);
                assert_int_equal(status, TEMPER_NO_MEMORY);
                assert_null(tok);
            }
            tokenizer_close(tok);
            assert_int_equal(mem_live_bytes(), live);
            if (!reached)
                break;
        }
    }
    gguf_close(gguf);
    free_model_file(&file);
}

static void nth_allocation_fails_while_encoding(void **state)
{
    tokenizer *tok = open_small_tokenizer("llama-bpe");
    char text[2000];
    (void)state;

    memset(text, 'l', sizeof text);
    memcpy(text + 900, " <s>\xFF ", 6);
    for (uint64_t nth = 1;; nth++) {
        error err = {0};
        token_list ids = {0};
        const uint64_t live = mem_live_bytes(), calls = mem_allocation_count();

        assert_true(nth < 1000);
        mem_fail_at(nth, 0);
        const temper_status status =
            tokenizer_encode_prompt(tok, text, sizeof text, true, true, &ids, &err);
        mem_fail_at(0, 0);
        const bool reached = mem_allocation_count() - calls >= nth;
        assert_int_equal(status, reached ? TEMPER_NO_MEMORY : TEMPER_OK);
        if (reached)
            assert_int_equal(ids.count, 0);
        token_list_free(&ids);
        assert_int_equal(mem_live_bytes(), live);
        if (!reached)
            break;
    }
    tokenizer_close(tok);
}

static void closing_nothing_is_fine(void **state)
{
    token_list ids = {0};
    (void)state;

    tokenizer_close(NULL);
    token_list_free(&ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_by_rank),
        cmocka_unit_test(special_tokens_leftmost_and_longest),
        cmocka_unit_test(pieces_and_spellings),
        cmocka_unit_test(broken_text_is_encoded_byte_by_byte),
        cmocka_unit_test(exactly_one_bos),
        cmocka_unit_test(no_bos_to_add),
        cmocka_unit_test(eot_and_eom_end_a_generation_too),
        cmocka_unit_test(whole_words_only_where_the_family_says_so),
        cmocka_unit_test(wrong_files_are_refused_by_name),
        cmocka_unit_test(odd_spellings_are_kept),
        cmocka_unit_test(nth_allocation_fails_while_opening),
        cmocka_unit_test(nth_allocation_fails_while_encoding),
        cmocka_unit_test(closing_nothing_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
