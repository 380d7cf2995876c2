/*
 * loading.c - rows that many threads read and repack: the same bytes on the device as one thread
 * makes of the file, from sources of every kind; the first of several errors; stops and lost
 * devices in the middle; and random weights that no number of threads changes.
 */
#include "support/model_test.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "base/random.h"
#include "base/source.h"
#include "gpu/gpu.h"
#include "model/weights.h"
#include "support/gguf_build.h"

/* ---- files ----------------------------------------------------------------------------------- */

typedef struct tensor_case {
    const char *name;
    dtype type;
    uint64_t rows, k;
    weights_order order;
} tensor_case;

/* Several chunks and one; whole pieces and none; heads whose rows change places. */
static const tensor_case cases[] = {
    {"nibbles", DTYPE_Q4_0, 40000, 512, {0, 0, 0}},  {"odd", DTYPE_Q5_0, 1001, 96, {0, 0, 0}},
    {"turned", DTYPE_F16, 12800, 512, {80, 96, 64}}, {"super", DTYPE_Q6_K, 3000, 768, {0, 0, 0}},
    {"plain", DTYPE_BF16, 77, 5, {0, 0, 0}},         {"wide", DTYPE_F32, 64, 70000, {2, 16, 16}},
    {"small", DTYPE_Q4_K, 33, 256, {0, 0, 0}},       {"bytes", DTYPE_Q8_0, 9000, 992, {3, 62, 10}},
};

enum { CASES = sizeof cases / sizeof cases[0] };

static uint64_t row_bytes(const tensor_case *c)
{
    const dtype_info *info = dtype_find((uint32_t)c->type);
    return c->k / info->block * info->block_bytes;
}

/* A source over memory that counts who reads, and fails where it is told to. */
typedef struct watched {
    source base;
    const uint8_t *bytes;
    pthread_t opener;
    bool by_others; /* another thread has read */
    uint64_t fails_at;
    uint64_t from, to, told; /* bytes that were told to come last, and all that were, in bytes */
    _Atomic uint64_t untold; /* that were read and lay in no such range */
} watched;

static temper_status watched_read(source *self, uint64_t offset, void *out, uint64_t size,
                                  error *err)
{
    watched *w = (watched *)self;
    if (!self->any_thread && !pthread_equal(pthread_self(), w->opener))
        w->by_others = true;
    if (w->fails_at >= offset && w->fails_at < offset + size)
        return error_set(err, TEMPER_IO, "made: byte %llu is bad", (unsigned long long)w->fails_at);
    if (offset < w->from || offset + size > w->to)
        atomic_fetch_add(&w->untold, size);
    memcpy(out, w->bytes + offset, (size_t)size);
    return TEMPER_OK;
}

/* A range that goes on where the one before ended makes it longer. */
static void watched_expect(source *self, uint64_t offset, uint64_t size)
{
    watched *w = (watched *)self;
    w->from = offset == w->to ? w->from : offset;
    w->to = offset + size;
    w->told += size;
}

static void watched_close(source *self)
{
    (void)self;
}

/* A file of all cases, with finite values that depend on their place. */
typedef struct made {
    strbuf file;
    watched source;
    gguf_file *gguf;
    gpu_device *device;
    weights_loader *loader;
    bool mapped;
} made;

static uint8_t *bytes_of(made *m, const tensor_case *c)
{
    return (uint8_t *)m->file.data + gguf_find_tensor(m->gguf, c->name)->offset;
}

static void open_made(made *m, bool any_thread, bool mapped)
{
    error err = {0};
    uint64_t at = 0;
    random_state r = {11};
    *m = (made){.mapped = mapped};
    gguf_put_header(&m->file, "GGUF", 3, CASES, 0);
    for (int i = 0; i < CASES; i++) {
        const tensor_case *c = &cases[i];
        gguf_put_tensor(&m->file, c->name, 2, (const uint64_t[]){c->k, c->rows}, (uint32_t)c->type,
                        at);
        at += (c->rows * row_bytes(c) + 31) / 32 * 32;
    }
    gguf_put_padding(&m->file, 32);
    /* No byte above 0x3f: neither f16, bf16 nor f32 is infinite with such bits. */
    for (uint64_t i = 0; i < at; i += 8) {
        const uint64_t eight = random_u64(&r) & 0x3f3f3f3f3f3f3f3fu;
        strbuf_append(&m->file, (const char *)&eight, 8);
    }
    assert_false(m->file.failed);
    m->source = (watched){.base = {.name = "made",
                                   .size = m->file.length,
                                   .any_thread = any_thread,
                                   .read_at = watched_read,
                                   .expect = watched_expect,
                                   .close = watched_close},
                          .bytes = (const uint8_t *)m->file.data,
                          .opener = pthread_self(),
                          .fails_at = UINT64_MAX};
    assert_ok(gguf_open(&m->source.base, &m->gguf, &err));
    assert_ok(gpu_device_open(NULL, &m->device, &err));
}

