/*
 * charsmap.h - SentencePiece's precompiled table of replacements for parts of a text: a compact
 * trie (Darts' double array: units of 32 bits) over the parts, and the texts that replace them.
 *
 * Hostile input: a unit that leads out of the table ends the search.
 */
#ifndef TEMPER_TEXT_CHARSMAP_H
#define TEMPER_TEXT_CHARSMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct charsmap charsmap;

/* Copies the table. One that is cut short, or whose texts are no UTF-8, is TEMPER_BAD_FILE. */
temper_status charsmap_open(const void *bytes, size_t size, charsmap **out, error *err);
void charsmap_close(charsmap *map);

/* Looks for a part that text[0..length) begins with: the longest, or else the shortest. Returns its
 * length, 0 for none, and the text that replaces it, valid UTF-8, a view into the table. */
size_t charsmap_find(const charsmap *map, const char *text, size_t length, bool longest,
                     const char **replacement, size_t *replacement_length);

#endif
