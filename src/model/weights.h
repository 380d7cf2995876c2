/*
 * weights.h - from the tensors of a file to buffers on the device: streamed through two small
 * blocks, read and repacked on all cores into the GPU's layouts without rounding, checked against
 * the shapes that the configuration wants. What is the caller's (progress, the device, sources that
 * one thread alone may read) stays on its thread.
 */
#ifndef TEMPER_MODEL_WEIGHTS_H
#define TEMPER_MODEL_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "file/gguf.h"
#include "gpu/gpu.h"
#include "op/op.h"

enum {
    /* Of a weight on their way at once, give or take some rows: many, because the planes of a chunk
     * go to the device a line at a time. Two such blocks take turns. */
    WEIGHTS_BLOCK_BYTES = 8 << 20,
    WEIGHTS_LABEL_BYTES = 128,
};

/* Bytes done and in all; false stops the load with TEMPER_STOPPED. */
typedef bool (*weights_progress)(uint64_t done, uint64_t total, void *user);

typedef struct weights_loader weights_loader;

/* Opens a loader over the tensors of a file. It keeps file and device borrowed until weights_close.
 */
temper_status weights_open(const gguf_file *file, gpu_device *device, weights_progress progress,
                           void *user, weights_loader **out, error *err);

/* A loader that makes nothing: matrices have no planes and buffers are NULL; only vectors are read.
 * What it is asked for is checked as in a load, and the bytes of the buffers that it does not make
 * are added to *measured. */
temper_status weights_open_measured(const gguf_file *file, uint64_t *measured, weights_loader **out,
                                    error *err);

/* A loader of no file: every tensor it is asked for exists and is random, of the given type (one
 * that can be loaded) and about the size that a trained one has. The same every time, whatever the
 * number of cores. */
temper_status weights_open_random(gpu_device *device, dtype type, weights_loader **out, error *err);

/* Tests only: the way to the device (gpu_upload_open) that is chosen on other devices. */
void weights_map_uploads(weights_loader *loader, bool mapped);

/* Queues what is still to be sent of the matrix that was loaded last: its last rows otherwise go
 * while the next one is read, or with weights_finish. For who uses a matrix while others are
 * loaded. */
temper_status weights_flush(weights_loader *loader, error *err);

/* Ends a load: every queued byte is on the device. With status TEMPER_OK, a tensor of the file that
 * nothing asked for is TEMPER_UNSUPPORTED by name: a graph that ignores a weight gives wrong text.
 */
temper_status weights_finish(weights_loader *loader, error *err);
void weights_close(weights_loader *loader);

bool weights_has(const weights_loader *loader, const char *name);

/* Rows of heads on their way from a file's rope order to the kernels': of each of the first `heads`
 * heads of head_dim rows, rows i and i + rotary / 2 of the file become rows 2i and 2i + 1, for i <
 * rotary / 2. All other rows stay; with heads == 0 every row does. */
typedef struct weights_order {
    uint32_t heads, head_dim, rotary;
} weights_order;

/* Where row `row` of the file goes: within its head. */
uint64_t weights_order_row(weights_order order, uint64_t row);

/* A matrix of `rows` by `k`, or several of them under each other (names, rows, orders: `count` of
 * each; orders may be NULL) that go together. *out is owned by the caller. */
temper_status weights_matrix(weights_loader *loader, const char *const *names, const uint64_t *rows,
                             const weights_order *orders, uint32_t count, uint64_t k,
                             op_weight **out, error *err);

/* A matrix with a row for each token. Trainers round the rows up: the file may hold more than
 * asked for, which are not loaded. *out is owned by the caller. */
temper_status weights_vocabulary(weights_loader *loader, const char *name, uint64_t rows,
                                 uint64_t k, op_weight **out, error *err);

/* True when the named tensors can be one matrix: all exist and have one file type, and none but the
 * last has an odd number of rows. */
bool weights_go_together(const weights_loader *loader, const char *const *names,
                         const uint64_t *rows, uint32_t count);

/* A vector of n numbers (F32, F16 or BF16 in the file) as f32. *out is owned by the caller. */
temper_status weights_vector(weights_loader *loader, const char *name, uint64_t n, gpu_buffer **out,
                             error *err);

/* A buffer of so many bytes, filled with `values` where these are not NULL. */
temper_status weights_buffer(weights_loader *loader, const char *label, const void *values,
                             uint64_t bytes, gpu_buffer **out, error *err);

/* A vector on the host: `out` has room for n floats. */
temper_status weights_host_vector(weights_loader *loader, const char *name, uint64_t n, float *out,
                                  error *err);

#endif
