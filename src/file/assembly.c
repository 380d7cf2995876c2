#include "file/assembly.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "base/checked.h"
#include "base/mem.h"
#include "base/widen.h"

/* A tensor in the file: its first byte, counted from the data's start, and where it comes from. */
typedef struct part {
    uint64_t at, bytes;
    uint64_t element_bytes, row_bytes, rows;
    assembly_piece piece;
    char *widened_name; /* of the tensor, for messages; NULL where nothing is widened */
} part;

struct assembly {
    source base; /* first: the source is the assembly */
    char *name;
    gguf_head head;
    strbuf directory; /* once finished */
    part *parts;      /* ascending `at` */
    uint64_t part_count, part_capacity;
    source **kept;
    uint64_t kept_count;
};

temper_status assembly_open(const char *name, assembly **out, error *err)
{
    assembly *a = mem_calloc(1, sizeof *a);
    char *copy = mem_strdup(name);
    if (a == NULL || copy == NULL) {
        mem_free(a);
        mem_free(copy);
        return error_set(err, TEMPER_NO_MEMORY, "%s: no memory left to open it", name);
    }
    a->name = copy;
    *out = a;
    return TEMPER_OK;
}

void assembly_close(assembly *a)
{
    if (a == NULL)
        return;
    for (uint64_t i = 0; i < a->part_count; i++) {
        mem_free(a->parts[i].piece.memory);
        mem_free(a->parts[i].widened_name);
    }
    for (uint64_t i = 0; i < a->kept_count; i++)
        source_close(a->kept[i]);
    mem_free(a->parts);
    mem_free(a->kept);
    mem_free(a->name);
    gguf_head_free(&a->head);
    strbuf_free(&a->directory);
    mem_free(a);
}

gguf_head *assembly_head(assembly *a)
{
    return &a->head;
}

temper_status assembly_keep(assembly *a, source *src, error *err)
{
    source **more = mem_realloc(a->kept, (size_t)(a->kept_count + 1) * sizeof *more);
    if (more == NULL) {
        source_close(src);
        return error_set(err, TEMPER_NO_MEMORY, "%s: no memory left to open it", a->name);
    }
    a->kept = more;
    a->kept[a->kept_count++] = src;
    return TEMPER_OK;
}

