/*
 * weights_rows.c - rows of a file on their way to the device. A chunk of rows goes through one
 * block of an upload; the members of a crew share its pieces: each reads some rows, checks them,
 * repacks them in memory of its own that a core's cache holds, and copies the lines of the planes
 * to where they belong in the block. Meanwhile the chunk before goes to the device, which may be
 * the last one of another weight.
 */
#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/checked.h"
#include "base/mem.h"
#include "model/weights_internal.h"

enum {
    PIECE_BYTES = 64 << 10, /* of a file that one member takes at a time, give or take some rows */
    PIECE_ROWS = 16,        /* their number is a multiple of it: rows that share lines of a cache */
    AHEAD_BYTES = 32 << 20, /* of the file that the system is told of before they are wanted */
    ALIGNMENT = 64,
};

/* The pieces of a chunk, for all members. */
typedef struct job {
    weights_loader *loader;
    const gguf_tensor *tensor;
    const op_weight *weight;
    weights_order order;
    uint64_t row_bytes, piece; /* rows */
    uint64_t row, rows;        /* of the tensor */
    uint8_t *chunk_rows;       /* NULL, or the bytes of these rows: members read for themselves */
    uint8_t *block;            /* of the upload: the planes, one after the other */
    weights_bench benches[CREW_MOST];
    _Atomic uint64_t failed; /* the first piece that did, or UINT64_MAX */
    error errors[CREW_MOST]; /* of each member's first failure, ... */
    uint64_t at[CREW_MOST];  /* ... which was this piece */
} job;

/* ---- a piece --------------------------------------------------------------------------------- */

/* Copies `rows` rows of the bench's planes to rows `first` on of the chunk's. */
static void copy_lines(const job *j, const weights_bench *bench, uint64_t first, uint64_t rows)
{
    const uint64_t from_stride = weight_stride(rows), to_stride = weight_stride(j->rows);
    uint8_t *to = j->block;
    for (int p = 0; p < WEIGHT_PLANES; p++) {
        weight_table tables[WEIGHT_TABLES];
        const uint8_t *from = (const uint8_t *)bench->planes.plane[p];
        const uint32_t count =
            weight_tables(j->weight->format, (weight_plane)p, j->weight->k, tables);
        for (uint32_t t = 0; t < count; t++) {
            const uint64_t entry = tables[t].entry_bytes;
            const size_t bytes = (size_t)(ceil_div(rows * entry, 4) * 4);
            for (uint64_t line = 0; line < tables[t].lines; line++) {
                memcpy(to + first * entry, from, bytes);
                from += from_stride * entry;
                to += to_stride * entry;
            }
        }
    }
}

/* Rows [row, row + rows) of the tensor, into the block. */
static temper_status load_piece(job *j, uint64_t row, uint64_t rows, weights_bench *bench,
                                error *err)
{
    const dtype type = (dtype)j->tensor->type;
    const uint64_t k = j->weight->k;
    const uint8_t *file_rows = bench->file_rows;
    if (j->chunk_rows != NULL) {
        file_rows = j->chunk_rows + (row - j->row) * j->row_bytes;
    } else {
        const temper_status status =
            gguf_read_tensor(j->loader->file, j->tensor, row * j->row_bytes, bench->file_rows,
                             rows * j->row_bytes, err);
        if (status != TEMPER_OK)
            return status;
    }
    for (uint64_t i = 0; i < rows; i++) {
        const uint8_t *from = file_rows + i * j->row_bytes;
        if (dtype_row_has_nonfinite(type, k, from))
            return error_set(err, TEMPER_BAD_FILE,
                             "%s: row %llu of %.*s holds a value that is not finite",
                             gguf_name(j->loader->file), (unsigned long long)(row + i),
                             (int)min_u64(j->tensor->name.length, 96), j->tensor->name.data);
        bench->sources[weights_order_row(j->order, row + i) - row] = from;
    }
    const uint64_t stride = weight_stride(rows);
    weight_repack_rows(type, k, rows, bench->sources, bench->planes, stride, 0);
    if (!weight_suits_f16(j->weight->format, k, bench->planes, stride, 0, rows, &bench->largest))
        bench->largest = INFINITY;
    copy_lines(j, bench, row - j->row, rows);
    return TEMPER_OK;
}

