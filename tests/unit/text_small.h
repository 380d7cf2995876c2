/*
 * text_small.h - small vocabularies of every kind, for the tests of the text room and its fuzz
 * target; text_files.h has that of byte-level BPE.
 */
#ifndef TEXT_SMALL_H
#define TEXT_SMALL_H

#include "text_files.h"

#define MARK "\xE2\x96\x81"

typedef struct token_row {
    const char *spelling;
    int type;
    float score;
} token_row;

static inline void put_tokens(model_file *file, const char *model, const token_row *rows,
                              size_t count, bool bytes)
{
    const size_t all = count + (bytes ? 256 : 0);

    put_string(file, "tokenizer.ggml.model", model);
    put_array(file, "tokenizer.ggml.tokens", GGUF_STRING, all);
    for (size_t i = 0; i < all; i++) {
        char spelling[8];
        snprintf(spelling, sizeof spelling, "<0x%02X>", (uint8_t)(i - count));
        gguf_put_string(&file->keys, i < count ? rows[i].spelling : spelling);
    }
    put_array(file, "tokenizer.ggml.token_type", GGUF_INT32, all);
    for (size_t i = 0; i < all; i++)
        gguf_put_u32(&file->keys, i < count ? (uint32_t)rows[i].type : 6);
    put_array(file, "tokenizer.ggml.scores", GGUF_FLOAT32, all);
    for (size_t i = 0; i < all; i++)
        gguf_put_f32(&file->keys, i < count ? rows[i].score : 0);
}

/* Merging by score. */
enum { A = 3, B, C, AB, BC, ABC, SPACE, SPACE_AB, USER, LESS_S, BYTES };

static const token_row spm_rows[] = {
    {"<unk>", 2, 0},      {"<s>", 3, 0},          {"</s>", 3, 0},     {"a", 1, -10},
    {"b", 1, -11},        {"c", 1, -12},          {"ab", 1, -2},      {"bc", 1, -1},
    {"abc", 1, -5},       {MARK, 1, -13},         {MARK "ab", 1, -6}, {"x y", 4, 0},
    {"<s", 1, -3},
};

/* Word pieces. */
static const token_row bert_rows[] = {
    {"[PAD]", 3, 0}, {"[UNK]", 3, 0}, {"[CLS]", 3, 0}, {"[SEP]", 3, 0}, {MARK "he", 1, 0},
    {MARK "hello", 1, 0}, {"llo", 1, 0}, {"l", 1, 0}, {MARK "!", 1, 0},
    {MARK "\xE4\xBD\xA0", 1, 0}, {MARK "cafe", 1, 0}, {MARK "caf\xC3\xA9", 1, 0},
};

/* Unigrams. */
static const token_row t5_rows[] = {
    {"<pad>", 3, 0}, {"</s>", 3, 0}, {"<unk>", 2, 0}, {MARK, 1, -3}, {"a", 1, -4}, {"b", 1, -4},
    {"ab", 1, -5}, {MARK "ab", 1, -9}, {"\xC3\xA9", 1, -6}, {"aa", 1, -8}, {"z", 4, 0},
};

static inline void put_charsmap(model_file *file, const uint32_t *units, size_t count,
                                const char *texts, size_t text_bytes)
{
    put_array(file, "tokenizer.ggml.precompiled_charsmap", GGUF_UINT8, 4 + 4 * count + text_bytes);
    gguf_put_u32(&file->keys, (uint32_t)(4 * count));
    for (size_t i = 0; i < count; i++)
        gguf_put_u32(&file->keys, units[i]);
    strbuf_append(&file->keys, texts, text_bytes);
}

/* A trie by hand: 'A' becomes "ab". The root's children lie at 128 ^ byte; values hang below. */
static inline void put_small_charsmap(model_file *file)
{
    uint32_t units[512] = {0};

    units[0] = 128u << 10;
    units[128 ^ 'A'] = 'A' | 1u << 8 | 256u << 10;
    units[(128 ^ 'A') ^ 256] = UINT32_C(1) << 31 | 0;
    put_charsmap(file, units, 512, "ab", 3);
}

