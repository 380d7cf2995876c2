/*
 * problem.h - the data that candidates work on, and what they must compute.
 *
 * A hash of the position fills every buffer, on the GPU; the reference computes the same hash, so
 * nothing is copied and every sampled element has its own double-precision value:
 *
 *     w4    nibble words of a 4-bit weight [N][K], `copies` of them one after another
 *     s     its f16 scales, one a group of 32
 *     x32, xh, xp   x [M][K] as f32; as f16; as f16 with each eight elements as pairs (j, j + 4)
 *     q8x, q8m      x as int8, evens and odds of each eight apart; scale and 8 * scale * sum a unit
 *     q16x, q16m    the same with two bytes an element: high bytes, low bytes
 *     b8, b8s       x as bytes in blocks of 32 along k, in the order 0 2 1 3 4 6 5 7 of each eight; f32
 *                   scales [K / span][M]
 *     w8s           f32 [K / span][N], what a byte of the 4-bit weight is worth
 *     bh, b32       an f16 and an f32 weight, [N][K] or [K][N]
 *     th            an f16 matrix that a candidate writes and another reads
 *     y             the result, f32 [M][N]; with `parts` above 1 those of parts of k, one after another
 *     kv            an f16 cache: K [8][positions][64], then V
 *     dims          uniform (M, N, K, split)
 *     one           f32 [M], all 1
 *     c1, c2        large buffers for bandwidth
 *
 * Values of x and bh are multiples of 1/1024 in (-1, 1), exact in f16: errors are the kernel's own.
 */
#ifndef TEMPER_LAB_PROBLEM_H
#define TEMPER_LAB_PROBLEM_H

#include "bench.h"
#include "expand.h"

typedef struct shape {
    int64_t m, n, k;
} shape;

enum { POOL_COUNT = 21, SAMPLES = 256 };

typedef struct pool {
    const char *name;
    WGPUBuffer buffer;
    uint64_t size;
} pool;

typedef struct problem {
    bench *b;
    pool pools[POOL_COUNT];
    bench_pipeline fill, gather, count;
    WGPUBuffer fill_params, sample_at, sample_out, untouched;
    int64_t big;   /* bytes of c1 and c2 */
} problem;

/* NULL, or what failed. `folder` holds fill.wgsl, gather.wgsl and untouched.wgsl. */
const char *problem_open(problem *p, bench *b, const char *folder, int64_t big);

/* Copies of the weight that a chain rotates through. */
int64_t problem_copies(const vars *v, shape s);

/* The binding called `name` of copy `copy`; false for an unknown name or no memory. */
bool problem_bind(problem *p, const char *name, const vars *v, shape s, int64_t copy,
                  bench_binding *out);

/* Poisons y (and th), so that what a candidate leaves unwritten shows. */
void problem_poison(problem *p, const char *ref);

/* Compares the result of copy `copy` with reference `ref`: the samples' largest absolute error
 * over the root mean square of their references; infinite where something was not written. */
double problem_error(problem *p, const char *ref, const vars *v, shape s, int64_t copy);

char *read_text_file(const char *path);

#endif
