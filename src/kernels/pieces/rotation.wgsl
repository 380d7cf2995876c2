// Turning pairs by magnitude * (cos t, sin t), t = position * inv_freq[pair], inv_freq as a
// fraction of a turn in 64 bits (op_turns): position * fraction modulo 1 is exact integer
// arithmetic to 2^-32 of a turn (1.5e-9 rad), the octant is its top bits, and the rest, within
// +-pi/4, goes through Taylor polynomials whose truncation is below 3e-9. What is left is f32
// rounding, below 3e-7.
//
// The kernel has `turns` as vec2<u32> (low, high), params.rotary and params.magnitude.

fn multiply_high(a: u32, b: u32) -> u32 {
    let a0 = a & 0xffffu;
    let a1 = a >> 16u;
    let b0 = b & 0xffffu;
    let b1 = b >> 16u;
    let middle = a1 * b0 + ((a0 * b0) >> 16u);
    let other = a0 * b1 + (middle & 0xffffu);
    return a1 * b1 + (middle >> 16u) + (other >> 16u);
}

// (cos, sin) of position * inv_freq.
fn rotation(position: u32, low: u32, high: u32) -> vec2<f32> {
    // Modulo 2^32: the whole turns fall away.
    let turn = position * high + multiply_high(position, low);
    let quarter = (turn + 0x20000000u) >> 30u;
    let rest = bitcast<i32>(turn - (quarter << 30u));           // within +- 1/8 turn
    let t = f32(rest) * 1.4629180792671596e-9;                  // 2 pi / 2^32
    let u = t * t;
    let s5 = fma(u, fma(u, 2.7557319e-6, -1.9841270e-4), 8.3333333e-3);
    let s = t * fma(u, fma(u, s5, -0.16666667), 1.0);
    let c6 = fma(u, fma(u, -2.7557319e-7, 2.4801587e-5), -1.3888889e-3);
    let c = fma(u, fma(u, fma(u, c6, 4.1666667e-2), -0.5), 1.0);
    let swapped = select(vec2<f32>(c, s), vec2<f32>(-s, c), (quarter & 1u) == 1u);
    return select(swapped, -swapped, (quarter & 2u) == 2u);
}

fn fraction_of(pair: u32) -> vec2<u32> {
    return turns[min(pair, max(params.rotary / 2u, 1u) - 1u)];
}

// Cosine and sine for a pair, whose fraction of a turn it is; (1, 0) past the last that turns.
fn turning_of(pair: u32, fraction: vec2<u32>, position: u32) -> vec2<f32> {
    return select(vec2<f32>(1.0, 0.0),
                  params.magnitude * rotation(position, fraction.x, fraction.y),
                  2u * pair < params.rotary);
}

fn turned_by(v: vec2<f32>, r: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(v.x * r.x - v.y * r.y, v.x * r.y + v.y * r.x);
}
