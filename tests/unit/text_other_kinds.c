/*
 * text_other_kinds.c - the kinds of vocabulary that few model files have: longest tokens ("rwkv"),
 * cheapest cuts ("plamo2"), characters in words ("whitespace"), DNA ("hybriddna"); and how every
 * pre-tokeniser cuts a text. Against goldens made outside temper where there are any.
 */
#include "text_small.h"

#include <jansson.h>

#include "text/pretokenizer.h"
#include "text/stream.h"

static void assert_encodes(const tokenizer *tok, const char *text, size_t length, bool special,
                           const uint32_t *expected, size_t count)
{
    token_list ids = {0};

    encode_to(tok, text, length, special, &ids);
    if (ids.count != count)
        fail_msg("\"%s\": %zu ids, not %zu", text, ids.count, count);
    for (size_t i = 0; i < count; i++)
        if (ids.ids[i] != expected[i])
            fail_msg("\"%s\": id %zu is %u, not %u", text, i, ids.ids[i], expected[i]);
    token_list_free(&ids);
}

#define ENCODES(tok, text, special, ...)                                                           \
    do {                                                                                           \
        static const uint32_t expected_[] = {__VA_ARGS__};                                         \
        assert_encodes(tok, text, sizeof(text) - 1, special, expected_,                            \
                       sizeof expected_ / sizeof *expected_);                                      \
    } while (0)

static json_t *open_golden(const char *name)
{
    char path[256];
    json_error_t why;
    snprintf(path, sizeof path, TEST_GOLDEN "/text/%s", name);
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &why);
    if (root == NULL)
        fail_msg("%s: %s", path, why.text);
    return root;
}

/* The vocabulary of a golden as a model file; types and scores are 1 and none where it has none. */
static tokenizer *open_golden_vocabulary(const json_t *root, const char *model)
{
    const json_t *tokens = json_object_get(root, "tokens"), *types = json_object_get(root, "types");
    const json_t *scores = json_object_get(root, "scores");
    const size_t count = json_array_size(tokens);
    model_file file = {0};

    put_string(&file, "tokenizer.ggml.model", model);
    put_array(&file, "tokenizer.ggml.tokens", GGUF_STRING, count);
    for (size_t i = 0; i < count; i++)
        gguf_put_string(&file.keys, json_string_value(json_array_get(tokens, i)));
    put_array(&file, "tokenizer.ggml.token_type", GGUF_INT32, count);
    for (size_t i = 0; i < count; i++)
        gguf_put_u32(&file.keys, types == NULL
                                     ? (i == 0 ? 3u : 1u)
                                     : (uint32_t)json_integer_value(json_array_get(types, i)));
    if (scores != NULL) {
        put_array(&file, "tokenizer.ggml.scores", GGUF_FLOAT32, count);
        for (size_t i = 0; i < count; i++)
            gguf_put_f32(&file.keys, (float)json_number_value(json_array_get(scores, i)));
    }
    return open_made_tokenizer(&file);
}

static void run_golden(const char *name, const char *model, size_t least)
{
    json_t *root = open_golden(name);
    tokenizer *tok = open_golden_vocabulary(root, model);
    const json_t *cases = json_object_get(root, "cases");

    assert_true(json_array_size(cases) >= least);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *item = json_array_get(cases, i), *ids = json_object_get(item, "ids");
        const json_t *text = json_object_get(item, "text");
        uint32_t expected[2048];
        assert_true(json_array_size(ids) <= 2048);
        for (size_t k = 0; k < json_array_size(ids); k++)
            expected[k] = (uint32_t)json_integer_value(json_array_get(ids, k));
        assert_encodes(tok, json_string_value(text), json_string_length(text), false, expected,
                       json_array_size(ids));
        assert_round_trip(tok, json_string_value(text), json_string_length(text), false);
    }
    tokenizer_close(tok);
    json_decref(root);
}

/* ---- rwkv ------------------------------------------------------------------------------------ */