static void work(uint64_t part, uint32_t member, void *user)
{
    job *j = user;
    if (atomic_load(&j->failed) < part)
        return;
    const uint64_t first = part * j->piece;
    error *err = &j->errors[member];
    if (load_piece(j, j->row + first, min_u64(j->piece, j->rows - first), &j->benches[member],
                   err) == TEMPER_OK)
        return;
    j->at[member] = part;
    uint64_t failed = atomic_load(&j->failed);
    while (part < failed && !atomic_compare_exchange_weak(&j->failed, &failed, part)) {
    }
}

/* ---- a chunk --------------------------------------------------------------------------------- */

/* The error that one thread alone would have met: pieces before it were all begun, and went well.
 */
static temper_status first_error(const job *j, error *err)
{
    const uint64_t failed = atomic_load(&j->failed);
    if (failed == UINT64_MAX)
        return TEMPER_OK;
    uint32_t member = 0;
    while (j->errors[member].status == TEMPER_OK || j->at[member] != failed)
        member++;
    return error_set(err, j->errors[member].status, "%s", j->errors[member].text);
}

/* Tells the system what comes after `row`: members that read pieces here and there, each when it
 * needs one, let a disk wait. Tensors lie in a file in about the order in which they are loaded. */
static void expect(weights_loader *loader, const gguf_tensor *tensor, uint64_t offset)
{
    const uint64_t at = tensor->offset + offset, end = at + AHEAD_BYTES;
    uint64_t told = loader->expected;
    if (told < at || told > end)
        told = at;
    if (end - told < AHEAD_BYTES / 2)
        return;
    gguf_expect(loader->file, told, end - told);
    loader->expected = end;
}

/* Begins a chunk: the members work on it from now on. */
static temper_status begin_chunk(job *j, uint64_t row, uint64_t rows, error *err)
{
    weights_loader *loader = j->loader;
    void *block = NULL;
    expect(loader, j->tensor, row * j->row_bytes);
    temper_status status = gpu_upload_begin(loader->upload, &block, err);
    if (status == TEMPER_OK && j->chunk_rows != NULL)
        status = gguf_read_tensor(loader->file, j->tensor, row * j->row_bytes, j->chunk_rows,
                                  rows * j->row_bytes, err);
    if (status != TEMPER_OK)
        return status;
    j->block = block;
    j->row = row;
    j->rows = rows;
    for (uint32_t i = 0; i < crew_size(loader->crew); i++)
        j->benches[i].largest = 0.0;
    crew_start(loader->crew, ceil_div(rows, j->piece), work, j);
    return TEMPER_OK;
}

/* Waits until all of it is there; *largest: of its rows, as in weights_bench. */
static temper_status end_chunk(job *j, double *largest, error *err)
{
    crew_finish(j->loader->crew);
    *largest = 0.0;
    for (uint32_t i = 0; i < crew_size(j->loader->crew); i++)
        *largest = fmax(*largest, j->benches[i].largest);
    return first_error(j, err);
}

temper_status weights_flush(weights_loader *loader, error *err)
{
    const weights_chunk c = loader->unsent;
    loader->unsent.weight = NULL;
    if (c.weight == NULL)
        return TEMPER_OK;
    op_weight_upload_rows(c.weight, c.to, c.rows, loader->upload, c.largest);
    const temper_status status = gpu_upload_send(loader->upload, err);
    return status == TEMPER_OK ? weights_report(loader, c.file_bytes, err) : status;
}

/* Sends each chunk while the members work on the next one; the last one waits for the next weight.
 */
static temper_status load_chunks(job *j, uint64_t rows, uint64_t chunk, op_weight *weight,
                                 uint64_t to, error *err)
{
    weights_loader *loader = j->loader;
    temper_status status = TEMPER_OK;
    for (uint64_t row = 0; status == TEMPER_OK && row < rows; row += chunk) {
        const uint64_t count = min_u64(chunk, rows - row);
        double largest = 0.0;
        status = begin_chunk(j, row, count, err);
        if (status != TEMPER_OK)
            break;
        status = weights_flush(loader, err);
        const temper_status ended = end_chunk(j, &largest, status == TEMPER_OK ? err : NULL);
        status = status == TEMPER_OK ? ended : status;
        if (status == TEMPER_OK)
            loader->unsent = (weights_chunk){.weight = weight,
                                             .to = to + row,
                                             .rows = count,
                                             .file_bytes = count * j->row_bytes,
                                             .largest = largest};
    }
    if (status != TEMPER_OK)
        loader->unsent.weight = NULL; /* it may go away, and the loader is of no more use */
    return status;
}

