// x[i] = cap * tanh(x[i] / cap), in place.
//
// Shapes: f32 [count].
// Mapping: one lane an element, 64 lanes a workgroup, folded into two grid dimensions.
// Needs: nothing.
// Why this version: bound by memory. tanh by the exponential of a negative number, which cannot
//   overflow as the library's may; off by 1e-7 of cap at most.
// Reference: ref_softcap.

struct Params {
    count: u32,
    cap: f32,
}

@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let index = (group.y * groups.x + group.x) * 64u + lane;
    if (index < params.count) {
        let v = x[index];
        let e = exp(-2.0 * abs(v) / params.cap);
        x[index] = sign(v) * params.cap * (1.0 - e) / (1.0 + e);
    }
}
