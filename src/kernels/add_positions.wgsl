// x[r, c] += table[position[r], c]: learned positions.
//
// Shapes: x f32 [rows, cols]; table f32 [positions, cols]; row_info u32 pairs (position,
//   table_offset) [rows]; count = rows * cols. A position past the table gives NaN: nothing is read
//   out of bounds, and the error shows.
// Mapping: one lane an element, 64 lanes a workgroup, folded into two grid dimensions.
// Needs: nothing.
// Why this version: bound by memory; once a step.
// Reference: ref_add_positions.

struct Params {
    count: u32,
    cols: u32,
    positions: u32,
}

@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> table: array<f32>;
@group(0) @binding(2) var<storage, read> row_info: array<u32>;
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let index = (group.y * groups.x + group.x) * 64u + lane;
    if (index >= params.count) {
        return;
    }
    let position = row_info[2u * (index / params.cols)];
    if (position < params.positions) {
        x[index] += table[position * params.cols + index % params.cols];
    } else {
        var quiet_nan = 0x7fc00000u;
        x[index] = bitcast<f32>(quiet_nan);
    }
}
