// y[m][n] = sum over k of x[m][k] * w[n][k], rung 1: one lane an element, straight from the buffers.
//
// Every element reads 2 K words for K multiply-adds. The lanes of a workgroup lie 16 x 16, so that the
// caches serve most of them; what bounds it is the number of loads, two for each multiply-add.
//
// One H200, M 2048, N 8192, K 2048: 74671 us, 0.9 TFLOP/s, 1.4 % of the f32 peak measured beside it.
//% need M % 16 == 0 && N % 16 == 0
//% let unit 1
//% let limit 100
//% let bytes (M * K + N * K + M * N) * 4
//% grid N/16 M/16
//% ref nk
//% bind dims x32 b32 y
@group(0) @binding(0) var<uniform> dims: vec4<u32>;   // M, N, K
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> w: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(16, 16)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var sum = 0.0;
    for (var k = 0u; k < dims.z; k++) {
        sum = fma(x[id.y * dims.z + k], w[id.x * dims.z + k], sum);
    }
    y[id.y * dims.y + id.x] = sum;
}
