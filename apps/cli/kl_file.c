#include "kl_file.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/source.h"

static const char magic[8] = {'T', 'E', 'M', 'P', 'E', 'R', 'K', 'L'};

enum { VERSION = 1, HEAD_BYTES = 32 };

/* The head without its magic; no padding, in the file's order. */
typedef struct head {
    uint32_t version, vocabulary, context, windows;
    uint64_t hash;
} head;

struct kl_file {
    source *src;
    eval_windows windows;
    uint32_t vocabulary, scored; /* rows a window */
    uint64_t hash;
};

uint64_t kl_vocabulary_hash(const temper_engine *engine)
{
    const uint32_t count = temper_engine_info(engine)->vocabulary;
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (uint32_t id = 0; id < count; id++) {
        size_t length = 0;
        const char *piece = temper_piece(engine, id, &length);
        for (size_t i = 0; i <= length; i++) {
            /* After a piece its length, so that "ab", "c" and "a", "bc" differ. */
            hash ^= i < length ? (unsigned char)piece[i] : (uint64_t)length;
            hash *= UINT64_C(0x100000001b3);
        }
    }
    return hash;
}

/* Bytes of ids and of logits; false when they pass 2^64. */
static bool sizes(const head *h, uint64_t *ids, uint64_t *logits)
{
    const uint64_t scored = h->context - eval_first_scored(h->context);
    uint64_t floats = 0, words = 0;
    return checked_mul(h->windows, h->context, &words) && checked_mul(words, 4, ids) &&
           checked_mul(h->windows, scored, &floats) &&
           checked_mul(floats, h->vocabulary, &floats) && checked_mul(floats, 4, logits);
}

/* ---- writing -------------------------------------------------------------------------------- */

temper_status kl_file_create(const char *path, const temper_engine *engine,
                             const eval_windows *windows, outfile **out, temper_error *err)
{
    const head h = {VERSION, temper_engine_info(engine)->vocabulary, windows->context,
                    windows->count, kl_vocabulary_hash(engine)};
    outfile *file = NULL;
    temper_status status = outfile_create(path, &file, err);
    if (status == TEMPER_OK)
        status = outfile_write(file, magic, sizeof magic, err);
    if (status == TEMPER_OK)
        status = outfile_write(file, &h, sizeof h, err);
    if (status == TEMPER_OK)
        status = outfile_write(file, windows->ids,
                               (uint64_t)windows->count * windows->context * sizeof(uint32_t), err);
    if (status != TEMPER_OK) {
        outfile_discard(file);
        return status;
    }
    *out = file;
    return TEMPER_OK;
}

/* ---- reading -------------------------------------------------------------------------------- */

bool kl_file_is(const char *path)
{
    char found[sizeof magic];
    source *src = NULL;
    const bool is = source_open_file(path, &src, NULL) == TEMPER_OK && src->size >= sizeof found &&
                    source_read(src, 0, found, sizeof found, NULL) == TEMPER_OK &&
                    memcmp(found, magic, sizeof magic) == 0;
    source_close(src);
    return is;
}

/* Everything of the head that can be wrong. */
static temper_status check_head(const source *src, const head *h, temper_error *err)
{
    uint64_t ids = 0, logits = 0, all = 0;
    if (h->version != VERSION)
        return error_set(err, TEMPER_UNSUPPORTED,
                         "%s: version %u of saved logits; this temper reads version %d: save them "
                         "again",
                         src->name, h->version, VERSION);
    if (h->context < 4 || h->context > INT32_MAX || h->windows == 0 || !sizes(h, &ids, &logits) ||
        !checked_add(ids, logits, &all) || !checked_add(all, HEAD_BYTES, &all))
        return error_set(err, TEMPER_BAD_FILE,
                         "%s: no logits can be saved as %u windows of %u ids over %u tokens",
                         src->name, h->windows, h->context, h->vocabulary);
    if (src->size != all)
        return error_set(err, TEMPER_BAD_FILE, "%s: %llu bytes, its head says %llu: it is damaged",
                         src->name, (unsigned long long)src->size, (unsigned long long)all);
    return TEMPER_OK;
}

temper_status kl_file_suits(const kl_file *file, const temper_engine *engine, temper_error *err)
{
    const uint32_t vocabulary = temper_engine_info(engine)->vocabulary;
    if (file->vocabulary != vocabulary)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "%s: of a model with %u tokens, this one has %u: only models of one "
                         "vocabulary can be compared",
                         file->src->name, file->vocabulary, vocabulary);
    if (file->hash != kl_vocabulary_hash(engine))
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "%s: of a model with other tokens: only models of one vocabulary can be "
                         "compared",
                         file->src->name);
    return TEMPER_OK;
}

static temper_status read_ids(kl_file *file, temper_error *err)
{
    const eval_windows *w = &file->windows;
    const uint64_t count = (uint64_t)w->count * w->context;
    file->windows.ids = malloc((size_t)count * sizeof(uint32_t));
    if (file->windows.ids == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for the ids of %s", file->src->name);
    const temper_status status =
        source_read(file->src, HEAD_BYTES, w->ids, count * sizeof(uint32_t), err);
    for (uint64_t i = 0; status == TEMPER_OK && i < count; i++)
        if (w->ids[i] >= file->vocabulary)
            return error_set(err, TEMPER_BAD_FILE, "%s: id %u is not in its vocabulary of %u",
                             file->src->name, w->ids[i], file->vocabulary);
    return status;
}

temper_status kl_file_open(const char *path, kl_file **out, temper_error *err)
{
    kl_file *file = calloc(1, sizeof *file);
    head h = {0};
    if (file == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for saved logits");
    temper_status status = source_open_file(path, &file->src, err);
    if (status == TEMPER_OK)
        status = source_read(file->src, sizeof magic, &h, sizeof h, err);
    if (status == TEMPER_OK)
        status = check_head(file->src, &h, err);
    if (status == TEMPER_OK) {
        file->vocabulary = h.vocabulary;
        file->hash = h.hash;
        file->scored = h.context - eval_first_scored(h.context);
        file->windows = (eval_windows){.context = h.context, .count = h.windows};
        status = read_ids(file, err);
    }
    if (status != TEMPER_OK) {
        kl_file_close(file);
        return status;
    }
    *out = file;
    return TEMPER_OK;
}

void kl_file_close(kl_file *file)
{
    if (file == NULL)
        return;
    source_close(file->src);
    free(file->windows.ids);
    free(file);
}

const eval_windows *kl_file_windows(const kl_file *file)
{
    return &file->windows;
}

temper_status kl_file_read(kl_file *file, uint32_t window, uint32_t row, uint32_t rows,
                           float *logits, temper_error *err)
{
    const uint64_t row_bytes = (uint64_t)file->vocabulary * sizeof(float);
    const uint64_t before = (uint64_t)window * file->scored + row;
    const uint64_t ids = (uint64_t)file->windows.count * file->windows.context * sizeof(uint32_t);
    return source_read(file->src, HEAD_BYTES + ids + before * row_bytes, logits, rows * row_bytes,
                       err);
}
