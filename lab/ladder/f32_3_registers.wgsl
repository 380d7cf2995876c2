// y[m][n] = sum over k of x[m][k] * w[n][k], rung 3: 64 x 64 a workgroup, 4 x 4 a lane in registers.
//
// Per k a lane reads one vec4 of x and one of w from workgroup memory and does 16 multiply-adds: eight
// for each word read instead of a half. The tiles lie transposed, [k][m] and [k][n], so that the four
// values are one 16-byte read.
//
// One H200, M 2048, N 8192, K 2048: 2327 us, 29.5 TFLOP/s, 46 % of the f32 peak measured beside it. The next
// rung is ../steel.wgsl.
//% need M % 64 == 0 && N % 64 == 0 && K % 16 == 0
//% let unit 1
//% let limit 100
//% let bytes (M * K + N * K + M * N) * 4
//% grid N/64 M/64
//% ref nk
//% bind dims x32 b32 y
@group(0) @binding(0) var<uniform> dims: vec4<u32>;   // M, N, K
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> w: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;

// 16 rows of 64 values and four of padding.
var<workgroup> tile_x: array<vec4<f32>, 16 * 17>;
var<workgroup> tile_w: array<vec4<f32>, 16 * 17>;

@compute @workgroup_size(16, 16)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>,
        @builtin(local_invocation_index) index: u32) {
    let row = index / 4u;    // of the tile that this lane brings in
    let part = index % 4u;   // its four k
    var sum = array<vec4<f32>, 4>();
    for (var k = 0u; k < dims.z; k += 16u) {
        let a = x[((group.y * 64u + row) * dims.z + k) / 4u + part];
        let b = w[((group.x * 64u + row) * dims.z + k) / 4u + part];
        for (var j = 0u; j < 4u; j++) {
            tile_x[(part * 4u + j) * 17u + row / 4u][row % 4u] = a[j];
            tile_w[(part * 4u + j) * 17u + row / 4u][row % 4u] = b[j];
        }
        workgroupBarrier();
        for (var i = 0u; i < 16u; i++) {
            let p = tile_x[i * 17u + lane.y];
            let q = tile_w[i * 17u + lane.x];
            for (var r = 0u; r < 4u; r++) {
                sum[r] = fma(vec4<f32>(p[r]), q, sum[r]);
            }
        }
        workgroupBarrier();
    }
    for (var r = 0u; r < 4u; r++) {
        y[((group.y * 64u + lane.y * 4u + r) * dims.y + group.x * 64u) / 4u + lane.x] = sum[r];
    }
}
