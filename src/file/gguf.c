/*
 * gguf.c - reads the directory of a GGUF file: header, keys, tensor descriptions.
 *
 *     "GGUF", u32 version, u64 tensors, u64 keys
 *     keys:     string name, u32 type, value
 *     tensors:  string name, u32 dimensions, u64 each, u32 type, u64 offset from the data's start
 *     padding to the alignment, then the tensors' data
 *
 * All numbers are little-endian, a string is a u64 length and its bytes. The directory is read
 * once, front to back, through a buffer; no count or length is believed before the rest of the file
 * could hold it, so what is allocated is bounded by a small multiple of the file's size. Bytes
 * after the last tensor are ignored: writers pad the file to its alignment, some do not, and both
 * are accepted.
 */
#include "file/gguf.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/mem.h"

enum {
    BUFFER_BYTES = 256 * 1024,
    CHUNK_BYTES = 64 * 1024,
    NAME_MAX_BYTES = 65535,       /* of a key (the format's own limit) and of a tensor's name */
    VALUES_MAX = 1 << 20,
    TENSORS_MAX = 1 << 20,
    DIRECTORY_MAX_BYTES = 1 << 28,
    DEFAULT_ALIGNMENT = 32,
    SHOWN_NAME_BYTES = 120,       /* of a name in a message */
    /* The fewest bytes that one of them takes in a file. */
    VALUE_MIN_BYTES = 8 + 4 + 1,
    TENSOR_MIN_BYTES = 8 + 4 + 8 + 4 + 8,
    STRING_MIN_BYTES = 8
};

/* The directory's names, strings and arrays lie in chunks that are freed together. */
typedef struct chunk {
    struct chunk *next;
    uint64_t used, capacity;
    uint64_t bytes[];             /* of this type to be aligned for string tables */
} chunk;

struct gguf_file {
    source *src;
    uint32_t version;
    uint64_t alignment;
    uint64_t host_bytes;
    chunk *chunks;
    uint64_t value_count, tensor_count;
    gguf_value *values;           /* in the file's order */
    gguf_tensor *tensors;
    /* Sorted; each points to the first member of its value or tensor. Sorting, unlike hashing,
     * takes no longer for names that were made to collide. */
    const gguf_string **keys;
    const gguf_string **tensor_names;
};

typedef struct reader {
    gguf_file *file;
    error *err;
    bool source_failed;           /* then the error's text names the file already */
    uint64_t at;                  /* position of the next byte */
    uint64_t end;                 /* where the directory must have ended */
    uint8_t *buffer;
    uint64_t buffer_at, buffer_length;
} reader;

static const struct {
    const char *name;
    uint32_t size;                /* of a number in bytes, 0 for the others */
} types[] = {
    [GGUF_UINT8] = {"uint8", 1},     [GGUF_INT8] = {"int8", 1},
    [GGUF_UINT16] = {"uint16", 2},   [GGUF_INT16] = {"int16", 2},
    [GGUF_UINT32] = {"uint32", 4},   [GGUF_INT32] = {"int32", 4},
    [GGUF_FLOAT32] = {"float32", 4}, [GGUF_BOOL] = {"bool", 1},
    [GGUF_STRING] = {"string", 0},   [GGUF_ARRAY] = {"array", 0},
    [GGUF_UINT64] = {"uint64", 8},   [GGUF_INT64] = {"int64", 8},
    [GGUF_FLOAT64] = {"float64", 8},
};

enum { TYPE_COUNT = sizeof types / sizeof types[0] };

const char *gguf_type_name(gguf_type type)
{
    return (unsigned)type < TYPE_COUNT ? types[type].name : "unknown";
}

/* ---- memory ---------------------------------------------------------------------------------- */

static temper_status no_memory(reader *r, uint64_t bytes)
{
    return error_set(r->err, TEMPER_NO_MEMORY,
                     "no memory left for %" PRIu64 " bytes of the directory", bytes);
}

static temper_status new_chunk(reader *r, uint64_t capacity, chunk **out)
{
    chunk *fresh = mem_alloc(sizeof *fresh + (size_t)capacity);

    if (fresh == NULL)
        return no_memory(r, capacity);
    *fresh = (chunk){.capacity = capacity};
    r->file->host_bytes += sizeof *fresh + capacity;
    *out = fresh;
    return TEMPER_OK;
}

