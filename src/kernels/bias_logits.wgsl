// logits[t] += bias for every pair (t, bias): a token made likelier, unlikelier, or (with
//   -infinity) impossible.
//
// Shapes: pairs u32 [2 count]: an id, and the bits of an f32; no id twice. logits f32 [V], in
//   place.
// Mapping: one lane a pair, 64 lanes a workgroup, folded into two grid dimensions. Ids at or
//   above V are passed over.
// Needs: nothing.
// Why this version: a handful of pairs.
// Reference: ref_bias_logits.

struct Params {
    vocab: u32,
    count: u32,
}

@group(0) @binding(0) var<storage, read> pairs: array<u32>;
@group(0) @binding(1) var<storage, read_write> logits: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let index = (group.y * groups.x + group.x) * 64u + lane;
    if (index >= params.count) {
        return;
    }
    let token = pairs[2u * index];
    if (token < params.vocab) {
        logits[token] = logits[token] + bitcast<f32>(pairs[2u * index + 1u]);
    }
}