temper_status assembly_add(assembly *a, gguf_string name, uint32_t dim_count, const uint64_t *dims,
                           uint32_t type, const assembly_piece *piece, error *err)
{
    const dtype_info *info = dtype_find(type);
    assert(info != NULL && (piece->from != NULL) != (piece->memory != NULL));
    if (a->part_count == a->part_capacity) {
        const uint64_t capacity = a->part_capacity == 0 ? 64 : a->part_capacity * 2;
        part *more = mem_realloc(a->parts, (size_t)capacity * sizeof *more);
        if (more == NULL) {
            mem_free(piece->memory);
            return error_set(err, TEMPER_NO_MEMORY, "%s: no memory left to open it", a->name);
        }
        a->parts = more;
        a->part_capacity = capacity;
    }
    part *p = &a->parts[a->part_count++];
    *p = (part){.piece = *piece, .rows = 1};
    for (uint32_t i = 1; i < dim_count; i++)
        p->rows *= dims[i];
    p->element_bytes = info->block_bytes / info->block;
    p->row_bytes = dims[0] / info->block * info->block_bytes;
    p->bytes = p->rows * p->row_bytes;
    assert(!piece->transposed || (piece->heads == 0 && info->block == 1));
    assert(piece->heads == 0 || p->rows % (2 * (uint64_t)piece->heads) == 0);
    if (piece->widened != DTYPE_F32) {
        assert(type == DTYPE_F16 && piece->heads == 0 && !piece->transposed);
        p->widened_name = mem_strndup(name.data, (size_t)name.length);
        if (p->widened_name == NULL)
            return error_set(err, TEMPER_NO_MEMORY, "%s: no memory left to open it", a->name);
    }
    gguf_head_tensor(&a->head, name, dim_count, dims, type, &p->at);
    return TEMPER_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The row of the source that is row `row` of the file. */
static uint64_t source_row(const part *p, uint64_t row)
{
    if (p->piece.heads == 0)
        return row;
    const uint64_t head_rows = p->rows / p->piece.heads, in = row % head_rows;
    return row - in + in % 2 * (head_rows / 2) + in / 2;
}

/* Bytes of whole rows [row, row + count) of a transposed tensor: a piece of each row of `from`. */
static temper_status read_columns(const part *p, uint64_t row, uint64_t count, uint8_t *out,
                                  error *err)
{
    const uint64_t size = p->element_bytes, k = p->row_bytes / size;
    source *from = (source *)(uintptr_t)p->piece.from;
    uint8_t *some = mem_alloc((size_t)(count * size));
    temper_status status = TEMPER_OK;
    if (some == NULL)
        status = error_set(err, TEMPER_NO_MEMORY, "%s: no memory left to transpose a matrix",
                           from->name);
    for (uint64_t i = 0; status == TEMPER_OK && i < k; i++) {
        status = source_read(from, p->piece.offset + (i * p->rows + row) * size, some, count * size,
                             err);
        for (uint64_t r = 0; status == TEMPER_OK && r < count; r++)
            memcpy(out + r * p->row_bytes + i * size, some + r * size, (size_t)size);
    }
    mem_free(some);
    return status;
}

/* The same for any bytes: the rows that hold them go through a block of their own. */
static temper_status read_transposed(const part *p, uint64_t offset, uint8_t *out, uint64_t size,
                                     error *err)
{
    const uint64_t first = offset / p->row_bytes, in = offset % p->row_bytes;
    const uint64_t count = ceil_div(in + size, p->row_bytes);
    if (in == 0 && size % p->row_bytes == 0)
        return read_columns(p, first, count, out, err);
    uint8_t *rows = mem_alloc((size_t)(count * p->row_bytes));
    if (rows == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "%s: no memory left to transpose a matrix",
                         p->piece.from->name);
    const temper_status status = read_columns(p, first, count, rows, err);
    if (status == TEMPER_OK)
        memcpy(out, rows + in, (size_t)size);
    mem_free(rows);
    return status;
}

/* Bytes [offset, offset + size) of a tensor in F16 whose blocks in the source are of another type:
 * all blocks that hold some of them. */
static temper_status read_widened(const part *p, uint64_t offset, uint8_t *out, uint64_t size,
                                  error *err)
{
    const dtype_info *info = dtype_find(p->piece.widened);
    source *from = (source *)(uintptr_t)p->piece.from;
    const uint64_t width = 2 * (uint64_t)info->block, first = offset / width;
    const uint64_t count = ceil_div(offset % width + size, width);
    uint8_t halves[2 * WIDEN_BLOCK_MAX];
    uint8_t *blocks = mem_alloc((size_t)(count * info->block_bytes));
    if (blocks == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "%s: no memory left to widen %s", from->name,
                         p->widened_name);
    temper_status status = source_read(from, p->piece.offset + first * info->block_bytes, blocks,
                                       count * info->block_bytes, err);
    for (uint64_t i = 0; status == TEMPER_OK && i < count; i++) {
        if (!widen_to_f16(info->type, info->block, blocks + i * info->block_bytes, halves))
            status =
                error_set(err, TEMPER_BAD_FILE,
                          "%s: block %llu of %.96s (%s) holds a value that is not finite or "
                          "too large for F16",
                          from->name, (unsigned long long)(first + i), p->widened_name, info->name);
        const uint64_t in = i == 0 ? offset % width : 0, some = min_u64(width - in, size);
        memcpy(out, halves + in, (size_t)some);
        out += some;
        size -= some;
    }
    mem_free(blocks);
    return status;
}

/* Bytes [offset, offset + size) of a tensor. */
static temper_status read_part(const part *p, uint64_t offset, uint8_t *out, uint64_t size,
                               error *err)
{
    source *from = (source *)(uintptr_t)p->piece.from;
    if (from == NULL) {
        memcpy(out, (const uint8_t *)p->piece.memory + offset, (size_t)size);
        return TEMPER_OK;
    }
    if (p->piece.widened != DTYPE_F32)
        return read_widened(p, offset, out, size, err);
    if (p->piece.transposed)
        return read_transposed(p, offset, out, size, err);
    if (p->piece.heads == 0)
        return source_read(from, p->piece.offset + offset, out, size, err);
    temper_status status = TEMPER_OK;
    while (status == TEMPER_OK && size > 0) {
        const uint64_t row = offset / p->row_bytes, in = offset % p->row_bytes;
        const uint64_t some = min_u64(size, p->row_bytes - in);
        status = source_read(from, p->piece.offset + source_row(p, row) * p->row_bytes + in, out,
                             some, err);
        offset += some;
        out += some;
        size -= some;
    }
    return status;
}

/* The last part that begins at or before `at`. */
static const part *part_before(const assembly *a, uint64_t at)
{
    uint64_t low = 0, high = a->part_count;
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        if (a->parts[middle].at <= at)
            low = middle;
        else
            high = middle;
    }
    return &a->parts[low];
}

