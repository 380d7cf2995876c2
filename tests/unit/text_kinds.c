/*
 * text_kinds.c - the other kinds of vocabulary in model files, small ones made here: merging by
 * score ("llama"), characters ("gemma4"), word pieces ("bert"), unigrams ("t5"); their rules, files
 * that are wrong, memory. The rest is in text_other_kinds.c.
 */
#include "text_small.h"

#include "base/mem.h"
#include "base/random.h"
#include "text/stream.h"

static void assert_encodes(const tokenizer *tok, const char *text, size_t length, bool special,
                           const uint32_t *expected, size_t count)
{
    token_list ids = {0};

    encode_to(tok, text, length, special, &ids);
    if (ids.count != count)
        fail_msg("\"%s\": %zu ids, not %zu", text, ids.count, count);
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

/* ---- merging by score ------------------------------------------------------------------------ */


static tokenizer *open_spm(bool bytes, int prefix)
{
    model_file file = {0};

    put_tokens(&file, "llama", spm_rows, BYTES, bytes);
    if (prefix >= 0)
        put_bool(&file, "tokenizer.ggml.add_space_prefix", prefix);
    return open_made_tokenizer(&file);
}

static void spm_merges_the_best_pair(void **state)
{
    tokenizer *tok = open_spm(true, false);
    (void)state;

    assert_string_equal(tokenizer_kind(tok), "llama");
    ENCODES(tok, "ab", true, AB);
    ENCODES(tok, "abc", true, ABC);      /* bc first, then a with bc */
    ENCODES(tok, "abcab", true, ABC, AB);
    ENCODES(tok, "aab", true, A, AB);
    ENCODES(tok, "bcc", true, BC, C);
    ENCODES(tok, " ab", true, SPACE_AB);
    ENCODES(tok, "  ab", true, SPACE, SPACE_AB);
    ENCODES(tok, "\xC3\xA9", true, BYTES + 0xC3, BYTES + 0xA9);
    ENCODES(tok, "a\n", true, A, BYTES + 10);
    ENCODES(tok, "\xC3" "ab", true, BYTES + 0xC3, AB);   /* the broken byte takes nothing with it */
    ENCODES(tok, "ax yb", true, A, USER, B);
    ENCODES(tok, "a\0b", true, A, BYTES, B);
    tokenizer_close(tok);
}

/* Of two pairs with one score the left one goes first; -0 is 0. */
static void spm_ties_go_to_the_left(void **state)
{
    static const token_row rows[] = {
        {"<unk>", 2, 0}, {"a", 1, -1}, {"aa", 1, -0.0f}, {"b", 1, -1}, {"ab", 1, 0.0f},
        {"aaa", 1, 1},
    };
    model_file file = {0};
    (void)state;

    put_tokens(&file, "llama", rows, 5, false);
    put_bool(&file, "tokenizer.ggml.add_space_prefix", false);
    tokenizer *tok = open_made_tokenizer(&file);
    ENCODES(tok, "aaa", true, 2, 1);
    ENCODES(tok, "aab", true, 2, 3);
    ENCODES(tok, "aaaa", true, 2, 2);
    tokenizer_close(tok);
    /* With a better one that needs the first. */
    put_tokens(&file, "llama", rows, 6, false);
    put_bool(&file, "tokenizer.ggml.add_space_prefix", false);
    tok = open_made_tokenizer(&file);
    ENCODES(tok, "aaa", true, 5);
    ENCODES(tok, "aaaa", true, 5, 1);
    tokenizer_close(tok);
}

static void spm_puts_a_space_before_every_part(void **state)
{
    tokenizer *tok = open_spm(true, -1);
    (void)state;

    assert_true(tokenizer_strips_space(tok));
    ENCODES(tok, "ab", true, SPACE_AB);
    ENCODES(tok, " ab", true, SPACE, SPACE_AB);
    ENCODES(tok, "<s>ab", true, 1, SPACE_AB);
    ENCODES(tok, "ab<s>ab</s>", true, SPACE_AB, 1, SPACE_AB, 2);
    assert_encodes(tok, "", 0, true, NULL, 0);
    tokenizer_close(tok);
    tok = open_spm(true, true);
    ENCODES(tok, "ab", true, SPACE_AB);
    tokenizer_close(tok);
}

/* Text never becomes a mark or the token of a byte, even where its letters spell one. */
static void spm_text_is_no_mark(void **state)
{
    tokenizer *tok = open_spm(true, false);
    (void)state;

    ENCODES(tok, "<s>", true, 1);
    ENCODES(tok, "<s>", false, LESS_S, BYTES + '>');
    assert_round_trip(tok, "<0x0A>", 6, true);
    assert_round_trip(tok, "<unk></s>", 9, false);
    tokenizer_close(tok);
}

static void spm_without_bytes(void **state)
{
    tokenizer *tok = open_spm(false, false);
    (void)state;

    ENCODES(tok, "aza", true, A, 0, A);   /* the unknown token */
    ENCODES(tok, "\xFF", true, 0);
    tokenizer_close(tok);
}

static void spm_usual_ids(void **state)
{
    tokenizer *tok = open_spm(true, -1);
    (void)state;

    assert_int_equal(tokenizer_bos(tok), 1);
    assert_int_equal(tokenizer_eos(tok), 2);
    assert_true(tokenizer_adds_bos(tok));
    assert_false(tokenizer_adds_eos(tok));
    assert_true(tokenizer_ends(tok, 2));
    tokenizer_close(tok);
    /* An eos that is not the usual id. */
    model_file file = {0};
    put_tokens(&file, "llama", spm_rows, BYTES, true);
    put_u32(&file, "tokenizer.ggml.eos_token_id", ABC);
    put_bool(&file, "tokenizer.ggml.add_bos_token", false);
    tok = open_made_tokenizer(&file);
    assert_int_equal(tokenizer_eos(tok), ABC);
    assert_true(tokenizer_ends(tok, ABC));
    assert_false(tokenizer_adds_bos(tok));
    tokenizer_close(tok);
}

static void spm_pieces_stream(void **state)
{
    static const uint32_t ids[] = {1, SPACE_AB, BYTES + 0xC3, BYTES + 0xA9, SPACE, USER,
                                   BYTES + 0xF0};
    tokenizer *tok = open_spm(true, -1);
    (void)state;

    for (int begins = 0; begins < 2; begins++) {
        const char *expected = begins ? "ab\xC3\xA9 x y\xEF\xBF\xBD"
                                      : " ab\xC3\xA9 x y\xEF\xBF\xBD";
        text_stream *stream = NULL;
        strbuf text = {0};
        bool stopped;
        assert_int_equal(text_stream_open(tok, NULL, 0, &stream, NULL), TEMPER_OK);
        if (begins)
            text_stream_begin_text(stream);
        for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
            assert_int_equal(text_stream_push(stream, ids[i], &text, &stopped, NULL), TEMPER_OK);
            if (i == 2)
                assert_string_equal(strbuf_text(&text), begins ? "ab" : " ab");
        }
        assert_int_equal(text_stream_finish(stream, &text, NULL), TEMPER_OK);
        assert_string_equal(strbuf_text(&text), expected);
        text_stream_close(stream);
        strbuf_free(&text);
    }
    tokenizer_close(tok);
}

