/*
 * lookup.h - proposals out of the text itself: what came after the last words when they stood there
 * before. Saxena, "Prompt lookup decoding", 2023.
 */
#ifndef TEMPER_INFER_LOOKUP_H
#define TEMPER_INFER_LOOKUP_H

#include <stdint.h>

/* Writes up to `most` ids that may follow ids [count] and returns how many: those that followed the
 * longest earlier run that ends like the text does (two ids at least, sixteen at most; the latest
 * of equally long ones). A run that reaches the end of the text goes on repeating itself. */
uint32_t lookup_propose(const uint32_t *ids, uint32_t count, uint32_t most, uint32_t *out);

#endif
