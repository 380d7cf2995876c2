// qkv[r, h, :] = qkv[r, h, :] / sqrt(mean_d(qkv[r, h, d]^2) + eps) * weights[kind, :] in place, for
// the q heads (kind 0) and the k heads (kind 1) of every row.
//
// Shapes: qkv f32 [rows, (q_heads + 2 kv_heads) D], its v heads untouched; weights f32 [2, D].
// Mapping: a workgroup of 64 lanes a head, folded into two grid dimensions; lanes stride the D
//   values.
// Needs: nothing. 64 words of workgroup memory, one barrier.
// Why this version: one dispatch for q and k; D is at most a few values a lane.
// Reference: ref_head_norm.

struct Params {
    base: u32,      // first head of this dispatch
    count: u32,     // heads in all: rows * (q_heads + kv_heads)
    q_heads: u32,
    kv_heads: u32,
    head_dim: u32,
    eps: f32,
}

@group(0) @binding(0) var<storage, read_write> qkv: array<f32>;
@group(0) @binding(1) var<storage, read> weights: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

const LANES = 64u;
var<workgroup> partial: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let index = params.base + group.y * groups.x + group.x;
    if (index >= params.count) {
        return;
    }
    let normed = params.q_heads + params.kv_heads;
    let head = index % normed;
    let row = index / normed;
    let start = (row * (normed + params.kv_heads) + head) * params.head_dim;
    let weight = select(0u, params.head_dim, head >= params.q_heads);
    var squares = 0.0;
    for (var d = lane; d < params.head_dim; d += LANES) {
        let v = qkv[start + d];
        squares = fma(v, v, squares);
    }
    partial[lane] = squares;
    workgroupBarrier();
    var total = 0.0;
    for (var i = 0u; i < min(LANES, params.head_dim); i++) {
        total += partial[i];
    }
    let factor = 1.0 / sqrt(total / f32(params.head_dim) + params.eps);
    for (var d = lane; d < params.head_dim; d += LANES) {
        qkv[start + d] = qkv[start + d] * factor * weights[weight + d];
    }
}
