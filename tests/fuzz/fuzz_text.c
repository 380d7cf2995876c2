/*
 * fuzz_text.c - the text room but for chat templates. The first byte of an input, modulo 5, chooses
 * what the rest is:
 *
 *     0  a model file: opened as a tokenizer, then used
 *     1  a text: encoded by small vocabularies of every kind; where a kind keeps all bytes, the
 *        tokens' bytes joined are the text
 *     2  stop strings and a text: streamed whole and cut into tokens, with the same outcome
 *     3  a tokenizer.json: opened, then used
 *     4  a pattern as tokenizer.json has it, a NUL, a text: matched from one end to the other
 */
#include "unit/text_small.h"

#include "base/mem.h"
#include "fuzz/fuzz.h"
#include "text/pattern.h"
#include "text/stream.h"
#include "text/utf8.h"

/* Encodes text twice; with `exact` the tokens' bytes joined must be the text. A file's own rules
 * may make a text too long or a pattern too slow: that is an error with its reason. */
static void encode_and_join(const tokenizer *tok, const char *text, size_t length, bool exact)
{
    token_list ids = {0};
    strbuf joined = {0};

    for (int parse_special = 0; parse_special < 2; parse_special++) {
        error err = {0};
        ids.count = 0;
        strbuf_clear(&joined);
        const temper_status status =
            tokenizer_encode_prompt(tok, text, length, parse_special, !exact, &ids, &err);
        fuzz_check(status == TEMPER_OK || (!exact && err.text[0] != '\0' && ids.count == 0));
        for (size_t i = 0; i < ids.count; i++) {
            size_t piece_length;
            fuzz_check(ids.ids[i] < tokenizer_size(tok));
            const char *piece = tokenizer_piece(tok, ids.ids[i], true, &piece_length);
            strbuf_append(&joined, piece, piece_length);
        }
        fuzz_check(!exact || (joined.length == length &&
                              (length == 0 || memcmp(joined.data, text, length) == 0)));
        strbuf_clear(&joined);
        fuzz_check(tokenizer_decode(tok, ids.ids, ids.count, false, &joined, NULL) == TEMPER_OK);
    }
    token_list_free(&ids);
    strbuf_free(&joined);
}

static const char sample[] = "Hello world!\n\n  <s><|im_end|> 123 \xC3\xA9\xFF it's ab AddedWord";

static void use(tokenizer *tok, const char *bytes, size_t size)
{
    encode_and_join(tok, sample, sizeof sample - 1, false);
    encode_and_join(tok, bytes, size, false);
    tokenizer_close(tok);
    fuzz_accepted++;
}

static void fuzz_file(const char *bytes, size_t size)
{
    source *src = NULL;
    gguf_file *gguf = NULL;
    tokenizer *tok = NULL;
    error err = {0};

    fuzz_check(source_open_memory("fuzz", bytes, size, &src, NULL) == TEMPER_OK);
    if (gguf_open(src, &gguf, &err) != TEMPER_OK)
        return;
    if (tokenizer_open(gguf, &tok, &err) == TEMPER_OK)
        use(tok, bytes, size);
    else
        fuzz_check(err.text[0] != '\0');
    gguf_close(gguf);
}

static void fuzz_json(const char *bytes, size_t size)
{
    tokenizer_files files = {0};
    tokenizer *tok = NULL;
    error err = {0};

    fuzz_check(source_open_memory("fuzz", bytes, size, &files.tokenizer, NULL) == TEMPER_OK);
    if (tokenizer_open_json(&files, &tok, &err) == TEMPER_OK)
        use(tok, bytes, size);
    else
        fuzz_check(err.text[0] != '\0');
    source_close(files.tokenizer);
}

static void fuzz_pattern(const char *bytes, size_t size)
{
    const char *end = size == 0 ? NULL : memchr(bytes, '\0', size);
    pattern *p = NULL;
    pattern_work work = {0};
    error err = {0};
    strbuf text = {0};

    if (end == NULL)
        return;
    utf8_append_clean(&text, end + 1, (size_t)(bytes + size - end - 1));
    if (utf8_valid_length(bytes, (size_t)(end - bytes)) == (size_t)(end - bytes) &&
        pattern_open_onig(bytes, (size_t)(end - bytes), &p, &err) == TEMPER_OK) {
        bool found = true;
        for (size_t at = 0; at <= text.length && found;) {
            size_t start = 0, stop = 0;
            if (pattern_find(p, &work, strbuf_text(&text), text.length, at, &found, &start, &stop,
                             &err) != TEMPER_OK)
                break;
            fuzz_check(!found || (start <= stop && stop <= text.length));
            at = stop > at ? stop : text.length + 1;
        }
        pattern_work_free(&work);
    }
    pattern_close(p);
    strbuf_free(&text);
}

/* In a text with U+2581 nothing tells that from a space. */
static bool has_mark(const char *text, size_t length)
{
    for (size_t i = 0; i + 3 <= length; i++) {
        if (memcmp(text + i, MARK, 3) == 0)
            return true;
    }
    return false;
}

