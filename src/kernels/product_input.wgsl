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

// use row_halves

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
    let factors = row_factors(row, lane, most, sum, PROLOGUE == 1u);
    let factor = factors.x;
    let lift = factors.y;
    put(row, e0, v0, factor, lift);
    put(row, e1, v1, factor, lift);
    put(row, e2, v2, factor, lift);
    put(row, e3, v3, factor, lift);
    for (var e = lane + 4u * LANES; 8u * e < params.k; e += LANES) {
        put(row, e, inputs(row, e), factor, lift);
    }
}
