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
const LAYOUT_Q5 = 5u;
const LAYOUT_Q6 = 6u;
const SCALE_F16 = 1u;
const SCALE_F32 = 2u;
const SCALE_F16_MIN = 3u;
const SCALE_K = 4u;
const SCALE_K_MIN = 5u;
const K_BLOCK = 256u;          // elements under one factor of the K scales

struct Params {
    rows: u32,
    k: u32,
    row0: u32,
    part_rows: u32,
    n_total: u32,
    first: u32,
    data_words: u32,
    high_words: u32,
    scale_words: u32,
    scale: f32,
    row_base: u32,   // first row of out of this dispatch
}

@group(0) @binding(0) var<storage, read> data: array<u32>;
@group(0) @binding(1) var<storage, read> high_bits: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
@group(0) @binding(3) var<storage, read> ids: array<u32>;
// f32 bits: moved, not computed with.
@group(0) @binding(4) var<storage, read_write> out: array<u32>;
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

// (scale, minimum) of one group.
fn group_scale(row: u32, group: u32) -> vec2<f32> {
    let at = row * params.scale_words;
    if (SCALE == SCALE_F32) {
        return vec2<f32>(bitcast<f32>(scales[at + group]), 0.0);
    }
    if (SCALE == SCALE_F16_MIN) {
        let word = scales[at + group];
        return vec2<f32>(half_value(word & 0xffffu), half_value(word >> 16u));
    }
    if (SCALE == SCALE_K) {
        let factor = half_value(scales[at + group * GROUP / K_BLOCK] & 0xffffu);
        let four = scales[at + params.k / K_BLOCK + group / 4u];
        return vec2<f32>(factor * f32(bitcast<i32>(four << (24u - 8u * (group & 3u))) >> 24u), 0.0);
    }
    if (SCALE == SCALE_K_MIN) {
        let factors = scales[at + group * GROUP / K_BLOCK];
        let pair = scales[at + params.k / K_BLOCK + group / 2u] >> (16u * (group & 1u));
        return vec2<f32>(half_value(factors & 0xffffu) * f32(pair & 0xffu),
                         -(half_value(factors >> 16u) * f32((pair >> 8u) & 0xffu)));
    }
    let word = scales[at + group / 2u];
    return vec2<f32>(half_value((word >> (16u * (group & 1u))) & 0xffffu), 0.0);
}

// The stored number of element k of a row in a layout of nibbles.
fn code(row: u32, k: u32) -> u32 {
    let nibble = (data[row * params.data_words + k / 8u] >> (4u * (k & 7u))) & 15u;
    let at = row * params.high_words;
    if (LAYOUT == LAYOUT_Q5) {
        return nibble | (((high_bits[at + k / 32u] >> (k & 31u)) & 1u) << 4u);
    }
    if (LAYOUT == LAYOUT_Q6) {
        return nibble | (((high_bits[at + k / 16u] >> (2u * (k & 15u))) & 3u) << 4u);
    }
    return nibble;
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
    let scale = group_scale(row, k / GROUP);
    if (LAYOUT == LAYOUT_Q8) {
        let q = bitcast<i32>(data[at + k / 4u] << (24u - 8u * (k & 3u))) >> 24u;
        return bitcast<u32>(f32(q) * scale.x);
    }
    let q = f32(code(row, k));
    if (SCALE == SCALE_F16_MIN || SCALE == SCALE_K_MIN) {
        // scale * q has at most 24 significant bits: fused or not, one rounding.
        return bitcast<u32>(fma(q, scale.x, scale.y));
    }
    let zero = select(select(8.0, 16.0, LAYOUT == LAYOUT_Q5), 32.0, LAYOUT == LAYOUT_Q6);
    return bitcast<u32>((q - zero) * scale.x);
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
