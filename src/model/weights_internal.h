/*
 * weights_internal.h - what the files of the loader share. weights.c finds tensors and checks their
 * shapes, weights_rows.c brings rows of a file to the device, weights_random.c random ones.
 */
#ifndef TEMPER_MODEL_WEIGHTS_INTERNAL_H
#define TEMPER_MODEL_WEIGHTS_INTERNAL_H

#include "base/crew.h"
#include "model/weights.h"

/* What a member of the crew works in: some rows of the file, where each row of the weight begins in
 * them, and the planes of the GPU's layout. */
typedef struct weights_bench {
    uint8_t *file_rows;
    const uint8_t **sources;
    weight_planes planes;
    double largest; /* of all rows that went over it since the chunk began: weight_suits_f16's, or
                       INFINITY where f16 does not hold them */
} weights_bench;

/* A chunk that lies in a block of the upload and has not been sent: rows of a weight. */
typedef struct weights_chunk {
    op_weight *weight; /* NULL: there is none */
    uint64_t to, rows;
    uint64_t file_bytes;
    double largest; /* of the rows, as in weights_bench */
} weights_chunk;

struct weights_loader {
    const gguf_file *file; /* NULL: random weights of this type */
    dtype random_type;
    gpu_device *device;
    weights_progress progress;
    void *user;
    bool *used;           /* [tensors] */
    uint64_t done, total; /* bytes of the file */
    uint64_t expected;    /* byte of the file up to which the system was told what comes */
    uint64_t *measured;   /* NULL, or where the bytes of buffers go that are not made: no device */

    crew *crew;   /* NULL until there are rows to load */
    void *memory; /* the members' benches lie in it */
    uint64_t memory_bytes;
    gpu_upload *upload; /* NULL until it is needed */
    bool mapped;        /* ... and then of this kind */
    uint64_t upload_bytes;
    weights_chunk unsent;
};

/* Counts bytes of the file as loaded, and asks whether to go on. */
temper_status weights_report(weights_loader *loader, uint64_t bytes, error *err);

/* Makes the crew, and an upload whose blocks have `bytes` at least. */
temper_status weights_prepare(weights_loader *loader, uint64_t bytes, error *err);

/* Streams the first `rows` rows of a tensor into the weight from row `to` on. */
temper_status weights_load_rows(weights_loader *loader, const gguf_tensor *tensor, uint64_t rows,
                                weights_order order, op_weight *weight, uint64_t to, error *err);

/* A matrix of a loader of random weights. *out is owned by the caller. */
temper_status weights_random_matrix(weights_loader *loader, const char *label, uint64_t n,
                                    uint64_t k, op_weight **out, error *err);

#endif
