// out[h, d] = sum_s exp(m[s] - M) o[s, d] / sum_s exp(m[s] - M) l[s], M = max_s m[s]: the splits of
// attention joined.
//
// Shapes: parts f32 [heads, splits, D + 2] as attention writes them (heads = rows * Hq); out f32
//   [heads, D].
// Mapping: one lane an element of out, 64 lanes a workgroup, folded into two grid dimensions.
// Needs: nothing.
// Why this version: a handful of splits; every lane finds M and the sum of l itself.
// Reference: ref_attention (of the two together).

struct Params {
    count: u32,       // heads * D
    head_dim: u32,
    splits: u32,
}

@group(0) @binding(0) var<storage, read> parts: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let index = (group.y * groups.x + group.x) * 64u + lane;
    if (index >= params.count) {
        return;
    }
    let d = index % params.head_dim;
    let stride = params.head_dim + 2u;
    let start = (index / params.head_dim) * params.splits * stride;
    var highest = -3.0e38;
    for (var s = 0u; s < params.splits; s++) {
        highest = max(highest, parts[start + s * stride + params.head_dim]);
    }
    var o = 0.0;
    var total = 0.0;
    for (var s = 0u; s < params.splits; s++) {
        let at = start + s * stride;
        let weight = exp(parts[at + params.head_dim] - highest);
        o = fma(weight, parts[at + d], o);
        total = fma(weight, parts[at + params.head_dim + 1u], total);
    }
    out[index] = o / total;
}
