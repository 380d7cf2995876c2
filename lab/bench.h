/*
 * bench.h - the little of WebGPU that a sweep needs: a device, buffers, pipelines created side by
 * side, and the GPU time of chains of dispatches by timestamps.
 */
#ifndef TEMPER_LAB_BENCH_H
#define TEMPER_LAB_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/dawn.h"

enum { BENCH_PASSES = 7, BENCH_CHAIN_MAX = 4096 };

typedef struct bench {
    WGPUInstance instance;
    WGPUAdapter adapter;
    WGPUDevice device;
    WGPUQueue queue;
    WGPUQuerySet queries;
    WGPUBuffer resolved, readable;
    WGPULimits limits;
    char adapter_name[256], driver[256];
    uint32_t subgroup;      /* largest subgroup size */
    bool f16, subgroups, matrix;
    bool null;              /* the Null backend: shaders are validated, nothing is computed */
    bool failed;            /* a device error since bench_clear_failure */
    bool lost;
    char failure[512];
} bench;

/* NULL, or what is missing. */
const char *bench_open(bench *b, bool null, bool robust);
void bench_close(bench *b);
void bench_clear_failure(bench *b);

WGPUBuffer bench_buffer(bench *b, uint64_t size, WGPUBufferUsage more);
void bench_write(bench *b, WGPUBuffer to, uint64_t offset, const void *bytes, size_t size);

/* Copies `size` bytes out, waiting for the GPU. */
bool bench_read(bench *b, WGPUBuffer from, uint64_t offset, void *bytes, size_t size);

typedef struct bench_pipeline {
    WGPUComputePipeline handle;
    volatile bool arrived;
    char message[512];      /* why handle is NULL */
    double asked, seconds;  /* how long its creation took */
} bench_pipeline;

/* Starts the creation; *p must stay where it is until it has arrived. */
void bench_pipeline_start(bench *b, bench_pipeline *p, const char *label, const char *wgsl);
void bench_pipeline_wait(bench *b, bench_pipeline *p);

typedef struct bench_binding {
    WGPUBuffer buffer;
    uint64_t offset, size;
} bench_binding;

WGPUBindGroup bench_group(bench *b, const bench_pipeline *p, const bench_binding *bindings,
                          size_t count);

typedef struct bench_step {
    WGPUComputePipeline pipeline;
    WGPUBindGroup group;
    uint32_t x, y;
} bench_step;

/* Runs the steps once, without timing. */
void bench_run(bench *b, const bench_step *steps, size_t count);

/* Runs BENCH_PASSES passes of `dispatches` dispatches, the steps in turn, each seeing what came
 * before it; seconds of GPU time a pass, sorted. */
bool bench_time(bench *b, const bench_step *steps, size_t count, uint32_t dispatches,
                double seconds[BENCH_PASSES]);

#endif