static void spm_round_trips(void **state)
{
    tokenizer *tok = open_spm(true, false);
    random_state random = {.state = 3};
    (void)state;

    for (int round = 0; round < 2000; round++) {
        char text[64];
        const size_t length = random_u64(&random) % sizeof text;
        for (size_t i = 0; i < length; i++)
            text[i] = round % 2 == 0 ? (char)random_u64(&random)
                                     : "abc <s>x y\xC3\xA9\xE2\x96\x80"[random_u64(&random) % 15];
        assert_round_trip(tok, text, length, round % 3 == 0);
    }
    tokenizer_close(tok);
}

/* A million letters merge in n log n. */
static void spm_long_texts(void **state)
{
    enum { LENGTH = 1000000 };
    tokenizer *tok = open_spm(true, -1);
    char *text = malloc(LENGTH);
    token_list ids = {0};
    (void)state;

    assert_non_null(text);
    for (int i = 0; i < LENGTH; i++)
        text[i] = "abc"[i % 3];
    encode_to(tok, text, LENGTH, true, &ids);
    assert_true(ids.count > LENGTH / 3 && ids.count < LENGTH / 3 + 10);
    token_list_free(&ids);
    tokenizer_close(tok);
    free(text);
}

/* ---- characters ------------------------------------------------------------------------------ */

