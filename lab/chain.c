/*
 * chain.c - what a dispatch costs that waits for the one before it, by what changes between the
 * two: the pipeline, the bind group, the size of the code, the weights that are read.
 *
 *     chain [--robust]
 *
 * A row: pipelines that take turns, places of the weight that do, multiply-adds of a lane (the code
 * is as long), workgroups of 256; microseconds a dispatch, the median of BENCH_PASSES passes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { STEPS = 80, DISPATCHES = 1600, PIPELINES = 20, PLACES = 80, TEXT = 1 << 18 };

typedef struct chain_case {
    uint32_t pipelines, places, ops, workgroups;
} chain_case;

static const chain_case cases[] = {
    {1, 1, 4, 1},      {5, 1, 4, 1},      {20, 1, 4, 1},     {1, 80, 4, 1},    {5, 80, 4, 1},
    {1, 1, 4, 128},    {5, 1, 4, 128},    {20, 1, 4, 128},   {1, 80, 4, 128},  {5, 80, 4, 128},
    {1, 1, 100, 128},  {5, 1, 100, 128},  {5, 80, 100, 128}, {1, 1, 400, 128}, {5, 1, 400, 128},
    {20, 1, 400, 128}, {5, 80, 400, 128}, {1, 1, 4, 1024},   {5, 80, 4, 1024},
};

/* Every step adds to what the one before it left; vec4 by vec4 of a and w. */
static void write_kernel(char *out, uint32_t which, uint32_t ops)
{
    size_t at =
        (size_t)snprintf(out, TEXT,
                         "@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;\n"
                         "@group(0) @binding(1) var<storage, read_write> b: array<vec4<f32>>;\n"
                         "@group(0) @binding(2) var<storage, read> w: array<vec4<f32>>;\n"
                         "@compute @workgroup_size(256)\n"
                         "fn main(@builtin(global_invocation_id) id: vec3<u32>) {\n"
                         "    var s = a[id.x %% 256u] + w[id.x];\n");
    for (uint32_t i = 0; i < ops / 4; i++)
        at += (size_t)snprintf(out + at, TEXT - at, "    s = fma(s, vec4(%u.25), s.yzwx);\n",
                               1 + which * 1000 + i);
    snprintf(out + at, TEXT - at, "    b[id.x] = s;\n}\n");
}

static void measure(bench *b, const chain_case *c, WGPUBuffer x, WGPUBuffer y, WGPUBuffer weight)
{
    static bench_pipeline pipelines[PIPELINES];
    static char wgsl[TEXT];
    bench_step steps[STEPS];
    double seconds[BENCH_PASSES];
    const uint64_t place = UINT64_C(4) << 20;
    for (uint32_t i = 0; i < c->pipelines; i++) {
        write_kernel(wgsl, i, c->ops);
        bench_pipeline_start(b, &pipelines[i], "chain", wgsl);
        bench_pipeline_wait(b, &pipelines[i]);
    }
    for (uint32_t i = 0; i < STEPS; i++) {
        const bench_binding bound[] = {
            {i % 2 == 0 ? x : y, 0, 1 << 23},
            {i % 2 == 0 ? y : x, 0, 1 << 23},
            {weight, i % c->places * place, place},
        };
        const bench_pipeline *p = &pipelines[i % c->pipelines];
        steps[i] = (bench_step){p->handle, bench_group(b, p, bound, 3), c->workgroups, 1};
    }
    bench_time(b, steps, STEPS, DISPATCHES, seconds);
    bench_time(b, steps, STEPS, DISPATCHES, seconds);
    printf("%9u %7u %5u %10u  %6.2f\n", c->pipelines, c->places, c->ops, c->workgroups,
           seconds[BENCH_PASSES / 2] / DISPATCHES * 1e6);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static bench b;
    const char *missing = bench_open(&b, false, argc > 1 && strcmp(argv[1], "--robust") == 0);
    if (missing != NULL)
        return fprintf(stderr, "chain: %s\n", missing), 1;
    WGPUBuffer x = bench_buffer(&b, 1 << 23, WGPUBufferUsage_Storage);
    WGPUBuffer y = bench_buffer(&b, 1 << 23, WGPUBufferUsage_Storage);
    WGPUBuffer weight = bench_buffer(&b, (uint64_t)PLACES * (4 << 20), WGPUBufferUsage_Storage);
    printf("%s\npipelines  places   ops workgroups      us\n", b.adapter_name);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        measure(&b, &cases[i], x, y, weight);
    if (b.failed)
        fprintf(stderr, "chain: %s\n", b.failure);
    return b.failed;
}
