/*
 * text_vectors.c - tokenizers of real models against ids computed elsewhere: llama.cpp's vocabulary
 * files with their .inp and .out (node-llama-cpp 3.21.1, models/), and golden/text/smollm.json.
 */
#include "text_files.h"

#include <time.h>

#include <jansson.h>

#include "base/random.h"

static char *read_all(const char *path, size_t *length)
{
    error err = {0};
    source *src = NULL;

    if (source_open_file(path, &src, &err) != TEMPER_OK)
        fail_msg("%s", err.text);
    char *bytes = malloc(src->size + 1);
    assert_non_null(bytes);
    if (source_read(src, 0, bytes, src->size, &err) != TEMPER_OK)
        fail_msg("%s", err.text);
    *length = src->size;
    bytes[*length] = '\0';
    source_close(src);
    return bytes;
}

static tokenizer *open_tokenizer(const char *path, error *err)
{
    source *src = NULL;
    gguf_file *gguf = NULL;
    tokenizer *tok = NULL;

    if (source_open_file(path, &src, err) == TEMPER_OK && gguf_open(src, &gguf, err) == TEMPER_OK)
        tokenizer_open(gguf, &tok, err);
    gguf_close(gguf);
    return tok;
}

static void vocab_path(char out[512], const char *name, const char *suffix)
{
    snprintf(out, 512, "%s/vocab/ggml-vocab-%s.gguf%s", TEST_PARTS, name, suffix);
}

static tokenizer *open_vocab(const char *name)
{
    char path[512];
    error err = {0};

    vocab_path(path, name, "");
    tokenizer *tok = open_tokenizer(path, &err);
    if (tok == NULL)
        fail_msg("%s", err.text);
    return tok;
}

/* Compares with a line of ids. */
static void assert_ids(const token_list *ids, const char *line, const char *name, int number)
{
    size_t count = 0;
    char *end;

    for (const char *at = line;; at = end, count++) {
        const long id = strtol(at, &end, 10);
        if (end == at)
            break;
        if (count >= ids->count || ids->ids[count] != (uint32_t)id)
            fail_msg("%s, case %d: id %zu differs from %ld", name, number, count, id);
    }
    if (count != ids->count)
        fail_msg("%s, case %d: %zu ids, not %zu", name, number, ids->count, count);
}

static void run_vectors(const char *name, int least_cases)
{
    static const char separator[] = "\n__ggml_vocab_test__\n";
    char path[512];
    size_t length;
    token_list ids = {0};
    tokenizer *tok = open_vocab(name);
    vocab_path(path, name, ".inp");
    char *input = read_all(path, &length);
    vocab_path(path, name, ".out");
    char *output = read_all(path, &length);

    int cases = 0;
    char *line = output;
    for (char *text = input, *next; text != NULL && *text != '\0'; text = next) {
        char *end = strstr(text, separator);
        next = end == NULL ? NULL : end + strlen(separator);
        char *line_end = strchr(line, '\n');
        assert_non_null(line_end);
        *line_end = '\0';
        const size_t text_length = end == NULL ? strlen(text) : (size_t)(end - text);
        encode_to(tok, text, text_length, false, &ids);
        assert_ids(&ids, line, name, ++cases);
        line = line_end + 1;
    }
    assert_true(cases >= least_cases);
    printf("%s: %d cases\n", tokenizer_kind(tok), cases);
    token_list_free(&ids);
    tokenizer_close(tok);
    free(input);
    free(output);
}

static void vectors_gpt_2(void **state) { (void)state; run_vectors("gpt-2", 46); }
static void vectors_llama_bpe(void **state) { (void)state; run_vectors("llama-bpe", 46); }
static void vectors_qwen2(void **state) { (void)state; run_vectors("qwen2", 46); }
static void vectors_qwen35(void **state) { (void)state; run_vectors("qwen35", 50); }
static void vectors_mpt(void **state) { (void)state; run_vectors("mpt", 46); }
static void vectors_starcoder(void **state) { (void)state; run_vectors("starcoder", 46); }
static void vectors_refact(void **state) { (void)state; run_vectors("refact", 46); }
static void vectors_command_r(void **state) { (void)state; run_vectors("command-r", 46); }
static void vectors_falcon(void **state) { (void)state; run_vectors("falcon", 46); }
static void vectors_deepseek_llm(void **state) { (void)state; run_vectors("deepseek-llm", 46); }
static void vectors_deepseek_coder(void **state) { (void)state; run_vectors("deepseek-coder", 46); }
static void vectors_gemma_4(void **state) { (void)state; run_vectors("gemma-4", 45); }
static void vectors_llama_spm(void **state) { (void)state; run_vectors("llama-spm", 46); }
static void vectors_phi_3(void **state) { (void)state; run_vectors("phi-3", 46); }
static void vectors_bert_bge(void **state) { (void)state; run_vectors("bert-bge", 46); }