static void gemma4_merges_characters_in_lines(void **state)
{
    static const token_row rows[] = {
        {"<pad>", 3, 0}, {"<eos>", 3, 0}, {"<bos>", 3, 0}, {"a", 1, 0}, {MARK, 1, 0},
        {MARK "a", 1, 0}, {"\n", 1, 0}, {"\n\n", 1, 0}, {"\n\n\n", 1, 0}, {"\xC3\xA9", 1, 0},
    };
    model_file file = {0};
    (void)state;

    put_tokens(&file, "gemma4", rows, 10, true);
    put_array(&file, "tokenizer.ggml.merges", GGUF_STRING, 1);
    gguf_put_string(&file.keys, MARK " a");
    put_u32(&file, "tokenizer.ggml.bos_token_id", 2);
    put_u32(&file, "tokenizer.ggml.eos_token_id", 1);
    tokenizer *tok = open_made_tokenizer(&file);
    ENCODES(tok, "a a", true, 3, 5);
    ENCODES(tok, " a\n\n\na", true, 5, 8, 3);   /* lines' ends are whole tokens, without merges */
    ENCODES(tok, "\n\n\n\n", true, 6, 6, 6, 6);
    ENCODES(tok, "\xC3\xA9\xC3\xA8", true, 9, 10 + 0xC3, 10 + 0xA8);
    ENCODES(tok, "a\xFF", true, 3, 10 + 0xFF);
    assert_false(tokenizer_strips_space(tok));
    assert_true(tokenizer_adds_bos(tok));
    assert_round_trip(tok, " a\n\n\xC3\xA8\xFF a", 10, true);
    tokenizer_close(tok);
}

/* ---- word pieces ----------------------------------------------------------------------------- */

static tokenizer *open_bert(int lower)
{
    model_file file = {0};

    put_tokens(&file, "bert", bert_rows, 12, false);
    put_u32(&file, "tokenizer.ggml.unknown_token_id", 1);
    put_u32(&file, "tokenizer.ggml.cls_token_id", 2);
    put_u32(&file, "tokenizer.ggml.seperator_token_id", 3);
    if (lower >= 0)
        put_bool(&file, "tokenizer.ggml.normalizer.lowercase", lower);
    return open_made_tokenizer(&file);
}

static void bert_takes_the_longest_pieces(void **state)
{
    tokenizer *tok = open_bert(-1);
    strbuf text = {0};
    (void)state;

    ENCODES(tok, "hello", true, 5);
    ENCODES(tok, "HELLO hel", true, 5, 4, 7);
    ENCODES(tok, "hellollo", true, 5, 6);
    ENCODES(tok, "hexllo he", true, 1, 4);       /* one unknown word, whole */
    ENCODES(tok, "hello!!", true, 5, 8, 8);
    ENCODES(tok, "he\xE4\xBD\xA0llo", true, 4, 9, 1);
    ENCODES(tok, "Caf\xC3\xA9 cafe\xCC\x81", true, 10, 10);
    ENCODES(tok, "[CLS] he [SEP]", true, 2, 4, 3);
    assert_encodes(tok, " \t\n", 3, true, NULL, 0);
    ENCODES(tok, "he\x07\0llo\xFF", true, 5);   /* control characters and broken bytes go */
    assert_int_equal(tokenizer_bos(tok), 2);
    assert_int_equal(tokenizer_eos(tok), 3);
    assert_true(tokenizer_adds_bos(tok));
    assert_true(tokenizer_adds_eos(tok));
    const uint32_t ids[] = {2, 5, 4, 6, 8};
    assert_int_equal(tokenizer_decode(tok, ids, 5, false, &text, NULL), TEMPER_OK);
    assert_string_equal(strbuf_text(&text), "hello hello !");
    strbuf_free(&text);
    tokenizer_close(tok);
    tok = open_bert(false);
    ENCODES(tok, "HE caf\xC3\xA9", true, 1, 11);
    tokenizer_close(tok);
}

/* ---- unigrams -------------------------------------------------------------------------------- */

static tokenizer *open_t5(bool prefix, bool merge, bool charsmap)
{
    model_file file = {0};

    put_tokens(&file, "t5", t5_rows, 11, false);
    put_bool(&file, "tokenizer.ggml.add_space_prefix", prefix);
    put_bool(&file, "tokenizer.ggml.remove_extra_whitespaces", merge);
    if (charsmap)
        put_small_charsmap(&file);
    return open_made_tokenizer(&file);
}

