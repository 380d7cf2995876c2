// Of 32 inputs v[r, 32 b ..] (piece prologue) the bytes round(v / s), s = max |v| / 127, and beside
//   them s, s times the sum of their first 16, of their last 16, and of all.
//
// Shapes: out [K / 32][x_rows] entries of 48 bytes: 32 bytes in the order of piece bytes (FOURS =
//   1: that of Q8), then the four floats. K a multiple of 32.
// Mapping: a workgroup a row, folded into two grid dimensions; a lane eight elements at a time,
//   four lanes a block.
// Needs: LANES invocations (a multiple of 16), 12 LANES + 64 bytes of workgroup memory.
// Why this version: the inputs of product_bytes, with what comes before the product on the way. The
//   norm's factor is one of s: a row is read for its squares, then from the cache for its bytes.
// NaN and infinity: s is NaN, and so is every result of the block.
// Reference: ref_matmul, of the product that follows, after ref_rmsnorm or ref_silu_gate.

override LANES: u32 = 256;
override FOURS: u32 = 0;

struct Params {
    rows: u32,
    k: u32,
    x_rows: u32,
    eps: f32,
}

// use prologue
// use input_bytes

@group(0) @binding(2) var<storage, read_write> out: array<vec2<u32>>;
@group(1) @binding(0) var<uniform> params: Params;

var<workgroup> squares: array<f32, LANES>;
var<workgroup> squares_of_few: array<f32, 16>;
// Of each lane's eight elements: the bits of the largest magnitude, the sum of the bytes.
var<workgroup> largest: array<u32, LANES>;
var<workgroup> sums: array<i32, LANES>;

// What a norm multiplies the row with besides its weight; 1 without one.
fn factor_of(row: u32, lane: u32) -> f32 {
    if (PROLOGUE != 1u) {
        return 1.0;
    }
    var sum = 0.0;
    for (var e = lane; 8u * e < params.k; e += LANES) {
        sum += squares_of(row, e);
    }
    squares[lane] = sum;
    workgroupBarrier();
    if (lane < 16u) {
        sum = 0.0;
        for (var i = lane; i < LANES; i += 16u) {
            sum += squares[i];
        }
        squares_of_few[lane] = sum;
    }
    workgroupBarrier();
    sum = 0.0;
    for (var i = 0u; i < 16u; i++) {
        sum += squares_of_few[i];
    }
    return 1.0 / sqrt(sum / f32(params.k) + params.eps);
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let row = group.y * groups.x + group.x;
    if (row >= params.rows) {
        return;
    }
    let factor = factor_of(row, lane);
    let first = lane / 4u * 4u;
    for (var start = 0u; 8u * start < params.k; start += LANES) {
        let e = start + lane;
        let v = inputs(row, e);
        largest[lane] = bits_of_largest(v);
        workgroupBarrier();
        let most = max(max(largest[first], largest[first + 1u]),
                       max(largest[first + 2u], largest[first + 3u]));
        let words = input_words(v.low, v.high, bytes_up(most), FOURS == 1u);
        sums[lane] = dot4I8Packed(words.x, 0x01010101u) + dot4I8Packed(words.y, 0x01010101u);
        workgroupBarrier();
        if (8u * e < params.k) {
            let at = (e / 4u * params.x_rows + row) * 6u;
            out[at + e % 4u] = words;
            if (e % 4u == 0u) {
                let scale = bytes_scale(most) * factor;
                let low = sums[first] + sums[first + 1u];
                let high = sums[first + 2u] + sums[first + 3u];
                out[at + 4u] = bitcast<vec2<u32>>(vec2<f32>(scale, scale * f32(low)));
                out[at + 5u] =
                    bitcast<vec2<u32>>(scale * vec2<f32>(f32(high), f32(low + high)));
            }
        }
    }
}
