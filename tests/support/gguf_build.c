/*
 * gguf_build.c - see gguf_build.h.
 */
#include "support/gguf_build.h"

#include <stdlib.h>
#include <string.h>

#include "file/gguf_head.h"

static void put_number(strbuf *file, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        strbuf_putc(file, (char)(value >> (8 * i)));
}

void gguf_put_header(strbuf *file, const char *magic, uint32_t version, uint64_t tensors,
                     uint64_t keys)
{
    strbuf_puts(file, magic);
    gguf_put_u32(file, version);
    gguf_put_u64(file, tensors);
    gguf_put_u64(file, keys);
}

void gguf_put_u32(strbuf *file, uint32_t value)
{
    put_number(file, value, 4);
}

void gguf_put_u64(strbuf *file, uint64_t value)
{
    put_number(file, value, 8);
}

void gguf_put_f32(strbuf *file, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    gguf_put_u32(file, bits);
}

void gguf_put_string(strbuf *file, const char *text)
{
    gguf_put_u64(file, strlen(text));
    strbuf_puts(file, text);
}

void gguf_put_key(strbuf *file, const char *key, uint32_t type)
{
    gguf_put_string(file, key);
    gguf_put_u32(file, type);
}

void gguf_put_array(strbuf *file, const char *key, uint32_t element, uint64_t count)
{
    gguf_put_key(file, key, GGUF_ARRAY);
    gguf_put_u32(file, element);
    gguf_put_u64(file, count);
}

void gguf_put_key_u32(strbuf *file, const char *key, uint32_t value)
{
    gguf_put_key(file, key, GGUF_UINT32);
    gguf_put_u32(file, value);
}

void gguf_put_tensor(strbuf *file, const char *name, uint32_t dim_count, const uint64_t *dims,
                     uint32_t type, uint64_t offset)
{
    gguf_put_string(file, name);
    gguf_put_u32(file, dim_count);
    for (uint32_t i = 0; i < dim_count && i < 4; i++)
        gguf_put_u64(file, dims[i]);
    gguf_put_u32(file, type);
    gguf_put_u64(file, offset);
}

void gguf_put_padding(strbuf *file, uint64_t alignment)
{
    while (file->length % alignment != 0)
        strbuf_putc(file, '\0');
}

void gguf_put_part(strbuf *out, const gguf_file *whole, uint32_t number, uint32_t count)
{
    gguf_head head = {0};
    strbuf data = {0};
    const uint64_t tensors = gguf_tensor_count(whole);

    for (uint64_t i = 0; number == 0 && i < gguf_value_count(whole); i++)
        gguf_head_value(&head, gguf_value_at(whole, i));
    gguf_head_u32(&head, "split.no", number);
    gguf_head_u32(&head, "split.count", count);
    gguf_head_u32(&head, "split.tensors.count", (uint32_t)tensors);
    for (uint64_t i = number; i < tensors; i += count) {
        const gguf_tensor *tensor = gguf_tensor_at(whole, i);
        uint8_t *bytes = malloc((size_t)tensor->bytes);
        uint64_t offset = 0;
        if (bytes == NULL ||
            gguf_read_tensor(whole, tensor, 0, bytes, tensor->bytes, NULL) != TEMPER_OK)
            abort();
        gguf_head_tensor(&head, tensor->name, tensor->dim_count, tensor->dims, tensor->type,
                         &offset);
        while (data.length < offset)
            strbuf_putc(&data, 0);
        strbuf_append(&data, bytes, (size_t)tensor->bytes);
        free(bytes);
    }
    gguf_head_finish(&head, out);
    strbuf_append(out, data.data, data.length);
    gguf_head_free(&head);
    strbuf_free(&data);
}

static uint64_t sum_bytes(const void *bytes, uint64_t length)
{
    uint64_t sum = length;

    for (uint64_t i = 0; i < length; i++)
        sum = sum * 31 + ((const uint8_t *)bytes)[i];
    return sum;
}

static uint64_t walk_array(const gguf_value *value)
{
    uint64_t sum = 0;

    for (uint64_t i = 0; i < value->count; i++) {
        if (value->element == GGUF_STRING) {
            const gguf_string text = gguf_array_string(value, i);
            sum += sum_bytes(text.data, text.length);
        } else if (value->element == GGUF_FLOAT32 || value->element == GGUF_FLOAT64) {
            sum += gguf_array_float(value, i) > 0;
        } else {
            sum += (uint64_t)gguf_array_int(value, i);
        }
    }
    return sum;
}

static uint64_t walk_value(const gguf_file *file, const gguf_value *value)
{
    uint64_t sum = sum_bytes(value->key.data, value->key.length);
    char *key = calloc(1, (size_t)value->key.length + 1);
    error err = {0};
    uint32_t u32 = 0;
    uint64_t u64 = 0;
    float f32 = 0;
    bool truth = false;
    gguf_string text = {"", 0};

    if (key == NULL)
        abort();
    memcpy(key, value->key.data, (size_t)value->key.length);
    if (strlen(key) == value->key.length && gguf_find(file, key) != value)
        abort();
    gguf_get_u32(file, key, &u32, NULL, &err);
    gguf_get_u64(file, key, &u64, NULL, &err);
    gguf_get_f32(file, key, &f32, NULL, &err);
    gguf_get_bool(file, key, &truth, NULL, &err);
    gguf_get_string(file, key, &text, NULL, &err);
    free(key);
    sum += u32 + u64 + (f32 > 0) + truth + sum_bytes(text.data, text.length);
    return value->type == GGUF_ARRAY ? sum + walk_array(value) : sum;
}

static uint64_t walk_tensor(const gguf_file *file, const gguf_tensor *tensor)
{
    uint64_t sum = sum_bytes(tensor->name.data, tensor->name.length);
    uint8_t block[4096];

    for (uint64_t at = 0; at < tensor->bytes; at += sizeof block) {
        const uint64_t rest = tensor->bytes - at;
        const uint64_t size = rest < sizeof block ? rest : sizeof block;
        if (gguf_read_tensor(file, tensor, at, block, size, NULL) != TEMPER_OK)
            abort();
        sum += sum_bytes(block, size);
    }
    return sum + tensor->elements;
}

uint64_t gguf_walk(const gguf_file *file)
{
    uint64_t sum = gguf_alignment(file) + gguf_version(file);

    for (uint64_t i = 0; i < gguf_value_count(file); i++)
        sum += walk_value(file, gguf_value_at(file, i));
    for (uint64_t i = 0; i < gguf_tensor_count(file); i++)
        sum += walk_tensor(file, gguf_tensor_at(file, i));
    return sum;
}
