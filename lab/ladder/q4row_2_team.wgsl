// y[n] = sum over k of x[k] * s[n][k / 32] * (q[n][k] - 8), rung 2: 64 lanes a row of W.
//
// Neighbouring lanes read neighbouring words, and every row has 64 lanes at work: the memory is busy. The
// sums meet in a tree over workgroup memory. Six barriers a row and an integer-to-float conversion for
// each nibble are what is left to remove.
//
// One H200, N 16384, K 2048: 43.4 us, 437 GB/s, 9 % of the bandwidth measured beside it. The next rungs are
// ../gemv.wgsl and ../gemv_kb.wgsl.
//% need M == 1
//% let w 1
//% let limit 100
//% grid N 1
//% ref q4
//% bind dims w4 s y x32
enable f16;
@group(0) @binding(0) var<uniform> dims: vec4<u32>;   // M, N, K
@group(0) @binding(1) var<storage, read> q: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<f16>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read> x: array<f32>;

var<workgroup> sums: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let n = group.y * groups.x + group.x;
    var sum = 0.0;
    for (var word = lane; word < dims.z / 8u; word += 64u) {
        let nibbles = q[n * (dims.z / 8u) + word];
        let scale = f32(scales[n * (dims.z / 32u) + word / 4u]);
        var part = 0.0;
        for (var j = 0u; j < 8u; j++) {
            part = fma(x[word * 8u + j], f32((nibbles >> (4u * j)) & 15u) - 8.0, part);
        }
        sum = fma(scale, part, sum);
    }
    sums[lane] = sum;
    workgroupBarrier();
    for (var far = 32u; far > 0u; far /= 2u) {
        if (lane < far) {
            sums[lane] += sums[lane + far];
        }
        workgroupBarrier();
    }
    if (lane == 0u) {
        y[n] = sums[0];
    }
}
