/*
 * device_common.h - what the tests of the gpu room share: a few small kernels written out by hand,
 * a device per test, and checks that print the error text when they fail.
 */
#ifndef TEST_GPU_DEVICE_COMMON_H
#define TEST_GPU_DEVICE_COMMON_H

/* cmocka.h needs these four before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gpu.h"

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))

/* The call succeeds; else its text is printed. */
#define assert_ok(call)                                                                            \
    do {                                                                                           \
        error error_of_call = {0};                                                                 \
        error *err = &error_of_call;                                                               \
        const temper_status status_of_call = (call);                                               \
        if (status_of_call != TEMPER_OK)                                                           \
            fail_msg("%s: status %d: %s", #call, (int)status_of_call, error_of_call.text);         \
    } while (0)

/* The call fails with this status, and its text holds `part`. */
#define assert_fails(call, wanted, part)                                                           \
    do {                                                                                           \
        error error_of_call = {0};                                                                 \
        error *err = &error_of_call;                                                               \
        const temper_status status_of_call = (call);                                               \
        if (status_of_call != (wanted) || error_of_call.status != status_of_call ||                \
            strstr(error_of_call.text, part) == NULL)                                              \
            fail_msg("%s: status %d (wanted %d), text \"%s\" (wanted \"%s\")", #call,              \
                     (int)status_of_call, (int)(wanted), error_of_call.text, part);                \
    } while (0)

/* ---- kernels -------------------------------------------------------------------------------- */

/* y = a * x + b + bias, elementwise, with a substitution and an override. */
static const gpu_kernel_binding affine_bindings[] = {{"x", GPU_READ, 4}, {"y", GPU_READ_WRITE, 4}};
static const gpu_kernel_option affine_options[] = {{"GROUP", true, 64}, {"BIAS", false, 0}};

typedef struct affine_params {
    uint32_t n;
    float a, b;
    uint32_t row; /* threads of a row of workgroups */
} affine_params;

typedef struct affine_values {
    uint32_t group, bias;
} affine_values;

static const gpu_kernel affine = {
    .name = "affine",
    .source = "// a * x + b + bias; see \"@group(1) @binding(0) var<uniform> params: Params;\"\n"
              "override GROUP: u32 = 64;\n"
              "struct Params { n: u32, a: f32, b: f32, row: u32 }\n"
              "@group(1) @binding(0) var<uniform> params: Params;\n"
              "@group(0) @binding(0) var<storage, read> x: array<f32>;\n"
              "@group(0) @binding(1) var<storage, read_write> y: array<f32>;\n"
              "@compute @workgroup_size(GROUP)\n"
              "fn main(@builtin(global_invocation_id) id: vec3<u32>) {\n"
              "    let i = id.y * params.row + id.x;\n"
              "    if (i < params.n) { y[i] = params.a * x[i] + params.b + f32({{BIAS}}); }\n"
              "}\n",
    .bindings = affine_bindings,
    .binding_count = COUNT(affine_bindings),
    .params_bytes = sizeof(affine_params),
    .options = affine_options,
    .option_count = COUNT(affine_options),
};

/* x[at] = value, wherever at points to. */
static const gpu_kernel_binding poke_bindings[] = {{"x", GPU_READ_WRITE, 4}};

typedef struct poke_params {
    uint32_t at, value;
} poke_params;

static const gpu_kernel poke = {
    .name = "poke",
    .source = "struct Params { at: u32, value: u32 }\n"
              "@group(1) @binding(0) var<uniform> params: Params;\n"
              "@group(0) @binding(0) var<storage, read_write> x: array<u32>;\n"
              "@compute @workgroup_size(1) fn main() { x[params.at] = params.value; }\n",
    .bindings = poke_bindings,
    .binding_count = COUNT(poke_bindings),
    .params_bytes = sizeof(poke_params),
};

/* x[i] = x[i] + 1, without parameters. */
static const gpu_kernel increment = {
    .name = "increment",
    .source = "@group(0) @binding(0) var<storage, read_write> x: array<u32>;\n"
              "@compute @workgroup_size(1)\n"
              "fn main(@builtin(workgroup_id) id: vec3<u32>) { x[id.x] = x[id.x] + 1u; }\n",
    .bindings = poke_bindings,
    .binding_count = COUNT(poke_bindings),
};

/* ---- devices and buffers -------------------------------------------------------------------- */

static inline gpu_device *open_device(const gpu_device_desc *desc)
{
    gpu_device *device = NULL;
    assert_ok(gpu_device_open(desc, &device, err));
    assert_non_null(device);
    return device;
}

static inline gpu_buffer *new_buffer(gpu_device *device, uint64_t size, const char *label)
{
    gpu_buffer *buffer = NULL;
    assert_ok(gpu_buffer_create(device, size, GPU_PURPOSE_SCRATCH, label, &buffer, err));
    return buffer;
}

/* Reads a whole view back, in a submit of its own. */
static inline void read_view(gpu_device *device, gpu_view view, void *out)
{
    gpu_ticket ticket;
    gpu_recorder *rec = gpu_record_begin(device);

    gpu_record_readback(rec, view);
    assert_ok(gpu_submit(rec, &ticket, err));
    assert_ok(gpu_wait(device, ticket, out, view.size, err));
}

static inline void record_affine(gpu_recorder *rec, gpu_pipeline *pipeline, gpu_buffer *x,
                                 gpu_buffer *y, affine_params params)
{
    const gpu_view views[] = {gpu_whole(x), gpu_whole(y)};
    gpu_record_dispatch(rec, pipeline, views, &params, (params.n + 63) / 64, 1, 1);
}

/* Prints which adapter this is about; every test program starts with it. */
static inline int print_adapter(void **state)
{
    (void)state;
    gpu_device *device = NULL;
    error err = {0};

    if (gpu_device_open(NULL, &device, &err) != TEMPER_OK) {
        fprintf(stderr, "no device: %s\n", err.text);
        return -1;
    }
    const gpu_adapter_info *info = gpu_device_adapter(device);
    printf("adapter: %s (%s, %s, %s)\n", info->name, info->driver, info->backend, info->type);
    gpu_device_release(device);
    return 0;
}

#endif
