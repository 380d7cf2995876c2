// out[h, d] = sum_s exp(m[s] - M) o[s, d] / sum_s exp(m[s] - M) l[s], M = max_s m[s]: the splits of
// attention joined.
//
// Shapes: parts f32 [heads, splits, D + 4] as attention's kernels write them (heads = rows * Hq):
//   o, m, l, two unused; out f32 [heads, D]; both read as vec4.
// Mapping: a workgroup of LANES takes a head: a lane is four values of D and every (LANES / (D /
//   4))th split. Workgroups fold into two grid dimensions.
// Needs: nothing; D at most 4 LANES, 64 splits at most. 20 bytes of workgroup memory a lane and
//   512.
// Why this version: it is one dispatch between two others, so what counts is its chain of loads:
//   a lane asks for its first o before anyone knows M.
// Reference: ref_attention (of the two together).

override LANES: u32 = 64;

struct Params {
    heads: u32,
    first_head: u32,   // of out
    head_dim: u32,
    splits: u32,
}

@group(0) @binding(0) var<storage, read> parts: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> out: array<vec4<f32>>;
@group(1) @binding(0) var<uniform> params: Params;

var<workgroup> peaks: array<vec2<f32>, 64>;
var<workgroup> sums: array<vec4<f32>, LANES>;
var<workgroup> totals: array<f32, LANES>;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let head = group.y * groups.x + group.x;
    if (head >= params.heads) {
        return;
    }
    let quads = params.head_dim / 4u;
    let stride = LANES / quads;      // splits side by side; lanes past the last stay idle
    let quad = lane % quads;
    let mine = lane / quads;
    let live = mine < min(stride, params.splits);
    let start = head * params.splits * (quads + 1u);

    var next = vec4<f32>(0.0);
    if (live) {
        next = parts[start + mine * (quads + 1u) + quad];
    }
    for (var s = lane; s < params.splits; s += LANES) {
        peaks[s] = parts[start + s * (quads + 1u) + quads].xy;
    }
    workgroupBarrier();
    var highest = peaks[0].x;
    for (var s = 1u; s < params.splits; s++) {
        highest = max(highest, peaks[s].x);
    }
    var sum = vec4<f32>(0.0);
    var total = 0.0;
    if (live) {
        for (var s = mine; s < params.splits; s += stride) {
            let weight = exp(peaks[s].x - highest);
            sum = fma(vec4<f32>(weight), next, sum);
            total = fma(weight, peaks[s].y, total);
            if (s + stride < params.splits) {
                next = parts[start + (s + stride) * (quads + 1u) + quad];
            }
        }
    }
    sums[lane] = sum;
    totals[lane] = total;
    workgroupBarrier();
    if (lane < quads) {
        for (var i = 1u; i < min(stride, params.splits); i++) {
            sum += sums[i * quads + lane];
            total += totals[i * quads + lane];
        }
        out[(params.first_head + head) * quads + lane] = sum / total;
    }
}