/* Of the kinds the first ones keep all bytes. */
enum { PRE_COUNT = 14, KIND_COUNT = 7, WHOLE_KINDS = 2 };

/* Opened once: compiling their patterns takes longer than all the rest. */
static tokenizer *ready[PRE_COUNT + KIND_COUNT];

static void close_all(void)
{
    for (size_t i = 0; i < PRE_COUNT + KIND_COUNT; i++)
        tokenizer_close(ready[i]);
}

static void open_all(void)
{
    static const char *const pres[PRE_COUNT] = {
        "gpt-2",  "smollm", "llama-bpe", "qwen2",   "qwen35",    "deepseek-llm", "deepseek-v3",
        "gpt-4o", "falcon", "afmoe",     "kimi-k2", "chameleon", "superbpe",     "spark2_5"};
    static void (*const kinds[KIND_COUNT])(model_file * file) = {
        put_small_spm,  put_small_gemma4, put_small_bert,     put_small_t5,
        put_small_rwkv, put_small_plamo2, put_small_hybriddna};

    for (size_t i = 0; i < PRE_COUNT; i++)
        ready[i] = open_small_tokenizer(pres[i]);
    for (size_t i = 0; i < KIND_COUNT; i++) {
        model_file file = {0};
        kinds[i](&file);
        if (i == 0)
            put_bool(&file, "tokenizer.ggml.add_space_prefix", false);
        ready[PRE_COUNT + i] = open_made_tokenizer(&file);
    }
    atexit(close_all);
}

static void fuzz_encode(const char *text, size_t length)
{
    const bool mark = has_mark(text, length);

    for (size_t i = 0; i < PRE_COUNT + KIND_COUNT; i++)
        encode_and_join(ready[i], text, length,
                        i < PRE_COUNT || (i < PRE_COUNT + WHOLE_KINDS && !mark));
}

/* Streams bytes in pieces of at most `piece` bytes; true when a stop string was found. */
static bool stream_in_pieces(const char *const *stops, size_t stop_count, const char *bytes,
                             size_t length, size_t piece, strbuf *out)
{
    text_stream *stream = NULL;
    bool stopped;

    fuzz_check(text_stream_open(NULL, stops, stop_count, &stream, NULL) == TEMPER_OK);
    for (size_t at = 0; at < length; at += piece) {
        const size_t take = length - at < piece ? length - at : piece;
        fuzz_check(text_stream_push_bytes(stream, bytes + at, take, out, &stopped, NULL) ==
                   TEMPER_OK);
        fuzz_check(utf8_valid_length(strbuf_text(out), out->length) == out->length);
    }
    fuzz_check(text_stream_finish(stream, out, NULL) == TEMPER_OK);
    fuzz_check(utf8_valid_length(strbuf_text(out), out->length) == out->length);
    stopped = text_stream_stopped(stream);
    text_stream_close(stream);
    return stopped;
}

/* Up to four stop strings of up to seven bytes, each after its length; the rest is text. */
static void fuzz_stream(const char *bytes, size_t length)
{
    char names[4][8];
    const char *stops[4];
    size_t stop_count = 0, at = 0;

    while (stop_count < 4 && at < length && bytes[at] != 0) {
        const size_t wanted = (uint8_t)bytes[at++] % 8, left = length - at;
        const size_t take = wanted < left ? wanted : left;
        memcpy(names[stop_count], bytes + at, take);
        names[stop_count][take] = '\0';
        at += take;
        const size_t named = strlen(names[stop_count]);
        if (named == 0 || utf8_valid_length(names[stop_count], named) != named)
            continue;
        stops[stop_count] = names[stop_count];
        stop_count++;
    }
    strbuf whole = {0}, cut = {0};
    const bool stopped =
        stream_in_pieces(stops, stop_count, bytes + at, length - at, length - at + 1, &whole);
    for (size_t piece = 1; piece < 5; piece++) {
        strbuf_clear(&cut);
        fuzz_check(stream_in_pieces(stops, stop_count, bytes + at, length - at, piece, &cut) ==
                   stopped);
        fuzz_check(cut.length == whole.length);
        fuzz_check(cut.length == 0 || memcmp(cut.data, whole.data, cut.length) == 0);
    }
    strbuf_free(&whole);
    strbuf_free(&cut);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (ready[0] == NULL)
        open_all();
    const uint64_t live = mem_live_bytes();
    const char *rest = (const char *)data + 1;
    switch (data[0] % 5) {
    case 0:
        fuzz_file(rest, size - 1);
        break;
    case 1:
        fuzz_encode(rest, size - 1);
        break;
    case 2:
        fuzz_stream(rest, size - 1);
        break;
    case 3:
        fuzz_json(rest, size - 1);
        break;
    default:
        fuzz_pattern(rest, size - 1);
        break;
    }
    fuzz_check(mem_live_bytes() == live);
    return 0;
}