static void open_loader(made *m, weights_progress progress, void *user)
{
    error err = {0};
    weights_close(m->loader);
    assert_ok(weights_open(m->gguf, m->device, progress, user, &m->loader, &err));
    weights_map_uploads(m->loader, m->mapped);
}

static void close_made(made *m)
{
    weights_close(m->loader);
    m->loader = NULL;
    gpu_trim(m->device);
    assert_int_equal(gpu_device_counters(m->device).live_total, 0);
    gpu_device_release(m->device);
    gguf_close(m->gguf);
    strbuf_free(&m->file);
}

static temper_status load(made *m, const tensor_case *c, op_weight **out, error *err)
{
    temper_status status =
        weights_matrix(m->loader, &c->name, &c->rows, &c->order, 1, c->k, out, err);
    if (status == TEMPER_OK && (status = weights_flush(m->loader, err)) != TEMPER_OK) {
        op_weight_destroy(*out);
        *out = NULL;
    }
    return status;
}

/* ---- what arrives ---------------------------------------------------------------------------- */

/* A plane of a weight of one part, without what rows past the end have. */
static void expect_plane(const op_weight *w, gpu_buffer *buffer, weight_plane which,
                         const uint32_t *wanted)
{
    error err = {0};
    const uint64_t stride = weight_stride(w->n);
    const uint64_t bytes = 4 * weight_plane_words(w->format, which, w->k, stride);
    weight_table tables[WEIGHT_TABLES];
    gpu_ticket ticket;
    uint8_t *got = malloc((size_t)bytes), *at = got;
    const uint8_t *from = (const uint8_t *)wanted;
    gpu_recorder *rec = gpu_record_begin(w->device);
    gpu_record_readback(rec, (gpu_view){buffer, 0, bytes});
    assert_ok(gpu_submit(rec, &ticket, &err));
    assert_ok(gpu_wait(w->device, ticket, got, bytes, &err));
    const uint32_t count = weight_tables(w->format, which, w->k, tables);
    for (uint32_t t = 0; t < count; t++)
        for (uint64_t line = 0; line < tables[t].lines; line++) {
            const uint64_t entry = tables[t].entry_bytes;
            assert_memory_equal(at, from, w->n * entry);
            for (uint64_t i = w->n * entry; i < stride * entry; i++)
                assert_int_equal(at[i], 0);
            at += stride * entry;
            from += stride * entry;
        }
    free(got);
}

/* One thread: all rows at once. */
static void expect_rows(made *m, const tensor_case *c, const op_weight *w)
{
    const uint64_t stride = weight_stride(c->rows);
    const uint8_t **rows = malloc((size_t)c->rows * sizeof *rows);
    weight_planes planes = {{NULL}};
    assert_int_equal(w->part_count, 1);
    for (int p = 0; p < WEIGHT_PLANES; p++) {
        const uint64_t words = weight_plane_words(w->format, (weight_plane)p, c->k, stride);
        planes.plane[p] = calloc((size_t)words + 1, 4);
    }
    for (uint64_t i = 0; i < c->rows; i++)
        rows[weights_order_row(c->order, i)] = bytes_of(m, c) + i * row_bytes(c);
    weight_repack_rows(c->type, c->k, c->rows, rows, planes, stride, 0);
    expect_plane(w, w->parts[0].data, WEIGHT_DATA, planes.plane[WEIGHT_DATA]);
    if (w->parts[0].high != NULL)
        expect_plane(w, w->parts[0].high, WEIGHT_HIGH, planes.plane[WEIGHT_HIGH]);
    if (w->parts[0].scales != NULL)
        expect_plane(w, w->parts[0].scales, WEIGHT_SCALES, planes.plane[WEIGHT_SCALES]);
    double largest = 0.0;
    assert_int_equal(w->halves,
                     weight_suits_f16(w->format, c->k, planes, stride, 0, c->rows, &largest));
    if (w->halves)
        assert_true(w->largest == largest);
    for (int p = 0; p < WEIGHT_PLANES; p++)
        free(planes.plane[p]);
    free(rows);
}

static void all_cases(bool any_thread, bool mapped)
{
    made m;
    error err = {0};
    open_made(&m, any_thread, mapped);
    open_loader(&m, NULL, NULL);
    for (int i = 0; i < CASES; i++) {
        op_weight *w = NULL;
        assert_ok(load(&m, &cases[i], &w, &err));
        expect_rows(&m, &cases[i], w);
        op_weight_destroy(w);
    }
    assert_ok(weights_finish(m.loader, &err));
    assert_false(m.source.by_others);
    close_made(&m);
}