temper_status weights_prepare(weights_loader *loader, uint64_t bytes, error *err)
{
    uint64_t rounded = 64 << 10;
    if (loader->crew == NULL)
        loader->crew = crew_open(0);
    if (loader->crew == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for threads that load");
    if (loader->upload != NULL && loader->upload_bytes >= bytes)
        return TEMPER_OK;
    const temper_status sent = weights_flush(loader, err);
    if (sent != TEMPER_OK)
        return sent;
    gpu_upload_close(loader->upload);
    loader->upload = NULL;
    while (rounded < bytes)
        rounded *= 2;
    loader->upload_bytes = rounded;
    return gpu_upload_open(loader->device, rounded, loader->mapped, &loader->upload, err);
}

static uint64_t aligned(uint64_t bytes)
{
    return ceil_div(bytes, ALIGNMENT) * ALIGNMENT;
}

/* Benches for pieces, and memory for the rows of a chunk where one thread must read them all. */
static temper_status set_up(job *j, uint64_t chunk, error *err)
{
    weights_loader *loader = j->loader;
    const weight_format format = j->weight->format;
    const uint64_t k = j->weight->k, stride = weight_stride(j->piece);
    const uint64_t read = aligned(j->piece * j->row_bytes);
    const uint64_t pointers = aligned(j->piece * sizeof(uint8_t *));
    const uint64_t each = read + pointers + aligned(op_weight_bytes(format, j->piece, k));
    const uint64_t whole =
        gguf_source(loader->file)->any_thread ? 0 : aligned(chunk * j->row_bytes);
    const uint64_t needed = crew_size(loader->crew) * each + whole;
    if (loader->memory_bytes < needed) {
        mem_free(loader->memory);
        loader->memory = mem_alloc((size_t)needed);
        loader->memory_bytes = loader->memory == NULL ? 0 : needed;
    }
    if (loader->memory == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for %llu bytes of staging",
                         (unsigned long long)needed);
    uint8_t *at = loader->memory;
    for (uint32_t i = 0; i < crew_size(loader->crew); i++, at += each) {
        weights_bench *bench = &j->benches[i];
        uint8_t *plane = at + read + pointers;
        *bench = (weights_bench){.file_rows = at, .sources = (const uint8_t **)(void *)(at + read)};
        for (int p = 0; p < WEIGHT_PLANES; p++) {
            bench->planes.plane[p] = (uint32_t *)(void *)plane;
            plane += 4 * weight_plane_words(format, (weight_plane)p, k, stride);
        }
    }
    j->chunk_rows = whole > 0 ? at : NULL;
    return TEMPER_OK;
}

temper_status weights_load_rows(weights_loader *loader, const gguf_tensor *tensor, uint64_t rows,
                                weights_order order, op_weight *weight, uint64_t to, error *err)
{
    const dtype_info *info = dtype_find(tensor->type);
    job j = {.loader = loader, .tensor = tensor, .weight = weight, .order = order};
    j.row_bytes = weight->k / info->block * info->block_bytes;
    atomic_init(&j.failed, UINT64_MAX);
    const uint64_t unit = order.heads > 0 ? 2 * order.head_dim : PIECE_ROWS;
    j.piece = max_u64(1, PIECE_BYTES / j.row_bytes / unit) * unit;
    const uint64_t least = op_weight_bytes(weight->format, j.piece, weight->k);
    const uint64_t chunk = min_u64(rows, max_u64(1, WEIGHTS_BLOCK_BYTES / least) * j.piece);
    j.piece = min_u64(j.piece, chunk);
    temper_status status =
        weights_prepare(loader, op_weight_bytes(weight->format, chunk, weight->k), err);
    if (status == TEMPER_OK)
        status = set_up(&j, chunk, err);
    return status == TEMPER_OK ? load_chunks(&j, rows, chunk, weight, to, err) : status;
}
