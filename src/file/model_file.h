/*
 * model_file.h - what a user calls a model, as one GGUF file: a GGUF file, any part of a split one
 * whose other parts lie beside it, or a Hugging Face directory.
 */
#ifndef TEMPER_FILE_MODEL_FILE_H
#define TEMPER_FILE_MODEL_FILE_H

#include <stdbool.h>

#include "base/error.h"
#include "file/gguf.h"

/* Opens a path. With `vocabulary`, a directory whose tokenizer GGUF's keys cannot say is refused
 * (see hf.h); files are what they are. Parts of a split model are found by their names,
 * NAME-00001-of-00003.gguf. With `widen` (else NULL) types without a layout are F16: see widened.h.
 * *out is owned by the caller (gguf_close). Errors are those of gguf_open, gguf_join, gguf_widen
 * and hf_open, and TEMPER_BAD_FILE for a part that is missing, by name. */
temper_status model_file_open(const char *path, bool vocabulary, const temper_widen *widen,
                              gguf_file **out, error *err);

/* True when the path is a directory. */
bool model_file_is_directory(const char *path);

/* Joins the parts of a split model, given in any order: the keys are those of the first part
 * without its split.* keys, the tensors those of all. Takes ownership of all `count` sources,
 * whatever happens. Errors: TEMPER_BAD_FILE when a part is missing, there twice or of another
 * model. */
temper_status gguf_join(source **parts, uint32_t count, gguf_file **out, error *err);

#endif
