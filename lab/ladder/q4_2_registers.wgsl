// y[m][n] = sum over k of x[m][k] * s[n][k / 32] * (q[n][k] - 8), rung 2: 64 x 64 a workgroup, 4 x 4 a lane.
//
// Each word of W is unpacked once a workgroup, into a tile [k][n] of f32, and serves 64 rows from there; x
// lies beside it as [k][m]. A lane reads one vec4 of each for 16 multiply-adds. From here on the matrix
// units of the card are what is missing (rung 3, gemm.wgsl with b = 2).
//
// One H200, M 2048, N 8192, K 2048: 2410 us, 28.5 TFLOP/s, 44 % of the f32 peak measured beside it.
//% need M % 64 == 0 && N % 64 == 0 && K % 16 == 0
//% let w 1
//% let unit 4
//% let limit 100
//% grid N/64 M/64
//% ref q4
//% bind dims x32 w4 y s
enable f16;
@group(0) @binding(0) var<uniform> dims: vec4<u32>;   // M, N, K
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> q: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> scales: array<f16>;

var<workgroup> tile_x: array<vec4<f32>, 16 * 17>;
var<workgroup> tile_w: array<vec4<f32>, 16 * 17>;

@compute @workgroup_size(16, 16)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>,
        @builtin(local_invocation_index) index: u32) {
    let row = index / 4u;
    let part = index % 4u;
    let n = group.x * 64u + row;
    var sum = array<vec4<f32>, 4>();
    for (var k = 0u; k < dims.z; k += 16u) {
        let a = x[((group.y * 64u + row) * dims.z + k) / 4u + part];
        // Four nibbles a lane: half a word.
        let half = q[(n * dims.z + k) / 8u + part / 2u] >> (16u * (part % 2u));
        let scale = f32(scales[(n * dims.z + k) / 32u]);
        for (var j = 0u; j < 4u; j++) {
            tile_x[(part * 4u + j) * 17u + row / 4u][row % 4u] = a[j];
            tile_w[(part * 4u + j) * 17u + row / 4u][row % 4u] = scale * (f32((half >> (4u * j)) & 15u) - 8.0);
        }
        workgroupBarrier();
        for (var i = 0u; i < 16u; i++) {
            let p = tile_x[i * 17u + lane.y];
            let v = tile_w[i * 17u + lane.x];
            for (var r = 0u; r < 4u; r++) {
                sum[r] = fma(vec4<f32>(p[r]), v, sum[r]);
            }
        }
        workgroupBarrier();
    }
    for (var r = 0u; r < 4u; r++) {
        y[((group.y * 64u + lane.y * 4u + r) * dims.y + group.x * 64u) / 4u + lane.x] = sum[r];
    }
}
