// logits[row, t] += bias for every pair (t, bias): a token made likelier, unlikelier, or (with
// -infinity) impossible.
//
// Shapes: pairs u32 [2 (first + count)], of which the last `count` pairs are taken: an id, and the
//   bits of an f32; no id twice. logits f32 [row + 1, V] or more, of which row `row` in place.
// Mapping: one lane a pair, 64 lanes a workgroup, folded into two grid dimensions. Ids at or
//   above V are passed over.
// Needs: nothing.
// Why this version: a handful of pairs.
// Reference: ref_bias_logits.

struct Params {
    vocab: u32,
    row: u32,
    first: u32,
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
    let pair = 2u * (params.first + index);
    let token = pairs[pair];
    if (token < params.vocab) {
        let at = params.row * params.vocab + token;
        logits[at] = logits[at] + bitcast<f32>(pairs[pair + 1u]);
    }
}
