/*
 * fuzz_text.c - libFuzzer target of the text room. The first byte of an input chooses what the rest
 * is.
 *
 * 0 a model file: opened as a tokenizer, then used 1 a text: encoded by one family after the other;
 * the tokens' bytes joined are the text 2 stop strings and a text: streamed whole and cut into
 * tokens, with the same outcome 3 a chat template: read and rendered
 *
 *     build/fuzz/tests/fuzz_text -max_len=4096 corpus/
 */
#include "unit/text_files.h"

#include "base/mem.h"
#include "text/chat.h"
#include "text/stream.h"
#include "text/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void encode_and_join(const tokenizer *tok, const char *text, size_t length, bool exact)
{
    token_list ids = {0};
    strbuf joined = {0};

    check(tokenizer_encode_prompt(tok, text, length, true, tokenizer_adds_bos(tok), &ids, NULL)
          == TEMPER_OK);
    ids.count = 0;
    for (int parse_special = 0; parse_special < 2; parse_special++) {
        ids.count = 0;
        strbuf_clear(&joined);
        check(tokenizer_encode(tok, text, length, parse_special, &ids, NULL) == TEMPER_OK);
        for (size_t i = 0; i < ids.count; i++) {
            size_t piece_length;
            check(ids.ids[i] < tokenizer_size(tok));
            const char *piece = tokenizer_piece(tok, ids.ids[i], true, &piece_length);
            strbuf_append(&joined, piece, piece_length);
        }
        if (exact)
            check(joined.length == length
                  && (length == 0 || memcmp(joined.data, text, length) == 0));
    }
    token_list_free(&ids);
    strbuf_free(&joined);
}

static void fuzz_file(const char *bytes, size_t size)
{
    static const char text[] = "Hello world!\n\n  <s><|im_end|> 123 \xC3\xA9\xFF it's";
    source *src = NULL;
    gguf_file *gguf = NULL;
    tokenizer *tok = NULL;
    error err = {0};

    check(source_open_memory("fuzz", bytes, size, &src, NULL) == TEMPER_OK);
    if (gguf_open(src, &gguf, &err) != TEMPER_OK)
        return;
    if (tokenizer_open(gguf, &tok, &err) == TEMPER_OK) {
        encode_and_join(tok, text, sizeof text - 1, false);
        encode_and_join(tok, bytes, size, false);
    } else {
        check(err.text[0] != '\0');
    }
    tokenizer_close(tok);
    gguf_close(gguf);
}

static void fuzz_encode(const char *text, size_t length)
{
    static const char *const pres[] = {"gpt-2", "smollm", "llama-bpe", "qwen2", "qwen35"};

    for (size_t i = 0; i < sizeof pres / sizeof *pres; i++) {
        tokenizer *tok = open_small_tokenizer(pres[i]);
        encode_and_join(tok, text, length, true);
        tokenizer_close(tok);
    }
}

/* Streams bytes in pieces of at most `piece` bytes; true when a stop string was found. */
static bool stream_in_pieces(const char *const *stops, size_t stop_count, const char *bytes,
                             size_t length, size_t piece, strbuf *out)
{
    text_stream *stream = NULL;
    bool stopped;

    check(text_stream_open(NULL, stops, stop_count, &stream, NULL) == TEMPER_OK);
    for (size_t at = 0; at < length; at += piece) {
        const size_t take = length - at < piece ? length - at : piece;
        check(text_stream_push_bytes(stream, bytes + at, take, out, &stopped, NULL) == TEMPER_OK);
        check(utf8_valid_length(strbuf_text(out), out->length) == out->length);
    }
    check(text_stream_finish(stream, out, NULL) == TEMPER_OK);
    check(utf8_valid_length(strbuf_text(out), out->length) == out->length);
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
    const bool stopped = stream_in_pieces(stops, stop_count, bytes + at, length - at,
                                          length - at + 1, &whole);
    for (size_t piece = 1; piece < 5; piece++) {
        strbuf_clear(&cut);
        check(stream_in_pieces(stops, stop_count, bytes + at, length - at, piece, &cut) == stopped);
        check(cut.length == whole.length);
        check(cut.length == 0 || memcmp(cut.data, whole.data, cut.length) == 0);
    }
    strbuf_free(&whole);
    strbuf_free(&cut);
}

static void fuzz_template(const char *text, size_t length)
{
    const chat_message messages[] = {{"system", "Be brief."}, {"user", "Why?"}};
    chat_template *chat = NULL;
    strbuf out = {0};
    error err = {0};
    temper_status status = chat_template_open(text, length, "<s>", "</s>", &chat, &err);

    if (status == TEMPER_OK)
        status = chat_template_render(chat, messages, 2, true, &out, &err);
    check(status == TEMPER_OK || (status == TEMPER_TEMPLATE && err.text[0] != '\0'));
    check(utf8_valid_length(strbuf_text(&out), out.length) == out.length);
    strbuf_free(&out);
    chat_template_close(chat);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const char *rest = (const char *)data + 1;
    switch (data[0] % 4) {
    case 0: fuzz_file(rest, size - 1); break;
    case 1: fuzz_encode(rest, size - 1); break;
    case 2: fuzz_stream(rest, size - 1); break;
    default: fuzz_template(rest, size - 1); break;
    }
    check(mem_live_bytes() == 0);
    return 0;
}
