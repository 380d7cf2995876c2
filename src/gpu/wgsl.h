/*
 * wgsl.h - kernels as text: what is done to a source before a compiler sees it, and what is read
 * out of it. Nothing here knows a WebGPU library.
 */
#ifndef TEMPER_GPU_WGSL_H
#define TEMPER_GPU_WGSL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"
#include "gpu/kernel.h"

typedef enum wgsl_token_kind { WGSL_END, WGSL_NAME, WGSL_NUMBER, WGSL_MARK } wgsl_token_kind;

typedef struct wgsl_token {
    wgsl_token_kind kind;
    const char *text;    /* into the source, not terminated */
    uint32_t length;
} wgsl_token;

/* Takes the next token at *at, past space and comments. Marks are single characters, but for << and
 * >>, which are told apart by the reader, so that array<vec4<f32>> needs no care. */
wgsl_token wgsl_next(const char **at);
bool wgsl_is(wgsl_token token, const char *text);

/* Appends the source with every {{NAME}} replaced by its value. Where `immediates` is not NULL the
 * declaration of the parameters is rewritten to var<immediate>, and `immediates`, the directive
 * that the compiler wants for it, goes before all. Line numbers stay. */
temper_status wgsl_prepare(const gpu_kernel *kernel, const uint32_t *values, const char *immediates,
                           strbuf *out, error *err);

/* Fails where a storage binding in the text is another than the descriptor says. */
temper_status wgsl_check_bindings(const gpu_kernel *kernel, const char *source, error *err);

typedef struct wgsl_workgroup {
    uint64_t size[3];
    uint64_t memory;    /* bytes of all workgroup variables of the file, each rounded up to 16 */
} wgsl_workgroup;

/* Works out the workgroup of a prepared source under these option values. */
temper_status wgsl_measure(const gpu_kernel *kernel, const char *source, const uint32_t *values,
                           wgsl_workgroup *out, error *err);

#endif
