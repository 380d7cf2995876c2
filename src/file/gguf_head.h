/*
 * gguf_head.h - writes the directory of a GGUF file (version 3, alignment 32): keys, then tensors,
 * then the padding after which their data begin.
 *
 *     gguf_head head = {0};
 *     gguf_head_string(&head, "general.architecture", "llama");
 *     gguf_head_u32(&head, "llama.block_count", 2);
 *     gguf_head_tensor(&head, name, 2, dims, DTYPE_F32, &offset);   // in the data
 *     strbuf bytes = {0};
 *     gguf_head_finish(&head, &bytes);
 *     if (bytes.failed) ...                                         // no memory, anywhere above
 *     gguf_head_free(&head);
 *
 * Keys and tensors may come in any order among each other.
 */
#ifndef TEMPER_FILE_GGUF_HEAD_H
#define TEMPER_FILE_GGUF_HEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "file/gguf.h"

enum { GGUF_HEAD_ALIGNMENT = 32 };

typedef struct gguf_head {
    strbuf keys, tensors;
    uint64_t key_count, tensor_count;
    uint64_t data_bytes; /* of the tensors so far, each padded to the alignment */
} gguf_head;

void gguf_head_u32(gguf_head *head, const char *key, uint32_t value);
void gguf_head_f32(gguf_head *head, const char *key, float value);
void gguf_head_bool(gguf_head *head, const char *key, bool value);
void gguf_head_string(gguf_head *head, const char *key, const char *text);
void gguf_head_text(gguf_head *head, const char *key, const char *text, uint64_t length);

/* A key that holds an array; `count` elements follow by gguf_head_element_*. */
void gguf_head_array(gguf_head *head, const char *key, gguf_type element, uint64_t count);
void gguf_head_element_text(gguf_head *head, const char *text, uint64_t length);
void gguf_head_element_u32(gguf_head *head, uint32_t value); /* uint32 and int32 */
void gguf_head_element_f32(gguf_head *head, float value);

/* The same key and value as in a file that was read. */
void gguf_head_value(gguf_head *head, const gguf_value *value);

/* A tensor's description, dims innermost first; *offset is where its bytes belong in the data. The
 * sizes are known to fit (assert): they come from a checked directory. */
void gguf_head_tensor(gguf_head *head, gguf_string name, uint32_t dim_count, const uint64_t *dims,
                      uint32_t type, uint64_t *offset);

/* Appends the whole directory with its padding. */
void gguf_head_finish(const gguf_head *head, strbuf *out);
void gguf_head_free(gguf_head *head);

#endif
