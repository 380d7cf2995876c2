// The same elements (piece weight) as f16 pairs: f16(q - zero) * f16(scale), or fma(q, f16(scale),
// f16(minimum)). A stored number is exact in f16, so that two roundings are all there is; of scales
// that are f16 themselves it is one.
//
// A nibble or byte with the exponent of 1024 or 64 above it is a number that is off by a constant:
// a mask makes two of them, one subtraction takes both constants away.

// Two numbers in bits 0 to 7 of the halves of a word, less zero.
fn low_pair(bits: u32, zero: f16) -> vec2<f16> {
    return bitcast<vec2<f16>>(bits | 0x64006400u) - vec2<f16>(1024.0h + zero);
}

// The same in bits 4 to 9.
fn middle_pair(bits: u32, zero: f16) -> vec2<f16> {
    return bitcast<vec2<f16>>(bits | 0x54005400u) - vec2<f16>(64.0h + zero);
}

fn scaled_pair(q: vec2<f16>, scale: vec2<f16>) -> u32 {
    if (SCALE == SCALE_F16_MIN || SCALE == SCALE_K_MIN) {
        return bitcast<u32>(fma(q, vec2<f16>(scale.x), vec2<f16>(scale.y)));
    }
    return bitcast<u32>(q * scale.x);
}

// Eight elements of a word of nibbles in pairs (0, 1), (2, 3) ...; high as weight_high gives it.
fn nibble_pairs(word: u32, high: u32, scale: vec2<f16>) -> vec4<u32> {
    var zero = select(select(8.0h, 16.0h, LAYOUT == LAYOUT_Q5), 32.0h, LAYOUT == LAYOUT_Q6);
    if (SCALE == SCALE_F16_MIN || SCALE == SCALE_K_MIN) {
        zero = 0.0h;
    }
    let up = word >> 8u;
    var bits = vec4<u32>(word & 0x000f000fu, word & 0x00f000f0u, up & 0x000f000fu,
                         up & 0x00f000f0u);
    if (LAYOUT == LAYOUT_Q5) {
        bits |= vec4<u32>((high & 0x00010001u) << 4u, (high & 0x00020002u) << 7u,
                          (high & 0x00040004u) << 2u, (high & 0x00080008u) << 5u);
    } else if (LAYOUT == LAYOUT_Q6) {
        bits |= vec4<u32>((high & 0x00030003u) << 4u, (high & 0x000c000cu) << 6u,
                          high & 0x00300030u, (high & 0x00c000c0u) << 2u);
    }
    return vec4<u32>(scaled_pair(low_pair(bits.x, zero), scale),
                     scaled_pair(middle_pair(bits.y, zero), scale),
                     scaled_pair(low_pair(bits.z, zero), scale),
                     scaled_pair(middle_pair(bits.w, zero), scale));
}

// Eight elements of two words of bytes.
fn byte_pairs(first: u32, second: u32, scale: vec2<f16>) -> vec4<u32> {
    let a = first ^ 0x80808080u;
    let b = second ^ 0x80808080u;
    return vec4<u32>(scaled_pair(low_pair(a & 0x00ff00ffu, 128.0h), scale),
                     scaled_pair(low_pair((a >> 8u) & 0x00ff00ffu, 128.0h), scale),
                     scaled_pair(low_pair(b & 0x00ff00ffu, 128.0h), scale),
                     scaled_pair(low_pair((b >> 8u) & 0x00ff00ffu, 128.0h), scale));
}

// Elements 8 * eighth .. 8 * eighth + 7 of block kb of column n; scale as weight_scale gives it, or
//   that times a power of two.
fn weight_pairs(n: u32, kb: u32, eighth: u32, scale: vec2<f32>) -> vec4<u32> {
    if (LAYOUT < LAYOUT_Q8) {
        let w = weight_eight(n, kb, eighth, scale);
        let low = w.low * scale.x;
        let high = w.high * scale.x;
        return vec4<u32>(bitcast<u32>(vec2<f16>(low.xy)), bitcast<u32>(vec2<f16>(low.zw)),
                         bitcast<u32>(vec2<f16>(high.xy)), bitcast<u32>(vec2<f16>(high.zw)));
    }
    let at = kb * params.stride + n;
    if (LAYOUT == LAYOUT_Q8) {
        let four = 2u * at + eighth / 2u;
        let first = 2u * (eighth & 1u);
        return byte_pairs(data[four][first], data[four][first + 1u], vec2<f16>(scale));
    }
    var high = 0u;
    if (LAYOUT != LAYOUT_Q4) {
        high = weight_high(n, kb, eighth);
    }
    return nibble_pairs(data[at][eighth], high, vec2<f16>(scale));
}
