/*
 * gguf.h - reads GGUF v2 and v3 files through a source. Everything in the file is hostile until
 * checked: a file that opens has a consistent directory (unique keys and names, known sizes, every
 * tensor inside the file, aligned and not overlapping the header), so that later rooms need no
 * second look. Bytes after the last tensor, and gaps between tensors, are accepted. Arrays of
 * arrays are not.
 *
 * Every type of base/dtype.h is listed and measured, loadable or not. A file that is one part of a
 * split model (key split.count above 1) opens as any other; model_file.h joins the parts.
 *
 * A file is not changed after gguf_open, so any thread may look things up; reads are as safe as the
 * source's read_at (files and memory: fully).
 *
 * Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
 */
#ifndef TEMPER_FILE_GGUF_H
#define TEMPER_FILE_GGUF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/source.h"

enum { GGUF_MAX_DIMS = 4 };

typedef enum gguf_type {
    GGUF_UINT8,
    GGUF_INT8,
    GGUF_UINT16,
    GGUF_INT16,
    GGUF_UINT32,
    GGUF_INT32,
    GGUF_FLOAT32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_UINT64,
    GGUF_INT64,
    GGUF_FLOAT64
} gguf_type;

typedef struct gguf_string {
    const char *data; /* view into the file's directory, valid until gguf_close; may hold NULs and
                       * invalid UTF-8; not NUL-terminated */
    uint64_t length;
} gguf_string;

typedef struct gguf_value {
    gguf_string key;
    gguf_type type;
    gguf_type element; /* of an array */
    uint64_t count;    /* elements of an array, else 1 */
    union {
        uint64_t u;
        int64_t i;
        double f;
        bool b;
        gguf_string string;
    } as;
    const void *array; /* private: use gguf_array_* */
} gguf_value;

typedef struct gguf_tensor {
    gguf_string name;
    uint32_t dim_count;           /* 1 to 4 */
    uint64_t dims[GGUF_MAX_DIMS]; /* innermost (K) first; the unused ones are 1 */
    uint32_t type;                /* GGUF number; dtype_find gives its sizes */
    uint64_t offset;              /* absolute, in its source */
    uint64_t bytes;
    uint64_t elements;
} gguf_tensor;

typedef struct gguf_file gguf_file;

/* Takes ownership of src (closed by gguf_close, and on failure). Errors are TEMPER_BAD_FILE with
 * the file's name and the key, tensor and number that is wrong; TEMPER_UNSUPPORTED for big-endian
 * files, other versions, unknown tensor types, arrays of arrays, more than 2^20 keys or tensors and
 * a directory of more than 256 MiB; TEMPER_IO and TEMPER_NO_MEMORY. */
temper_status gguf_open(source *src, gguf_file **out, error *err);
void gguf_close(gguf_file *file);

uint32_t gguf_version(const gguf_file *file);
const char *gguf_name(const gguf_file *file); /* of its source */
uint64_t gguf_alignment(const gguf_file *file);
uint64_t gguf_host_bytes(const gguf_file *file); /* held for the directory */
uint64_t gguf_file_bytes(const gguf_file *file); /* of the whole file */

const source *gguf_source(const gguf_file *file); /* a view, until gguf_close */

/* Closes the file, all views into it too, but hands its source out, owned by the caller. */
source *gguf_detach(gguf_file *file);

uint64_t gguf_value_count(const gguf_file *file);
const gguf_value *gguf_value_at(const gguf_file *file, uint64_t index);
const gguf_value *gguf_find(const gguf_file *file, const char *key); /* NULL: no such key */

/* Typed look-ups. A missing key leaves *out untouched and sets *found to false (found may be NULL:
 * then a missing key is an error). A value of another type, or out of the range, is TEMPER_BAD_FILE
 * naming the key and both types. Any integer type is accepted where its value fits. */
temper_status gguf_get_u32(const gguf_file *file, const char *key, uint32_t *out, bool *found,
                           error *err);
temper_status gguf_get_u64(const gguf_file *file, const char *key, uint64_t *out, bool *found,
                           error *err);
temper_status gguf_get_f32(const gguf_file *file, const char *key, float *out, bool *found,
                           error *err);
temper_status gguf_get_bool(const gguf_file *file, const char *key, bool *out, bool *found,
                            error *err);
temper_status gguf_get_string(const gguf_file *file, const char *key, gguf_string *out, bool *found,
                              error *err);

/* Elements of an array value. The type must fit (assert): check value->type and value->element
 * first. A uint64 above INT64_MAX comes out negative. */
gguf_string gguf_array_string(const gguf_value *value, uint64_t index);
int64_t gguf_array_int(const gguf_value *value, uint64_t index);  /* any integer type, and bool */
double gguf_array_float(const gguf_value *value, uint64_t index); /* float32 or float64 */

uint64_t gguf_tensor_count(const gguf_file *file);
const gguf_tensor *gguf_tensor_at(const gguf_file *file, uint64_t index);
const gguf_tensor *gguf_find_tensor(const gguf_file *file, const char *name); /* NULL: none */

/* Reads `size` bytes at `offset` of a tensor's data. The range is inside the tensor (assert). */
temper_status gguf_read_tensor(const gguf_file *file, const gguf_tensor *tensor, uint64_t offset,
                               void *out, uint64_t size, error *err);

/* Says that these bytes of the file will be read soon: source_expect. */
void gguf_expect(const gguf_file *file, uint64_t offset, uint64_t size);

const char *gguf_type_name(gguf_type type); /* "uint32" */

#endif