/* Gives `size` bytes that live as long as the file. */
static temper_status chunk_alloc(reader *r, uint64_t size, bool aligned, void **out)
{
    chunk *head = r->file->chunks;
    uint64_t start = head == NULL ? 0 : head->used;
    chunk *fresh = NULL;
    temper_status status;

    assert(size <= 2 * (uint64_t)DIRECTORY_MAX_BYTES);
    if (aligned)
        start = (start + 7) / 8 * 8;
    if (head != NULL && start <= head->capacity && size <= head->capacity - start) {
        head->used = start + size;
        *out = (uint8_t *)head->bytes + start;
        return TEMPER_OK;
    }

    const bool alone = size > CHUNK_BYTES / 4;
    if ((status = new_chunk(r, alone ? size : CHUNK_BYTES, &fresh)) != TEMPER_OK)
        return status;
    fresh->used = size;
    if (alone && head != NULL) {   /* the head keeps its free rest */
        fresh->next = head->next;
        head->next = fresh;
    } else {
        fresh->next = head;
        r->file->chunks = fresh;
    }
    *out = fresh->bytes;
    return TEMPER_OK;
}

/* A zeroed table of the file, counted. */
static temper_status table_alloc(reader *r, uint64_t count, size_t size, void *out)
{
    void *table = mem_calloc((size_t)count, size);

    if (table == NULL)
        return no_memory(r, count * size);
    r->file->host_bytes += count * size;
    memcpy(out, &table, sizeof table);
    return TEMPER_OK;
}

/* ---- the buffered reader --------------------------------------------------------------------- */

static uint64_t remaining(const reader *r)
{
    return r->end - r->at;
}

/* Refuses `size` bytes that the file, or the longest directory, does not have. */
static temper_status need(reader *r, uint64_t size, const char *what)
{
    const uint64_t file_size = r->file->src->size;

    if (size <= remaining(r))
        return TEMPER_OK;
    if (size <= file_size - r->at)
        return error_set(r->err, TEMPER_UNSUPPORTED,
                         "%s takes %" PRIu64 " bytes at byte %" PRIu64
                         ": the directory is larger than the limit of %d bytes",
                         what, size, r->at, DIRECTORY_MAX_BYTES);
    return error_set(r->err, TEMPER_BAD_FILE,
                     "%s takes %" PRIu64 " bytes at byte %" PRIu64
                     ", but the file ends at byte %" PRIu64,
                     what, size, r->at, file_size);
}

static temper_status read_bytes(reader *r, void *out, uint64_t size, const char *what)
{
    uint8_t *to = out;
    temper_status status = need(r, size, what);

    while (status == TEMPER_OK && size > 0) {
        const uint64_t skip = r->at - r->buffer_at;
        if (skip < r->buffer_length) {
            const uint64_t part = min_u64(size, r->buffer_length - skip);
            memcpy(to, r->buffer + skip, (size_t)part);
            to += part;
            r->at += part;
            size -= part;
            continue;
        }
        const uint64_t wanted = min_u64(BUFFER_BYTES, remaining(r));
        status = source_read(r->file->src, r->at, r->buffer, wanted, r->err);
        r->source_failed = status != TEMPER_OK;
        r->buffer_at = r->at;
        r->buffer_length = r->source_failed ? 0 : wanted;
    }
    return status;
}

