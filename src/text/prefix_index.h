/*
 * prefix_index.h - which tokens does a text begin with? The ids lie sorted by spelling, or by the
 * bytes that they stand for, so that those which share a beginning are neighbours, and a walk
 * along the text narrows the range by one byte at a time.
 *
 *     prefix_walk walk = prefix_walk_start(index);
 *     for (size_t depth = 0; depth < length && prefix_walk_step(&walk, (uint8_t)text[depth]);
 *          depth++)
 *         if (walk.id >= 0)
 *             ...   text[0..depth] is this token
 */
#ifndef TEMPER_TEXT_PREFIX_INDEX_H
#define TEMPER_TEXT_PREFIX_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "text/vocabulary.h"

/* Which text of a token counts: vocabulary_spelling or vocabulary_piece. */
typedef const char *(*prefix_text)(const vocabulary *vocab, uint32_t id, size_t *length);

typedef struct prefix_index {
    const vocabulary *vocab;   /* borrowed */
    prefix_text text;
    uint32_t *ids;             /* [count] sorted by text */
    uint32_t count;
    uint32_t first[257];       /* with byte b begin ids[first[b]] to ids[first[b + 1] - 1] */
} prefix_index;

/* Takes over the ids that `wanted` marks ([vocab->size]), but for empty texts. Of two ids with one
 * text the higher one is found. */
temper_status prefix_index_build(const vocabulary *vocab, prefix_text text, const bool *wanted,
                                 prefix_index *index, error *err);
void prefix_index_free(prefix_index *index);

typedef struct prefix_walk {
    const prefix_index *index;
    uint32_t low, high;   /* the ids that begin with the bytes so far */
    size_t depth;         /* bytes so far */
    int32_t id;           /* the token whose text they are, or -1 */
} prefix_walk;

static inline prefix_walk prefix_walk_start(const prefix_index *index)
{
    return (prefix_walk){.index = index, .high = index->count, .id = -1};
}

/* Adds a byte; false when no token begins so. */
bool prefix_walk_step(prefix_walk *walk, uint8_t byte);

#endif