static void rwkv_takes_the_longest_token(void **state)
{
    model_file file = {0};
    (void)state;

    put_small_rwkv(&file);
    tokenizer *tok = open_made_tokenizer(&file);
    assert_string_equal(tokenizer_kind(tok), "rwkv");
    ENCODES(tok, "ab", true, RWKV_AB);
    ENCODES(tok, "abc", true, RWKV_AB); /* c has no token, and there is no unknown one */
    ENCODES(tok, "abcd", true, RWKV_ABCD);
    ENCODES(tok, "abcabcd", true, RWKV_AB, RWKV_ABCD);
    ENCODES(tok, "\n\n\n", true, RWKV_LINES, RWKV_LINE);
    ENCODES(tok, "\\'\\n", true, RWKV_BACK, RWKV_QUOTE, RWKV_BACK, RWKV_N);
    ENCODES(tok, " \tb", true, RWKV_SPACE_TAB, RWKV_B);
    ENCODES(tok, "\xE2\x96\x81", true, RWKV_HALF); /* half a character is a token */
    ENCODES(tok, "a<s>b", true, RWKV_A, 0, RWKV_B);
    ENCODES(tok, "a<s>b", false, RWKV_A, RWKV_B);
    assert_true(tokenizer_ends(tok, RWKV_LINES));
    assert_true(tokenizer_ends(tok, 0));
    assert_false(tokenizer_adds_bos(tok));
    size_t length;
    const char *piece = tokenizer_piece(tok, RWKV_LINES, false, &length);
    assert_int_equal(length, 2);
    assert_memory_equal(piece, "\n\n", 2);
    piece = tokenizer_spelling(tok, RWKV_LINES, &length);
    assert_int_equal(length, 4);
    assert_memory_equal(piece, "\\n\\n", 4);
    tokenizer_close(tok);
}

/* Escapes that are none stand for what is there; of two spellings of one text the later one counts;
 * a byte without a token is the unknown one, where there is one. */
static void rwkv_odd_spellings(void **state)
{
    static const token_row rows[] = {
        {"<unk>", 2, 0}, {"\\x4", 1, 0},     {"\\xzz", 1, 0}, {"z\\", 1, 0},
        {"A", 1, 0},     {"\\x41\\q", 1, 0}, {"\\x41", 1, 0},
    };
    model_file file = {0};
    (void)state;

    put_tokens(&file, "rwkv", rows, 7, false);
    put_u32(&file, "tokenizer.ggml.unknown_token_id", 0);
    tokenizer *tok = open_made_tokenizer(&file);
    ENCODES(tok, "x4", true, 1);
    ENCODES(tok, "xzz", true, 2);
    ENCODES(tok, "z\\", true, 3);
    ENCODES(tok, "A", true, 6);
    ENCODES(tok, "Aq", true, 5);
    ENCODES(tok, "?A", true, 0, 6);
    tokenizer_close(tok);
}

static void rwkv_world(void **state)
{
    (void)state;
    run_golden("rwkv-world.json", "rwkv", 16);
}

/* ---- plamo2 ---------------------------------------------------------------------------------- */

static void plamo2_takes_the_cheapest_cut(void **state)
{
    model_file file = {0};
    (void)state;

    put_small_plamo2(&file);
    tokenizer *tok = open_made_tokenizer(&file);
    assert_string_equal(tokenizer_kind(tok), "plamo2");
    ENCODES(tok, "abc", true, ABC); /* -5; ab c is -14, a bc -11 */
    ENCODES(tok, "bcab", true, BC, AB);
    ENCODES(tok, "ab<s>\xC3\xA9", true, AB, 1, BYTES + 0xC3, BYTES + 0xA9);
    ENCODES(tok, "<s", true, LESS_S);
    ENCODES(tok, "<s>", false, LESS_S, BYTES + '>');
    ENCODES(tok, "x y\xFF", true, USER, BYTES + 0xEF, BYTES + 0xBF, BYTES + 0xBD);
    assert_int_equal(tokenizer_bos(tok), 1);
    assert_int_equal(tokenizer_eos(tok), 2);
    assert_false(tokenizer_adds_bos(tok));
    tokenizer_close(tok);
}

