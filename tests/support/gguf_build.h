/*
 * gguf_build.h - writes GGUF files for tests, right or wrong, piece by piece in the file's order;
 * and reads everything that an opened one holds.
 *
 *     strbuf file = {0};
 *     gguf_put_header(&file, "GGUF", 3, 1, 1);
 *     gguf_put_key(&file, "general.architecture", GGUF_STRING);
 *     gguf_put_string(&file, "llama");
 *     gguf_put_tensor(&file, "w", 2, (const uint64_t[]){4, 2}, DTYPE_F32, 0);
 *     gguf_put_padding(&file, 32);
 *     strbuf_append(&file, data, 32);
 */
#ifndef TEMPER_TESTS_GGUF_BUILD_H
#define TEMPER_TESTS_GGUF_BUILD_H

#include <stdint.h>

#include "base/strbuf.h"
#include "file/gguf.h"

void gguf_put_header(strbuf *file, const char *magic, uint32_t version, uint64_t tensors,
                     uint64_t keys);
void gguf_put_u32(strbuf *file, uint32_t value);
void gguf_put_u64(strbuf *file, uint64_t value);
void gguf_put_f32(strbuf *file, float value);
void gguf_put_string(strbuf *file, const char *text);

/* A key and its type; the value follows. */
void gguf_put_key(strbuf *file, const char *key, uint32_t type);
/* A key, the type array, element type and count; the elements follow. */
void gguf_put_array(strbuf *file, const char *key, uint32_t element, uint64_t count);
void gguf_put_key_u32(strbuf *file, const char *key, uint32_t value);

/* A tensor's description; min(dim_count, 4) of dims are written. */
void gguf_put_tensor(strbuf *file, const char *name, uint32_t dim_count, const uint64_t *dims,
                     uint32_t type, uint64_t offset);

/* Zeros up to a multiple of `alignment`. */
void gguf_put_padding(strbuf *file, uint64_t alignment);

/* Part `number` (from 0) of `count` of a split model: the keys in the first one, the tensors dealt
 * out in turns. */
void gguf_put_part(strbuf *out, const gguf_file *whole, uint32_t number, uint32_t count);

/* Reads every key, every element of every array and every byte of every tensor, through the
 * look-ups and by index; returns a sum, so that nothing is left out by the compiler. */
uint64_t gguf_walk(const gguf_file *file);

#endif
