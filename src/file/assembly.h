/*
 * assembly.h - a GGUF file that is nowhere on a disk: a directory written here, and tensors whose
 * bytes lie in other files or in memory. It reads like any other source, so that a split model and
 * a Hugging Face directory are, to every room above, one GGUF file.
 *
 *     assembly *a = NULL;
 *     status = assembly_open("model-folder", &a, err);
 *     gguf_head_string(assembly_head(a), "general.architecture", "llama");
 *     status = assembly_add(a, name, 2, dims, DTYPE_F16, &(assembly_piece){.from = src, ...}, err);
 *     status = assembly_finish(a, &whole, err);       // a is gone, whole is a source
 *
 * Between open and finish the assembly is closed by assembly_close.
 */
#ifndef TEMPER_FILE_ASSEMBLY_H
#define TEMPER_FILE_ASSEMBLY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/source.h"
#include "file/gguf_head.h"

typedef struct assembly assembly;

/* Where the bytes of a tensor are. */
typedef struct assembly_piece {
    const source *from; /* borrowed: see assembly_keep; NULL: memory */
    uint64_t offset;    /* in `from` */
    void *memory;       /* owned by the assembly from the call on, whether it succeeds or not */
    uint32_t heads;   /* 0: as it is. Else the rows are those of so many heads, in each of which the
                       * halves of a pair lie half a head apart; they are read next to each other */
    bool transposed;  /* the columns of `from` are the rows: a matrix of F32, F16 or BF16 */
    uint32_t widened; /* 0: as it is. Else a type of base/widen.h that the bytes of `from` have; the
                       * tensor is F16. Not with heads or transposed */
} assembly_piece;

/* `name` is what messages call the file. */
temper_status assembly_open(const char *name, assembly **out, error *err);
void assembly_close(assembly *a); /* NULL is fine */

gguf_head *assembly_head(assembly *a);

/* Takes over a source that pieces read from: it is closed with the assembly, or here on failure. */
temper_status assembly_keep(assembly *a, source *src, error *err);

/* Adds a tensor, dims innermost first, whose bytes are all there in the piece. */
temper_status assembly_add(assembly *a, gguf_string name, uint32_t dim_count, const uint64_t *dims,
                           uint32_t type, const assembly_piece *piece, error *err);

/* Ends the directory and gives the file; the assembly belongs to it, or is closed on failure. */
temper_status assembly_finish(assembly *a, source **out, error *err);

#endif
