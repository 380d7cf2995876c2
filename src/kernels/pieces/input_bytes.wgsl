// Inputs of a product as signed bytes: of 32 values the largest magnitude becomes 127.

const NO_BYTES = 0x08000000u;     // the bits of 2^-111: below, 127 / v would pass the largest float

// What 32 values are times, their largest magnitude given by its bits.
fn bytes_up(most: u32) -> f32 {
    return select(127.0 / bitcast<f32>(most), 0.0, most < NO_BYTES);
}

// What their bytes are times; NaN where a value is NaN or infinite.
fn bytes_scale(most: u32) -> f32 {
    if (most >= 0x7f800000u) {
        var quiet_nan = 0x7fc00000u;
        return bitcast<f32>(quiet_nan);
    }
    return select(bitcast<f32>(most) / 127.0, 0.0, most < NO_BYTES);
}

// round(v * up) in the lowest byte: added to 1.5 * 2^23 a number stands in the lowest bits of the
//   float.
fn rounded_bytes(v: vec4<f32>, up: f32) -> vec4<u32> {
    return bitcast<vec4<u32>>(fma(v, vec4<f32>(up), vec4<f32>(12582912.0))) & vec4<u32>(0xffu);
}

fn word_of(a: u32, b: u32, c: u32, d: u32) -> u32 {
    return a | (b << 8u) | (c << 16u) | (d << 24u);
}

// Eight inputs in the order of piece bytes; fours: that of LAYOUT_Q8.
fn input_words(low: vec4<f32>, high: vec4<f32>, up: f32, fours: bool) -> vec2<u32> {
    let l = rounded_bytes(low, up);
    let h = rounded_bytes(high, up);
    if (fours) {
        return vec2<u32>(word_of(l.x, l.z, l.y, l.w), word_of(h.x, h.z, h.y, h.w));
    }
    return vec2<u32>(word_of(l.x, h.x, l.y, h.y), word_of(l.z, h.z, l.w, h.w));
}
