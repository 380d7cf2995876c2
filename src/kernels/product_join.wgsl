// y[r, col0 + c] = sum over s of sums[s][r, c], or that added to y with accumulate = 1.
//
// Shapes: sums f32, `slices` of them one after another, each of `pitch` columns a row; y f32 [rows,
//   y_cols].
// Mapping: a lane an element, 256 columns a workgroup; groups of columns side by side, then rows,
//   folded into two grid dimensions.
// Needs: nothing.
// Why this version: what a product that was split along k, or whose columns in y begin within a
//   vec4, leaves to do; the sums of four slices are asked for at a time.
// Reference: ref_matmul.

override LANES: u32 = 256;

struct Params {
    rows: u32,
    cols: u32,
    pitch: u32,
    slices: u32,
    col0: u32,
    y_cols: u32,
    accumulate: u32,
}

@group(0) @binding(0) var<storage, read> sums: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

fn sum_of(slice: u32, r: u32, c: u32) -> f32 {
    return sums[(min(slice, params.slices - 1u) * params.rows + r) * params.pitch + c];
}

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
    let at = r * params.y_cols + params.col0 + c;
    var v = 0.0;
    if (params.accumulate == 1u) {
        v = y[at];
    }
    for (var s = 0u; s < params.slices; s += 4u) {
        let v0 = sum_of(s, r, c);
        let v1 = sum_of(s + 1u, r, c);
        let v2 = sum_of(s + 2u, r, c);
        let v3 = sum_of(s + 3u, r, c);
        v += v0;
        v = select(v, v + v1, s + 1u < params.slices);
        v = select(v, v + v2, s + 2u < params.slices);
        v = select(v, v + v3, s + 3u < params.slices);
    }
    y[at] = v;
}
