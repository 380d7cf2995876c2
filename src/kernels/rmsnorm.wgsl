// y[r, c] = x[r, c] / sqrt(mean_c(x[r, c]^2) + eps) * weight[c], or y += the same.
//
// Shapes: x, y f32 [rows, cols]; weight f32 [cols].
// Mapping: a workgroup of 64 lanes a row, folded into two grid dimensions; lanes stride the
//   columns.
// Needs: nothing. 64 words of workgroup memory, one barrier.
// Why this version: squares add up in f32 (800^2 passes f16) as 64 short sums and then one of 64:
//   an error that grows with cols / 64. Every lane adds the 64 partial sums itself, which is
//   cheaper than five more barriers.
// Reference: ref_rmsnorm.

struct Params {
    rows: u32,
    cols: u32,
    eps: f32,
    accumulate: u32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

override LANES: u32 = 64;   // 64 or 256
var<workgroup> partial: array<f32, LANES>;
var<workgroup> sixteenth: array<f32, 16>;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let row = group.y * groups.x + group.x;
    if (row >= params.rows) {
        return;
    }
    let start = row * params.cols;
    var squares = 0.0;
    for (var c = lane; c < params.cols; c += LANES) {
        let v = x[start + c];
        squares = fma(v, v, squares);
    }
    partial[lane] = squares;
    workgroupBarrier();
    var total = 0.0;
    if (LANES > 64u) {
        if (lane < 16u) {
            var few = 0.0;
            for (var i = lane; i < LANES; i += 16u) {
                few += partial[i];
            }
            sixteenth[lane] = few;
        }
        workgroupBarrier();
        for (var i = 0u; i < 16u; i++) {
            total += sixteenth[i];
        }
    } else {
        for (var i = 0u; i < LANES; i++) {
            total += partial[i];
        }
    }
    let factor = 1.0 / sqrt(total / f32(params.cols) + params.eps);
    for (var c = lane; c < params.cols; c += LANES) {
        var value = x[start + c] * factor * weight[c];
        if (params.accumulate != 0u) {
            value += y[start + c];
        }
        y[start + c] = value;
    }
}
