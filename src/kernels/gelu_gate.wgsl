// out[r, i] = gelu(gate_up[r, i]) * gate_up[r, f + i], gelu(g) = g / 2 (1 + tanh(u)), u = sqrt(2 /
// pi) (g + 0.044715 g^3).
//
// Shapes: gate_up f32 [rows, 2 f]; out f32 [rows, f]; count = rows * f.
// Mapping: one lane an element, 64 lanes a workgroup, folded into two grid dimensions.
// Needs: nothing.
// Why this version: bound by memory. (1 + tanh(u)) / 2 is 1 / (1 + exp(-2 u)), whose exponential
//   may overflow to infinity without harm; a quotient of two exponentials may not.
// Reference: ref_gelu_gate.

struct Params {
    count: u32,
    f: u32,
}

@group(0) @binding(0) var<storage, read> gate_up: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

fn gelu(g: f32) -> f32 {
    let twice_u = 1.5957691216057308 * g * fma(0.044715 * g, g, 1.0);
    return g / (1.0 + exp(-twice_u));
}

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
    out[index] = gelu(gate) * up;
}
