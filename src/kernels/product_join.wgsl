// y[r, c] = xs[r] * ws[c] * sums[r, c], or that added to y[r, c] with accumulate = 1.
//
// Shapes: sums f32, `pitch` columns a row; y f32 [rows, y_cols], the product's columns from col0
//   on; scales xs f32 [rows] and ws f32 [cols], ws being 1 for all with w_scaled = 0.
// Mapping: a lane an element, 256 columns a workgroup; groups of columns side by side, then rows,
//   folded into two grid dimensions.
// Needs: nothing.
// Why this version: what a product on matrix units leaves to do where its tiles pass the edge of y
//   or are added to it; bound by memory.
// Reference: ref_matmul.

override LANES: u32 = 256;

struct Params {
    rows: u32,
    cols: u32,
    pitch: u32,
    col0: u32,
    y_cols: u32,
    w_scaled: u32,
    accumulate: u32,
}

@group(0) @binding(0) var<storage, read> sums: array<f32>;
@group(0) @binding(1) var<storage, read> x_scale: array<f32>;
@group(0) @binding(2) var<storage, read> w_scale: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let index = group.y * groups.x + group.x;
    let wide = (params.cols + LANES - 1u) / LANES;
    let r = index / wide;
    let c = (index % wide) * LANES + lane;
    if (r >= params.rows || c >= params.cols) {
        return;
    }
    var v = sums[r * params.pitch + c] * x_scale[r];
    if (params.w_scaled == 1u) {
        v = v * w_scale[c];
    }
    let at = r * params.y_cols + params.col0 + c;
    if (params.accumulate == 1u) {
        v = v + y[at];
    }
    y[at] = v;
}