static void plamo2_golden(void **state)
{
    (void)state;
    run_golden("plamo2.json", "plamo2", 70);
}

/* ---- whitespace, hybriddna ------------------------------------------------------------------- */

static void whitespace_leaves_no_space(void **state)
{
    (void)state;
    for (int lower = 0; lower < 2; lower++) {
        model_file file = {0};
        put_small_whitespace(&file, lower);
        tokenizer *tok = open_made_tokenizer(&file);
        assert_string_equal(tokenizer_kind(tok), "whitespace");
        ENCODES(tok,
                "ab  c\t\n abc\xE3\x80\x80"
                "ab",
                true, AB, C, ABC, AB);
        ENCODES(tok, "a\xC3\xA9", true, A, BYTES + 0xC3, BYTES + 0xA9);
        if (lower)
            ENCODES(tok, "AB Abc", true, AB, ABC);
        else
            ENCODES(tok, "AB", true, BYTES + 'A', BYTES + 'B');
        assert_encodes(tok, " \n ", 3, true, NULL, 0);
        tokenizer_close(tok);
    }
}

static void hybriddna_cuts_sequences_in_sixes(void **state)
{
    model_file file = {0};
    strbuf text = {0};
    (void)state;

    put_small_hybriddna(&file);
    tokenizer *tok = open_made_tokenizer(&file);
    assert_string_equal(tokenizer_kind(tok), "hybriddna (qwen2)");
    ENCODES(tok, "CCC", true, DNA_CC, 'C');
    ENCODES(tok, "<dna>ACGTACCCCCCC</dna>", true, DNA_BEGIN, DNA_ACGTAC, DNA_CCCCCC, DNA_END);
    ENCODES(tok, "<dna>acgtacg</dna>CC", true, DNA_BEGIN, DNA_ACGTAC, DNA_GAAAAA, DNA_END, DNA_CC);
    ENCODES(tok, "CC<dna>NNNNNN", true, DNA_CC, DNA_BEGIN, DNA_OOV);
    ENCODES(tok, "<dna></dna><dna>", true, DNA_BEGIN, DNA_END, DNA_BEGIN);
    ENCODES(tok, "</dna>", true, '<', '/', 'd', 'n', 'a', '>');
    const uint32_t ids[] = {DNA_BEGIN, DNA_ACGTAC, DNA_END, DNA_CC};
    assert_int_equal(tokenizer_decode(tok, ids, 4, false, &text, NULL), TEMPER_OK);
    assert_string_equal(strbuf_text(&text), "<dna>ACGTAC</dna>CC");
    strbuf_free(&text);
    tokenizer_close(tok);

    /* Without the three tokens it is text like other text. */
    put_small_vocabulary(&file, "qwen2");
    tok = open_made_tokenizer(&file);
    ENCODES(tok, "<dna>", true, '<', 'd', 'n', 'a', '>');
    tokenizer_close(tok);
}

/* ---- pre-tokenisers -------------------------------------------------------------------------- */

