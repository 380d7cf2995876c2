// y[r, c] = (x[r, c] - m) / sqrt(mean_c((x[r, c] - m)^2) + eps) * weight[c] + bias[c], m =
// mean_c(x[r, c]).
//
// Shapes: x, y f32 [rows, cols]; weight, bias f32 [cols].
// Mapping: a workgroup of 64 lanes a row, folded into two grid dimensions; lanes stride the
//   columns.
// Needs: nothing. 128 words of workgroup memory, two barriers.
// Why this version: the variance is summed over differences from the mean, so that a row far from 0
//   loses nothing; sums add up as 64 short ones and then one of 64, which every lane does itself.
// Reference: ref_layernorm.

struct Params {
    rows: u32,
    cols: u32,
    eps: f32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

const LANES = 64u;
var<workgroup> sums: array<f32, 64>;
var<workgroup> squares: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let row = group.y * groups.x + group.x;
    if (row >= params.rows) {
        return;
    }
    let start = row * params.cols;
    var sum = 0.0;
    for (var c = lane; c < params.cols; c += LANES) {
        sum += x[start + c];
    }
    sums[lane] = sum;
    workgroupBarrier();
    var mean = 0.0;
    for (var i = 0u; i < LANES; i++) {
        mean += sums[i];
    }
    mean /= f32(params.cols);
    var square = 0.0;
    for (var c = lane; c < params.cols; c += LANES) {
        let v = x[start + c] - mean;
        square = fma(v, v, square);
    }
    squares[lane] = square;
    workgroupBarrier();
    var variance = 0.0;
    for (var i = 0u; i < LANES; i++) {
        variance += squares[i];
    }
    let factor = 1.0 / sqrt(variance / f32(params.cols) + params.eps);
    for (var c = lane; c < params.cols; c += LANES) {
        y[start + c] = fma((x[start + c] - mean) * factor, weight[c], bias[c]);
    }
}
