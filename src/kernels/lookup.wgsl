// BY_ID = 1: out[r, k] = scale * W[ids[r], k], the embedding. BY_ID = 0: out[r, k] = W[first + r,
// k].
//
// Shapes: ids u32 [rows]; out f32 [rows, K]; W is one part of a weight, its rows [row0, row0 +
//   part_rows) of n_total. Planes as base/dtype.h describes them. Each part writes the rows of out
//   whose id it holds; the first part also writes NaN for an id >= n_total, so that a failed
//   sampler is seen and nothing is read out of bounds.
// Mapping: one lane an element of out, 64 lanes a workgroup, folded into two grid dimensions.
// Needs: nothing.
// Why this version: it runs once a step over rows * K elements; being plainly exact is worth more
//   than speed.
// Reference: ref_embed, weight_dequantize_row.

override LAYOUT: u32 = 4;
override SCALE: u32 = 1;
override GROUP: u32 = 32;
override BY_ID: u32 = 1;

const LAYOUT_F32 = 0u;
const LAYOUT_F16 = 1u;
const LAYOUT_BF16 = 2u;
const LAYOUT_Q8 = 3u;
const LAYOUT_Q4 = 4u;
const SCALE_F16 = 1u;
const SCALE_F32 = 2u;
const SCALE_F16_MIN = 3u;

struct Params {
    rows: u32,
    k: u32,
    row0: u32,
    part_rows: u32,
    n_total: u32,
    first: u32,
    data_words: u32,
    scale_words: u32,
    scale: f32,
    row_base: u32,   // first row of out of this dispatch
}

@group(0) @binding(0) var<storage, read> data: array<u32>;
@group(0) @binding(1) var<storage, read> scales: array<u32>;
@group(0) @binding(2) var<storage, read> ids: array<u32>;
// f32 bits: moved, not computed with.
@group(0) @binding(3) var<storage, read_write> out: array<u32>;
@group(1) @binding(0) var<uniform> params: Params;

// binary16 by integer arithmetic: unpack2x16float may flush subnormals.
fn half_bits(h: u32) -> u32 {
    let magnitude = (h & 0x7fffu) << 13u;
    let exponent = h & 0x7c00u;
    // A subnormal m * 2^-24 is (1 + m / 1024) * 2^-14 - 2^-14, whose steps are all normal numbers.
    let tiny = bitcast<f32>(magnitude + (113u << 23u)) - bitcast<f32>(113u << 23u);
    let offset = select(112u << 23u, 224u << 23u, exponent == 0x7c00u);
    let bits = select(magnitude + offset, bitcast<u32>(tiny), exponent == 0u);
    return bits | ((h & 0x8000u) << 16u);
}

fn half_value(h: u32) -> f32 {
    return bitcast<f32>(half_bits(h));
}

// The f32 bits of element k of a row of this part.
fn weight_bits(row: u32, k: u32) -> u32 {
    let at = row * params.data_words;
    if (LAYOUT == LAYOUT_F32) {
        return data[at + k];
    }
    if (LAYOUT == LAYOUT_F16 || LAYOUT == LAYOUT_BF16) {
        let h = (data[at + k / 2u] >> (16u * (k & 1u))) & 0xffffu;
        if (LAYOUT == LAYOUT_BF16) {
            return h << 16u;
        }
        return half_bits(h);
    }
    let group = k / GROUP;
    var scale_word = 0u;
    if (SCALE == SCALE_F16) {
        let pair = scales[row * params.scale_words + group / 2u];
        scale_word = (pair >> (16u * (group & 1u))) & 0xffffu;
    } else {
        scale_word = scales[row * params.scale_words + group];
    }
    if (LAYOUT == LAYOUT_Q8) {
        let q = bitcast<i32>(data[at + k / 4u] << (24u - 8u * (k & 3u))) >> 24u;
        return bitcast<u32>(f32(q) * half_value(scale_word));
    }
    let nibble = f32((data[at + k / 8u] >> (4u * (k & 7u))) & 15u);
    if (SCALE == SCALE_F16_MIN) {
        // scale * nibble has at most 15 significant bits: fused or not, one rounding.
        let minimum = half_value(scale_word >> 16u);
        return bitcast<u32>(fma(nibble, half_value(scale_word & 0xffffu), minimum));
    }
    if (SCALE == SCALE_F32) {
        return bitcast<u32>((nibble - 8.0) * bitcast<f32>(scale_word));
    }
    return bitcast<u32>((nibble - 8.0) * half_value(scale_word));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let index = (group.y * groups.x + group.x) * 64u + lane;
    let r = params.row_base + index / params.k;
    let k = index % params.k;
    if (r >= params.rows) {
        return;
    }
    var id = params.first + r;
    if (BY_ID == 1u) {
        id = ids[r];
    }
    let at = r * params.k + k;
    if (id >= params.n_total) {
        if (params.row0 == 0u) {
            out[at] = 0x7fc00000u;
        }
    } else if (id >= params.row0 && id - params.row0 < params.part_rows) {
        let bits = weight_bits(id - params.row0, k);
        if (BY_ID == 1u && params.scale != 1.0) {
            out[at] = bitcast<u32>(bitcast<f32>(bits) * params.scale);
        } else {
            out[at] = bits;
        }
    }
}
