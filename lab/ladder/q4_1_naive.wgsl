// y[m][n] = sum over k of x[m][k] * s[n][k / 32] * (q[n][k] - 8), rung 1: one lane an element.
//
// Every lane unpacks its whole row of W for itself: M times the unpacking that the weight needs.
//
// One H200, M 2048, N 8192, K 2048: 24785 us, 2.8 TFLOP/s.
//% need M % 16 == 0 && N % 16 == 0
//% let w 1
//% let unit 4
//% let limit 100
//% grid N/16 M/16
//% ref q4
//% bind dims x32 w4 y s
enable f16;
@group(0) @binding(0) var<uniform> dims: vec4<u32>;   // M, N, K
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> q: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read> scales: array<f16>;

@compute @workgroup_size(16, 16)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var sum = 0.0;
    for (var word = 0u; word < dims.z / 8u; word++) {
        let nibbles = q[id.x * (dims.z / 8u) + word];
        let scale = f32(scales[id.x * (dims.z / 32u) + word / 4u]);
        for (var j = 0u; j < 8u; j++) {
            let value = f32((nibbles >> (4u * j)) & 15u) - 8.0;
            sum = fma(x[id.y * dims.z + word * 8u + j], scale * value, sum);
        }
    }
    y[id.y * dims.y + id.x] = sum;
}
