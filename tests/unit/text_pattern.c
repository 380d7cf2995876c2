/*
 * text_pattern.c - Oniguruma's patterns in PCRE2's spelling, and what Unicode says of characters.
 */
#include "text_files.h"

#include "base/mem.h"
#include "text/pattern.h"
#include "text/unicode.h"
#include "text/utf8.h"

/* All matches of a pattern in a text, joined by bars. */
static void find_all(const char *spelled, const char *text, strbuf *out)
{
    pattern *p = NULL;
    pattern_work work = {0};
    error err = {0};
    bool found = true;
    const size_t length = strlen(text);

    if (pattern_open_onig(spelled, strlen(spelled), &p, &err) != TEMPER_OK)
        fail_msg("%s", err.text);
    for (size_t at = 0; at <= length && found;) {
        size_t start, end;
        assert_int_equal(pattern_find(p, &work, text, length, at, &found, &start, &end, &err),
                         TEMPER_OK);
        if (!found)
            break;
        strbuf_append(out, text + start, end - start);
        strbuf_putc(out, '|');
        at = end > at ? end : at + 1;
    }
    pattern_work_free(&work);
    pattern_close(p);
}

static void what_patterns_match(void **state)
{
    static const struct {
        const char *spelled, *text, *matches;
    } rows[] = {
        {"\\s+", "a \t\xC2\xA0\xE1\xA0\x8E" "b", " \t\xC2\xA0|"},   /* U+180E is no space */
        {"[^\\s]", "a b", "a|b|"},
        {"[\\S]+", "a b", "a|b|"},
        {"\\d+", "12\xD9\xA3\xC2\xB2" "a", "12\xD9\xA3|"},   /* Arabic three, but no superscript */
        {"[\\d]", "1a", "1|"},
        {"\\w+", "a_1\xC3\xA9-e\xCC\x81", "a_1\xC3\xA9|e\xCC\x81|"},
        {"\\W", "a-b", "-|"},
        {"\\h+", "xyz09afAFg", "09afAF|"},
        {"\\bab\\b", "ab cab ab", "ab|ab|"},
        {"^a", "a\na", "a|a|"},
        {"a$", "a\na", "a|a|"},
        {"a\\z", "aa", "a|"},
        {"\\Aa", "aa", "a|"},
        {"(?i:'s|'t)", "'S't", "'S|'t|"},
        {"(?<=a)b(?!c)", "abcab", "b|"},
        {"a++b?+", "aab", "aab|"},
        {"\\p{Lu}\\P{Lu}", "aBc", "Bc|"},
        {"\\p{^L}", "a1", "1|"},
        /* U+3002 is used with Han, and not of it. */
        {"\\p{Han}+", "\xE4\xBD\xA0\xE5\xA5\xBD\xE3\x80\x82", "\xE4\xBD\xA0\xE5\xA5\xBD|"},
        {"[\\p{han}a]+", "a\xE4\xBD\xA0\xE3\x80\x82", "a\xE4\xBD\xA0|"},
        {"\\p{^Han}", "\xE4\xBD\xA0\xE3\x80\x82", "\xE3\x80\x82|"},
        {"\\P{Hira}", "\xE3\x81\x82\xE3\x83\xBC", "\xE3\x83\xBC|"},   /* U+30FC: Common */
        {"\\p{Alphabetic}+", "ab1", "ab|"},
        {"[\\u00e9\\x{E8}]", "\xC3\xA9\xC3\xA8", "\xC3\xA9|\xC3\xA8|"},
        {"[]a]+", "a]", "a]|"},
        {"[!-/:-@\\[\\]\\\\]+", "a[]\\", "[]\\|"},
        {"a{2,3}", "aaaaa", "aaa|aa|"},
        {"a|b", "ab", "a|b|"},
        {".", "a\n", "a|"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        strbuf out = {0};
        find_all(rows[i].spelled, rows[i].text, &out);
        if (strcmp(strbuf_text(&out), rows[i].matches) != 0)
            fail_msg("%s: \"%s\"", rows[i].spelled, strbuf_text(&out));
        strbuf_free(&out);
    }
}

static void patterns_that_are_refused(void **state)
{
    static const struct {
        const char *spelled;
        size_t length;
        temper_status status;
        const char *says;
    } rows[] = {
        {"[a[b]]", 6, TEMPER_UNSUPPORTED, "class in a class"},
        {"[a&&b]", 6, TEMPER_UNSUPPORTED, "&&"},
        {"[\\W]", 4, TEMPER_UNSUPPORTED, "in a class"},
        {"a{2}+", 5, TEMPER_UNSUPPORTED, "+ after {}"},
        {"a{,2}", 5, TEMPER_UNSUPPORTED, "first number"},
        {"(?~a)", 5, TEMPER_UNSUPPORTED, "group"},
        {"(?<x>a)", 7, TEMPER_UNSUPPORTED, "group"},
        {"(?m:a)", 6, TEMPER_UNSUPPORTED, "group"},
        {"(*FAIL)", 7, TEMPER_UNSUPPORTED, "group"},
        {"\\1", 2, TEMPER_UNSUPPORTED, "escape"},
        {"\\K", 2, TEMPER_UNSUPPORTED, "escape"},
        {"\\u12", 4, TEMPER_UNSUPPORTED, "four digits"},
        {"\\pL", 3, TEMPER_UNSUPPORTED, "without {}"},
        {"a\\", 2, TEMPER_UNSUPPORTED, "at its end"},
        {"a\0b", 3, TEMPER_UNSUPPORTED, "NUL"},
        {"[a", 2, TEMPER_UNSUPPORTED, "[ without ]"},
        {"(", 1, TEMPER_BAD_FILE, "compile"},
        {"*", 1, TEMPER_BAD_FILE, "compile"},
        {"\\p{Nonsense}", 12, TEMPER_BAD_FILE, "compile"},
        {"\\x{110000}", 10, TEMPER_BAD_FILE, "compile"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pattern *p = NULL;
        error err = {0};
        const uint64_t live = mem_live_bytes();
        const temper_status status = pattern_open_onig(rows[i].spelled, rows[i].length, &p, &err);
        if (status != rows[i].status || strstr(err.text, rows[i].says) == NULL)
            fail_msg("%s: status %d, %s", rows[i].spelled, (int)status, err.text);
        assert_null(p);
        assert_int_equal(mem_live_bytes(), live);
    }
}

static void normal_forms(void **state)
{
    static const struct {
        normal_form form;
        const char *text, *expected;
    } rows[] = {
        {UNICODE_NFC, "plain", "plain"},
        {UNICODE_NFC, "e\xCC\x81", "\xC3\xA9"},
        {UNICODE_NFD, "\xC3\xA9", "e\xCC\x81"},
        {UNICODE_NFC, "\xE1\xBA\x9B\xCC\xA3", "\xE1\xBA\x9B\xCC\xA3"},
        {UNICODE_NFKC, "\xE1\xBA\x9B\xCC\xA3", "\xE1\xB9\xA9"},
        {UNICODE_NFKD, "\xEF\xAC\x81\xC2\xBD", "fi1\xE2\x81\x84" "2"},
        {UNICODE_NFD, "\xEA\xB0\x81", "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8"},
        {UNICODE_NFC, "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", "\xEA\xB0\x81"},
        {UNICODE_NFC, "\xE1\x84\x80\xE1\x85\xA1\xEF\xBF\xBD", "\xEA\xB0\x80\xEF\xBF\xBD"},
        {UNICODE_NFD, "a\xCC\x81\xCC\xA3", "a\xCC\xA3\xCC\x81"},
        {UNICODE_NFC, "", ""},
    };
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        strbuf out = {0};
        assert_int_equal(text_normalize(rows[i].form, rows[i].text, strlen(rows[i].text), &out,
                                        NULL), TEMPER_OK);
        assert_string_equal(strbuf_text(&out), rows[i].expected);
        strbuf_free(&out);
    }
}

/* A hundred thousand marks on one letter are put in order in a second, not in an hour. */
static void endless_marks(void **state)
{
    enum { MARKS = 100000 };
    strbuf text = {0}, out = {0};
    (void)state;

    strbuf_putc(&text, 'a');
    for (int i = 0; i < MARKS; i++)
        strbuf_puts(&text, i % 2 == 0 ? "\xCC\x81" : "\xCC\xA3");
    assert_int_equal(text_normalize(UNICODE_NFD, text.data, text.length, &out, NULL), TEMPER_OK);
    assert_int_equal(out.length, text.length);
    assert_int_equal(utf8_valid_length(out.data, out.length), out.length);
    strbuf_free(&text);
    strbuf_free(&out);
}

static void kinds_of_characters(void **state)
{
    (void)state;

    assert_true(codepoint_is_space(' ') && codepoint_is_space(0x85) && codepoint_is_space(0x3000));
    assert_false(codepoint_is_space(0x200B) || codepoint_is_space(0x180E));
    assert_true(codepoint_is_punctuation('$') && codepoint_is_punctuation(0x3002));
    assert_false(codepoint_is_punctuation(0x20AC) || codepoint_is_punctuation('a'));
    assert_true(codepoint_is_number('7') && codepoint_is_number(0xBD));
    assert_true(codepoint_is_word('_') && codepoint_is_word(0x301) && codepoint_is_word(0x24B6));
    assert_false(codepoint_is_word('-') || codepoint_is_word(0xB2));
    assert_true(codepoint_is_control(7) && codepoint_is_control(0x200B));
    assert_true(codepoint_is_cjk(0x4F60) && !codepoint_is_cjk(0x3042));
    strbuf out = {0};
    codepoint_append_lower(&out, 0x130);
    codepoint_append_lower(&out, 'A');
    codepoint_append_lower(&out, 0x1C5);
    assert_string_equal(strbuf_text(&out), "i\xCC\x87" "a\xC7\x86");
    strbuf_free(&out);
    /* A family of three is one cluster. */
    assert_int_equal(text_grapheme("\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9x", 12), 11);
    assert_int_equal(text_grapheme("e\xCC\x81x", 4), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_patterns_match),
        cmocka_unit_test(patterns_that_are_refused),
        cmocka_unit_test(normal_forms),
        cmocka_unit_test(endless_marks),
        cmocka_unit_test(kinds_of_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