static void t5_takes_the_best_path(void **state)
{
    tokenizer *tok = open_t5(false, false, true);
    (void)state;

    ENCODES(tok, "ab", true, 6);
    ENCODES(tok, "aa", true, 9);      /* -8 either way: the one that was there first */
    ENCODES(tok, " ab", true, 3, 6);  /* -8 is better than -9 */
    ENCODES(tok, "aqqb", true, 4, 2, 5);
    ENCODES(tok, "aA", true, 4, 6);
    ENCODES(tok, "\xC3\xA9\xFF", true, 8, 2);
    ENCODES(tok, "azb", true, 4, 10, 5);
    ENCODES(tok, "</s>a<unk>", true, 1, 4, 2);
    ENCODES(tok, "</s>", false, 2);
    assert_int_equal(tokenizer_eos(tok), 1);
    assert_true(tokenizer_adds_eos(tok));
    assert_false(tokenizer_adds_bos(tok));
    tokenizer_close(tok);
}

static void t5_spaces(void **state)
{
    tokenizer *tok = open_t5(true, true, false);
    (void)state;

    ENCODES(tok, "a", true, 3, 4);
    ENCODES(tok, "  a   b  ", true, 3, 4, 3, 5);
    assert_encodes(tok, "   ", 3, true, NULL, 0);
    tokenizer_close(tok);
    tok = open_t5(true, false, false);
    ENCODES(tok, "a", true, 3, 4);
    ENCODES(tok, " a  ", true, 3, 3, 4, 3, 3);
    tokenizer_close(tok);
    tok = open_t5(false, true, false);
    ENCODES(tok, "a  a", true, 3, 4, 3, 4);
    tokenizer_close(tok);
}

/* Tables whose units lead anywhere: no harm, whatever comes out. */
static void t5_hostile_charsmaps(void **state)
{
    random_state random = {.state = 9};
    (void)state;

    for (int round = 0; round < 300; round++) {
        uint32_t units[300];
        model_file file = {0};
        token_list ids = {0};
        for (int i = 0; i < 300; i++) {
            units[i] = (uint32_t)random_u64(&random);
            if (round % 2 == 0)
                units[i] = (units[i] & 0x3FFFF) << 10 | (units[i] >> 24 & 0xFF)
                           | (units[i] & 1u << 20) >> 12;
        }
        put_tokens(&file, "t5", t5_rows, 11, false);
        put_charsmap(&file, units, 300, "a\xC3\xA9", 4);
        tokenizer *tok = open_made_tokenizer(&file);
        for (int first = 1; first < 128; first++) {
            const char text[3] = {(char)first, (char)(first ^ 3), 'a'};
            encode_to(tok, text, 3, true, &ids);
        }
        token_list_free(&ids);
        tokenizer_close(tok);
    }
}

/* ---- files that are wrong -------------------------------------------------------------------- */

typedef void (*file_maker)(model_file *file);

static void put_spm_head(model_file *file)
{
    put_string(file, "tokenizer.ggml.model", "llama");
    put_array(file, "tokenizer.ggml.tokens", GGUF_STRING, 2);
    gguf_put_string(&file->keys, "a");
    gguf_put_string(&file->keys, "b");
}

static void make_no_scores(model_file *file)
{
    put_spm_head(file);
}

static void make_byte_scores(model_file *file)
{
    put_spm_head(file);
    put_array(file, "tokenizer.ggml.scores", GGUF_UINT8, 2);
    strbuf_append(&file->keys, "\1\2", 2);
}

static void make_few_scores(model_file *file)
{
    put_spm_head(file);
    put_array(file, "tokenizer.ggml.scores", GGUF_FLOAT32, 1);
    gguf_put_f32(&file->keys, 1);
}

static void make_nan_score(model_file *file)
{
    put_spm_head(file);
    put_array(file, "tokenizer.ggml.scores", GGUF_FLOAT32, 2);
    gguf_put_f32(&file->keys, 1);
    gguf_put_u32(&file->keys, 0x7FC00000);
}

static void make_unknown_past_the_end(model_file *file)
{
    put_spm_head(file);
    put_array(file, "tokenizer.ggml.scores", GGUF_FLOAT32, 2);
    gguf_put_f32(&file->keys, 1);
    gguf_put_f32(&file->keys, 2);
    put_u32(file, "tokenizer.ggml.unknown_token_id", 2);
}

