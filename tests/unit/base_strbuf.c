/*
 * base_strbuf.c - the growing string, and UTF-8 against its definition.
 */
#include "base/strbuf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"

static void test_append(void **state)
{
    strbuf buf = {0};

    (void)state;
    assert_string_equal(strbuf_text(&buf), "");
    for (int i = 0; i < 1000; i++) {
        strbuf_printf(&buf, "%03d", i);
        assert_int_equal(buf.length, 3 * (i + 1));
    }
    for (int i = 0; i < 1000; i++) {
        const char digits[3] = {(char)('0' + i / 100), (char)('0' + i / 10 % 10),
                                (char)('0' + i % 10)};
        assert_memory_equal(strbuf_text(&buf) + 3 * i, digits, 3);
    }
    strbuf_clear(&buf);
    assert_string_equal(strbuf_text(&buf), "");
    strbuf_putc(&buf, 'a');
    strbuf_puts(&buf, "bc");
    strbuf_append(&buf, "d\0e", 3);
    assert_int_equal(buf.length, 6);
    assert_memory_equal(buf.data, "abcd\0e", 7);
    assert_false(buf.failed);
    strbuf_free(&buf);
    assert_null(buf.data);
}

static void test_failed_allocation(void **state)
{
    const uint64_t live = mem_live_bytes();
    strbuf buf = {0};

    (void)state;
    strbuf_puts(&buf, "kept");
    mem_fail_at(1, 0);
    for (int i = 0; i < 100; i++)
        strbuf_puts(&buf, "0123456789");
    mem_fail_at(0, 0);
    assert_true(buf.failed);
    assert_int_equal(strncmp(buf.data, "kept", 4), 0);
    assert_int_equal(strlen(buf.data), buf.length);
    strbuf_append(&buf, "x", SIZE_MAX / 2);   /* refused before it looks at the bytes */
    strbuf_free(&buf);
    assert_int_equal(mem_live_bytes(), live);

    strbuf_append(&buf, "", SIZE_MAX / 2 - 1);
    assert_true(buf.failed);
    strbuf_free(&buf);
}

static void encode(uint32_t code, int length, char out[4])
{
    static const unsigned char leads[] = {0, 0, 0xc0, 0xe0, 0xf0};

    for (int i = length - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 63));
    out[0] = (char)(leads[length] | code);
}

/* Every code point in every length that can hold it: only the shortest form of a scalar value is
 * valid, every proper prefix of a valid one is cut short. The buffers have the exact size. */
static void test_utf8_every_code_point(void **state)
{
    static const uint32_t ends[] = {0, 0x80, 0x800, 0x10000, 0x200000};

    (void)state;
    for (int length = 1; length <= 4; length++)
        for (uint32_t code = 0; code < ends[length]; code++) {
            char bytes[4];
            const bool valid = code >= ends[length - 1] && code <= 0x10ffff &&
                               !(code >= 0xd800 && code <= 0xdfff);
            encode(code, length, bytes);
            const int got = utf8_sequence(bytes, (size_t)length);
            if (got != (valid ? length : 0))
                fail_msg("U+%x in %d bytes: %d", code, length, got);
            for (int cut = 1; valid && cut < length; cut++)
                if (utf8_sequence(bytes, (size_t)cut) != -cut)
                    fail_msg("U+%x cut after %d bytes", code, cut);
        }
}

static void test_utf8_table(void **state)
{
    static const struct {
        const char *text;
        size_t length;
        int result;
    } rows[] = {
        {"", 0, 0},
        {"a", 1, 1},
        {"\0", 1, 1},
        {"\x80", 1, 0},
        {"\xbf\x80", 2, 0},
        {"\xc3\xa9z", 3, 2},
        {"\xc3", 1, -1},
        {"\xc3(", 2, 0},
        {"\xe2\x82", 2, -2},
        {"\xe2(", 2, 0},
        {"\xe0\x80", 2, 0},            /* no continuation makes it valid */
        {"\xed\xa0", 2, 0},
        {"\xf0\x8f", 2, 0},
        {"\xf0\x9f\x98", 3, -3},
        {"\xf0\x9f\x98(", 4, 0},
        {"\xf4\x90", 2, 0},
        {"\xf4\x8f\xbf\xbf", 4, 4},
        {"\xf5\x80\x80\x80", 4, 0},
        {"\xf8\x88\x80\x80\x80", 5, 0},
        {"\xfe", 1, 0},
        {"\xff", 1, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *exact = malloc(rows[i].length + (rows[i].length == 0));
        assert_non_null(exact);
        memcpy(exact, rows[i].text, rows[i].length);
        assert_int_equal(utf8_sequence(exact, rows[i].length), rows[i].result);
        free(exact);
    }
}

static void test_escape(void **state)
{
    strbuf buf = {0};

    (void)state;
    strbuf_escape(&buf, "a\0b\n\xc3\xa9\xc3", 7);
    assert_string_equal(strbuf_text(&buf), "a\\x00b\n\xc3\xa9\\xc3");
    strbuf_free(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_append),          cmocka_unit_test(test_failed_allocation),
        cmocka_unit_test(test_utf8_every_code_point), cmocka_unit_test(test_utf8_table),
        cmocka_unit_test(test_escape),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
