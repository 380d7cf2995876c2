// y[r, c] = xs[r] * ws[c] * y[r, c] where a scale is not 1, as hardly any is.
//
// Shapes: y f32 [rows, y_cols], the product's columns from col0 on; scales xs f32 [rows] and ws f32
//   [cols], ws being 1 for all with w_scaled = 0.
// Mapping: a workgroup 64 columns of 64 rows, a lane a column; folded into two grid dimensions.
// Needs: nothing.
// Why this version: as a rule it reads the scales and goes.
// Reference: ref_matmul.

override LANES: u32 = 64;

struct Params {
    rows: u32,
    cols: u32,
    col0: u32,
    y_cols: u32,
    w_scaled: u32,
}

@group(0) @binding(0) var<storage, read> x_scale: array<f32>;
@group(0) @binding(1) var<storage, read> w_scale: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let index = group.y * groups.x + group.x;
    let wide = (params.cols + LANES - 1u) / LANES;
    let first = (index / wide) * LANES;
    let c = (index % wide) * LANES + lane;
    if (c >= params.cols) {
        return;
    }
    var column = 1.0;
    if (params.w_scaled == 1u) {
        column = w_scale[c];
    }
    for (var r = first; r < min(first + LANES, params.rows); r++) {
        let row = x_scale[r];
        if (row != 1.0 || column != 1.0) {
            let at = r * params.y_cols + params.col0 + c;
            y[at] = y[at] * row * column;
        }
    }
}
