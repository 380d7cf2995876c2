// out[r, i] = silu(gate_up[r, i]) * gate_up[r, f + i], silu(g) = g / (1 + exp(-g)).
//
// Shapes: gate_up f32 [rows, 2 f]; out f32 [rows, f]; count = rows * f.
// Mapping: one lane an element, 64 lanes a workgroup, folded into two grid dimensions.
// Needs: nothing.
// Why this version: bound by memory. exp(-g) overflows to infinity below -88, and g / infinity is
//   the right 0.
// Reference: ref_silu_gate.

struct Params {
    count: u32,
    f: u32,
}

@group(0) @binding(0) var<storage, read> gate_up: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let index = (group.y * groups.x + group.x) * 64u + lane;
    if (index >= params.count) {
        return;
    }
    let row = index / params.f;
    let gate = gate_up[index + row * params.f];
    let up = gate_up[index + (row + 1u) * params.f];
    out[index] = gate / (1.0 + exp(-gate)) * up;
}
