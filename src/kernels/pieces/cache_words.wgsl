// Reading K and V eight values at a time. The kernel has k_cache and v_cache as vec4<u32>,
// params.row_words and params.head_dim, and uses the pieces cache_type and cache_eights.

// Values 8 piece .. 8 piece + 7 of a row of K, and of V; past the row zeros.
fn k_words(slot: u32, piece: u32) -> Words {
    var w = Words(vec4<u32>(0u), vec4<u32>(0u));
    let row = slot * params.row_words;
    if (8u * piece >= params.head_dim) {
        return w;
    }
    if (CACHE == CACHE_F32) {
        w.a = k_cache[row + 2u * piece];
        if (8u * piece + 4u < params.head_dim) {
            w.b = k_cache[row + 2u * piece + 1u];
        }
    } else if (CACHE == CACHE_F16) {
        w.a = k_cache[row + piece];
    } else {
        let word = k_cache[row + piece / 2u];
        let at = 4u * row + params.head_dim / 4u + piece / 4u;
        w.a = select(word, word.zwxy, piece % 2u == 1u);
        w.b.x = k_cache[at / 4u][at % 4u];
    }
    return w;
}

fn v_words(slot: u32, piece: u32) -> Words {
    var w = Words(vec4<u32>(0u), vec4<u32>(0u));
    let row = slot * params.row_words;
    if (8u * piece >= params.head_dim) {
        return w;
    }
    if (CACHE == CACHE_F32) {
        w.a = v_cache[row + 2u * piece];
        if (8u * piece + 4u < params.head_dim) {
            w.b = v_cache[row + 2u * piece + 1u];
        }
    } else if (CACHE == CACHE_F16) {
        w.a = v_cache[row + piece];
    } else {
        let word = v_cache[row + piece / 2u];
        let at = 4u * row + params.head_dim / 4u + piece / 4u;
        w.a = select(word, word.zwxy, piece % 2u == 1u);
        w.b.x = v_cache[at / 4u][at % 4u];
    }
    return w;
}
