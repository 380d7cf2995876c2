// out[c, k] = f16(W[c, k] * up[c]) and scale[c] = 1 / up[c]: a weight unpacked once for many rows.
//
// Shapes: W one part of a weight, planes as base/dtype.h describes them (LAYOUT and SCALE are its
//   enums); its rows [row0, row0 + groups) become rows 0 .. of out, f16 [.., K], and of scale, f32.
//   K a multiple of 8.
// Mapping: a workgroup a row, folded into two grid dimensions; a lane eight elements at a time.
// Needs: f16. LANES invocations, 4 bytes of workgroup memory.
// Why this version: the matrix units want f16 and read every weight once for a tile of rows;
//   decoding in their loop costs more than writing the halves out once (3.6 TB/s of a card's 4.5).
//   up[c] is 1 unless the row's values leave what f16 holds well (2^-12 .. 2^15); then it is the
//   power of two that brings the largest to 2^14, so that no format overflows.
// Reference: weight_dequantize_row.

enable f16;

override LAYOUT: u32 = 4;
override SCALE: u32 = 1;
override GROUP: u32 = 32;     // elements under one scale; 8 for layouts without scales
override LANES: u32 = 64;

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
const EXPONENT_LOW = 115u;     // of 2^-12
const EXPONENT_HIGH = 141u;    // of 2^14
const EXPONENT_NONE = 255u;    // of NaN and infinity

struct Params {
    row0: u32,
    row_end: u32,
    k: u32,
    data_words: u32,  // words a row of the planes
    high_words: u32,
    scale_words: u32,
}

@group(0) @binding(0) var<storage, read> data: array<u32>;
@group(0) @binding(1) var<storage, read> high_bits: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
@group(0) @binding(3) var<storage, read_write> out: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> scale: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

// The bits of the largest magnitude of the row, or of a bound on it.
var<workgroup> largest: atomic<u32>;

struct Eight {
    low: vec4<f32>,
    high: vec4<f32>,
}

// binary16 by integer arithmetic: unpack2x16float may flush subnormals.
fn half_value(h: u32) -> f32 {
    let magnitude = (h & 0x7fffu) << 13u;
    let exponent = h & 0x7c00u;
    // A subnormal m * 2^-24 is (1 + m / 1024) * 2^-14 - 2^-14, whose steps are all normal numbers.
    let tiny = bitcast<f32>(magnitude + (113u << 23u)) - bitcast<f32>(113u << 23u);
    let offset = select(112u << 23u, 224u << 23u, exponent == 0x7c00u);
    let bits = select(magnitude + offset, bitcast<u32>(tiny), exponent == 0u);
    return bitcast<f32>(bits | ((h & 0x8000u) << 16u));
}

fn pair_value(word: u32) -> vec2<f32> {
    if (LAYOUT == LAYOUT_BF16) {
        return vec2<f32>(bitcast<f32>(word << 16u), bitcast<f32>(word & 0xffff0000u));
    }
    return vec2<f32>(half_value(word & 0xffffu), half_value(word >> 16u));
}