static void bytes_are_those_of_one_thread(void **state)
{
    (void)state;
    all_cases(true, true);
    all_cases(true, false);
}

/* The last rows of a weight go while the next one is read. */
static void weights_follow_each_other(void **state)
{
    (void)state;
    for (int mapped = 0; mapped < 2; mapped++) {
        made m;
        error err = {0};
        op_weight *w[CASES] = {NULL};
        open_made(&m, true, mapped == 1);
        open_loader(&m, NULL, NULL);
        for (int i = 0; i < CASES; i++)
            assert_ok(weights_matrix(m.loader, &cases[i].name, &cases[i].rows, &cases[i].order, 1,
                                     cases[i].k, &w[i], &err));
        assert_ok(weights_finish(m.loader, &err));
        for (int i = 0; i < CASES; i++) {
            expect_rows(&m, &cases[i], w[i]);
            op_weight_destroy(w[i]);
        }
        close_made(&m);
    }
}

/* Such a source is read by the thread that loads, and by no other. */
static void a_source_of_one_thread(void **state)
{
    (void)state;
    all_cases(false, false);
}

/* A disk is told of every byte before it is read, and only once. */
static void what_comes_is_told_ahead(void **state)
{
    (void)state;
    made m;
    error err = {0};
    open_made(&m, true, false);
    open_loader(&m, NULL, NULL);
    const uint64_t first = gguf_find_tensor(m.gguf, cases[0].name)->offset;
    atomic_store(&m.source.untold, 0);
    for (int i = 0; i < CASES; i++) {
        op_weight *w = NULL;
        assert_ok(load(&m, &cases[i], &w, &err));
        op_weight_destroy(w);
    }
    assert_int_equal(atomic_load(&m.source.untold), 0);
    assert_int_equal(m.source.told, m.source.base.size - first);
    close_made(&m);
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* Of several bad rows the first one of the chunk is told, however the threads run. */
static void the_first_error_is_told(void **state)
{
    (void)state;
    for (int any_thread = 0; any_thread < 2; any_thread++) {
        made m;
        error err = {0};
        op_weight *w = NULL;
        open_made(&m, any_thread == 1, any_thread == 0);
        const uint64_t bytes = row_bytes(&cases[0]);
        for (uint64_t row = 9123; row < 12000; row += 1 + row % 7)
            memset(bytes_of(&m, &cases[0]) + row * bytes, 0x7f, 2);
        for (int i = 0; i < 10; i++) {
            open_loader(&m, NULL, NULL);
            assert_fails(load(&m, &cases[0], &w, &err), TEMPER_BAD_FILE, "row 9123 of nibbles");
            assert_null(w);
        }
        m.source.fails_at = gguf_find_tensor(m.gguf, "nibbles")->offset + 9000 * bytes;
        open_loader(&m, NULL, NULL);
        assert_fails(load(&m, &cases[0], &w, &err), TEMPER_IO, "is bad");
        close_made(&m);
    }
}

typedef struct stopper {
    int calls, stop_at;
    pthread_t opener;
    uint64_t done;
    gpu_device *lose;
} stopper;

static bool stop(uint64_t done, uint64_t total, void *user)
{
    stopper *s = user;
    assert_true(pthread_equal(pthread_self(), s->opener));
    assert_true(done > s->done && done <= total);
    s->done = done;
    if (++s->calls != s->stop_at)
        return true;
    if (s->lose != NULL)
        gpu_lose(s->lose);
    return s->lose != NULL;
}

/* After every chunk; and a device that is lost there. */
static void end_in_the_middle(bool mapped)
{
    made m;
    error err = {0};
    op_weight *w = NULL;
    open_made(&m, true, mapped);
    int n = 1;
    for (;; n++) {
        stopper s = {.stop_at = n, .opener = pthread_self()};
        open_loader(&m, stop, &s);
        if (load(&m, &cases[0], &w, &err) == TEMPER_OK)
            break;
        assert_int_equal(err.status, TEMPER_STOPPED);
        assert_null(w);
        err = (error){0};
    }
    assert_int_equal(n - 1, 2); /* chunks of 8 MiB */
    op_weight_destroy(w);
    w = NULL;
    stopper s = {.stop_at = 1, .opener = pthread_self(), .lose = m.device};
    open_loader(&m, stop, &s);
    assert_fails(load(&m, &cases[0], &w, &err), TEMPER_DEVICE_LOST, "lost");
    assert_null(w);
    close_made(&m);
}

/* Whichever allocation of the host or of the device fails. */
static void no_memory(bool mapped)
{
    made m;
    error err = {0};
    const tensor_case *c = &cases[2];
    open_made(&m, true, mapped);
    for (int device = 0; device < 2; device++) {
        temper_status status = TEMPER_NO_MEMORY;
        uint64_t n = 0;
        while (status != TEMPER_OK) {
            const uint64_t live = gpu_device_counters(m.device).live_bytes[GPU_PURPOSE_WEIGHTS];
            op_weight *w = NULL;
            open_loader(&m, NULL, NULL);
            if (device == 1)
                gpu_fail_allocation(m.device, ++n);
            else
                mem_fail_at(++n, 0);
            status = load(&m, c, &w, &err);
            gpu_fail_allocation(m.device, 0);
            mem_fail_at(0, 0);
            assert_true(status == TEMPER_OK || status == TEMPER_DEVICE_MEMORY ||
                        status == TEMPER_NO_MEMORY);
            err = (error){0};
            if (status == TEMPER_OK)
                expect_rows(&m, c, w);
            op_weight_destroy(w);
            assert_int_equal(gpu_device_counters(m.device).live_bytes[GPU_PURPOSE_WEIGHTS], live);
        }
        assert_true(n > (device == 1 && !mapped ? 1 : 3));
    }
    close_made(&m);
}

static void a_load_ends_in_the_middle(void **state)
{
    (void)state;
    end_in_the_middle(true);
    end_in_the_middle(false);
}

static void no_memory_at_any_moment(void **state)
{
    (void)state;
    no_memory(true);
    no_memory(false);
}

/* ---- random weights -------------------------------------------------------------------------- */

/* Elements are one sequence of numbers, begun anew for each block of 16 MiB; of a matrix in the
 * type, K and N given, all words of the data plane as one thread makes them. */
static void random_words(dtype type, uint64_t n, uint64_t k, bool mapped)
{
    error err = {0};
    gpu_device *device = NULL;
    weights_loader *loader = NULL;
    op_weight *w = NULL;
    const char *name = "any";
    const weight_format format = weight_format_of(type);
    const uint64_t least = op_weight_bytes(format, WEIGHT_ROWS, k);
    const uint64_t most = (16 << 20) / least * WEIGHT_ROWS, rows = n < most ? n : most;
    assert_ok(gpu_device_open(NULL, &device, &err));
    assert_ok(weights_open_random(device, type, &loader, &err));
    weights_map_uploads(loader, mapped);
    assert_ok(weights_matrix(loader, &name, &n, NULL, 1, k, &w, &err));
    assert_ok(weights_finish(loader, &err));
    const uint64_t words = weight_plane_words(format, WEIGHT_DATA, k, weight_stride(rows));
    uint32_t *block = malloc((size_t)words * 4);
    uint32_t *wanted =
        calloc((size_t)weight_plane_words(format, WEIGHT_DATA, k, weight_stride(n)), 4);
    random_state r = {n * 31 + k};
    for (uint64_t i = 0; i < words; i++) {
        const float value =
            type == DTYPE_F32 ? (float)(random_normal(&r) * (1.0 / sqrt((double)k))) : 0.0f;
        const uint32_t integer = type == DTYPE_F32 ? 0 : (uint32_t)random_u64(&r);
        if (type == DTYPE_F32)
            memcpy(&block[i], &value, 4);
        else
            block[i] = integer;
    }
    weight_table table[WEIGHT_TABLES];
    weight_tables(format, WEIGHT_DATA, k, table);
    const uint64_t entry = table[0].entry_bytes;
    for (uint64_t row = 0; row < n; row += rows) {
        const uint64_t some = n - row < rows ? n - row : rows;
        for (uint64_t line = 0; line < table[0].lines; line++)
            memcpy((uint8_t *)wanted + (line * weight_stride(n) + row) * entry,
                   (const uint8_t *)block + line * weight_stride(some) * entry,
                   (size_t)(some * entry));
    }
    expect_plane(w, w->parts[0].data, WEIGHT_DATA, wanted);
    assert_true(w->halves);
    free(wanted);
    free(block);
    op_weight_destroy(w);
    weights_close(loader);
    gpu_device_release(device);
}

static void random_weights_are_one_sequence(void **state)
{
    (void)state;
    random_words(DTYPE_Q4_0, 40000, 1024, true); /* a block and a part of one */
    random_words(DTYPE_Q4_0, 40000, 1024, false);
    random_words(DTYPE_Q6_K, 1000, 512, false);
    random_words(DTYPE_F32, 500, 96, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_those_of_one_thread),
        cmocka_unit_test(weights_follow_each_other),
        cmocka_unit_test(a_source_of_one_thread),
        cmocka_unit_test(what_comes_is_told_ahead),
        cmocka_unit_test(the_first_error_is_told),
        cmocka_unit_test(a_load_ends_in_the_middle),
        cmocka_unit_test(no_memory_at_any_moment),
        cmocka_unit_test(random_weights_are_one_sequence),
    };
    return cmocka_run_group_tests_name("model_loading", tests, NULL, NULL);
}
