/*
 * text_stream.c - ids to text that can be shown: characters over several tokens, stop strings, and
 * the rule that the text does not depend on how it was cut into tokens.
 */
#include "text_files.h"

#include <time.h>

#include "base/mem.h"
#include "base/random.h"
#include "text/stream.h"
#include "text/utf8.h"

#define FFFD "\xEF\xBF\xBD"

typedef struct outcome {
    strbuf text;       /* all of it */
    strbuf pushed;     /* what came before the end */
    bool stopped;      /* by a push */
    bool ended;        /* by a push or by the end */
} outcome;

static void outcome_free(outcome *o)
{
    strbuf_free(&o->text);
    strbuf_free(&o->pushed);
}

static text_stream *open_stream(const tokenizer *tok, const char *const *stops, size_t count)
{
    text_stream *stream = NULL;
    error err = {0};

    if (text_stream_open(tok, stops, count, &stream, &err) != TEMPER_OK)
        fail_msg("%s", err.text);
    return stream;
}

/* Feeds pieces; every single output must be valid UTF-8. */
static outcome run(const char *const *stops, size_t stop_count, const char *const *pieces,
                   const size_t *lengths, size_t count)
{
    outcome o = {0};
    error err = {0};
    strbuf out = {0};
    text_stream *stream = open_stream(NULL, stops, stop_count);

    for (size_t i = 0; i < count; i++) {
        bool stopped;
        strbuf_clear(&out);
        assert_int_equal(
            text_stream_push_bytes(stream, pieces[i], lengths[i], &out, &stopped, &err), TEMPER_OK);
        assert_true(!o.stopped || (stopped && out.length == 0));
        o.stopped = stopped;
        assert_int_equal(utf8_valid_length(strbuf_text(&out), out.length), out.length);
        strbuf_append(&o.text, out.data, out.length);
    }
    strbuf_append(&o.pushed, strbuf_text(&o.text), o.text.length);
    strbuf_clear(&out);
    assert_int_equal(text_stream_finish(stream, &out, &err), TEMPER_OK);
    assert_int_equal(utf8_valid_length(strbuf_text(&out), out.length), out.length);
    strbuf_append(&o.text, strbuf_text(&out), out.length);
    o.ended = text_stream_stopped(stream);
    strbuf_free(&out);
    text_stream_close(stream);
    return o;
}

/* Rows of "pieces separated by |" (no piece of these tests holds a bar). */
typedef struct row {
    const char *stops[3];
    const char *pieces;
    const char *pushed;   /* shown before the end */
    const char *text;     /* shown at all */
    bool stopped;         /* by a push */
    bool ended;
} row;

static void run_row(const row *r)
{
    const char *pieces[64];
    size_t lengths[64], count = 0, stop_count = 0;

    while (stop_count < 3 && r->stops[stop_count] != NULL)
        stop_count++;
    for (const char *at = r->pieces;; at++) {
        const size_t length = strcspn(at, "|");
        assert_true(count < 64);
        pieces[count] = at;
        lengths[count++] = length;
        at += length;
        if (*at == '\0')
            break;
    }
    outcome o = run(r->stops, stop_count, pieces, lengths, count);
    if (strcmp(strbuf_text(&o.pushed), r->pushed) != 0 || strcmp(strbuf_text(&o.text), r->text) != 0
        || o.stopped != r->stopped || o.ended != r->ended)
        fail_msg("%s: \"%s\", then \"%s\", stopped %d, ended %d", r->pieces, strbuf_text(&o.pushed),
                 strbuf_text(&o.text), o.stopped, o.ended);
    outcome_free(&o);
}

