// out[k / 32][r][k % 32] = f16(v[r, k] * lift[r]) and scale[r] = 1 / lift[r], v the input rows of
//   piece prologue.
//
// Shapes: out f16 [K / 32][x_rows][32]; scale f32 [rows]. K a multiple of 32.
// Mapping: a workgroup a row, folded into two grid dimensions; a lane eight elements at a time.
// Needs: f16. LANES invocations (a multiple of 16), 8 LANES + 128 bytes of workgroup memory.
// Why this version: the inputs of a product on matrix units, with what comes before the product on
//   the way: up to 32 LANES elements wait in registers until the row's scale is known, more are
//   read again, and nothing goes through memory in f32. lift[r] is 1 unless the row's largest
//   magnitude is outside 2^low .. 2^(high + 1); then it is the power of two that brings it to
//   2^high: with -12 and 14 a row with 7e4 neither overflows nor loses its small values, and no
//   other row is touched. Sums in f16 want less, and the same of every row.
// NaN and infinity: a row that holds one is not lifted, and they stay what they are.
// Reference: ref_matmul, of the product that follows, after ref_rmsnorm or ref_silu_gate.

enable f16;

override LANES: u32 = 256;

const EXPONENT_NONE = 255u;    // of NaN and infinity

struct Params {
    rows: u32,
    k: u32,
    x_rows: u32,
    eps: f32,
    low: u32,      // exponents of f32, biased: rows whose largest is from `low` to `high` stay
    high: u32,     // and others are brought here
}

// use prologue

@group(0) @binding(2) var<storage, read_write> out: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> scale: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

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

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let row = group.y * groups.x + group.x;
    if (row >= params.rows) {
        return;
    }
    let e0 = lane;
    let e1 = lane + LANES;
    let e2 = lane + 2u * LANES;
    let e3 = lane + 3u * LANES;
    let v0 = inputs(row, e0);
    let v1 = inputs(row, e1);
    let v2 = inputs(row, e2);
    let v3 = inputs(row, e3);
    var most = max(max(bits_of_largest(v0), bits_of_largest(v1)),
                   max(bits_of_largest(v2), bits_of_largest(v3)));
    var sum = squares_of(row, e0) + squares_of(row, e1) + squares_of(row, e2) +
              squares_of(row, e3);
    for (var e = lane + 4u * LANES; 8u * e < params.k; e += LANES) {
        most = max(most, bits_of_largest(inputs(row, e)));
        sum += squares_of(row, e);
    }
    largest[lane] = most;
    squares[lane] = sum;
    workgroupBarrier();
    if (lane < 16u) {
        most = 0u;
        sum = 0.0;
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
    if (PROLOGUE == 1u) {
        factor = 1.0 / sqrt(sum / f32(params.k) + params.eps);
    }

    // Powers of two by their exponents; a row of zeros, NaN or infinity stays as it is.
    let exponent = (bitcast<u32>(bitcast<f32>(most) * factor) >> 23u) & 0xffu;
    let held = exponent == 0u || exponent == EXPONENT_NONE ||
               (exponent >= params.low && exponent <= params.high);
    let up = max(i32(params.high) - i32(max(exponent, 16u)), -126);
    let lift = select(bitcast<f32>(u32(127 + up) << 23u), 1.0, held);
    if (lane == 0u) {
        scale[row] = select(bitcast<f32>(u32(127 - up) << 23u), 1.0, held);
    }
    put(row, e0, v0, factor, lift);
    put(row, e1, v1, factor, lift);
    put(row, e2, v2, factor, lift);
    put(row, e3, v3, factor, lift);
    for (var e = lane + 4u * LANES; 8u * e < params.k; e += LANES) {
        put(row, e, inputs(row, e), factor, lift);
    }
}
