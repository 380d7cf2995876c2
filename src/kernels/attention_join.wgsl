// out[h, d] = sum_s exp(m[s] - M) o[s, d] / sum_s exp(m[s] - M) l[s], M = max_s m[s]: the splits of
// attention joined.
//
// Shapes: parts f32 [heads, splits, D + 4] as attention's kernels write them (heads = rows * Hq):
//   o, m, l, two unused; out f32 [heads, D]; both read as vec4.
// Mapping: a workgroup of LANES takes a head: a lane is four values of D and every (LANES /
//   QUADS)th split. Workgroups fold into two grid dimensions.
// Needs: nothing; D at most 4 QUADS, a power of two up to LANES; LANES at least 64, 64 splits at
//   most. 20 bytes of workgroup memory a lane and 512.
// Why this version: it is one dispatch between two others, so what counts is its chain of loads:
//   a lane asks for its first o before anyone knows M, and all of M at once.
// Reference: ref_attention (of the two together).

override LANES: u32 = 64;
override QUADS: u32 = 64;

struct Params {
    heads: u32,
    first_head: u32,   // of out
    head_dim: u32,
    splits: u32,
}

@group(0) @binding(0) var<storage, read> parts: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> out: array<vec4<f32>>;
@group(1) @binding(0) var<uniform> params: Params;

const LOWEST = -3.0e38;

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
    let stride = LANES / QUADS;      // splits side by side
    let quad = lane % QUADS;
    let mine = lane / QUADS;
    let pitch = quads + 1u;
    let start = head * params.splits * pitch;
    let live = quad < quads && mine < params.splits;

    var next = vec4<f32>(0.0);
    if (live) {
        next = parts[start + mine * pitch + quad];
    }
    if (lane < 64u) {
        var peak = vec2<f32>(LOWEST, 0.0);
        if (lane < params.splits) {
            peak = parts[start + lane * pitch + quads].xy;
        }
        peaks[lane] = peak;
    }
    workgroupBarrier();
    var highest = LOWEST;
    for (var s = 0u; s < params.splits; s += 8u) {
        let a = max(peaks[s].x, peaks[s + 1u].x);
        let b = max(peaks[s + 2u].x, peaks[s + 3u].x);
        let c = max(peaks[s + 4u].x, peaks[s + 5u].x);
        let d = max(peaks[s + 6u].x, peaks[s + 7u].x);
        highest = max(highest, max(max(a, b), max(c, d)));
    }
    var sum = vec4<f32>(0.0);
    var total = 0.0;
    if (live) {
        for (var s = mine; s < params.splits; s += stride) {
            let weight = exp(peaks[s].x - highest);
            sum = fma(vec4<f32>(weight), next, sum);
            total = fma(weight, peaks[s].y, total);
            if (s + stride < params.splits) {
                next = parts[start + (s + stride) * pitch + quad];
            }
        }
    }
    sums[lane] = sum;
    if (quad == 0u) {
        totals[mine] = total;
    }
    workgroupBarrier();
    if (lane < quads) {
        for (var i = 1u; i < stride; i++) {
            sum += sums[i * QUADS + lane];
            total += totals[i];
        }
        out[(params.first_head + head) * quads + lane] = sum / total;
    }
}
