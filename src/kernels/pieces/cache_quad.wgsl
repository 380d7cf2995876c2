// Reading K and V four values at a time. The kernel has k_cache and v_cache as vec4<u32>,
// params.row_words and params.head_dim, and uses the piece cache_type.

// Where the scale of four values of a row lies, in f32s.
fn scale_at(row: u32, quad: u32) -> u32 {
    return 4u * row + params.head_dim / 4u + quad / 8u;
}

// Values 4 quad .. 4 quad + 3 of row `slot` of K, and of V.
fn k_quad(slot: u32, quad: u32) -> vec4<f32> {
    let row = slot * params.row_words;
    if (CACHE == CACHE_F32) {
        return bitcast<vec4<f32>>(k_cache[row + quad]);
    }
    if (CACHE == CACHE_F16) {
        let word = k_cache[row + quad / 2u];
        return of_halves(select(word.xy, word.zw, quad % 2u == 1u));
    }
    let at = scale_at(row, quad);
    return of_bytes(k_cache[row + quad / 4u][quad % 4u]) *
           bitcast<f32>(k_cache[at / 4u][at % 4u]);
}

fn v_quad(slot: u32, quad: u32) -> vec4<f32> {
    let row = slot * params.row_words;
    if (CACHE == CACHE_F32) {
        return bitcast<vec4<f32>>(v_cache[row + quad]);
    }
    if (CACHE == CACHE_F16) {
        let word = v_cache[row + quad / 2u];
        return of_halves(select(word.xy, word.zw, quad % 2u == 1u));
    }
    let at = scale_at(row, quad);
    return of_bytes(v_cache[row + quad / 4u][quad % 4u]) *
           bitcast<f32>(v_cache[at / 4u][at % 4u]);
}
