/*
 * widened.h - GGUF files with tensors of types that have no layout on the GPU (base/widen.h): the
 * refusal, and the file as a user may ask for it, in which these tensors are F16.
 */
#ifndef TEMPER_FILE_WIDENED_H
#define TEMPER_FILE_WIDENED_H

#include "base/error.h"
#include "file/gguf.h"
#include "temper/temper.h"

/* TEMPER_UNSUPPORTED for a tensor whose type has no layout, with its name and type, and what to do
 * about it. */
temper_status gguf_check_loadable(const gguf_file *file, const gguf_tensor *tensor, error *err);

/* The same file with F16 in the place of every type of base/widen.h. Blocks are decoded as they are
 * read (the first ones together with the directory); a value that F16 cannot hold is then
 * TEMPER_BAD_FILE with the tensor's name. Tells of each such type once. A file without any comes
 * back as it is. Takes ownership of `file`, whatever happens. */
temper_status gguf_widen(gguf_file *file, const temper_widen *widen, gguf_file **out, error *err);

#endif
