#include "file/gguf_head.h"

#include <assert.h>
#include <string.h>

#include "base/checked.h"

static void put(strbuf *out, uint64_t value, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        strbuf_putc(out, (char)(uint8_t)(value >> (8 * i)));
}

static void put_f32(strbuf *out, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put(out, bits, 4);
}

static void put_text(strbuf *out, const char *text, uint64_t length)
{
    put(out, length, 8);
    strbuf_append(out, text, (size_t)length);
}

static void put_key(gguf_head *head, const char *key, uint64_t length, gguf_type type)
{
    put_text(&head->keys, key, length);
    put(&head->keys, (uint32_t)type, 4);
    head->key_count++;
}

void gguf_head_u32(gguf_head *head, const char *key, uint32_t value)
{
    put_key(head, key, strlen(key), GGUF_UINT32);
    put(&head->keys, value, 4);
}

void gguf_head_f32(gguf_head *head, const char *key, float value)
{
    put_key(head, key, strlen(key), GGUF_FLOAT32);
    put_f32(&head->keys, value);
}

void gguf_head_bool(gguf_head *head, const char *key, bool value)
{
    put_key(head, key, strlen(key), GGUF_BOOL);
    put(&head->keys, value, 1);
}

void gguf_head_string(gguf_head *head, const char *key, const char *text)
{
    gguf_head_text(head, key, text, strlen(text));
}

void gguf_head_text(gguf_head *head, const char *key, const char *text, uint64_t length)
{
    put_key(head, key, strlen(key), GGUF_STRING);
    put_text(&head->keys, text, length);
}

void gguf_head_array(gguf_head *head, const char *key, gguf_type element, uint64_t count)
{
    put_key(head, key, strlen(key), GGUF_ARRAY);
    put(&head->keys, (uint32_t)element, 4);
    put(&head->keys, count, 8);
}

void gguf_head_element_text(gguf_head *head, const char *text, uint64_t length)
{
    put_text(&head->keys, text, length);
}

void gguf_head_element_u32(gguf_head *head, uint32_t value)
{
    put(&head->keys, value, 4);
}

void gguf_head_element_f32(gguf_head *head, float value)
{
    put_f32(&head->keys, value);
}

/* A number of a type, as the reader has decoded it. */
static void put_number(strbuf *out, gguf_type type, const gguf_value *value)
{
    switch (type) {
    case GGUF_UINT8:
        put(out, value->as.u, 1);
        break;
    case GGUF_UINT16:
        put(out, value->as.u, 2);
        break;
    case GGUF_UINT32:
        put(out, value->as.u, 4);
        break;
    case GGUF_UINT64:
        put(out, value->as.u, 8);
        break;
    case GGUF_INT8:
        put(out, (uint64_t)value->as.i, 1);
        break;
    case GGUF_INT16:
        put(out, (uint64_t)value->as.i, 2);
        break;
    case GGUF_INT32:
        put(out, (uint64_t)value->as.i, 4);
        break;
    case GGUF_INT64:
        put(out, (uint64_t)value->as.i, 8);
        break;
    case GGUF_FLOAT32:
        put_f32(out, (float)value->as.f);
        break;
    case GGUF_FLOAT64: {
        uint64_t bits;
        memcpy(&bits, &value->as.f, sizeof bits);
        put(out, bits, 8);
        break;
    }
    case GGUF_BOOL:
        put(out, value->as.b, 1);
        break;
    case GGUF_STRING:
    case GGUF_ARRAY:
        assert(false && "a number");
        break;
    }
}

static void put_array(strbuf *out, const gguf_value *value)
{
    put(out, (uint32_t)value->element, 4);
    put(out, value->count, 8);
    for (uint64_t i = 0; i < value->count; i++) {
        if (value->element == GGUF_STRING) {
            const gguf_string text = gguf_array_string(value, i);
            put_text(out, text.data, text.length);
            continue;
        }
        gguf_value number = {.type = value->element};
        if (value->element == GGUF_FLOAT32 || value->element == GGUF_FLOAT64)
            number.as.f = gguf_array_float(value, i);
        else if (value->element == GGUF_BOOL)
            number.as.b = gguf_array_int(value, i) != 0;
        else
            number.as.i = gguf_array_int(value, i);
        put_number(out, value->element, &number);
    }
}

void gguf_head_value(gguf_head *head, const gguf_value *value)
{
    put_key(head, value->key.data, value->key.length, value->type);
    if (value->type == GGUF_STRING)
        put_text(&head->keys, value->as.string.data, value->as.string.length);
    else if (value->type == GGUF_ARRAY)
        put_array(&head->keys, value);
    else
        put_number(&head->keys, value->type, value);
}

void gguf_head_tensor(gguf_head *head, gguf_string name, uint32_t dim_count, const uint64_t *dims,
                      uint32_t type, uint64_t *offset)
{
    const dtype_info *info = dtype_find(type);
    uint64_t elements = 1;
    assert(info != NULL && dim_count >= 1 && dim_count <= GGUF_MAX_DIMS);
    put_text(&head->tensors, name.data, name.length);
    put(&head->tensors, dim_count, 4);
    for (uint32_t i = 0; i < dim_count; i++) {
        put(&head->tensors, dims[i], 8);
        elements *= dims[i];
    }
    put(&head->tensors, type, 4);
    put(&head->tensors, head->data_bytes, 8);
    head->tensor_count++;
    *offset = head->data_bytes;
    const uint64_t bytes = elements / info->block * info->block_bytes;
    const bool fits = checked_round_up(bytes, GGUF_HEAD_ALIGNMENT, &elements) &&
                      checked_add(head->data_bytes, elements, &head->data_bytes);
    assert(fits);
    (void)fits;
}

void gguf_head_finish(const gguf_head *head, strbuf *out)
{
    out->failed = out->failed || head->keys.failed || head->tensors.failed;
    strbuf_puts(out, "GGUF");
    put(out, 3, 4);
    put(out, head->tensor_count, 8);
    put(out, head->key_count, 8);
    strbuf_append(out, strbuf_text(&head->keys), head->keys.length);
    strbuf_append(out, strbuf_text(&head->tensors), head->tensors.length);
    while (!out->failed && out->length % GGUF_HEAD_ALIGNMENT != 0)
        strbuf_putc(out, 0);
}

void gguf_head_free(gguf_head *head)
{
    strbuf_free(&head->keys);
    strbuf_free(&head->tensors);
    *head = (gguf_head){0};
}