/* "Hello world! Café déjà vu — 123 😊": its ids in the default model are a case of golden_smollm. */
static const char hello[] = "Hello world! Caf\xC3\xA9 d\xC3\xA9j\xC3\xA0 vu \xE2\x80\x94 123 "
                            "\xF0\x9F\x98\x8A";

static void hello_cafe_in_every_vocabulary(void **state)
{
    static const char *const names[] = {"gpt-2",  "llama-bpe",    "qwen2",         "command-r",
                                        "falcon", "deepseek-llm", "deepseek-coder"};
    (void)state;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tokenizer *tok = open_vocab(names[i]);
        assert_round_trip(tok, hello, strlen(hello), false);
        tokenizer_close(tok);
    }
}

/* Vocabularies that come without vectors: they open, and bring text back. */
static void spm_without_vectors(void **state)
{
    static const char *const names[] = {"baichuan", "llama-spm", "phi-3", "gemma-4"};
    (void)state;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tokenizer *tok = open_vocab(names[i]);
        token_list ids = {0};
        strbuf text = {0};
        encode_to(tok, hello, strlen(hello), true, &ids);
        assert_int_equal(tokenizer_decode(tok, ids.ids, ids.count, false, &text, NULL), TEMPER_OK);
        assert_string_equal(strbuf_text(&text), hello);
        assert_true(ids.count > 10 && ids.count < strlen(hello));
        strbuf_free(&text);
        token_list_free(&ids);
        tokenizer_close(tok);
    }
}

/* XLM-RoBERTa's ids of texts, as Hugging Face gives them; its normaliser and its mask. */
static void unigram_without_vectors(void **state)
{
    static const struct {
        const char *text;
        uint32_t ids[16];
        size_t count;
    } rows[] = {
        {"Hello world!", {35378, 8999, 38}, 3},
        {" Hello  world ", {35378, 8999}, 2},
        {"\xEF\xAC\x81ne", {5885}, 1},   /* the ligature becomes two letters */
        {"a <mask> b", {10, 250001, 876}, 3},
    };
    tokenizer *tok = open_vocab("nomic-bert-moe");
    (void)state;

    assert_string_equal(tokenizer_kind(tok), "t5");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        token_list ids = {0};
        encode_to(tok, rows[i].text, strlen(rows[i].text), true, &ids);
        if (ids.count != rows[i].count
            || memcmp(ids.ids, rows[i].ids, ids.count * sizeof *ids.ids) != 0)
            fail_msg("%s: %zu ids, %u first", rows[i].text, ids.count, ids.ids[0]);
        token_list_free(&ids);
    }
    assert_true(tokenizer_adds_bos(tok));
    assert_true(tokenizer_adds_eos(tok));
    tokenizer_close(tok);
}

static void other_vocabularies_are_refused_by_name(void **state)
{
    static const struct {
        const char *name, *says;
    } rows[] = {
        {"aquila", "tokenizer.ggml.pre is missing"},
        {"gpt-neox", "tokenizer.ggml.pre is missing"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[512];
        error err = {0};
        vocab_path(path, rows[i].name, "");
        assert_null(open_tokenizer(path, &err));
        assert_int_equal(err.status, TEMPER_UNSUPPORTED);
        assert_non_null(strstr(err.text, rows[i].says));
        assert_non_null(strstr(err.text, path));
    }
}

static void random_bytes_come_back(void **state)
{
    static const char *const names[] = {"gpt-2", "llama-bpe", "qwen2", "gemma-4"};
    (void)state;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tokenizer *tok = open_vocab(names[i]);
        random_state random = {.state = 7 + i};
        for (int round = 0; round < 300; round++) {
            char text[257];
            const size_t length = random_u64(&random) % sizeof text;
            /* Bytes at large, then mostly letters, spaces and line ends. */
            for (size_t k = 0; k < length; k++) {
                const uint64_t r = random_u64(&random);
                text[k] = round % 2 == 0 ? (char)r : "aeb  \n\r\t'1\xC3\xA9.<|>"[r % 17];
            }
            assert_round_trip(tok, text, length, round % 3 == 0);
        }
        tokenizer_close(tok);
    }
}

static void licence_text_comes_back(void **state)
{
    size_t length;
    char *text = read_all("/usr/share/common-licenses/GPL-3", &length);
    tokenizer *tok = open_vocab("llama-bpe");
    token_list ids = {0};
    (void)state;

    const clock_t begin = clock();
    encode_to(tok, text, length, true, &ids);
    printf("%zu bytes, %zu tokens, %.1f ms\n", length, ids.count,
           1e3 * (double)(clock() - begin) / CLOCKS_PER_SEC);
    assert_round_trip(tok, text, length, true);
    token_list_free(&ids);
    tokenizer_close(tok);
    free(text);
}

/* A word of a million bytes must cost n log n, not n squared: the test's time limit holds it. */
static void million_letters_are_one_word(void **state)
{
    enum { LENGTH = 1000000 };
    char *text = malloc(LENGTH);
    (void)state;

    assert_non_null(text);
    for (int c = 0; c < 2; c++) {
        memset(text, "a "[c], LENGTH);
        tokenizer *tok = open_vocab("qwen2");
        assert_round_trip(tok, text, LENGTH, true);
        tokenizer_close(tok);
    }
    free(text);
}

