// Eight values of K or V as the words that hold them, to be widened later. The kernel uses the
// piece cache_type.

// Eight values, and their words: a scale is b.x.
struct Eight {
    low: vec4<f32>,
    high: vec4<f32>,
}

struct Words {
    a: vec4<u32>,
    b: vec4<u32>,
}

fn widened(w: Words) -> Eight {
    if (CACHE == CACHE_F32) {
        return Eight(bitcast<vec4<f32>>(w.a), bitcast<vec4<f32>>(w.b));
    }
    if (CACHE == CACHE_F16) {
        return Eight(of_halves(w.a.xy), of_halves(w.a.zw));
    }
    let scale = bitcast<f32>(w.b.x);
    return Eight(of_bytes(w.a.x) * scale, of_bytes(w.a.y) * scale);
}
