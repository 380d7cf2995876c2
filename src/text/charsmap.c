/*
 * charsmap.c - walks the double array. A unit holds: bits 0 to 7 the byte on the edge to it, bit 8
 * whether a value hangs below, bits 10 to 30 the way to its children (bit 9: in steps of 256), bit
 * 31 that it is a value itself.
 */
#include "text/charsmap.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "text/utf8.h"

struct charsmap {
    uint32_t *units;
    size_t unit_count;
    char *texts;         /* NUL-terminated, one after the other */
    size_t text_bytes;
};

static uint32_t read_u32(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16
           | (uint32_t)bytes[3] << 24;
}

temper_status charsmap_open(const void *bytes, size_t size, charsmap **out, error *err)
{
    const uint8_t *data = bytes;
    const uint32_t trie_bytes = size < 4 ? 0 : read_u32(data);

    *out = NULL;
    if (size < 4 || trie_bytes % 4 != 0 || trie_bytes == 0 || trie_bytes >= size - 4)
        return error_set(err, TEMPER_BAD_FILE,
                         "precompiled_charsmap: %zu bytes are no table with a trie of %u bytes",
                         size, trie_bytes);
    const char *texts = (const char *)data + 4 + trie_bytes;
    const size_t text_bytes = size - 4 - trie_bytes;
    if (texts[text_bytes - 1] != '\0' || utf8_valid_length(texts, text_bytes) != text_bytes)
        return error_set(err, TEMPER_BAD_FILE,
                         "precompiled_charsmap: its texts are not NUL-terminated UTF-8");

    charsmap *map = mem_calloc(1, sizeof *map);
    if (map != NULL) {
        map->unit_count = trie_bytes / 4;
        map->text_bytes = text_bytes;
        map->units = mem_calloc(map->unit_count, sizeof *map->units);
        map->texts = mem_alloc(text_bytes);
    }
    if (map == NULL || map->units == NULL || map->texts == NULL) {
        charsmap_close(map);
        return error_set(err, TEMPER_NO_MEMORY, "no memory for a table of %zu bytes", size);
    }
    for (size_t i = 0; i < map->unit_count; i++)
        map->units[i] = read_u32(data + 4 + 4 * i);
    memcpy(map->texts, texts, text_bytes);
    *out = map;
    return TEMPER_OK;
}

void charsmap_close(charsmap *map)
{
    if (map == NULL)
        return;
    mem_free(map->units);
    mem_free(map->texts);
    mem_free(map);
}

static uint32_t children_of(uint32_t unit)
{
    return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}

size_t charsmap_find(const charsmap *map, const char *text, size_t length, bool longest,
                     const char **replacement, size_t *replacement_length)
{
    size_t matched = 0, value = 0;
    uint32_t node = children_of(map->units[0]);

    for (size_t at = 0; at < length && text[at] != '\0'; at++) {
        const uint8_t byte = (uint8_t)text[at];
        node ^= byte;
        if (node >= map->unit_count)
            break;
        const uint32_t unit = map->units[node];
        if ((unit & (UINT32_C(1) << 31 | 0xFF)) != byte)
            break;
        node ^= children_of(unit);
        if ((unit >> 8 & 1) == 0)
            continue;
        if (node >= map->unit_count)
            break;
        value = map->units[node] & 0x7FFFFFFF;
        matched = at + 1;
        if (!longest)
            break;
    }
    if (matched == 0 || value >= map->text_bytes)
        return 0;
    *replacement = map->texts + value;
    *replacement_length = strlen(*replacement);
    /* A value that points into the middle of a character gives no text. */
    return ((uint8_t)map->texts[value] & 0xC0) == 0x80 ? 0 : matched;
}
