// out[i] = gelu(x[i]) = x / 2 (1 + tanh(u)), u = sqrt(2 / pi) (x + 0.044715 x^3).
//
// Shapes: f32 [count].
// Mapping: one lane an element, 64 lanes a workgroup, folded into two grid dimensions.
// Needs: nothing.
// Why this version: bound by memory; the form of gelu_gate.wgsl, which has no overflow that harms.
// Reference: ref_gelu.

struct Params {
    count: u32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let index = (group.y * groups.x + group.x) * 64u + lane;
    if (index < params.count) {
        let v = x[index];
        let twice_u = 1.5957691216057308 * v * fma(0.044715 * v, v, 1.0);
        out[index] = v / (1.0 + exp(-twice_u));
    }
}
