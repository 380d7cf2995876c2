/*
 * kernel.h - what a WGSL file becomes at build time. tools/embed reads every src/kernels/NAME.wgsl
 * and writes, into kernels/NAME.gen.h and kernels.gen.c, a constant `kernel_NAME` of the type
 * below, a C struct of its parameters, one of its buffers in binding order, and one of its
 * options. Nothing is filled by position and no access mode is written twice.
 */
#ifndef TEMPER_GPU_KERNEL_H
#define TEMPER_GPU_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

typedef enum gpu_feature {
    GPU_FEATURE_F16 = 1 << 0,              /* shader-f16 */
    GPU_FEATURE_SUBGROUPS = 1 << 1,        /* subgroups */
    GPU_FEATURE_SUBGROUP_MATRIX = 1 << 2,  /* chromium-experimental-subgroup-matrix */
    GPU_FEATURE_TIMESTAMPS = 1 << 3,       /* timestamp-query */
    GPU_FEATURE_IMMEDIATES = 1 << 4,       /* immediate data of 64 bytes */
} gpu_feature;

/* What a kernel multiplies with: each has a rate of its own on a card. */
typedef enum gpu_unit {
    GPU_UNIT_F32,     /* fused multiply-adds of f32 */
    GPU_UNIT_DOT4,    /* dot4I8Packed: four products an instruction */
    GPU_UNIT_MATRIX,  /* subgroup matrices */
    GPU_UNITS
} gpu_unit;

typedef enum gpu_access { GPU_READ, GPU_READ_WRITE } gpu_access;

typedef struct gpu_kernel_binding {
    const char *name;     /* the WGSL variable; binding number = index in the list, group 0 */
    gpu_access access;
    uint32_t element_bytes; /* size of the array's element: a view must be a multiple of it */
} gpu_kernel_binding;

typedef struct gpu_kernel_option {
    const char *name;       /* `override NAME: u32` or `{{NAME}}` */
    bool is_override;       /* else a textual substitution by the decimal number */
    uint32_t default_value;
} gpu_kernel_option;

typedef struct gpu_kernel {
    const char *name;       /* file name without .wgsl */
    const char *source;     /* the WGSL as written */
    const gpu_kernel_binding *bindings;
    uint32_t binding_count;
    uint32_t params_bytes;  /* size of struct Params, at most 64, a multiple of 4; 0: none */
    const gpu_kernel_option *options;
    uint32_t option_count;
    uint32_t needs;         /* gpu_feature bits, from the file's `enable` lines */
} gpu_kernel;

#endif