static uint64_t load_le(const uint8_t *bytes, uint32_t size)
{
    uint64_t value = 0;

    for (uint32_t i = 0; i < size; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

static temper_status read_u32(reader *r, uint32_t *out, const char *what)
{
    uint8_t bytes[4];
    const temper_status status = read_bytes(r, bytes, sizeof bytes, what);

    if (status == TEMPER_OK)
        *out = (uint32_t)load_le(bytes, sizeof bytes);
    return status;
}

static temper_status read_u64(reader *r, uint64_t *out, const char *what)
{
    uint8_t bytes[8];
    const temper_status status = read_bytes(r, bytes, sizeof bytes, what);

    if (status == TEMPER_OK)
        *out = load_le(bytes, sizeof bytes);
    return status;
}

static temper_status read_string(reader *r, uint64_t max_length, gguf_string *out,
                                 const char *what)
{
    uint64_t length = 0;
    void *data = NULL;
    temper_status status = read_u64(r, &length, what);

    if (status != TEMPER_OK || (status = need(r, length, what)) != TEMPER_OK)
        return status;
    if (length > max_length)
        return error_set(r->err, TEMPER_BAD_FILE,
                         "%s has %" PRIu64 " bytes, more than the limit of %" PRIu64, what, length,
                         max_length);
    if ((status = chunk_alloc(r, length, false, &data)) != TEMPER_OK ||
        (status = read_bytes(r, data, length, what)) != TEMPER_OK)
        return status;
    *out = (gguf_string){data, length};
    return TEMPER_OK;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static int shown_length(gguf_string s)
{
    return (int)min_u64(s.length, SHOWN_NAME_BYTES);
}

/* What a number's bytes say, by type; a float goes to as.f, a signed one to as.i. */
static void decode_number(gguf_type type, const uint8_t *bytes, gguf_value *out)
{
    const uint64_t bits = load_le(bytes, types[type].size);

    switch (type) {
    case GGUF_INT8:
        out->as.i = (int8_t)bits;
        break;
    case GGUF_INT16:
        out->as.i = (int16_t)bits;
        break;
    case GGUF_INT32:
        out->as.i = (int32_t)bits;
        break;
    case GGUF_INT64:
        out->as.i = (int64_t)bits;
        break;
    case GGUF_FLOAT32: {
        const uint32_t narrow = (uint32_t)bits;
        float f;
        memcpy(&f, &narrow, sizeof f);
        out->as.f = (double)f;
        break;
    }
    case GGUF_FLOAT64:
        memcpy(&out->as.f, &bits, sizeof out->as.f);
        break;
    case GGUF_BOOL:
        out->as.b = bits != 0;
        break;
    default:
        out->as.u = bits;
        break;
    }
}

static temper_status check_bools(reader *r, const uint8_t *bytes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (bytes[i] > 1)
            return error_set(r->err, TEMPER_BAD_FILE,
                             "bool %" PRIu64 " of %" PRIu64 " is %u, neither 0 nor 1", i + 1, count,
                             bytes[i]);
    return TEMPER_OK;
}

static temper_status read_string_array(reader *r, gguf_value *value)
{
    void *memory = NULL;
    temper_status status;

    status = chunk_alloc(r, value->count * sizeof(gguf_string), true, &memory);
    gguf_string *strings = memory;
    for (uint64_t i = 0; i < value->count && status == TEMPER_OK; i++)
        status = read_string(r, UINT64_MAX, &strings[i], "a string of the array");
    value->array = strings;
    return status;
}

static temper_status read_number_array(reader *r, gguf_value *value)
{
    const uint64_t bytes = value->count * types[value->element].size;
    void *memory = NULL;
    temper_status status;

    if ((status = chunk_alloc(r, bytes, false, &memory)) != TEMPER_OK ||
        (status = read_bytes(r, memory, bytes, "the array")) != TEMPER_OK)
        return status;
    value->array = memory;
    return value->element == GGUF_BOOL ? check_bools(r, memory, value->count) : TEMPER_OK;
}

static temper_status read_array(reader *r, gguf_value *value)
{
    uint32_t element = 0;
    temper_status status;

    if ((status = read_u32(r, &element, "the array's type")) != TEMPER_OK ||
        (status = read_u64(r, &value->count, "the array's length")) != TEMPER_OK)
        return status;
    if (element == GGUF_ARRAY)
        return error_set(r->err, TEMPER_UNSUPPORTED, "is an array of arrays");
    if (element >= TYPE_COUNT)
        return error_set(r->err, TEMPER_BAD_FILE, "is an array of the unknown type %" PRIu32,
                         element);
    value->element = (gguf_type)element;

    const uint64_t least = element == GGUF_STRING ? STRING_MIN_BYTES : types[element].size;
    const uint64_t follow = r->file->src->size - r->at;
    if (value->count > follow / least)
        return error_set(r->err, TEMPER_BAD_FILE,
                         "is an array of %" PRIu64 " elements of type %s, but only %" PRIu64
                         " bytes follow",
                         value->count, types[element].name, follow);
    if ((status = need(r, value->count * least, "the array")) != TEMPER_OK)
        return status;
    return element == GGUF_STRING ? read_string_array(r, value) : read_number_array(r, value);
}

static temper_status read_value(reader *r, gguf_value *value)
{
    uint32_t type = 0;
    uint8_t bytes[8];
    temper_status status;

    if ((status = read_u32(r, &type, "the value's type")) != TEMPER_OK)
        return status;
    if (type >= TYPE_COUNT)
        return error_set(r->err, TEMPER_BAD_FILE, "has the unknown value type %" PRIu32, type);
    value->type = (gguf_type)type;
    value->count = 1;
    if (type == GGUF_STRING)
        return read_string(r, UINT64_MAX, &value->as.string, "the string");
    if (type == GGUF_ARRAY)
        return read_array(r, value);
    if ((status = read_bytes(r, bytes, types[type].size, "the value")) != TEMPER_OK)
        return status;
    if (type == GGUF_BOOL && (status = check_bools(r, bytes, 1)) != TEMPER_OK)
        return status;
    decode_number(value->type, bytes, value);
    return TEMPER_OK;
}

/* Puts what was being read before an error's text; errors of the source name the file already. */
static temper_status at_item(reader *r, temper_status status, const char *kind, uint64_t index,
                             uint64_t count, gguf_string name)
{
    if (status == TEMPER_OK || r->source_failed)
        return status;
    if (name.data == NULL)
        error_prefix(r->err, "%s %" PRIu64 " of %" PRIu64, kind, index + 1, count);
    else
        error_prefix(r->err, "%s '%.*s'", kind, shown_length(name), name.data);
    return status;
}

static int compare_strings(gguf_string a, gguf_string b)
{
    const int order = memcmp(a.data, b.data, (size_t)min_u64(a.length, b.length));

    return order != 0 ? order : (a.length > b.length) - (a.length < b.length);
}

static int compare_names(const void *a, const void *b)
{
    return compare_strings(**(const gguf_string *const *)a, **(const gguf_string *const *)b);
}

static void sort_index(const gguf_string **index, uint64_t count,
                       int (*compare)(const void *, const void *))
{
    if (count > 0)
        qsort(index, (size_t)count, sizeof index[0], compare);
}

/* Sorts the names and refuses one that is there twice. */
static temper_status index_names(reader *r, const gguf_string **names, uint64_t count,
                                 const char *kind)
{
    sort_index(names, count, compare_names);
    for (uint64_t i = 1; i < count; i++)
        if (compare_names(&names[i - 1], &names[i]) == 0)
            return error_set(r->err, TEMPER_BAD_FILE, "%s '%.*s' is there twice", kind,
                             shown_length(*names[i]), names[i]->data);
    return TEMPER_OK;
}

static const gguf_string *find_name(const gguf_string **names, uint64_t count, const char *name)
{
    const gguf_string wanted = {name, strlen(name)};
    uint64_t low = 0, high = count;

    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        const int order = compare_strings(wanted, *names[middle]);
        if (order == 0)
            return names[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static temper_status read_values(reader *r)
{
    gguf_file *file = r->file;
    temper_status status;

    if ((status = table_alloc(r, file->value_count, sizeof(gguf_value), &file->values)) ||
        (status = table_alloc(r, file->value_count, sizeof file->keys[0], &file->keys)))
        return status;
    for (uint64_t i = 0; i < file->value_count; i++) {
        gguf_value *value = &file->values[i];
        file->keys[i] = &value->key;
        status = read_string(r, NAME_MAX_BYTES, &value->key, "its name");
        if (status == TEMPER_OK)
            status = read_value(r, value);
        if (status != TEMPER_OK)
            return at_item(r, status, "key", i, file->value_count, value->key);
    }
    return index_names(r, file->keys, file->value_count, "key");
}

static temper_status read_alignment(reader *r)
{
    const gguf_value *value = gguf_find(r->file, "general.alignment");
    uint64_t alignment = DEFAULT_ALIGNMENT;
    const temper_status status =
        value == NULL ? TEMPER_OK
                      : gguf_get_u64(r->file, "general.alignment", &alignment, NULL, r->err);

    if (status != TEMPER_OK) {
        r->source_failed = true;   /* the look-up has named the file */
        return status;
    }
    if (alignment < 8 || (alignment & (alignment - 1)) != 0)
        return error_set(r->err, TEMPER_BAD_FILE,
                         "key 'general.alignment' is %" PRIu64
                         "; a power of two of at least 8 is needed",
                         alignment);
    r->file->alignment = alignment;
    return TEMPER_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Elements and bytes of a tensor, from its type and dimensions. */
static temper_status size_tensor(reader *r, gguf_tensor *tensor)
{
    const dtype_info *info = dtype_find(tensor->type);
    uint64_t elements = 1, bytes = 0;
    bool fits = true;

    if (info == NULL)
        return error_set(r->err, TEMPER_UNSUPPORTED,
                         "its number type is %" PRIu32 " (%s), which temper does not know",
                         tensor->type, dtype_name(tensor->type));
    for (uint32_t i = 0; i < tensor->dim_count; i++) {
        if (tensor->dims[i] == 0)
            return error_set(r->err, TEMPER_BAD_FILE, "dimension %" PRIu32 " of %" PRIu32 " is 0",
                             i + 1, tensor->dim_count);
        fits = fits && checked_mul(elements, tensor->dims[i], &elements);
    }
    const uint64_t row = tensor->dims[0];
    if (row % info->block != 0)
        return error_set(r->err, TEMPER_BAD_FILE,
                         "its rows have %" PRIu64 " elements, no multiple of the block of %" PRIu32
                         " of %s",
                         row, info->block, info->name);
    if (!fits || elements > INT64_MAX ||
        !checked_mul(elements / info->block, info->block_bytes, &bytes) || bytes > INT64_MAX)
        return error_set(r->err, TEMPER_BAD_FILE,
                         "%" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64
                         " elements of %s do not fit 63 bits",
                         row, tensor->dims[1], tensor->dims[2], tensor->dims[3], info->name);
    tensor->elements = elements;
    tensor->bytes = bytes;
    return TEMPER_OK;
}

static temper_status read_tensor(reader *r, gguf_tensor *tensor)
{
    temper_status status;

    if ((status = read_string(r, NAME_MAX_BYTES, &tensor->name, "its name")) != TEMPER_OK ||
        (status = read_u32(r, &tensor->dim_count, "the count of dimensions")) != TEMPER_OK)
        return status;
    if (tensor->dim_count < 1 || tensor->dim_count > GGUF_MAX_DIMS)
        return error_set(r->err, TEMPER_BAD_FILE,
                         "has %" PRIu32 " dimensions; 1 to %d are possible", tensor->dim_count,
                         GGUF_MAX_DIMS);
    for (uint32_t i = 0; i < GGUF_MAX_DIMS; i++)
        tensor->dims[i] = 1;
    for (uint32_t i = 0; i < tensor->dim_count; i++)
        if ((status = read_u64(r, &tensor->dims[i], "a dimension")) != TEMPER_OK)
            return status;
    if ((status = read_u32(r, &tensor->type, "the number type")) != TEMPER_OK ||
        (status = read_u64(r, &tensor->offset, "the offset")) != TEMPER_OK)
        return status;
    return size_tensor(r, tensor);
}

/* Of an index of tensor names, by where the tensors lie. */
static int compare_offsets(const void *a, const void *b)
{
    const uint64_t x = (*(const gguf_tensor *const *)a)->offset;
    const uint64_t y = (*(const gguf_tensor *const *)b)->offset;

    return (x > y) - (x < y);
}

/* Turns an offset in the data into one in the file, and refuses what is not inside it. */
static temper_status place_tensor(reader *r, uint64_t data_start, gguf_tensor *tensor)
{
    const gguf_file *file = r->file;
    uint64_t start = 0, end = 0;

    if (tensor->offset % file->alignment != 0)
        return error_set(r->err, TEMPER_BAD_FILE,
                         "its offset %" PRIu64 " is no multiple of the alignment of %" PRIu64,
                         tensor->offset, file->alignment);
    if (!checked_add(data_start, tensor->offset, &start) ||
        !checked_add(start, tensor->bytes, &end) || end > file->src->size)
        return error_set(r->err, TEMPER_BAD_FILE,
                         "its %" PRIu64 " bytes at offset %" PRIu64
                         " of the data (from byte %" PRIu64
                         ") reach past the end of the file (%" PRIu64
                         " bytes): the file is damaged or incomplete",
                         tensor->bytes, tensor->offset, data_start, file->src->size);
    tensor->offset = start;
    return TEMPER_OK;
}

static temper_status check_overlaps(reader *r)
{
    gguf_file *file = r->file;

    sort_index(file->tensor_names, file->tensor_count, compare_offsets);
    for (uint64_t i = 1; i < file->tensor_count; i++) {
        const gguf_tensor *a = (const gguf_tensor *)file->tensor_names[i - 1];
        const gguf_tensor *b = (const gguf_tensor *)file->tensor_names[i];
        if (b->offset - a->offset < a->bytes)
            return error_set(r->err, TEMPER_BAD_FILE,
                             "tensors '%.*s' (%" PRIu64 " bytes at byte %" PRIu64
                             ") and '%.*s' (at byte %" PRIu64 ") overlap",
                             shown_length(a->name), a->name.data, a->bytes, a->offset,
                             shown_length(b->name), b->name.data, b->offset);
    }
    return TEMPER_OK;
}

static temper_status read_tensors(reader *r)
{
    gguf_file *file = r->file;
    const uint64_t count = file->tensor_count;
    temper_status status;

    if ((status = table_alloc(r, count, sizeof(gguf_tensor), &file->tensors)) ||
        (status = table_alloc(r, count, sizeof file->tensor_names[0], &file->tensor_names)))
        return status;
    for (uint64_t i = 0; i < count; i++) {
        gguf_tensor *tensor = &file->tensors[i];
        file->tensor_names[i] = &tensor->name;
        if ((status = read_tensor(r, tensor)) != TEMPER_OK)
            return at_item(r, status, "tensor", i, count, tensor->name);
    }

    uint64_t data_start = 0;
    const bool fits = checked_round_up(r->at, file->alignment, &data_start);
    assert(fits && r->at <= DIRECTORY_MAX_BYTES);
    (void)fits;
    for (uint64_t i = 0; i < count; i++)
        if ((status = place_tensor(r, data_start, &file->tensors[i])) != TEMPER_OK)
            return at_item(r, status, "tensor", i, count, file->tensors[i].name);
    /* Names first: a tensor that is there twice overlaps itself, but is better called by its name.
     * */
    if ((status = index_names(r, file->tensor_names, count, "tensor")) != TEMPER_OK ||
        (status = check_overlaps(r)) != TEMPER_OK)
        return status;
    sort_index(file->tensor_names, count, compare_names);
    return TEMPER_OK;
}

/* ---- header, open, close --------------------------------------------------------------------- */

static temper_status check_version(reader *r, const uint8_t magic[4], uint32_t version)
{
    const bool swapped_magic = memcmp(magic, "FUGG", 4) == 0;

    if (memcmp(magic, "GGUF", 4) != 0 && !swapped_magic)
        return error_set(r->err, TEMPER_BAD_FILE,
                         "is no GGUF file: it starts with the bytes %02x %02x %02x %02x", magic[0],
                         magic[1], magic[2], magic[3]);
    if (swapped_magic || (version != 0 && (version & 0xffffffu) == 0))
        return error_set(r->err, TEMPER_UNSUPPORTED,
                         "is a big-endian GGUF file; only little-endian ones can be read");
    if (version != 2 && version != 3)
        return error_set(r->err, TEMPER_UNSUPPORTED,
                         "is of GGUF version %" PRIu32 "; versions 2 and 3 can be read", version);
    r->file->version = version;
    return TEMPER_OK;
}

/* Refuses a count of entries that the rest of the file cannot hold. */
static temper_status check_count(reader *r, const char *what, uint64_t count, uint64_t least_bytes,
                                 uint64_t limit)
{
    const uint64_t follow = r->file->src->size - r->at;

    if (count > follow / least_bytes)
        return error_set(r->err, TEMPER_BAD_FILE,
                         "the header counts %" PRIu64 " %s, but only %" PRIu64 " bytes follow",
                         count, what, follow);
    if (count > limit)
        return error_set(r->err, TEMPER_UNSUPPORTED,
                         "the header counts %" PRIu64 " %s, more than the limit of %" PRIu64, count,
                         what, limit);
    return TEMPER_OK;
}

static temper_status read_directory(reader *r)
{
    gguf_file *file = r->file;
    uint8_t magic[4];
    uint32_t version = 0;
    temper_status status;

    if ((status = read_bytes(r, magic, sizeof magic, "the header")) ||
        (status = read_u32(r, &version, "the header")) ||
        (status = check_version(r, magic, version)) ||
        (status = read_u64(r, &file->tensor_count, "the header")) ||
        (status = read_u64(r, &file->value_count, "the header")) ||
        (status = check_count(r, "tensors", file->tensor_count, TENSOR_MIN_BYTES, TENSORS_MAX)) ||
        (status = check_count(r, "keys", file->value_count, VALUE_MIN_BYTES, VALUES_MAX)) ||
        (status = read_values(r)) || (status = read_alignment(r)))
        return status;
    return read_tensors(r);
}

temper_status gguf_open(source *src, gguf_file **out, error *err)
{
    assert(src != NULL && out != NULL);
    gguf_file *file = mem_calloc(1, sizeof *file);
    uint8_t *buffer = mem_alloc(BUFFER_BYTES);
    if (file == NULL || buffer == NULL) {
        const temper_status status =
            error_set(err, TEMPER_NO_MEMORY, "%s: no memory left to open it", src->name);
        mem_free(buffer);
        mem_free(file);
        source_close(src);
        return status;
    }
    file->src = src;
    file->host_bytes = sizeof *file;

    reader r = {.file = file,
                .err = err,
                .end = min_u64(src->size, DIRECTORY_MAX_BYTES),
                .buffer = buffer};
    const temper_status status = read_directory(&r);
    mem_free(buffer);
    if (status != TEMPER_OK) {
        if (!r.source_failed)
            error_prefix(err, "%s", src->name);
        gguf_close(file);
        return status;
    }
    *out = file;
    return TEMPER_OK;
}

void gguf_close(gguf_file *file)
{
    if (file == NULL)
        return;
    for (chunk *c = file->chunks, *next; c != NULL; c = next) {
        next = c->next;
        mem_free(c);
    }
    mem_free(file->values);
    mem_free(file->tensors);
    mem_free(file->keys);
    mem_free(file->tensor_names);
    source_close(file->src);
    mem_free(file);
}

source *gguf_detach(gguf_file *file)
{
    source *src = file->src;
    file->src = NULL;
    gguf_close(file);
    return src;
}

const source *gguf_source(const gguf_file *file)
{
    return file->src;
}

uint64_t gguf_file_bytes(const gguf_file *file)
{
    return file->src->size;
}

uint32_t gguf_version(const gguf_file *file)
{
    return file->version;
}

const char *gguf_name(const gguf_file *file)
{
    return file->src->name;
}

uint64_t gguf_alignment(const gguf_file *file)
{
    return file->alignment;
}

uint64_t gguf_host_bytes(const gguf_file *file)
{
    return file->host_bytes;
}

/* ---- look-ups -------------------------------------------------------------------------------- */

uint64_t gguf_value_count(const gguf_file *file)
{
    return file->value_count;
}

const gguf_value *gguf_value_at(const gguf_file *file, uint64_t index)
{
    assert(index < file->value_count);
    return &file->values[index];
}

const gguf_value *gguf_find(const gguf_file *file, const char *key)
{
    return (const gguf_value *)find_name(file->keys, file->value_count, key);
}

/* Finds a key for a typed look-up; *value is NULL where the key is missing and may be. */
static temper_status look_up(const gguf_file *file, const char *key, bool *found,
                             const gguf_value **value, error *err)
{
    *value = gguf_find(file, key);
    if (found != NULL)
        *found = *value != NULL;
    else if (*value == NULL)
        return error_set(err, TEMPER_BAD_FILE, "%s: key '%s' is missing", gguf_name(file), key);
    return TEMPER_OK;
}

static temper_status wrong_type(const gguf_file *file, const gguf_value *value, const char *wanted,
                                error *err)
{
    const bool array = value->type == GGUF_ARRAY;

    return error_set(err, TEMPER_BAD_FILE, "%s: key '%.*s' is of type %s%s, not %s",
                     gguf_name(file), shown_length(value->key), value->key.data,
                     array ? "array of " : "", gguf_type_name(array ? value->element : value->type),
                     wanted);
}

static bool is_signed(gguf_type type)
{
    return type == GGUF_INT8 || type == GGUF_INT16 || type == GGUF_INT32 || type == GGUF_INT64;
}

static bool is_unsigned(gguf_type type)
{
    return type == GGUF_UINT8 || type == GGUF_UINT16 || type == GGUF_UINT32 || type == GGUF_UINT64;
}

/* An integer of any type in 0..max. */
static temper_status get_unsigned(const gguf_file *file, const char *key, uint64_t max,
                                  const char *wanted, uint64_t *out, bool *found, error *err)
{
    const gguf_value *value = NULL;
    const temper_status status = look_up(file, key, found, &value, err);

    if (status != TEMPER_OK || value == NULL)
        return status;
    if (!is_signed(value->type) && !is_unsigned(value->type))
        return wrong_type(file, value, wanted, err);
    if (is_signed(value->type) && value->as.i < 0)
        return error_set(err, TEMPER_BAD_FILE,
                         "%s: key '%s' (%s) is %" PRId64 ", which does not fit %s", gguf_name(file),
                         key, gguf_type_name(value->type), value->as.i, wanted);
    const uint64_t number = is_signed(value->type) ? (uint64_t)value->as.i : value->as.u;
    if (number > max)
        return error_set(err, TEMPER_BAD_FILE,
                         "%s: key '%s' (%s) is %" PRIu64 ", which does not fit %s", gguf_name(file),
                         key, gguf_type_name(value->type), number, wanted);
    *out = number;
    return TEMPER_OK;
}

temper_status gguf_get_u32(const gguf_file *file, const char *key, uint32_t *out, bool *found,
                           error *err)
{
    uint64_t number = 0;
    bool there = true;
    const temper_status status = get_unsigned(file, key, UINT32_MAX, "uint32", &number,
                                              found != NULL ? &there : NULL, err);

    if (found != NULL)
        *found = there;
    if (status == TEMPER_OK && there)
        *out = (uint32_t)number;
    return status;
}

temper_status gguf_get_u64(const gguf_file *file, const char *key, uint64_t *out, bool *found,
                           error *err)
{
    return get_unsigned(file, key, UINT64_MAX, "uint64", out, found, err);
}

temper_status gguf_get_f32(const gguf_file *file, const char *key, float *out, bool *found,
                           error *err)
{
    const gguf_value *value = NULL;
    const temper_status status = look_up(file, key, found, &value, err);

    if (status != TEMPER_OK || value == NULL)
        return status;
    if (value->type != GGUF_FLOAT32 && value->type != GGUF_FLOAT64)
        return wrong_type(file, value, "float32", err);
    const float narrow = (float)value->as.f;
    if (isinf(narrow) && !isinf(value->as.f))
        return error_set(err, TEMPER_BAD_FILE,
                         "%s: key '%s' (%s) is %g, which does not fit float32", gguf_name(file),
                         key, gguf_type_name(value->type), value->as.f);
    *out = narrow;
    return TEMPER_OK;
}

temper_status gguf_get_bool(const gguf_file *file, const char *key, bool *out, bool *found,
                            error *err)
{
    const gguf_value *value = NULL;
    const temper_status status = look_up(file, key, found, &value, err);

    if (status != TEMPER_OK || value == NULL)
        return status;
    if (value->type != GGUF_BOOL)
        return wrong_type(file, value, "bool", err);
    *out = value->as.b;
    return TEMPER_OK;
}

temper_status gguf_get_string(const gguf_file *file, const char *key, gguf_string *out, bool *found,
                              error *err)
{
    const gguf_value *value = NULL;
    const temper_status status = look_up(file, key, found, &value, err);

    if (status != TEMPER_OK || value == NULL)
        return status;
    if (value->type != GGUF_STRING)
        return wrong_type(file, value, "string", err);
    *out = value->as.string;
    return TEMPER_OK;
}

gguf_string gguf_array_string(const gguf_value *value, uint64_t index)
{
    assert(value->type == GGUF_ARRAY && value->element == GGUF_STRING && index < value->count);
    return ((const gguf_string *)value->array)[index];
}

/* The element of an array of numbers as a value of its own. */
static gguf_value number_at(const gguf_value *value, uint64_t index)
{
    gguf_value number = {.type = value->element};

    assert(value->type == GGUF_ARRAY && types[value->element].size > 0 && index < value->count);
    decode_number(value->element,
                  (const uint8_t *)value->array + index * types[value->element].size, &number);
    return number;
}

int64_t gguf_array_int(const gguf_value *value, uint64_t index)
{
    const gguf_value number = number_at(value, index);

    assert(number.type != GGUF_FLOAT32 && number.type != GGUF_FLOAT64);
    if (number.type == GGUF_BOOL)
        return number.as.b;
    return is_signed(number.type) ? number.as.i : (int64_t)number.as.u;
}

double gguf_array_float(const gguf_value *value, uint64_t index)
{
    const gguf_value number = number_at(value, index);

    assert(number.type == GGUF_FLOAT32 || number.type == GGUF_FLOAT64);
    return number.as.f;
}

uint64_t gguf_tensor_count(const gguf_file *file)
{
    return file->tensor_count;
}

const gguf_tensor *gguf_tensor_at(const gguf_file *file, uint64_t index)
{
    assert(index < file->tensor_count);
    return &file->tensors[index];
}

const gguf_tensor *gguf_find_tensor(const gguf_file *file, const char *name)
{
    return (const gguf_tensor *)find_name(file->tensor_names, file->tensor_count, name);
}

temper_status gguf_read_tensor(const gguf_file *file, const gguf_tensor *tensor, uint64_t offset,
                               void *out, uint64_t size, error *err)
{
    assert(offset <= tensor->bytes && size <= tensor->bytes - offset);
    return source_read(file->src, tensor->offset + offset, out, size, err);
}

void gguf_expect(const gguf_file *file, uint64_t offset, uint64_t size)
{
    source_expect(file->src, offset, size);
}
