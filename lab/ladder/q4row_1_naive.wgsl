// y[n] = sum over k of x[k] * s[n][k / 32] * (q[n][k] - 8), rung 1: one lane a row of W.
//
// Neighbouring lanes read words a whole row apart: every load touches 32 sectors for 4 bytes each, and a
// row of 2048 has too few lanes to keep the memory busy.
//
// One H200, N 16384, K 2048: 76.9 us, 246 GB/s, 5 % of the bandwidth measured beside it.
//% need M == 1
//% let w 1
//% let limit 100
//% grid (N+63)/64 1
//% ref q4
//% bind dims w4 s y x32
enable f16;
@group(0) @binding(0) var<uniform> dims: vec4<u32>;   // M, N, K
@group(0) @binding(1) var<storage, read> q: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<f16>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read> x: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let n = id.x;
    if (n >= dims.y) {
        return;
    }
    var sum = 0.0;
    for (var word = 0u; word < dims.z / 8u; word++) {
        let nibbles = q[n * (dims.z / 8u) + word];
        let scale = f32(scales[n * (dims.z / 32u) + word / 4u]);
        for (var j = 0u; j < 8u; j++) {
            let value = f32((nibbles >> (4u * j)) & 15u) - 8.0;
            sum = fma(x[word * 8u + j], scale * value, sum);
        }
    }
    y[n] = sum;
}
