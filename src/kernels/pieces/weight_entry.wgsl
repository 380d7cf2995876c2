// A block of 32 elements of a column (pieces weight and weight_f16) in two steps: the words as they
// lie in memory, which can wait in registers while something else is computed, then f16 pairs. Of
// layouts without scales the same by quarters, so that neighbouring lanes can have neighbouring
// words: an entry there is 64 bytes or more.
//
// F32 is rounded to f16 in the first step: its words would be twice as many.

struct Entry {
    a: vec4<u32>,       // Q8: eighths 0 and 1, then 2 and 3
    b: vec4<u32>,
    high: vec2<u32>,
    scales: vec4<u32>,  // as scale_words gives them
}

fn scale_word(line: u32, n: u32) -> u32 {
    let at = line * params.stride + n;
    if (SCALE == SCALE_F16) {
        return scales[at / 2u];
    }
    return scales[at];
}

// K scales: the factors, then the word that holds the block's entry. Others: the word of each
//   eighth, the first alone where a group holds the block.
fn scale_words(n: u32, kb: u32) -> vec4<u32> {
    let at = kb * params.stride + n;
    if (SCALE >= SCALE_K) {
        let factors = scales[kb / 8u * params.stride + n];
        let entries = params.k / 256u * params.stride;
        if (SCALE == SCALE_K_MIN && GROUP == 16u) {
            return vec4<u32>(factors, scales[entries + at], 0u, 0u);
        }
        return vec4<u32>(factors, scales[entries + at / 2u], 0u, 0u);
    }
    if (GROUP % 32u == 0u) {
        return vec4<u32>(scale_word(kb / max(GROUP / 32u, 1u), n), 0u, 0u, 0u);
    }
    let per = GROUP / 8u;
    let first = 4u * kb;
    return vec4<u32>(scale_word(first / per, n), scale_word((first + 1u) / per, n),
                     scale_word((first + 2u) / per, n), scale_word((first + 3u) / per, n));
}

fn weight_entry(n: u32, kb: u32) -> Entry {
    let at = kb * params.stride + n;
    var e: Entry;
    e.scales = scale_words(n, kb);
    if (LAYOUT == LAYOUT_Q8) {
        e.a = data[2u * at];
        e.b = data[2u * at + 1u];
        return e;
    }
    e.a = data[at];
    if (LAYOUT == LAYOUT_Q5) {
        e.high.x = high_bits[at];
    } else if (LAYOUT == LAYOUT_Q6) {
        e.high = vec2<u32>(high_bits[2u * at], high_bits[2u * at + 1u]);
    }
    return e;
}

// The half of a word that belongs to column n.
fn own_half(word: u32, n: u32) -> u32 {
    return (word >> (16u * (n & 1u))) & 0xffffu;
}

fn entry_scale(e: Entry, n: u32, eighth: u32) -> vec2<f16> {
    if (SCALE == SCALE_K) {
        let s = bitcast<i32>(own_half(e.scales.y, n) << (24u - 8u * (eighth / 2u))) >> 24u;
        return vec2<f16>(f16(half_value(e.scales.x & 0xffffu) * f32(s)), 0.0h);
    }
    if (SCALE == SCALE_K_MIN) {
        var pair = own_half(e.scales.y, n);
        if (GROUP == 16u) {
            pair = e.scales.y >> (16u * (eighth / 2u));
        }
        return vec2<f16>(vec2<f32>(half_value(e.scales.x & 0xffffu) * f32(pair & 0xffu),
                                   -half_value(e.scales.x >> 16u) * f32((pair >> 8u) & 0xffu)));
    }
    var word = e.scales.x;
    if (GROUP % 32u != 0u) {
        word = e.scales[eighth];
    }
    if (SCALE == SCALE_F32) {
        return vec2<f16>(f16(bitcast<f32>(word)), 0.0h);
    }
    let halves = bitcast<vec2<f16>>(word);
    if (SCALE == SCALE_F16_MIN) {
        return halves;
    }
    return vec2<f16>(select(halves.x, halves.y, (n & 1u) == 1u), 0.0h);
}

// Eighth 0 to 3 of the entry of column n, in pairs (0, 1), (2, 3) ...
fn entry_pairs(e: Entry, n: u32, eighth: u32) -> vec4<u32> {
    let scale = entry_scale(e, n, eighth);
    if (LAYOUT == LAYOUT_Q8) {
        var words = e.a;
        if (eighth > 1u) {
            words = e.b;
        }
        let first = 2u * (eighth & 1u);
        return byte_pairs(words[first], words[first + 1u], scale);
    }
    var high = e.high.x;
    if (LAYOUT == LAYOUT_Q5) {
        high = high >> (4u * eighth);
    } else if (LAYOUT == LAYOUT_Q6) {
        if (eighth > 1u) {
            high = e.high.y;
        }
        high = high >> (8u * (eighth & 1u));
    }
    return nibble_pairs(e.a[eighth], high, scale);
}

// Quarter 0 to 3 of block kb of column n, of a layout without scales.
fn weight_quarter(n: u32, kb: u32, quarter: u32) -> vec4<u32> {
    if (LAYOUT == LAYOUT_F32) {
        return weight_pairs(n, kb, quarter, vec2<f32>(1.0, 0.0));
    }
    return data[4u * (kb * params.stride + n) + quarter];
}

fn quarter_pairs(words: vec4<u32>) -> vec4<u32> {
    if (LAYOUT != LAYOUT_BF16) {
        return words;
    }
    return vec4<u32>(bitcast<u32>(vec2<f16>(pair_value(words.x))),
                     bitcast<u32>(vec2<f16>(pair_value(words.y))),
                     bitcast<u32>(vec2<f16>(pair_value(words.z))),
                     bitcast<u32>(vec2<f16>(pair_value(words.w))));
}