// (scale, minimum) of one group.
fn group_scale(row: u32, group: u32) -> vec2<f32> {
    if (LAYOUT < LAYOUT_Q8) {
        return vec2<f32>(1.0, 0.0);
    }
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

// The bits above the nibbles of elements 8 * eighth .. 8 * eighth + 7, in the low bits of a word.
fn eight_high_bits(row: u32, eighth: u32) -> u32 {
    let at = row * params.high_words;
    if (LAYOUT == LAYOUT_Q5) {
        return high_bits[at + eighth / 4u] >> (8u * (eighth & 3u));
    }
    return high_bits[at + eighth / 2u] >> (16u * (eighth & 1u));
}

// Elements 8 * eighth .. 8 * eighth + 7 of a row of W.
fn eight_weights(row: u32, eighth: u32, scale: vec2<f32>) -> Eight {
    let at = row * params.data_words;
    if (LAYOUT == LAYOUT_F32) {
        let i = at + eighth * 8u;
        return Eight(
            bitcast<vec4<f32>>(vec4<u32>(data[i], data[i + 1u], data[i + 2u], data[i + 3u])),
            bitcast<vec4<f32>>(vec4<u32>(data[i + 4u], data[i + 5u], data[i + 6u], data[i + 7u])));
    }
    if (LAYOUT == LAYOUT_F16 || LAYOUT == LAYOUT_BF16) {
        let i = at + eighth * 4u;
        return Eight(vec4<f32>(pair_value(data[i]), pair_value(data[i + 1u])),
                     vec4<f32>(pair_value(data[i + 2u]), pair_value(data[i + 3u])));
    }
    if (LAYOUT == LAYOUT_Q8) {
        let i = at + eighth * 2u;
        let up = vec4<u32>(24u, 16u, 8u, 0u);
        let low = bitcast<vec4<i32>>(vec4<u32>(data[i]) << up) >> vec4<u32>(24u);
        let high = bitcast<vec4<i32>>(vec4<u32>(data[i + 1u]) << up) >> vec4<u32>(24u);
        return Eight(vec4<f32>(low) * scale.x, vec4<f32>(high) * scale.x);
    }
    let word = data[at + eighth];
    var low = (vec4<u32>(word) >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u);
    var high = (vec4<u32>(word) >> vec4<u32>(16u, 20u, 24u, 28u)) & vec4<u32>(15u);
    if (LAYOUT == LAYOUT_Q5) {
        let bits = vec4<u32>(eight_high_bits(row, eighth));
        low |= (bits << vec4<u32>(4u, 3u, 2u, 1u)) & vec4<u32>(16u);
        high |= (bits >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(16u);
    } else if (LAYOUT == LAYOUT_Q6) {
        let bits = vec4<u32>(eight_high_bits(row, eighth));
        low |= ((bits >> vec4<u32>(0u, 2u, 4u, 6u)) & vec4<u32>(3u)) << vec4<u32>(4u);
        high |= ((bits >> vec4<u32>(8u, 10u, 12u, 14u)) & vec4<u32>(3u)) << vec4<u32>(4u);
    }
    if (SCALE == SCALE_F16_MIN || SCALE == SCALE_K_MIN) {
        // scale * q has at most 24 significant bits: fused or not, one rounding.
        return Eight(fma(vec4<f32>(low), vec4<f32>(scale.x), vec4<f32>(scale.y)),
                     fma(vec4<f32>(high), vec4<f32>(scale.x), vec4<f32>(scale.y)));
    }
    if (LAYOUT != LAYOUT_Q4) {
        let zero = vec4<f32>(select(16.0, 32.0, LAYOUT == LAYOUT_Q6));
        return Eight((vec4<f32>(low) - zero) * scale.x, (vec4<f32>(high) - zero) * scale.x);
    }
    // nibble - 8 is the nibble with its top bit turned, read as a signed number.
    let turned = vec4<u32>(word ^ 0x88888888u);
    let first = bitcast<vec4<i32>>(turned << vec4<u32>(28u, 24u, 20u, 16u)) >> vec4<u32>(28u);
    let second = bitcast<vec4<i32>>(turned << vec4<u32>(12u, 8u, 4u, 0u)) >> vec4<u32>(28u);
    return Eight(vec4<f32>(first) * scale.x, vec4<f32>(second) * scale.x);
}

fn magnitude_bits(v: f32) -> u32 {
    return bitcast<u32>(v) & 0x7fffffffu;
}

fn largest_of(v: vec4<f32>) -> u32 {
    let m = bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu);
    return max(max(m.x, m.y), max(m.z, m.w));
}

// What no stored number passes, times the scale.
fn top_of_layout() -> f32 {
    let minimum = SCALE == SCALE_F16_MIN || SCALE == SCALE_K_MIN;
    if (LAYOUT == LAYOUT_Q8) {
        return 128.0;
    }
    let top = select(select(8.0, 16.0, LAYOUT == LAYOUT_Q5), 32.0, LAYOUT == LAYOUT_Q6);
    return select(top, 2.0 * top, minimum);
}

fn halves(v: vec4<f32>) -> vec2<u32> {
    return vec2<u32>(bitcast<u32>(vec2<f16>(v.xy)), bitcast<u32>(vec2<f16>(v.zw)));
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let to = group.y * groups.x + group.x;
    let row = params.row0 + to;
    if (row >= params.row_end) {
        return;
    }
    let eighths = params.k / 8u;
    var most = 0u;
    if (LAYOUT < LAYOUT_Q8) {
        for (var e = lane; e < eighths; e += LANES) {
            let w = eight_weights(row, e, vec2<f32>(1.0, 0.0));
            most = max(most, max(largest_of(w.low), largest_of(w.high)));
        }
    } else {
        for (var g = lane; g < params.k / GROUP; g += LANES) {
            let s = group_scale(row, g);
            most = max(most, magnitude_bits(abs(s.x) * top_of_layout() + abs(s.y)));
        }
    }
    atomicMax(&largest, most);
    workgroupBarrier();

    // Powers of two by their exponents; a row of zeros, NaN or infinity stays as it is.
    let exponent = atomicLoad(&largest) >> 23u;
    let held = exponent == 0u || exponent == EXPONENT_NONE ||
               (exponent >= EXPONENT_LOW && exponent <= EXPONENT_HIGH);
    let top = max(exponent, 16u);
    let up = select(bitcast<f32>((268u - top) << 23u), 1.0, held);
    if (lane == 0u) {
        scale[to] = select(bitcast<f32>((top - 14u) << 23u), 1.0, held);
    }
    for (var e = lane; e < eighths; e += LANES) {
        let w = eight_weights(row, e, group_scale(row, e * 8u / GROUP));
        out[to * eighths + e] = vec4<u32>(halves(w.low * up), halves(w.high * up));
    }
}