static inline void put_small_spm(model_file *file)
{
    put_tokens(file, "llama", spm_rows, BYTES, true);
}

static inline void put_small_gemma4(model_file *file)
{
    put_tokens(file, "gemma4", spm_rows, BYTES, true);
    put_array(file, "tokenizer.ggml.merges", GGUF_STRING, 1);
    gguf_put_string(&file->keys, "a b");
}

static inline void put_small_bert(model_file *file)
{
    put_tokens(file, "bert", bert_rows, 12, false);
}

static inline void put_small_t5(model_file *file)
{
    put_tokens(file, "t5", t5_rows, 11, false);
    put_bool(file, "tokenizer.ggml.add_space_prefix", true);
    put_small_charsmap(file);
}

/* Longest tokens: bytes in Python's escapes. */
enum { RWKV_A = 1, RWKV_AB, RWKV_ABCD, RWKV_B, RWKV_LINE, RWKV_LINES, RWKV_BACK, RWKV_QUOTE,
       RWKV_HALF, RWKV_SPACE_TAB, RWKV_N, RWKV_COUNT };

static const token_row rwkv_rows[] = {
    {"<s>", 3, 0}, {"a", 1, 0}, {"ab", 1, 0}, {"abcd", 1, 0}, {"b", 1, 0}, {"\\n", 1, 0},
    {"\\n\\n", 1, 0}, {"\\\\", 1, 0}, {"\\'", 1, 0}, {"\\xe2\\x96", 1, 0}, {" \\t", 1, 0},
    {"n", 1, 0},
};

static inline void put_small_rwkv(model_file *file)
{
    put_tokens(file, "rwkv", rwkv_rows, RWKV_COUNT, false);
    put_u32(file, "tokenizer.ggml.bos_token_id", 0);
    put_u32(file, "tokenizer.ggml.eos_token_id", 0);
    put_u32(file, "tokenizer.ggml.eot_token_id", RWKV_LINES);
}

/* Cheapest cuts: the scores of spm_rows. */
static inline void put_small_plamo2(model_file *file)
{
    put_tokens(file, "plamo2", spm_rows, BYTES, true);
}

/* Characters in words between whitespace. */
static inline void put_small_whitespace(model_file *file, bool lower)
{
    put_tokens(file, "whitespace", spm_rows, BYTES, true);
    put_string(file, "tokenizer.ggml.pre", "whitespace");
    put_bool(file, "tokenizer.ggml.normalizer.lowercase", lower);
    put_array(file, "tokenizer.ggml.merges", GGUF_STRING, 2);
    gguf_put_string(&file->keys, "a b");
    gguf_put_string(&file->keys, "ab c");
}

/* Byte-level BPE, and pieces of DNA with U+E000 behind them. */
enum { DNA_BEGIN = 256, DNA_END, DNA_OOV, DNA_ACGTAC, DNA_GAAAAA, DNA_CCCCCC, DNA_CC, DNA_COUNT };

static inline void put_small_hybriddna(model_file *file)
{
    static const char *const rest[] = {"<dna>", "</dna>", "<oov>", "ACGTAC\xEE\x80\x80",
                                       "GAAAAA\xEE\x80\x80", "CCCCCC\xEE\x80\x80", "CC"};

    put_string(file, "tokenizer.ggml.model", "hybriddna");
    put_string(file, "tokenizer.ggml.pre", "qwen2");
    put_array(file, "tokenizer.ggml.tokens", GGUF_STRING, DNA_COUNT);
    for (int byte = 0; byte < 256; byte++) {
        char spelling[BYTE_LEVEL_SPELLING + 1] = {0};
        byte_level_spell((uint8_t)byte, spelling);
        gguf_put_string(&file->keys, spelling);
    }
    for (int i = 0; i < DNA_COUNT - 256; i++)
        gguf_put_string(&file->keys, rest[i]);
    put_array(file, "tokenizer.ggml.merges", GGUF_STRING, 1);
    gguf_put_string(&file->keys, "C C");
}

#endif
