/*
 * source.h - where the bytes of a file come from. Parsers and loaders read through read_at(offset,
 * size) and never hold a whole file; a path, a block of memory and (in a page) a URL or Blob are
 * sources. read_at and gpu_wait are the only calls of the library that may wait.
 */
#ifndef TEMPER_BASE_SOURCE_H
#define TEMPER_BASE_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef struct source source;

struct source {
    const char *name;   /* for messages: the path, escaped and on one line; owned by the source */
    uint64_t size;      /* bytes */
    bool any_thread;    /* read_at may be called by several threads at a time: else by the one that
                         * opened the source alone */
    temper_status (*read_at)(source *self, uint64_t offset, void *out, uint64_t size, error *err);
    void (*expect)(source *self, uint64_t offset, uint64_t size); /* source_expect, or NULL */
    void (*close)(source *self);
};

/* Opens a regular file for reading. A directory, a missing file, one without permission: an error
 * with the system's reason. *out is owned by the caller. */
temper_status source_open_file(const char *path, source **out, error *err);

/* A source over bytes that the caller keeps alive (borrowed). `name` is copied. */
temper_status source_open_memory(const char *name, const void *bytes, uint64_t size, source **out,
                                 error *err);

/* Reads exactly `size` bytes at `offset`; a range past the end is TEMPER_BAD_FILE naming both
 * sizes. */
temper_status source_read(source *src, uint64_t offset, void *out, uint64_t size, error *err);

/* Says that bytes of a range will be read soon, so that a disk can begin; it need not be right, and
 * does not wait for them. What lies past the end is left out. */
void source_expect(source *src, uint64_t offset, uint64_t size);

/* NULL is fine. */
void source_close(source *src);

#endif
