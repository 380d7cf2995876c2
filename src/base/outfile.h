/*
 * outfile.h - a file that is either there whole or not at all: it is written beside its place,
 * synced, then renamed. A failure, a full disk or a killed process leaves what was there before.
 *
 *     outfile *out = NULL;
 *     status = outfile_create("model.gguf", &out, err);
 *     status = outfile_write(out, bytes, size, err);
 *     status = outfile_commit(out, err);     // or outfile_discard(out); out is gone either way
 */
#ifndef TEMPER_BASE_OUTFILE_H
#define TEMPER_BASE_OUTFILE_H

#include <stdint.h>

#include "base/error.h"

typedef struct outfile outfile;

/* Begins the file. A place that is a directory, a device or a pipe is refused. */
temper_status outfile_create(const char *path, outfile **out, error *err);

/* Appends. TEMPER_IO with the system's reason; the file can then only be discarded. */
temper_status outfile_write(outfile *file, const void *bytes, uint64_t size, error *err);

/* Puts the file in its place, or removes it and says why not. */
temper_status outfile_commit(outfile *file, error *err);

/* Removes what was written. NULL is fine. */
void outfile_discard(outfile *file);

#endif
