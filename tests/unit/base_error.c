/*
 * base_error.c - texts of failures: escaping, cutting, the first one wins; and the log's way out.
 */
#include "base/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/strbuf.h"

static void test_status_texts(void **state)
{
    (void)state;
#define X(name, value, sentence) assert_string_equal(temper_status_text(name), sentence);
    TEMPER_STATUS_TABLE(X)
#undef X
    assert_non_null(temper_status_text((temper_status)9999));
}

static void test_first_failure_wins(void **state)
{
    error err = {0};

    (void)state;
    assert_int_equal(error_set(&err, TEMPER_BAD_FILE, "byte %d", 7), TEMPER_BAD_FILE);
    assert_int_equal(error_set(&err, TEMPER_IO, "later"), TEMPER_BAD_FILE);
    assert_string_equal(err.text, "byte 7");
    assert_int_equal(error_prefix(&err, "file %s", "x.gguf"), TEMPER_BAD_FILE);
    assert_string_equal(err.text, "file x.gguf: byte 7");

    error_clear(&err);
    assert_int_equal(err.status, TEMPER_OK);
    assert_string_equal(err.text, "");
    assert_int_equal(error_prefix(&err, "nothing to prefix"), TEMPER_OK);
    assert_string_equal(err.text, "");
}

static void test_null_error(void **state)
{
    (void)state;
    assert_int_equal(error_set(NULL, TEMPER_IO, "unseen %d", 1), TEMPER_IO);
    assert_int_equal(error_prefix(NULL, "unseen"), TEMPER_OK);
    error_clear(NULL);
}

static void test_escapes(void **state)
{
    static const struct {
        const char *given, *stored;
    } rows[] = {
        {"plain", "plain"},
        {"two\nlines", "two\nlines"},
        {"tab\tand\rreturn", "tab\\x09and\\x0dreturn"},
        {"\x1b[31mred\x7f", "\\x1b[31mred\\x7f"},
        {"caf\xc3\xa9 \xf0\x9f\x98\x8a", "caf\xc3\xa9 \xf0\x9f\x98\x8a"},
        {"lone \xc3", "lone \\xc3"},
        {"bad \xff\xfe", "bad \\xff\\xfe"},
        {"overlong \xc0\xaf", "overlong \\xc0\\xaf"},
        {"surrogate \xed\xa0\x80", "surrogate \\xed\\xa0\\x80"},
        {"c1 \xc2\x9b" "2J", "c1 \\xc2\\x9b" "2J"},
        {"separator \xe2\x80\xa8.", "separator \\xe2\\x80\\xa8."},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        error err = {0};
        error_set(&err, TEMPER_IO, "%s", rows[i].given);
        assert_string_equal(err.text, rows[i].stored);
        error_prefix(&err, "p");   /* what is escaped stays as it is */
        assert_string_equal(err.text + 3, rows[i].stored);
    }
}

static bool valid_utf8(const char *text)
{
    for (size_t length = strlen(text), at = 0; at < length;) {
        const int taken = utf8_sequence(text + at, length - at);
        if (taken <= 0)
            return false;
        at += (size_t)taken;
    }
    return true;
}

/* Whatever the length and wherever the cut falls, the text ends, is valid and shows that it was
 * cut. */
static void test_cut(void **state)
{
    char given[4000];

    (void)state;
    for (size_t length = 1000; length < 1100; length++)
        for (size_t shift = 0; shift < 4; shift++) {
            error err = {0};
            memset(given, 'x', sizeof given);
            for (size_t i = shift; i + 4 <= length; i += 4)
                memcpy(given + i, "\xf0\x9f\x98\x8a", 4);
            given[length] = '\0';
            error_set(&err, TEMPER_IO, "%s", given);
            assert_true(valid_utf8(err.text));
            if (length < ERROR_TEXT_BYTES)
                assert_string_equal(err.text, given);
            else
                assert_string_equal(err.text + strlen(err.text) - 3, "...");
        }
    memset(given, '\x01', sizeof given - 1);
    given[sizeof given - 1] = '\0';
    error err = {0};
    error_set(&err, TEMPER_IO, "%s", given);
    assert_true(strlen(err.text) >= ERROR_TEXT_BYTES - 8);
    assert_string_equal(err.text + strlen(err.text) - 3, "...");
    error_prefix(&err, "%s", given);
    assert_true(strlen(err.text) < ERROR_TEXT_BYTES);
}

static void test_six_lines(void **state)
{
    error err = {0};

    (void)state;
    error_set(&err, TEMPER_IO, "1\n2\n3\n4\n5\n6");
    assert_string_equal(err.text, "1\n2\n3\n4\n5\n6");
    error_clear(&err);
    error_set(&err, TEMPER_IO, "1\n2\n3\n4\n5\n6\n7\n8");
    assert_string_equal(err.text, "1\n2\n3\n4\n5\n6...");
    error_clear(&err);
    error_set(&err, TEMPER_IO, "1\n2\n3\n4\n5\n6\n");
    assert_string_equal(err.text, "1\n2\n3\n4\n5\n6");
}

static void note(log_level level, const char *text, void *user)
{
    snprintf(user, 64, "%d %s", (int)level, text);
}

static void test_log(void **state)
{
    char noted[64] = "";

    (void)state;
    log_message(LOG_WARNING, "nobody listens");
    log_set_sink(note, noted);
    log_message(LOG_WARNING, "%d of %d", 3, 4);
    log_set_sink(NULL, NULL);
    assert_string_equal(noted, "2 3 of 4");
    log_message(LOG_WARNING, "again nobody");
    assert_string_equal(noted, "2 3 of 4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_texts), cmocka_unit_test(test_first_failure_wins),
        cmocka_unit_test(test_null_error),   cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_cut),          cmocka_unit_test(test_six_lines),
        cmocka_unit_test(test_log),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
