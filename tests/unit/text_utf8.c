/*
 * text_utf8.c - units of broken UTF-8, and the byte-level alphabet.
 */
#include "text_files.h"

#include "text/utf8.h"

#define FFFD "\xEF\xBF\xBD"

static void broken_units_follow_the_recommendation(void **state)
{
    static const struct {
        const char *bytes, *clean;
    } rows[] = {
        {"", ""},
        {"a \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x8A", "a \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x8A"},
        {"\x80", FFFD},
        {"a\xE2\x82" "b", "a" FFFD "b"},
        {"\xE2\x82", FFFD},
        {"\xF0\x9F\x98", FFFD},
        {"\xF0\x9F\x98\xF0\x9F\x98\x8A", FFFD "\xF0\x9F\x98\x8A"},
        {"\xC0\xAF", FFFD FFFD},
        {"\xE0\x80\xAF", FFFD FFFD FFFD},
        {"\xED\xA0\x80", FFFD FFFD FFFD},
        {"\xF4\x90\x80\x80", FFFD FFFD FFFD FFFD},
        {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"},
        {"\xFF\xFE", FFFD FFFD},
        {"\xC3(", FFFD "("},
    };
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        strbuf out = {0};
        utf8_append_clean(&out, rows[i].bytes, strlen(rows[i].bytes));
        assert_string_equal(strbuf_text(&out), rows[i].clean);
        strbuf_free(&out);
    }
}

static void every_character_is_whole_and_every_prefix_is_cut(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x10FFFF; c += c < 0x3000 ? 1 : 97) {
        if (c >= 0xD800 && c < 0xE000)
            continue;
        char bytes[4];
        size_t length = 1;
        if (c < 0x80) {
            bytes[0] = (char)c;
        } else {
            length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
            static const uint8_t marks[] = {0, 0, 0xC0, 0xE0, 0xF0};
            bytes[0] = (char)(marks[length] | (c >> (6 * (length - 1))));
            for (size_t i = 1; i < length; i++)
                bytes[i] = (char)(0x80 | ((c >> (6 * (length - 1 - i))) & 0x3F));
        }
        utf8_state unit;
        assert_int_equal(utf8_next(bytes, length, &unit), length);
        assert_int_equal(unit, UTF8_WHOLE);
        for (size_t cut = 1; cut < length; cut++) {
            assert_int_equal(utf8_next(bytes, cut, &unit), cut);
            assert_int_equal(unit, UTF8_CUT);
        }
    }
}

static void alphabet_is_one_to_one(void **state)
{
    (void)state;
    for (int byte = 0; byte < 256; byte++) {
        char spelling[BYTE_LEVEL_SPELLING], back[BYTE_LEVEL_SPELLING];
        utf8_state unit;
        const size_t length = byte_level_spell((uint8_t)byte, spelling);

        assert_int_equal(utf8_next(spelling, length, &unit), length);
        assert_int_equal(unit, UTF8_WHOLE);
        assert_int_equal(byte_level_decode(NULL, spelling, length, back), 1);
        assert_int_equal((uint8_t)back[0], byte);
    }
    char spelling[BYTE_LEVEL_SPELLING];
    assert_int_equal(byte_level_spell(' ', spelling), 2);
    assert_memory_equal(spelling, "\xC4\xA0", 2);
    assert_int_equal(byte_level_spell('\n', spelling), 2);
    assert_memory_equal(spelling, "\xC4\x8A", 2);
    assert_int_equal(byte_level_spell(0xAD, spelling), 2);
    assert_memory_equal(spelling, "\xC5\x83", 2);
}

static void spelling_outside_the_alphabet_is_itself(void **state)
{
    static const char *const rows[] = {
        "two words", "\xE2\x96\x81word", "a\xC5\x84", "\xC4", "a\xFF", "tab\t", "\xC2\xA0",
    };
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char out[32];
        const size_t length = byte_level_decode(NULL, rows[i], strlen(rows[i]), out);
        assert_int_equal(length, strlen(rows[i]));
        assert_memory_equal(out, rows[i], length);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_units_follow_the_recommendation),
        cmocka_unit_test(every_character_is_whole_and_every_prefix_is_cut),
        cmocka_unit_test(alphabet_is_one_to_one),
        cmocka_unit_test(spelling_outside_the_alphabet_is_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