static void characters_over_several_tokens(void **state)
{
    static const row rows[] = {
        {{0}, "a|b|c", "abc", "abc", false, false},
        {{0}, "\xF0|\x9F|\x98|\x8A", "\xF0\x9F\x98\x8A", "\xF0\x9F\x98\x8A", false, false},
        {{0}, "\xC3|\xA9|\xC3\xA9\xE2\x82|\xAC", "\xC3\xA9\xC3\xA9\xE2\x82\xAC",
         "\xC3\xA9\xC3\xA9\xE2\x82\xAC", false, false},
        /* A token that starts with a space and ends in half a character. */
        {{0}, "a| \xF0\x9F|\x98\x8A!", "a \xF0\x9F\x98\x8A!", "a \xF0\x9F\x98\x8A!", false, false},
        {{0}, " \xF0\x9F", " ", " " FFFD, false, false},
        /* An incomplete tail becomes U+FFFD once, at the end. */
        {{0}, "a\xE2|\x82", "a", "a" FFFD, false, false},
        {{0}, "\xF0\x9F\x98", "", FFFD, false, false},
        /* A broken sequence becomes U+FFFD as soon as it is known to be broken. */
        {{0}, "\xE2\x82|x", FFFD "x", FFFD "x", false, false},
        {{0}, "\xE2|\xE2|\x82\xAC", FFFD "\xE2\x82\xAC", FFFD "\xE2\x82\xAC", false, false},
        {{0}, "\x80|\xFF", FFFD FFFD, FFFD FFFD, false, false},
        {{0}, "\xE0|\x80", FFFD FFFD, FFFD FFFD, false, false},
        {{0}, "", "", "", false, false},
        {{0}, "||a||", "a", "a", false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        run_row(&rows[i]);
}

static void stop_strings(void **state)
{
    static const row rows[] = {
        {{"STOP"}, "go STOP on", "go ", "go ", true, true},
        /* Over two tokens, over three, after a false start. */
        {{"STOP"}, "go ST|OP on", "go ", "go ", true, true},
        {{"STOP"}, "S|T|O|P", "", "", true, true},
        {{"STOP"}, "SST|SSTOP", "SSTS", "SSTS", true, true},
        {{"aab"}, "a|a|a|b", "a", "a", true, true},
        /* A partial stop is held back, and released when it is none; at the very end too. */
        {{"STOP"}, "go ST|AY", "go STAY", "go STAY", false, false},
        {{"STOP"}, "go STO", "go ", "go STO", false, false},
        {{"\n\n"}, "a\n|b\n", "a\nb", "a\nb\n", false, false},
        /* A stop string that is the prefix of another. */
        {{"ab", "abcd"}, "x|ab|cd", "x", "x", true, true},
        {{"abcd", "ab"}, "xa|b", "x", "x", true, true},
        /* One that is a suffix of another: the earlier start wins, so the later one waits. */
        {{"bc", "abcd"}, "xabc|d", "x", "x", true, true},
        {{"bc", "abcd"}, "xabc|e", "xa", "xa", true, true},
        {{"bc", "abcd"}, "xabc", "x", "xa", false, true},
        {{"c", "abcd", "bcx"}, "abc|y", "ab", "ab", true, true},
        {{"c", "bcde", "abcdx"}, "abcd|e", "a", "a", true, true},
        /* The first in the text, not the first in the list. */
        {{"two", "one"}, "one two", "", "", true, true},
        {{"two", "one"}, "two one", "", "", true, true},
        /* The same stop twice, one of another's characters. */
        {{"x", "x"}, "ax", "a", "a", true, true},
        {{"\xE2\x82\xAC"}, "5\xE2|\x82|\xAC", "5", "5", true, true},
        /* U+FFFD is text like any other. */
        {{FFFD}, "a\xFF" "b", "a", "a", true, true},
        {{FFFD "b"}, "a\xE2\x82", "a", "a" FFFD, false, false},
        {{FFFD}, "a\xE2\x82", "a", "a", false, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        run_row(&rows[i]);
}

/* The plain definition: clean all, then cut at the earliest place where a stop string begins. */
static bool expected_text(const char *bytes, size_t length, const char *const *stops, size_t count,
                          strbuf *out)
{
    size_t best = SIZE_MAX;

    strbuf_clear(out);
    utf8_append_clean(out, bytes, length);
    for (size_t i = 0; i < count; i++) {
        const char *found = strstr(strbuf_text(out), stops[i]);
        if (found != NULL && (size_t)(found - out->data) < best)
            best = (size_t)(found - out->data);
    }
    if (best == SIZE_MAX)
        return false;
    out->length = best;
    if (out->data != NULL)
        out->data[best] = '\0';
    return true;
}

static void cutting_into_tokens_changes_nothing(void **state)
{
    static const char alphabet[] = {'a', 'b', 'a', 'b', 'c', '\xC3', '\xA9', '\xE2', '\x82',
                                    '\xAC'};
    random_state random = {.state = 11};
    (void)state;

    for (int round = 0; round < 20000; round++) {
        static const char *const units[] = {"a", "b", "a", "b", "c", "\xC3\xA9"};
        char bytes[24], stop_text[4][12];
        const char *stops[4], *pieces[24];
        size_t lengths[24], count = 0;
        const size_t length = random_u64(&random) % sizeof bytes;
        const size_t stop_count = random_u64(&random) % 5;

        for (size_t i = 0; i < length; i++)
            bytes[i] = alphabet[random_u64(&random) % sizeof alphabet];
        for (size_t i = 0; i < stop_count; i++) {
            const size_t stop_length = 1 + random_u64(&random) % 5;
            stop_text[i][0] = '\0';
            for (size_t k = 0; k < stop_length; k++)
                strcat(stop_text[i], units[random_u64(&random) % 6]);
            stops[i] = stop_text[i];
        }
        for (size_t at = 0; at < length; at += lengths[count++]) {
            const size_t left = length - at;
            const size_t take = 1 + random_u64(&random) % 4;
            pieces[count] = bytes + at;
            lengths[count] = take < left ? take : left;
        }
        strbuf expected = {0};
        const bool stops_here = expected_text(bytes, length, stops, stop_count, &expected);
        outcome o = run(stops, stop_count, pieces, lengths, count);
        assert_string_equal(strbuf_text(&o.text), strbuf_text(&expected));
        assert_int_equal(o.ended, stops_here);
        outcome_free(&o);
        strbuf_free(&expected);
    }
}

static void ids_of_a_tokenizer(void **state)
{
    tokenizer *tok = open_small_tokenizer("gpt-2");
    const char *stops[] = {"lo h"};
    text_stream *stream = open_stream(tok, stops, 1);
    strbuf text = {0};
    error err = {0};
    bool stopped;
    (void)state;

    /* Control tokens show nothing, not even in the middle of a character. */
    assert_int_equal(text_stream_push(stream, 0xC3, &text, &stopped, &err), TEMPER_OK);
    assert_int_equal(text_stream_push(stream, SMALL_BOS, &text, &stopped, &err), TEMPER_OK);
    assert_string_equal(strbuf_text(&text), "");
    assert_int_equal(text_stream_push(stream, 0xA9, &text, &stopped, &err), TEMPER_OK);
    assert_string_equal(strbuf_text(&text), "\xC3\xA9");
    assert_int_equal(text_stream_push(stream, SMALL_HELLO, &text, &stopped, &err), TEMPER_OK);
    assert_string_equal(strbuf_text(&text), "\xC3\xA9hel");
    assert_false(stopped);
    assert_int_equal(text_stream_push(stream, SMALL_COUNT, &text, &stopped, &err),
                     TEMPER_BAD_ARGUMENT);
    error_clear(&err);
    assert_int_equal(text_stream_push(stream, SMALL_SPACE_HELLO, &text, &stopped, &err), TEMPER_OK);
    assert_string_equal(strbuf_text(&text), "\xC3\xA9hel");
    assert_true(stopped);
    assert_int_equal(text_stream_push(stream, 'x', &text, &stopped, &err), TEMPER_OK);
    assert_true(stopped);
    assert_int_equal(text_stream_finish(stream, &text, &err), TEMPER_OK);
    assert_string_equal(strbuf_text(&text), "\xC3\xA9hel");
    strbuf_free(&text);
    text_stream_close(stream);
    tokenizer_close(tok);
}

static void stops_that_cannot_be_are_refused(void **state)
{
    static const char *const wrong[] = {"", "\xA9", "a\xC3", "\xFF"};
    (void)state;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *stops[] = {"a", wrong[i]};
        text_stream *stream = NULL;
        error err = {0};
        assert_int_equal(text_stream_open(NULL, stops, 2, &stream, &err), TEMPER_BAD_ARGUMENT);
        assert_non_null(strstr(err.text, "stop string 2"));
        assert_null(stream);
    }
    text_stream_close(NULL);
}

/* A stop string of a hundred thousand bytes that almost matches all the time, and ten thousand
 * short ones: linear, or the test's time limit ends it. */
static void long_texts_and_many_stops_are_linear(void **state)
{
    enum { LONG = 100000, MANY = 10000, TOKENS = 300000 };
    char *large = malloc(LONG + 2);
    char (*names)[20] = malloc(MANY * sizeof *names);
    const char **stops = malloc((MANY + 1) * sizeof *stops);
    strbuf text = {0};
    error err = {0};
    bool stopped = false;
    (void)state;

    assert_true(large != NULL && names != NULL && stops != NULL);
    memset(large, 'a', LONG);
    strcpy(large + LONG, "b");
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "aaa%dz", i);
        stops[i] = names[i];
    }
    stops[MANY] = large;
    text_stream *stream = open_stream(NULL, stops, MANY + 1);
    const clock_t begin = clock();
    for (int i = 0; i < TOKENS && !stopped; i++)
        assert_int_equal(text_stream_push_bytes(stream, "aaa1", i % 1000 == 999 ? 4 : 3, &text,
                                                &stopped, &err), TEMPER_OK);
    assert_false(stopped);
    assert_int_equal(text_stream_finish(stream, &text, &err), TEMPER_OK);
    assert_int_equal(text.length, 3 * TOKENS + TOKENS / 1000);
    printf("%d tokens: %.0f ms\n", TOKENS, 1e3 * (double)(clock() - begin) / CLOCKS_PER_SEC);
    strbuf_free(&text);
    text_stream_close(stream);
    free(large);
    free(names);
    free(stops);
}

static void nth_allocation_fails(void **state)
{
    static const char *const stops[] = {"abc", "bd"};
    (void)state;

    for (uint64_t nth = 1;; nth++) {
        const uint64_t live = mem_live_bytes(), calls = mem_allocation_count();
        text_stream *stream = NULL;
        strbuf text = {0};
        error err = {0};
        bool stopped;

        assert_true(nth < 100);
        mem_fail_at(nth, 0);
        temper_status status = text_stream_open(NULL, stops, 2, &stream, &err);
        for (int i = 0; i < 100 && status == TEMPER_OK; i++)
            status = text_stream_push_bytes(stream, "xxxxxabababab", 13, &text, &stopped, &err);
        if (status == TEMPER_OK)
            status = text_stream_finish(stream, &text, &err);
        mem_fail_at(0, 0);
        const bool reached = mem_allocation_count() - calls >= nth;
        assert_int_equal(status, reached ? TEMPER_NO_MEMORY : TEMPER_OK);
        if (reached && stream != NULL) {
            /* A text with a hole is not continued. */
            strbuf more = {0};
            assert_int_equal(text_stream_push_bytes(stream, "x", 1, &more, &stopped, &err),
                             TEMPER_NO_MEMORY);
            assert_int_equal(more.length, 0);
        }
        strbuf_free(&text);
        text_stream_close(stream);
        assert_int_equal(mem_live_bytes(), live);
        if (!reached)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_over_several_tokens),
        cmocka_unit_test(stop_strings),
        cmocka_unit_test(cutting_into_tokens_changes_nothing),
        cmocka_unit_test(ids_of_a_tokenizer),
        cmocka_unit_test(stops_that_cannot_be_are_refused),
        cmocka_unit_test(long_texts_and_many_stops_are_linear),
        cmocka_unit_test(nth_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
