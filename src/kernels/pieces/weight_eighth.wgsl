// An eighth of a block of a column (piece weight) in two steps: the words as they lie in memory,
// which can wait in registers while something else is computed, then its elements in f32.

struct Eighth {
    low: vec4<u32>,     // F32: elements 0 to 3; F16, BF16: all; Q8: two words, the others one
    high: vec4<u32>,    // F32: elements 4 to 7; Q5, Q6: the word of the bits above
    scales: vec2<u32>,  // K scales: the factors, the word of the block's entry; others: one word
}

fn weight_words(n: u32, kb: u32, eighth: u32) -> Eighth {
    let at = kb * params.stride + n;
    var e: Eighth;
    if (LAYOUT == LAYOUT_F32) {
        e.low = data[8u * at + 2u * eighth];
        e.high = data[8u * at + 2u * eighth + 1u];
        return e;
    }
    if (LAYOUT == LAYOUT_F16 || LAYOUT == LAYOUT_BF16) {
        e.low = data[4u * at + eighth];
        return e;
    }
    if (SCALE >= SCALE_K) {
        let entries = params.k / 256u * params.stride;
        e.scales.x = scales[kb / 8u * params.stride + n];
        if (SCALE == SCALE_K_MIN && GROUP == 16u) {
            e.scales.y = scales[entries + at];
        } else {
            e.scales.y = scales[entries + at / 2u];
        }
    } else {
        e.scales.x = scale_word((4u * kb + eighth) / (GROUP / 8u), n);
    }
    if (LAYOUT == LAYOUT_Q8) {
        let four = 2u * at + eighth / 2u;
        e.low.x = data[four][2u * (eighth & 1u)];
        e.low.y = data[four][2u * (eighth & 1u) + 1u];
        return e;
    }
    e.low.x = data[at][eighth];
    if (LAYOUT == LAYOUT_Q5) {
        e.high.x = high_bits[at];
    } else if (LAYOUT == LAYOUT_Q6) {
        e.high.x = high_bits[2u * at + eighth / 2u];
    }
    return e;
}

// As weight_scale.
fn eighth_scale(e: Eighth, n: u32, eighth: u32) -> vec2<f32> {
    if (SCALE == SCALE_K) {
        let s = bitcast<i32>(own_half(e.scales.y, n) << (24u - 8u * (eighth / 2u))) >> 24u;
        return vec2<f32>(half_value(e.scales.x & 0xffffu) * f32(s), 0.0);
    }
    if (SCALE == SCALE_K_MIN) {
        var pair = own_half(e.scales.y, n);
        if (GROUP == 16u) {
            pair = e.scales.y >> (16u * (eighth / 2u));
        }
        return vec2<f32>(half_value(e.scales.x & 0xffffu) * f32(pair & 0xffu),
                         -(half_value(e.scales.x >> 16u) * f32((pair >> 8u) & 0xffu)));
    }
    if (SCALE == SCALE_F32) {
        return vec2<f32>(bitcast<f32>(e.scales.x), 0.0);
    }
    if (SCALE == SCALE_F16_MIN) {
        return vec2<f32>(half_value(e.scales.x & 0xffffu), half_value(e.scales.x >> 16u));
    }
    return vec2<f32>(half_value(own_half(e.scales.x, n)), 0.0);
}

fn words_as_f32(e: Eighth) -> Eight {
    return Eight(bitcast<vec4<f32>>(e.low), bitcast<vec4<f32>>(e.high));
}

fn eighth_values(e: Eighth, n: u32, eighth: u32) -> Eight {
    if (LAYOUT == LAYOUT_F32) {
        return words_as_f32(e);
    }
    if (LAYOUT == LAYOUT_F16 || LAYOUT == LAYOUT_BF16) {
        return Eight(vec4<f32>(pair_value(e.low.x), pair_value(e.low.y)),
                     vec4<f32>(pair_value(e.low.z), pair_value(e.low.w)));
    }
    let scale = eighth_scale(e, n, eighth);
    if (LAYOUT == LAYOUT_Q8) {
        return Eight(four_bytes(e.low.x) * scale.x, four_bytes(e.low.y) * scale.x);
    }
    var high = e.high.x;
    if (LAYOUT == LAYOUT_Q5) {
        high = high >> (4u * eighth);
    } else if (LAYOUT == LAYOUT_Q6) {
        high = high >> (8u * (eighth & 1u));
    }
    return nibble_eight(e.low.x, high, scale);
}
