// BY_ID = 1: out[r, k] = scale * W[ids[r], k], the embedding. BY_ID = 0: out[r, k] = W[first + r,
// k].
//
// Shapes: ids u32 [rows]; out f32 [rows, K]; W is one part of a weight (piece weight), its rows
//   [row0, row0 + part_rows) of n_total. Each part writes the rows of out whose id it holds; the
//   first part also writes NaN for an id >= n_total, so that a failed sampler is seen and nothing
//   is read out of bounds.
// Mapping: one lane eight elements of a row of out, 64 lanes a workgroup, folded into two grid
//   dimensions.
// Needs: nothing.
// Why this version: it runs once a step over rows * K elements; being plainly exact is worth more
//   than speed.
// Reference: ref_embed, weight_dequantize_row.

// use weight

override BY_ID: u32 = 1;

struct Params {
    rows: u32,
    k: u32,
    stride: u32,     // of the part's tables
    row0: u32,
    part_rows: u32,
    n_total: u32,
    first: u32,
    scale: f32,
    row_base: u32,   // first row of out of this dispatch
}

@group(0) @binding(3) var<storage, read> ids: array<u32>;
// f32 bits: moved, not computed with.
@group(0) @binding(4) var<storage, read_write> out: array<u32>;
@group(1) @binding(0) var<uniform> params: Params;

// Four elements of out, as many as K has.
fn store(at: u32, k: u32, bits: vec4<u32>) {
    for (var i = 0u; i < min(4u, max(k, params.k) - k); i++) {
        out[at + i] = bits[i];
    }
}

fn scaled(bits: vec4<u32>) -> vec4<u32> {
    if (BY_ID == 1u && params.scale != 1.0) {
        return bitcast<vec4<u32>>(bitcast<vec4<f32>>(bits) * params.scale);
    }
    return bits;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let index = (group.y * groups.x + group.x) * 64u + lane;
    let eighths = (params.k + 7u) / 8u;
    let r = params.row_base + index / eighths;
    let eighth = index % eighths;
    if (r >= params.rows) {
        return;
    }
    var id = params.first + r;
    if (BY_ID == 1u) {
        id = ids[r];
    }
    let k = 8u * eighth;
    let at = r * params.k + k;
    if (id >= params.n_total) {
        if (params.row0 == 0u) {
            store(at, k, vec4<u32>(0x7fc00000u));
            store(at + 4u, k + 4u, vec4<u32>(0x7fc00000u));
        }
    } else if (id >= params.row0 && id - params.row0 < params.part_rows) {
        let n = id - params.row0;
        let kb = eighth / 4u;
        var low: vec4<u32>;
        var high: vec4<u32>;
        if (LAYOUT == LAYOUT_F32) {
            let four = 8u * (kb * params.stride + n) + 2u * (eighth % 4u);
            low = data[four];
            high = data[four + 1u];
        } else {
            let w = weight_eight(n, kb, eighth % 4u, weight_scale(n, kb, eighth % 4u));
            low = bitcast<vec4<u32>>(w.low);
            high = bitcast<vec4<u32>>(w.high);
        }
        store(at, k, scaled(low));
        store(at + 4u, k + 4u, scaled(high));
    }
}