static void make_prefix_number(model_file *file)
{
    put_u32(file, "tokenizer.ggml.add_space_prefix", 1);
    put_spm_head(file);
}

static void make_gemma4_without_merges(model_file *file)
{
    put_string(file, "tokenizer.ggml.model", "gemma4");
    put_array(file, "tokenizer.ggml.tokens", GGUF_STRING, 1);
    gguf_put_string(&file->keys, "a");
}

static void make_bert_without_tokens(model_file *file)
{
    put_string(file, "tokenizer.ggml.model", "bert");
}

static void make_bert_cls_past_the_end(model_file *file)
{
    put_tokens(file, "bert", bert_rows, 12, false);
    put_u32(file, "tokenizer.ggml.cls_token_id", 12);
}

static void make_t5_without_scores(model_file *file)
{
    put_string(file, "tokenizer.ggml.model", "t5");
    put_array(file, "tokenizer.ggml.tokens", GGUF_STRING, 1);
    gguf_put_string(&file->keys, "a");
}

static void make_short_charsmap(model_file *file)
{
    put_tokens(file, "t5", t5_rows, 11, false);
    put_array(file, "tokenizer.ggml.precompiled_charsmap", GGUF_UINT8, 3);
    strbuf_append(&file->keys, "abc", 3);
}

static void make_charsmap_of_trie_only(model_file *file)
{
    const uint32_t units[] = {0, 0};

    put_tokens(file, "t5", t5_rows, 11, false);
    put_charsmap(file, units, 2, "", 0);
}

static void make_charsmap_of_broken_texts(model_file *file)
{
    const uint32_t units[] = {0, 0};

    put_tokens(file, "t5", t5_rows, 11, false);
    put_charsmap(file, units, 2, "\xC3", 2);
}

static void make_charsmap_without_end(model_file *file)
{
    const uint32_t units[] = {0, 0};

    put_tokens(file, "t5", t5_rows, 11, false);
    put_charsmap(file, units, 2, "ab", 2);
}

static void make_charsmap_of_strings(model_file *file)
{
    put_tokens(file, "t5", t5_rows, 11, false);
    put_array(file, "tokenizer.ggml.precompiled_charsmap", GGUF_STRING, 0);
}

static void make_plamo2_without_bytes(model_file *file)
{
    put_tokens(file, "plamo2", spm_rows, BYTES, false);
}

static void make_rwkv_without_tokens(model_file *file)
{
    put_string(file, "tokenizer.ggml.model", "rwkv");
}

static void make_whitespace_without_merges(model_file *file)
{
    put_tokens(file, "whitespace", spm_rows, BYTES, true);
}

static void make_hybriddna_without_pre(model_file *file)
{
    put_tokens(file, "hybriddna", spm_rows, BYTES, true);
}

static void make_no_vocabulary(model_file *file)
{
    put_string(file, "tokenizer.ggml.model", "none");
}

static void make_unheard_of(model_file *file)
{
    put_string(file, "tokenizer.ggml.model", "next-years-kind");
}