static temper_status assembly_read_at(source *self, uint64_t offset, void *out, uint64_t size,
                                      error *err)
{
    const assembly *a = (const assembly *)self;
    const uint64_t start = a->directory.length;
    uint8_t *to = out;
    while (size > 0) {
        uint64_t some;
        temper_status status = TEMPER_OK;
        if (offset < start) {
            some = min_u64(size, start - offset);
            memcpy(to, a->directory.data + offset, (size_t)some);
        } else {
            const part *p = part_before(a, offset - start);
            const uint64_t in = offset - start - p->at;
            if (in < p->bytes) {
                some = min_u64(size, p->bytes - in);
                status = read_part(p, in, to, some, err);
            } else { /* padding: there is less of it than the alignment */
                const uint64_t next = p + 1 < a->parts + a->part_count ? p[1].at : UINT64_MAX;
                some = min_u64(size, next - (offset - start));
                memset(to, 0, (size_t)some);
            }
        }
        if (status != TEMPER_OK)
            return status;
        offset += some;
        to += some;
        size -= some;
    }
    return TEMPER_OK;
}

/* Rows of pieces that are read in another order lie near where they would lie in this one. */
static void assembly_expect(source *self, uint64_t offset, uint64_t size)
{
    const assembly *a = (const assembly *)self;
    const uint64_t start = a->directory.length;
    const uint64_t end = offset + size > start ? offset + size - start : 0;
    const uint64_t first = offset > start ? offset - start : 0;
    if (end == 0 || a->part_count == 0)
        return;
    for (const part *p = part_before(a, first); p < a->parts + a->part_count && p->at < end; p++) {
        const uint64_t from = first > p->at ? first - p->at : 0,
                       to = min_u64(end - p->at, p->bytes);
        if (p->piece.from == NULL || from >= to)
            continue;
        const dtype_info *wide =
            p->piece.widened != DTYPE_F32 ? dtype_find(p->piece.widened) : NULL;
        const uint64_t width = wide != NULL ? 2 * (uint64_t)wide->block : 1;
        const uint64_t bytes = wide != NULL ? wide->block_bytes : 1;
        source_expect((source *)(uintptr_t)p->piece.from, p->piece.offset + from / width * bytes,
                      ceil_div(to - from, width) * bytes);
    }
}

static bool any_thread(const assembly *a)
{
    for (uint64_t i = 0; i < a->part_count; i++)
        if (a->parts[i].piece.from != NULL && !a->parts[i].piece.from->any_thread)
            return false;
    return true;
}

static void assembly_source_close(source *self)
{
    assembly_close((assembly *)self);
}

temper_status assembly_finish(assembly *a, source **out, error *err)
{
    gguf_head_finish(&a->head, &a->directory);
    uint64_t size = 0;
    const bool fits = checked_add(a->directory.length, a->head.data_bytes, &size);
    const bool memory = !a->directory.failed;
    gguf_head_free(&a->head);
    if (!memory || !fits) {
        const temper_status status =
            memory ? error_set(err, TEMPER_BAD_FILE, "%s: its tensors do not fit 64 bits", a->name)
                   : error_set(err, TEMPER_NO_MEMORY, "%s: no memory left to open it", a->name);
        assembly_close(a);
        return status;
    }
    a->base = (source){.name = a->name,
                       .size = size,
                       .any_thread = any_thread(a),
                       .read_at = assembly_read_at,
                       .expect = assembly_expect,
                       .close = assembly_source_close};
    *out = &a->base;
    return TEMPER_OK;
}
