/*
 * kl_file.h - the logits of a reference model over a text, saved so that many models can be
 * compared with it while it is not in memory.
 *
 * A file is, in little-endian:
 *
 *     "TEMPERKL"              8 bytes
 *     version                 u32, 1
 *     vocabulary V            u32
 *     context n               u32, ids a window
 *     windows w               u32
 *     hash of the vocabulary  u64, kl_vocabulary_hash
 *     ids                     u32 [w][n]
 *     logits                  f32 [w][s][V], s = n - eval_first_scored(n): row i of a window says
 *                             what the id at place n - s + i may be
 *
 * and nothing else: a file that is shorter or longer than its head says is refused.
 */
#ifndef TEMPER_CLI_KL_FILE_H
#define TEMPER_CLI_KL_FILE_H

#include "base/outfile.h"
#include "eval.h"

/* A hash of every token's bytes in their order: models with the same one say the same of an id. */
uint64_t kl_vocabulary_hash(const temper_engine *engine);

/* Begins a file with all but its logits; these follow, window by window, through outfile_write. */
temper_status kl_file_create(const char *path, const temper_engine *engine,
                             const eval_windows *windows, outfile **out, temper_error *err);

/* True when the file can be read and begins like one. */
bool kl_file_is(const char *path);

typedef struct kl_file kl_file;

/* Opens and checks a file: its own make, whole. Its windows are a view as long as it is open. */
temper_status kl_file_open(const char *path, kl_file **out, temper_error *err);

/* TEMPER_BAD_ARGUMENT for another vocabulary than the engine's. */
temper_status kl_file_suits(const kl_file *file, const temper_engine *engine, temper_error *err);

void kl_file_close(kl_file *file);
const eval_windows *kl_file_windows(const kl_file *file);

/* Rows [row, row + rows) of a window's logits: rows x vocabulary floats to `logits`. */
temper_status kl_file_read(kl_file *file, uint32_t window, uint32_t row, uint32_t rows,
                           float *logits, temper_error *err);

#endif