static void wrong_files_are_refused_by_name(void **state)
{
    static const struct {
        file_maker make;
        temper_status status;
        const char *says[2];
    } rows[] = {
        {make_no_scores, TEMPER_BAD_FILE, {"tokenizer.ggml.scores", "missing"}},
        {make_byte_scores, TEMPER_BAD_FILE, {"tokenizer.ggml.scores", "uint8"}},
        {make_few_scores, TEMPER_BAD_FILE, {"tokenizer.ggml.scores", "2 tokens"}},
        {make_nan_score, TEMPER_BAD_FILE, {"tokenizer.ggml.scores", "token 1"}},
        {make_unknown_past_the_end, TEMPER_BAD_FILE, {"unknown_token_id is 2", "2 tokens"}},
        {make_prefix_number, TEMPER_BAD_FILE, {"add_space_prefix", "bool"}},
        {make_gemma4_without_merges, TEMPER_BAD_FILE, {"tokenizer.ggml.merges", "missing"}},
        {make_bert_without_tokens, TEMPER_BAD_FILE, {"tokenizer.ggml.tokens", "missing"}},
        {make_bert_cls_past_the_end, TEMPER_BAD_FILE, {"cls_token_id is 12", "12 tokens"}},
        {make_t5_without_scores, TEMPER_BAD_FILE, {"tokenizer.ggml.scores", "missing"}},
        {make_short_charsmap, TEMPER_BAD_FILE, {"charsmap", "3 bytes"}},
        {make_charsmap_of_trie_only, TEMPER_BAD_FILE, {"charsmap", "12 bytes"}},
        {make_charsmap_of_broken_texts, TEMPER_BAD_FILE, {"charsmap", "UTF-8"}},
        {make_charsmap_without_end, TEMPER_BAD_FILE, {"charsmap", "NUL"}},
        {make_charsmap_of_strings, TEMPER_BAD_FILE, {"charsmap", "bytes"}},
        {make_plamo2_without_bytes, TEMPER_BAD_FILE, {"plamo2", "<0x00>"}},
        {make_rwkv_without_tokens, TEMPER_BAD_FILE, {"tokenizer.ggml.tokens", "missing"}},
        {make_whitespace_without_merges, TEMPER_BAD_FILE, {"tokenizer.ggml.merges", "missing"}},
        {make_hybriddna_without_pre, TEMPER_UNSUPPORTED, {"tokenizer.ggml.pre", "missing"}},
        {make_no_vocabulary, TEMPER_UNSUPPORTED, {"\"none\"", "no vocabulary"}},
        {make_unheard_of, TEMPER_UNSUPPORTED, {"\"next-years-kind\"", "llama"}},
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
            || strncmp(err.text, "made.gguf: ", 11) != 0)
            fail_msg("row %zu: status %d, \"%s\"", i, (int)status, err.text);
        assert_null(tok);
        assert_int_equal(mem_live_bytes(), live);
        gguf_close(gguf);
        free_model_file(&file);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void put_small_lower_whitespace(model_file *file)
{
    put_small_whitespace(file, true);
}

static void nth_allocation_fails(void **state)
{
    static const file_maker makers[] = {put_small_spm, put_small_bert, put_small_t5,
                                        put_small_gemma4, put_small_rwkv, put_small_plamo2,
                                        put_small_lower_whitespace, put_small_hybriddna};
    static const char text[] = "<s>Caf\xC3\xA9 ab A </s> abc\n\nhello\xFF <dna>ACGTACG</dna>";
    (void)state;

    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
        model_file file = {0};
        makers[i](&file);
        gguf_file *gguf = open_model_file(&file);
        for (uint64_t nth = 1;; nth++) {
            const uint64_t live = mem_live_bytes(), calls = mem_allocation_count();
            tokenizer *tok = NULL;
            token_list ids = {0};
            error err = {0};

            assert_true(nth < 1000);
            mem_fail_at(nth, 0);
            temper_status status = tokenizer_open(gguf, &tok, &err);
            if (status == TEMPER_OK)
                status = tokenizer_encode_prompt(tok, text, sizeof text - 1, true, true, &ids,
                                                 &err);
            mem_fail_at(0, 0);
            const bool reached = mem_allocation_count() - calls >= nth;
            if (status != TEMPER_OK) {
                assert_true(reached);
                assert_int_equal(status, TEMPER_NO_MEMORY);
                assert_int_equal(ids.count, 0);
            }
            token_list_free(&ids);
            tokenizer_close(tok);
            assert_int_equal(mem_live_bytes(), live);
            if (!reached)
                break;
        }
        gguf_close(gguf);
        free_model_file(&file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spm_merges_the_best_pair),
        cmocka_unit_test(spm_ties_go_to_the_left),
        cmocka_unit_test(spm_puts_a_space_before_every_part),
        cmocka_unit_test(spm_text_is_no_mark),
        cmocka_unit_test(spm_without_bytes),
        cmocka_unit_test(spm_usual_ids),
        cmocka_unit_test(spm_pieces_stream),
        cmocka_unit_test(spm_round_trips),
        cmocka_unit_test(spm_long_texts),
        cmocka_unit_test(gemma4_merges_characters_in_lines),
        cmocka_unit_test(bert_takes_the_longest_pieces),
        cmocka_unit_test(t5_takes_the_best_path),
        cmocka_unit_test(t5_spaces),
        cmocka_unit_test(t5_hostile_charsmaps),
        cmocka_unit_test(wrong_files_are_refused_by_name),
        cmocka_unit_test(nth_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
