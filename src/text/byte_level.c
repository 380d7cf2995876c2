/*
 * byte_level.c - the alphabet in closed form: the bytes that do not print are 0x00-0x20, 0x7F-0xA0
 * and 0xAD, which take U+0100-U+0120, U+0121-U+0142 and U+0143.
 */
#include "text/byte_level.h"

#include <assert.h>
#include <string.h>

static uint32_t character_of_byte(uint8_t byte)
{
    if (byte <= 0x20)
        return 0x100u + byte;
    if (byte >= 0x7F && byte <= 0xA0)
        return 0x121u + (byte - 0x7Fu);
    if (byte == 0xAD)
        return 0x143u;
    return byte;
}

/* The byte that a character stands for, -1 outside the alphabet. */
static int byte_of_character(uint32_t character)
{
    if (character >= 0x100 && character <= 0x120)
        return (int)(character - 0x100);
    if (character >= 0x121 && character <= 0x142)
        return (int)(character - 0x121 + 0x7F);
    if (character == 0x143)
        return 0xAD;
    if (character <= 0xFF && character_of_byte((uint8_t)character) == character)
        return (int)character;
    return -1;
}

size_t byte_level_spell(uint8_t byte, char out[BYTE_LEVEL_SPELLING])
{
    const uint32_t character = character_of_byte(byte);

    assert(byte_of_character(character) == byte);
    if (character < 0x80) {
        out[0] = (char)character;
        return 1;
    }
    assert(character < 0x800);
    out[0] = (char)(0xC0 | (character >> 6));
    out[1] = (char)(0x80 | (character & 0x3F));
    return 2;
}

size_t byte_level_decode(const void *rules, const char *spelling, size_t length, char *out)
{
    size_t at = 0, count = 0;

    (void)rules;
    while (at < length) {
        const uint8_t first = (uint8_t)spelling[at];
        uint32_t character = first;
        size_t unit = 1;

        if (first >= 0x80) {
            /* The alphabet has no character of three or four bytes. */
            const uint8_t second = at + 1 < length ? (uint8_t)spelling[at + 1] : 0;
            if (first < 0xC2 || first > 0xDF || (second & 0xC0) != 0x80)
                break;
            character = ((first & 0x1Fu) << 6) | (second & 0x3Fu);
            unit = 2;
        }
        const int byte = byte_of_character(character);
        if (byte < 0)
            break;
        out[count++] = (char)byte;
        at += unit;
    }
    if (at == length)
        return count;
    memcpy(out, spelling, length);
    return length;
}
