// A row of a product's inputs as halves: out[k / 32][r][k % 32] = f16(v[r, k] * factor * lift) and
// scale[r] = 1 / lift, factor that of the row's norm, lift a power of two.
//
// A kernel that uses this piece has LANES, Eight, `out` and `scale`, and in its Params k, x_rows,
// eps, low and high: exponents of f32, biased. Rows whose largest magnitude has one from low to
// high stay as they are (lift 1), and others are brought to high; a row of zeros, or that holds NaN
// or infinity, is not lifted.

const EXPONENT_NONE = 255u;    // of NaN and infinity

// Of each lane's elements, then of a sixteenth of the lanes: the bits of the largest magnitude, and
//   the sum of squares.
var<workgroup> largest: array<u32, LANES>;
var<workgroup> squares: array<f32, LANES>;
var<workgroup> largest_of_few: array<u32, 16>;
var<workgroup> squares_of_few: array<f32, 16>;

fn halves(v: vec4<f32>) -> vec2<u32> {
    return vec2<u32>(bitcast<u32>(vec2<f16>(v.xy)), bitcast<u32>(vec2<f16>(v.zw)));
}

fn put(row: u32, eighth: u32, v: Eight, factor: f32, lift: f32) {
    if (8u * eighth < params.k) {
        out[(eighth / 4u * params.x_rows + row) * 4u + eighth % 4u] =
            vec4<u32>(halves(v.low * factor * lift), halves(v.high * factor * lift));
    }
}

// Factor and lift, of what the lanes have: bits of the largest, and with a norm the sum of squares.
//   Writes the row's scale.
fn row_factors(row: u32, lane: u32, own_most: u32, own_sum: f32, norm: bool) -> vec2<f32> {
    largest[lane] = own_most;
    squares[lane] = own_sum;
    workgroupBarrier();
    var most = 0u;
    var sum = 0.0;
    if (lane < 16u) {
        for (var i = lane; i < LANES; i += 16u) {
            most = max(most, largest[i]);
            sum += squares[i];
        }
        largest_of_few[lane] = most;
        squares_of_few[lane] = sum;
    }
    workgroupBarrier();
    most = 0u;
    sum = 0.0;
    for (var i = 0u; i < 16u; i++) {
        most = max(most, largest_of_few[i]);
        sum += squares_of_few[i];
    }
    var factor = 1.0;
    if (norm) {
        factor = 1.0 / sqrt(sum / f32(params.k) + params.eps);
    }

    // Powers of two by their exponents.
    let exponent = (bitcast<u32>(bitcast<f32>(most) * factor) >> 23u) & 0xffu;
    let held = exponent == 0u || exponent == EXPONENT_NONE ||
               (exponent >= params.low && exponent <= params.high);
    let up = max(i32(params.high) - i32(max(exponent, 16u)), -126);
    let lift = select(bitcast<f32>(u32(127 + up) << 23u), 1.0, held);
    if (lane == 0u) {
        scale[row] = select(bitcast<f32>(u32(127 - up) << 23u), 1.0, held);
    }
    return vec2<f32>(factor, lift);
}
