// What a row of the KV cache holds (op_cache_type), and numbers on their way in and out. Halves go
// through pack2x16float and unpack2x16float, so that no device needs f16; a driver may flush those
// below 6.1e-5.

override CACHE: u32 = 0;

const CACHE_F32 = 0u;
const CACHE_F16 = 1u;
const CACHE_Q8 = 2u;    // bytes, and behind them a scale for each 32

// Four values of a pair of words of halves, and of a word of bytes.
fn of_halves(pair: vec2<u32>) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(pair.x), unpack2x16float(pair.y));
}

fn of_bytes(word: u32) -> vec4<f32> {
    return vec4<f32>(bitcast<vec4<i32>>(vec4<u32>(word) << vec4<u32>(24u, 16u, 8u, 0u)) >>
                     vec4<u32>(24u));
}

// What a half can hold; infinity and NaN stay.
fn held(value: vec2<f32>) -> vec2<f32> {
    let size = abs(value);
    return select(value, sign(value) * 65504.0,
                  (size > vec2<f32>(65504.0)) & (size <= vec2<f32>(3.4028234e38)));
}

fn bits_of_largest(v: vec4<f32>) -> u32 {
    let bits = bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu);
    return max(max(bits.x, bits.y), max(bits.z, bits.w));
}

fn bytes(v: vec4<i32>) -> u32 {
    let b = bitcast<vec4<u32>>(v) & vec4<u32>(0xffu);
    return b.x | (b.y << 8u) | (b.z << 16u) | (b.w << 24u);
}

// Below 2^-100 the quotient 127 / most would pass the largest float: such a group counts as 0.
fn is_tiny(most: u32) -> bool {
    return most < 0x0d800000u;
}

// The scale of a group whose largest magnitude has the bits `most`, as bits.
fn scale_of(most: u32) -> u32 {
    if (most >= 0x7f800000u) {
        return 0x7fc00000u;
    }
    return select(bitcast<u32>(bitcast<f32>(most) / 127.0), 0u, is_tiny(most));
}