static void ends_and_bos_of_real_files(void **state)
{
    tokenizer *tok = open_vocab("llama-bpe");
    (void)state;

    assert_int_equal(tokenizer_bos(tok), 128000);
    assert_true(tokenizer_adds_bos(tok));   /* the file says nothing; this family adds it */
    assert_true(tokenizer_ends(tok, 128001));
    assert_true(tokenizer_ends(tok, 128009));   /* <|eot_id|>, which no key of the file names */
    assert_false(tokenizer_ends(tok, 128006));
    tokenizer_close(tok);

    tok = open_vocab("qwen2");
    assert_false(tokenizer_adds_bos(tok));
    assert_true(tokenizer_ends(tok, 151643));
    assert_true(tokenizer_ends(tok, 151645));
    tokenizer_close(tok);

    tok = open_vocab("command-r");
    assert_int_equal(tokenizer_eos(tok), 255001);   /* not one of the usual names */
    assert_true(tokenizer_ends(tok, 255001));
    assert_true(tokenizer_adds_bos(tok));
    assert_false(tokenizer_adds_eos(tok));
    tokenizer_close(tok);
}

/* ---- the default model ----------------------------------------------------------------------- */

static tokenizer *open_default_model(void)
{
    static const char path[] = TEST_PARTS "/../models/SmolLM2-135M-Instruct-Q4_1.gguf";
    error err = {0};
    tokenizer *tok = open_tokenizer(path, &err);

    if (tok == NULL)
        fail_msg("%s", err.text);
    return tok;
}

static void assert_json_ids(const token_list *ids, const json_t *expected, size_t number)
{
    if (ids->count != json_array_size(expected))
        fail_msg("case %zu: %zu ids, not %zu", number, ids->count, json_array_size(expected));
    for (size_t i = 0; i < ids->count; i++) {
        const json_int_t id = json_integer_value(json_array_get(expected, i));
        if (ids->ids[i] != id)
            fail_msg("case %zu: id %zu is %u, not %lld", number, i, ids->ids[i], (long long)id);
    }
}

static void golden_smollm(void **state)
{
    json_error_t problem;
    json_t *root = json_load_file(TEST_GOLDEN "/text/smollm.json", JSON_ALLOW_NUL, &problem);
    tokenizer *tok = open_default_model();
    token_list ids = {0};
    strbuf joined = {0};
    size_t number;
    json_t *item;
    (void)state;

    assert_non_null(root);
    json_t *cases = json_object_get(root, "cases");
    assert_true(json_array_size(cases) >= 90);
    json_array_foreach(cases, number, item)
    {
        const json_t *text = json_object_get(item, "text");
        const char *bytes = json_string_value(text);
        const size_t length = json_string_length(text);

        encode_to(tok, bytes, length, false, &ids);
        assert_json_ids(&ids, json_object_get(item, "plain"), number);
        encode_to(tok, bytes, length, true, &ids);
        assert_json_ids(&ids, json_object_get(item, "special"), number);
        strbuf_clear(&joined);
        join_pieces(tok, &ids, &joined);
        const bool same = joined.length == length
                          && (length == 0 || memcmp(joined.data, bytes, length) == 0);
        assert_int_equal(same, json_is_true(json_object_get(item, "lossless")));
    }
    assert_string_equal(tokenizer_kind(tok), "gpt2 (smollm)");
    assert_true(tokenizer_ends(tok, 2));
    assert_false(tokenizer_ends(tok, 1));
    assert_false(tokenizer_adds_bos(tok));
    strbuf_free(&joined);
    token_list_free(&ids);
    tokenizer_close(tok);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_gpt_2),
        cmocka_unit_test(vectors_llama_bpe),
        cmocka_unit_test(vectors_qwen2),
        cmocka_unit_test(vectors_qwen35),
        cmocka_unit_test(vectors_mpt),
        cmocka_unit_test(vectors_starcoder),
        cmocka_unit_test(vectors_refact),
        cmocka_unit_test(vectors_command_r),
        cmocka_unit_test(vectors_falcon),
        cmocka_unit_test(vectors_deepseek_llm),
        cmocka_unit_test(vectors_deepseek_coder),
        cmocka_unit_test(vectors_gemma_4),
        cmocka_unit_test(vectors_llama_spm),
        cmocka_unit_test(vectors_phi_3),
        cmocka_unit_test(vectors_bert_bge),
        cmocka_unit_test(hello_cafe_in_every_vocabulary),
        cmocka_unit_test(spm_without_vectors),
        cmocka_unit_test(unigram_without_vectors),
        cmocka_unit_test(other_vocabularies_are_refused_by_name),
        cmocka_unit_test(random_bytes_come_back),
        cmocka_unit_test(licence_text_comes_back),
        cmocka_unit_test(million_letters_are_one_word),
        cmocka_unit_test(ends_and_bos_of_real_files),
        cmocka_unit_test(golden_smollm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
