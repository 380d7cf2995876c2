// y[r, c] += bias[c].
//
// Shapes: y f32 [rows, cols]; bias f32 [cols]; count = rows * cols.
// Mapping: one lane an element, 64 lanes a workgroup, folded into two grid dimensions.
// Needs: nothing.
// Why this version: bound by memory, and small beside the product before it.
// Reference: ref_bias.

struct Params {
    count: u32,
    cols: u32,
}

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> bias: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let index = (group.y * groups.x + group.x) * 64u + lane;
    if (index < params.count) {
        y[index] += bias[index % params.cols];
    }
}
