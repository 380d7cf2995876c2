/*
 * byte_level.h - the alphabet in which byte-level vocabularies spell bytes: one printable character
 * a byte, so that every token is a string that can be printed (a space is "Ġ", a newline "Ċ").
 *
 * A byte that prints in Latin-1 stands for itself; the 68 others are numbered from U+0100 on, in
 * order. Method: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
 */
#ifndef TEMPER_TEXT_BYTE_LEVEL_H
#define TEMPER_TEXT_BYTE_LEVEL_H

#include <stddef.h>
#include <stdint.h>

enum { BYTE_LEVEL_SPELLING = 2 };   /* a byte's spelling has at most two bytes of UTF-8 */

/* Spells one byte; returns the length of its spelling, 1 or 2. */
size_t byte_level_spell(uint8_t byte, char out[BYTE_LEVEL_SPELLING]);

/* Reads a spelling; returns the number of bytes written to out, at most `length`. A spelling with a
 * character outside the alphabet is no byte-level spelling: it stands for its own bytes, as in
 * Hugging Face's library. A spelling_decoder that needs no rules: NULL. */
size_t byte_level_decode(const void *rules, const char *spelling, size_t length, char *out);

#endif
