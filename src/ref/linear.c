/*
 * linear.c - products, lookups, norms, gates, sums.
 */
#include <math.h>
#include <stddef.h>

#include "ref/ref.h"

void ref_matmul(const float *x, const float *w, const float *start, uint64_t r0, uint64_t r1,
                uint64_t n, uint64_t k, double *y)
{
    for (uint64_t r = r0; r < r1; r++)
        for (uint64_t c = 0; c < n; c++) {
            const float *a = x + r * k, *b = w + c * k;
            /* Four sums, so that the compiler may run them side by side. */
            double sum[4] = {0};
            uint64_t i = 0;
            for (; i + 4 <= k; i += 4)
                for (uint64_t j = 0; j < 4; j++)
                    sum[j] += (double)a[i + j] * (double)b[i + j];
            for (; i < k; i++)
                sum[0] += (double)a[i] * (double)b[i];
            const double begin = start != NULL ? (double)start[r * n + c] : 0.0;
            y[r * n + c] = begin + ((sum[0] + sum[1]) + (sum[2] + sum[3]));
        }
}

void ref_embed(const float *w, uint64_t n, uint64_t k, const uint32_t *ids, uint64_t rows,
               double scale, double *out)
{
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t i = 0; i < k; i++)
            out[r * k + i] = ids[r] < n ? scale * (double)w[ids[r] * k + i] : (double)NAN;
}

void ref_gather_ids(const uint32_t *sources, const uint32_t *chosen, uint32_t count, uint64_t rows,
                    uint32_t *ids)
{
    const uint32_t mark = UINT32_C(1) << 31;
    for (uint64_t r = 0; r < rows; r++) {
        ids[r] = sources[r];
        if (sources[r] >= mark)
            ids[r] = sources[r] - mark < count ? chosen[sources[r] - mark] : UINT32_MAX;
    }
}

void ref_rmsnorm(const float *x, const float *weight, uint64_t rows, uint64_t cols, double eps,
                 double *y)
{
    for (uint64_t r = 0; r < rows; r++) {
        double squares = 0;
        for (uint64_t c = 0; c < cols; c++)
            squares += (double)x[r * cols + c] * (double)x[r * cols + c];
        const double factor = 1 / sqrt(squares / (double)cols + eps);
        for (uint64_t c = 0; c < cols; c++)
            y[r * cols + c] = (double)x[r * cols + c] * factor * (double)weight[c];
    }
}

void ref_layernorm(const float *x, const float *weight, const float *bias, uint64_t rows,
                   uint64_t cols, double eps, double *y)
{
    for (uint64_t r = 0; r < rows; r++) {
        const float *in = x + r * cols;
        double mean = 0, variance = 0;
        for (uint64_t c = 0; c < cols; c++)
            mean += (double)in[c] / (double)cols;
        for (uint64_t c = 0; c < cols; c++)
            variance += ((double)in[c] - mean) * ((double)in[c] - mean) / (double)cols;
        for (uint64_t c = 0; c < cols; c++)
            y[r * cols + c] =
                ((double)in[c] - mean) / sqrt(variance + eps) * (double)weight[c] + (double)bias[c];
    }
}

void ref_head_norm(const float *qkv, const float *weights, const ref_heads *h, double eps,
                   double *out)
{
    const uint64_t d = h->head_dim, heads = h->q_heads + 2 * h->kv_heads;
    for (uint64_t i = 0; i < h->rows * heads; i++) {
        const uint64_t head = i % heads;
        if (head < h->q_heads + h->kv_heads)
            ref_rmsnorm(qkv + i * d, weights + (head < h->q_heads ? 0 : d), 1, d, eps, out + i * d);
        else
            for (uint64_t j = 0; j < d; j++)
                out[i * d + j] = (double)qkv[i * d + j];
    }
}

/* (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)), which loses nothing where tanh is near -1. */
static double gelu(double x)
{
    const double u = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
    return x / (1 + exp(-2 * u));
}

void ref_gelu(const float *x, uint64_t count, double *out)
{
    for (uint64_t i = 0; i < count; i++)
        out[i] = gelu((double)x[i]);
}

void ref_gelu_gate(const float *gate_up, uint64_t rows, uint64_t f, double *out)
{
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t i = 0; i < f; i++)
            out[r * f + i] =
                gelu((double)gate_up[r * 2 * f + i]) * (double)gate_up[r * 2 * f + f + i];
}

void ref_bias(const float *y, const float *bias, uint64_t rows, uint64_t cols, double *out)
{
    for (uint64_t i = 0; i < rows * cols; i++)
        out[i] = (double)y[i] + (double)bias[i % cols];
}

void ref_add_positions(const float *x, const float *table, const uint32_t *row_info, uint64_t rows,
                       uint64_t cols, uint32_t positions, double *out)
{
    for (uint64_t i = 0; i < rows * cols; i++) {
        const uint64_t position = row_info[2 * (i / cols)];
        out[i] = position < positions ? (double)x[i] + (double)table[position * cols + i % cols]
                                      : (double)NAN;
    }
}

void ref_softcap(const float *x, uint64_t count, double cap, double *out)
{
    for (uint64_t i = 0; i < count; i++)
        out[i] = cap * tanh((double)x[i] / cap);
}

void ref_silu_gate(const float *gate_up, uint64_t rows, uint64_t f, double *out)
{
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t i = 0; i < f; i++) {
            const double gate = (double)gate_up[r * 2 * f + i],
                         up = (double)gate_up[r * 2 * f + f + i];
            out[r * f + i] = gate / (1 + exp(-gate)) * up;
        }
}

void ref_add(const float *a, const float *b, uint64_t count, double *out)
{
    for (uint64_t i = 0; i < count; i++)
        out[i] = (double)a[i] + (double)b[i];
}