/* The same files under another key: no kind of its own, but the pre-tokeniser says how. */
static void marked_spaces_by_pretokenizer(void **state)
{
    static const struct {
        const char *pre;
        bool whole_line_ends, adds_bos;
    } rows[] = {{"gemma4", true, true},
                {"granite-embed-multi-311m", true, true},
                {"sarvam-moe", false, false}};
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        static const token_row lines[] = {{"<s>", 3, 0}, {"\n", 1, 0},    {"\n\n", 1, 0},
                                          {"a", 1, 0},   {"b", 1, 0},     {"ab", 1, 0},
                                          {MARK, 1, 0},  {MARK "a", 1, 0}};
        model_file file = {0};
        put_tokens(&file, "gpt2", lines, 8, true);
        put_string(&file, "tokenizer.ggml.pre", rows[i].pre);
        put_array(&file, "tokenizer.ggml.merges", GGUF_STRING, 2);
        gguf_put_string(&file.keys, "a b");
        gguf_put_string(&file.keys, MARK " a");
        put_u32(&file, "tokenizer.ggml.bos_token_id", 0);
        tokenizer *tok = open_made_tokenizer(&file);
        ENCODES(tok, "ab a", true, 5, 7);
        ENCODES(tok, "a\xC3\xA9", true, 3, 8 + 0xC3, 8 + 0xA9);
        if (rows[i].whole_line_ends)
            ENCODES(tok, "a\n\n", true, 3, 2);
        else
            ENCODES(tok, "a\n\n", true, 3, 1, 1);
        assert_int_equal(tokenizer_adds_bos(tok), rows[i].adds_bos);
        assert_non_null(strstr(tokenizer_kind(tok), rows[i].pre));
        size_t length;
        assert_memory_equal(tokenizer_piece(tok, 7, false, &length), " a", 2);
        tokenizer_close(tok);
    }
}

typedef struct cut {
    const json_t *words; /* lengths in characters */
    size_t at;
} cut;

static temper_status check_word(void *user, const char *word, size_t length, error *err)
{
    cut *c = user;
    json_int_t characters = 0;
    for (size_t i = 0; i < length; i++)
        characters += ((uint8_t)word[i] & 0xC0) != 0x80;
    if (characters != json_integer_value(json_array_get(c->words, c->at)))
        return error_set(err, TEMPER_INTERNAL, "word %zu has %lld characters, not %lld", c->at,
                         (long long)characters,
                         (long long)json_integer_value(json_array_get(c->words, c->at)));
    c->at++;
    return TEMPER_OK;
}

static void check_words(const char *name, const json_t *texts, const json_t *words)
{
    splitter s = {0};
    split_work work = {0};
    pretokenizer_traits traits;
    error err = {0};
    if (pretokenizer_open((gguf_string){name, strlen(name)}, &traits, &s, &err) != TEMPER_OK)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const json_t *text = json_array_get(texts, i);
        cut c = {.words = json_array_get(words, i)};
        if (splitter_run(&s, &work, json_string_value(text), json_string_length(text), true,
                         check_word, &c, &err) != TEMPER_OK)
            fail_msg("%s, text %zu: %s", name, i, err.text);
        assert_int_equal(c.at, json_array_size(c.words));
    }
    split_work_free(&work);
    splitter_free(&s);
}

/* Every name but deepseek-llm, which has vectors (text_vectors.c). */
static void words_of_every_pretokenizer(void **state)
{
    json_t *root = open_golden("words.json");
    const json_t *texts = json_object_get(root, "texts");
    const json_t *families = json_object_get(root, "families");
    size_t names = 0;
    (void)state;

    for (size_t i = 0; i < json_array_size(families); i++) {
        const json_t *family = json_array_get(families, i),
                     *list = json_object_get(family, "names");
        for (size_t k = 0; k < json_array_size(list); k++, names++)
            check_words(json_string_value(json_array_get(list, k)), texts,
                        json_object_get(family, "words"));
    }
    assert_int_equal(names, 87);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rwkv_takes_the_longest_token),
        cmocka_unit_test(rwkv_odd_spellings),
        cmocka_unit_test(rwkv_world),
        cmocka_unit_test(plamo2_takes_the_cheapest_cut),
        cmocka_unit_test(plamo2_golden),
        cmocka_unit_test(whitespace_leaves_no_space),
        cmocka_unit_test(hybriddna_cuts_sequences_in_sixes),
        cmocka_unit_test(marked_spaces_by_pretokenizer),
        cmocka_unit_test(words_of_every_pretokenizer),
    };
    return cmocka_run_group_tests_name("text_other_kinds", tests, NULL, NULL);
}
