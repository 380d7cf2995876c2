/*
 * safetensors.h - reads the directory of a safetensors file: eight bytes of length, a JSON header,
 * the tensors' bytes. Everything in the file is hostile until checked: a file that opens has a
 * header within the format's limit of 100 MB, known types, names that are there once, sizes that
 * agree with the shapes, and tensors that cover the rest of the file without a gap, an overlap or a
 * byte left over, as the format demands.
 *
 * Format: https://github.com/huggingface/safetensors#format
 */
#ifndef TEMPER_FILE_SAFETENSORS_H
#define TEMPER_FILE_SAFETENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/source.h"

enum { SAFETENSORS_MAX_DIMS = 8, SAFETENSORS_MAX_HEADER = 100000000 };

typedef struct safetensors_tensor {
    const char *name;      /* view, until safetensors_close */
    const char *type_name; /* "BF16", static */
    bool loadable;         /* type is F32, F16 or BF16; else its bytes are only measured */
    dtype type;
    uint32_t dim_count;                  /* 0 (one number) to 8 */
    uint64_t dims[SAFETENSORS_MAX_DIMS]; /* outermost first, as in the file */
    uint64_t offset, bytes;              /* in the source */
    uint64_t elements;
} safetensors_tensor;

typedef struct safetensors safetensors;

/* Reads and checks the directory; src is borrowed for as long as the tensors are read, not by the
 * result. Errors name the source: TEMPER_BAD_FILE for a damaged file, TEMPER_UNSUPPORTED for a type
 * that the format's description lacks or more than 8 dimensions, TEMPER_IO, TEMPER_NO_MEMORY. */
temper_status safetensors_open(source *src, safetensors **out, error *err);
void safetensors_close(safetensors *file); /* NULL is fine */

uint64_t safetensors_count(const safetensors *file);
const safetensors_tensor *safetensors_at(const safetensors *file, uint64_t index); /* by offset */
const safetensors_tensor *safetensors_find(const safetensors *file, const char *name); /* or NULL */

#endif
