// w[n, k] = scale * (q - zero), or scale * q + minimum, or a float as it is: the elements of one
// part of a weight, decoded bit for bit as weight_dequantize_row does.
//
// The planes are those of base/dtype.h, LAYOUT and SCALE its enums; a plane that the format lacks
// is bound to another and never read. A kernel that uses this piece has k and stride, the rows from
// one line of a table to the next, in its Params. n is a row of the part, kb a block of 32 along K,
// eighth 0 to 3 an eight of it. Elements past K are zero bits: whoever multiplies leaves them out.

@group(0) @binding(0) var<storage, read> data: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> high_bits: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;

override LAYOUT: u32 = 4;
override SCALE: u32 = 1;
override GROUP: u32 = 32;      // elements under one scale; 8 for layouts without scales

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

// The entry of 16 bits that column n has in a line of the scales whose words begin at `start`.
fn scale_half(start: u32, line: u32, n: u32) -> u32 {
    return (scales[start + (line * params.stride + n) / 2u] >> (16u * (n & 1u))) & 0xffffu;
}

// What elements 8 * eighth .. of block kb of column n are times (x), and plus (y).
fn weight_scale(n: u32, kb: u32, eighth: u32) -> vec2<f32> {
    if (LAYOUT < LAYOUT_Q8) {
        return vec2<f32>(1.0, 0.0);
    }
    if (SCALE >= SCALE_K) {
        let factors = scales[kb / 8u * params.stride + n];
        let entries = params.k / 256u * params.stride;
        if (SCALE == SCALE_K) {
            let two = scale_half(entries, kb, n);
            let s = bitcast<i32>(two << (24u - 8u * (eighth / 2u))) >> 24u;
            return vec2<f32>(half_value(factors & 0xffffu) * f32(s), 0.0);
        }
        var pair = 0u;
        if (GROUP == 16u) {
            pair = scales[entries + kb * params.stride + n] >> (16u * (eighth / 2u));
        } else {
            pair = scale_half(entries, kb, n);
        }
        return vec2<f32>(half_value(factors & 0xffffu) * f32(pair & 0xffu),
                         -(half_value(factors >> 16u) * f32((pair >> 8u) & 0xffu)));
    }
    let line = (4u * kb + eighth) / (GROUP / 8u);
    if (SCALE == SCALE_F32) {
        return vec2<f32>(bitcast<f32>(scales[line * params.stride + n]), 0.0);
    }
    if (SCALE == SCALE_F16_MIN) {
        let word = scales[line * params.stride + n];
        return vec2<f32>(half_value(word & 0xffffu), half_value(word >> 16u));
    }
    return vec2<f32>(half_value(scale_half(0u, line, n)), 0.0);
}

// The bits above the nibbles of an eight, from the lowest bit up: those of pair t of it at t and
//   16 + t (Q5), 2 t and 16 + 2 t (Q6).
fn weight_high(n: u32, kb: u32, eighth: u32) -> u32 {
    let at = kb * params.stride + n;
    if (LAYOUT == LAYOUT_Q5) {
        return high_bits[at] >> (4u * eighth);
    }
    return high_bits[2u * at + eighth / 2u] >> (8u * (eighth & 1u));
}

fn four_bytes(word: u32) -> vec4<f32> {
    return vec4<f32>(bitcast<vec4<i32>>(vec4<u32>(word) << vec4<u32>(24u, 8u, 16u, 0u)) >>
                     vec4<u32>(24u));
}

// Eight elements of a word of nibbles; high as weight_high gives it, anything for Q4.
fn nibble_eight(word: u32, high: u32, scale: vec2<f32>) -> Eight {
    let minimum = SCALE == SCALE_F16_MIN || SCALE == SCALE_K_MIN;
    if (LAYOUT == LAYOUT_Q4 && !minimum) {
        // nibble - 8 is the nibble with its top bit turned, read as a signed number.
        let turned = vec4<u32>(word ^ 0x88888888u);
        let first = bitcast<vec4<i32>>(turned << vec4<u32>(28u, 12u, 24u, 8u)) >> vec4<u32>(28u);
        let second = bitcast<vec4<i32>>(turned << vec4<u32>(20u, 4u, 16u, 0u)) >> vec4<u32>(28u);
        return Eight(vec4<f32>(first) * scale.x, vec4<f32>(second) * scale.x);
    }
    var first = (vec4<u32>(word) >> vec4<u32>(0u, 16u, 4u, 20u)) & vec4<u32>(15u);
    var second = (vec4<u32>(word) >> vec4<u32>(8u, 24u, 12u, 28u)) & vec4<u32>(15u);
    if (LAYOUT == LAYOUT_Q5) {
        let bits = vec4<u32>(high << 4u);
        first |= (bits >> vec4<u32>(0u, 16u, 1u, 17u)) & vec4<u32>(16u);
        second |= (bits >> vec4<u32>(2u, 18u, 3u, 19u)) & vec4<u32>(16u);
    } else if (LAYOUT == LAYOUT_Q6) {
        let bits = vec4<u32>(high);
        first |= ((bits >> vec4<u32>(0u, 16u, 2u, 18u)) & vec4<u32>(3u)) << vec4<u32>(4u);
        second |= ((bits >> vec4<u32>(4u, 20u, 6u, 22u)) & vec4<u32>(3u)) << vec4<u32>(4u);
    }
    if (minimum) {
        // scale * q has at most 24 significant bits: fused or not, one rounding.
        return Eight(fma(vec4<f32>(first), vec4<f32>(scale.x), vec4<f32>(scale.y)),
                     fma(vec4<f32>(second), vec4<f32>(scale.x), vec4<f32>(scale.y)));
    }
    let zero = vec4<f32>(select(16.0, 32.0, LAYOUT == LAYOUT_Q6));
    return Eight((vec4<f32>(first) - zero) * scale.x, (vec4<f32>(second) - zero) * scale.x);
}

// Elements 8 * eighth .. 8 * eighth + 7 of block kb of column n; scale as weight_scale gives it.
fn weight_eight(n: u32, kb: u32, eighth: u32, scale: vec2<f32>) -> Eight {
    let at = kb * params.stride + n;
    if (LAYOUT == LAYOUT_F32) {
        return Eight(bitcast<vec4<f32>>(data[8u * at + 2u * eighth]),
                     bitcast<vec4<f32>>(data[8u * at + 2u * eighth + 1u]));
    }
    if (LAYOUT == LAYOUT_F16 || LAYOUT == LAYOUT_BF16) {
        let words = data[4u * at + eighth];
        return Eight(vec4<f32>(pair_value(words.x), pair_value(words.y)),
                     vec4<f32>(pair_value(words.z), pair_value(words.w)));
    }
    if (LAYOUT == LAYOUT_Q8) {
        let four = 2u * at + eighth / 2u;
        let first = 2u * (eighth & 1u);
        return Eight(four_bytes(data[four][first]) * scale.x,
                     four_bytes(data[four][first + 1u]) * scale.x);
    }
    var high = 0u;
    if (LAYOUT != LAYOUT_Q4) {
        high = weight_high(n, kb, eighth);
    }
    return nibble_eight(data[at][eighth], high, scale);
}
