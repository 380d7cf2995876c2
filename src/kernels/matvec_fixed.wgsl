// y[c] = sum_k v[k] * W[c, k] for one row v in 16-bit fixed point, or that added to y[c] with
//   ACCUMULATE = 1; v = x, or with NORM = 1 v = x / sqrt(mean(x^2) + eps) * norm.
// GATE = 1: y[c] = silu(a) * b with a = sum_k v[k] * W[c, k] and b = sum_k v[k] * W[cols + c, k];
// GATE = 2: gelu(a) * b, gelu in its tanh form.
//
// Shapes: x, norm f32 [K], read as vec4 (norm: any buffer without NORM); y f32, columns from col0
//   on; W is one part of a quantised weight (piece weight) in groups of 32 and more, or of 16 under
//   the K scales. K = 8 * EIGHTHS = 32 * UNITS.
// Mapping: a workgroup computes a tile of COLS * ROWS columns of W (COLS of y with GATE, whose ROWS
//   is 2). Its lanes are COLS by slices of K, ROWS columns each, COLS apart: neighbouring lanes
//   read neighbouring entries of the weight. A lane first asks for the words of its first AHEAD
//   blocks; while they come the workgroup turns x into fixed point, in its memory: of 32 values the
//   largest becomes 32512, each is an integer of two signed bytes. A block's products are
//   dot4I8Packed of its bytes with both, and the slices' sums meet in workgroup memory.
// Needs: LANES invocations; 16 (EIGHTHS + UNITS) + 4 SCRATCH + 144 bytes of workgroup memory.
// Why this version: a nibble is a byte with an and, and four products are one instruction: a tenth
//   of what floats cost. Two bytes an input keep the error at 2^-16 of the largest of 32, below
//   f16's. Every workgroup makes the fixed point for itself, behind the latency of its weights,
//   which costs less than a dispatch of its own; the norm's factor is one of the sum.
// BYTES = 1, lossy: one signed byte an input, the largest of 32 becomes 127; off by 2^-8 of that.
// NaN and infinity: a unit that holds one has a NaN scale, and so has every result.
// Reference: ref_matmul, after ref_rmsnorm; before ref_silu_gate.

// use weight
// use bytes
// use input_bytes

override ACCUMULATE: u32 = 0;
override NORM: u32 = 0;
override GATE: u32 = 0;
override BYTES: u32 = 2;        // of an input
override EIGHTHS: u32 = 64;     // K / 8
override UNITS: u32 = 16;       // K / 32
override LANES: u32 = 256;
override COLS: u32 = 32;        // a divisor of LANES
override SCRATCH: u32 = 320;    // the larger of EIGHTHS + LANES and LANES * ROWS
// option ROWS = 1
// option AHEAD = 1
// option TURNS = 1

const PARTS = 8u;               // of a column's sum, where there are many slices

struct Params {
    k: u32,
    stride: u32,       // of the part's tables
    cols: u32,         // columns of y from this part
    col0: u32,         // where they start in y
    first_tile: u32,   // tiles [first_tile, tile_end) in this dispatch
    tile_end: u32,
    eps: f32,
}

@group(0) @binding(3) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> norm: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

// An eight: its high bytes in two words, in the order of piece bytes, and its low bytes; of BYTES 1
//   its bytes, and nothing.
var<workgroup> staged: array<vec4<u32>, EIGHTHS>;
// Of a unit: scale, sum of the integers of its first 16 elements, of its last 16, of all.
var<workgroup> units: array<vec4<f32>, UNITS>;
// Bits of the largest of each eight, then the lanes' sums of squares; later the slices' sums.
var<workgroup> scratch: array<u32, SCRATCH>;
var<workgroup> squares: array<f32, 32>;
var<workgroup> factor: f32;     // of every result

fn largest_of(v: vec4<f32>) -> u32 {
    let bits = bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu);
    return max(max(bits.x, bits.y), max(bits.z, bits.w));
}

// round(v * up) + 2^15 + 2^7 of elements (0, 1) and of (2, 3), in the halves of a word: added to
//   1.5 * 2^23 a number stands in the lowest bits of the float.
fn biased_pairs(v: vec4<f32>, up: f32) -> vec2<u32> {
    let bits = bitcast<vec4<u32>>(fma(v, vec4<f32>(up), vec4<f32>(12582912.0 + 32896.0)));
    return (bits.xz & vec2<u32>(0xffffu)) | (bits.yw << vec2<u32>(16u));
}

// The high bytes, then the low bytes, of eight numbers in two words, a pair of `even` and one of
//   `odd` in each: (even 0, odd 0, even 1, odd 1). With the bias taken out by turning its bits a
//   number is 256 high + low.
fn bytes_of(even: vec2<u32>, odd: vec2<u32>) -> vec4<u32> {
    let mask = vec2<u32>(0x00ff00ffu);
    let high = ((even >> vec2<u32>(8u)) & mask) | (odd & ~mask);
    let low = (even & mask) | ((odd << vec2<u32>(8u)) & ~mask);
    return vec4<u32>(high, low) ^ vec4<u32>(0x80808080u);
}

// Eight inputs, of a unit whose largest is `most`.
fn fixed_words(v: Eight, most: u32) -> vec4<u32> {
    if (BYTES == 1u) {
        return vec4<u32>(input_words(v.low, v.high, bytes_up(most), LAYOUT == LAYOUT_Q8), 0u, 0u);
    }
    // Below 2^-111 the quotient would pass the largest float: such a unit counts as 0.
    let up = select(32512.0 / bitcast<f32>(most), 0.0, most < 0x08000000u);
    let low = biased_pairs(v.low, up);
    let high = biased_pairs(v.high, up);
    if (LAYOUT == LAYOUT_Q8) {
        return bytes_of(vec2<u32>(low.x, high.x), vec2<u32>(low.y, high.y));
    }
    return bytes_of(low, high);
}

fn fixed_scale(most: u32) -> f32 {
    if (BYTES == 1u) {
        return bytes_scale(most);
    }
    if (most >= 0x7f800000u) {
        var quiet_nan = 0x7fc00000u;
        return bitcast<f32>(quiet_nan);
    }
    return select(bitcast<f32>(most) / 32512.0, 0.0, most < 0x08000000u);
}

// Turns x (times norm) into fixed point.
fn stage(lane: u32) {
    var v: array<Eight, {{TURNS}}>;
    var square = 0.0;
    for (var turn = 0u; turn < {{TURNS}}u; turn++) {
        let eighth = turn * LANES + lane;
        v[turn] = Eight(vec4<f32>(0.0), vec4<f32>(0.0));
        if (eighth < EIGHTHS) {
            v[turn] = Eight(x[2u * eighth], x[2u * eighth + 1u]);
            if (NORM == 1u) {
                square += dot(v[turn].low, v[turn].low) + dot(v[turn].high, v[turn].high);
                v[turn].low *= norm[2u * eighth];
                v[turn].high *= norm[2u * eighth + 1u];
            }
            scratch[eighth] = max(largest_of(v[turn].low), largest_of(v[turn].high));
        }
    }
    if (NORM == 1u) {
        scratch[EIGHTHS + lane] = bitcast<u32>(square);
    }
    workgroupBarrier();

    for (var turn = 0u; turn < {{TURNS}}u; turn++) {
        let eighth = turn * LANES + lane;
        if (eighth < EIGHTHS) {
            staged[eighth] = fixed_words(v[turn], largest_of_unit(eighth / 4u));
        }
    }
    if (NORM == 1u && lane < 32u) {
        var few = 0.0;
        for (var i = lane; i < LANES; i += 32u) {
            few += bitcast<f32>(scratch[EIGHTHS + i]);
        }
        squares[lane] = few;
    }
    workgroupBarrier();

    for (var unit = lane; unit < UNITS; unit += LANES) {
        let scale = fixed_scale(largest_of_unit(unit));
        let low = sum_of(staged[4u * unit]) + sum_of(staged[4u * unit + 1u]);
        let high = sum_of(staged[4u * unit + 2u]) + sum_of(staged[4u * unit + 3u]);
        units[unit] = vec4<f32>(scale, f32(low), f32(high), f32(low + high));
    }
    if (NORM == 1u && lane == LANES - 1u) {
        var four = vec4<f32>(0.0);
        for (var i = 0u; i < 32u; i += 4u) {
            four += vec4<f32>(squares[i], squares[i + 1u], squares[i + 2u], squares[i + 3u]);
        }
        let total = dot(four, vec4<f32>(1.0));
        factor = 1.0 / sqrt(total / f32(8u * EIGHTHS) + params.eps);
    }
    workgroupBarrier();
}

fn largest_of_unit(unit: u32) -> u32 {
    return max(max(scratch[4u * unit], scratch[4u * unit + 1u]),
               max(scratch[4u * unit + 2u], scratch[4u * unit + 3u]));
}

fn sum_of(v: vec4<u32>) -> i32 {
    let ones = 0x01010101u;
    let high = dot4I8Packed(v.x, ones) + dot4I8Packed(v.y, ones);
    if (BYTES == 1u) {
        return high;
    }
    return (high << 8u) + dot4I8Packed(v.z, ones) + dot4I8Packed(v.w, ones);
}

// What a lane reads of a block: words, high bits, factor and scale.
struct Block {
    words: vec4<u32>,
    more: vec4<u32>,
    high: vec2<u32>,
    scale: vec2<u32>,
}

fn load(n: u32, unit: u32) -> Block {
    let at = unit * params.stride + n;
    var b: Block;
    if (LAYOUT == LAYOUT_Q8) {
        b.words = data[2u * at];
        b.more = data[2u * at + 1u];
    } else {
        b.words = data[at];
    }
    if (LAYOUT == LAYOUT_Q5) {
        b.high.x = high_bits[at];
    } else if (LAYOUT == LAYOUT_Q6) {
        b.high = vec2<u32>(high_bits[2u * at], high_bits[2u * at + 1u]);
    }
    if (SCALE >= SCALE_K) {
        let entries = UNITS / 8u * params.stride;
        b.scale.y = scales[unit / 8u * params.stride + n];
        if (SCALE == SCALE_K_MIN && GROUP == 16u) {
            b.scale.x = scales[entries + at];
        } else {
            b.scale.x = scale_half(entries, unit, n);
        }
    } else {
        let line = unit * 32u / GROUP;
        if (SCALE == SCALE_F16) {
            b.scale.x = scale_half(0u, line, n);
        } else {
            b.scale.x = scales[line * params.stride + n];
        }
    }
    return b;
}

// Eight products in bytes: with the high bytes of x, and with the low ones. Of BYTES 1 its bytes
//   are low.
fn bytes_product(first: u32, second: u32, v: vec4<u32>) -> vec2<i32> {
    let high = dot4I8Packed(first, v.x) + dot4I8Packed(second, v.y);
    if (BYTES == 1u) {
        return vec2<i32>(0, high);
    }
    return vec2<i32>(high, dot4I8Packed(first, v.z) + dot4I8Packed(second, v.w));
}

// The same of a word of nibbles; high as weight_high gives it.
fn word_product(word: u32, high: u32, v: vec4<u32>) -> vec2<i32> {
    let bytes = nibble_bytes(word, high);
    return bytes_product(bytes.x, bytes.y, v);
}

fn signed_byte(word: u32, place: u32) -> f32 {
    return f32(bitcast<i32>(word << (24u - 8u * place)) >> 24u);
}

// The products of a block, summed.
fn block_product(b: Block, unit: u32) -> f32 {
    let v0 = staged[4u * unit];
    let v1 = staged[4u * unit + 1u];
    let v2 = staged[4u * unit + 2u];
    let v3 = staged[4u * unit + 3u];
    var low: vec2<i32>;
    var high: vec2<i32>;
    if (LAYOUT == LAYOUT_Q8) {
        low = bytes_product(b.words.x, b.words.y, v0) + bytes_product(b.words.z, b.words.w, v1);
        high = bytes_product(b.more.x, b.more.y, v2) + bytes_product(b.more.z, b.more.w, v3);
    } else if (LAYOUT == LAYOUT_Q6) {
        low = word_product(b.words.x, b.high.x, v0) + word_product(b.words.y, b.high.x >> 8u, v1);
        high = word_product(b.words.z, b.high.y, v2) + word_product(b.words.w, b.high.y >> 8u, v3);
    } else {
        low = word_product(b.words.x, b.high.x, v0) + word_product(b.words.y, b.high.x >> 4u, v1);
        high = word_product(b.words.z, b.high.x >> 8u, v2) +
               word_product(b.words.w, b.high.x >> 12u, v3);
    }
    let of_x = units[unit];
    let zero = select(select(select(32.0, 16.0, LAYOUT == LAYOUT_Q5), 8.0, LAYOUT == LAYOUT_Q4),
                      0.0, LAYOUT == LAYOUT_Q8);
    if (GROUP == 16u) {
        let acc = vec2<f32>(vec2<i32>((low.x << 8u) + low.y, (high.x << 8u) + high.y));
        let factors = unpack2x16float(b.scale.y);
        if (SCALE == SCALE_K) {
            let s = vec2<f32>(signed_byte(b.scale.x, 0u), signed_byte(b.scale.x, 1u));
            return of_x.x * factors.x * dot(s, acc - zero * of_x.yz);
        }
        let s = unpack4xU8(b.scale.x);
        return of_x.x * (factors.x * dot(vec2<f32>(s.xz), acc) -
                         factors.y * dot(vec2<f32>(s.yw), of_x.yz));
    }
    let both = low + high;
    let acc = f32((both.x << 8u) + both.y);
    if (SCALE == SCALE_K_MIN) {
        let factors = unpack2x16float(b.scale.y);
        return of_x.x * (factors.x * f32(b.scale.x & 0xffu) * acc -
                         factors.y * f32(b.scale.x >> 8u) * of_x.w);
    }
    if (SCALE == SCALE_F16_MIN) {
        let scale = unpack2x16float(b.scale.x);
        return of_x.x * fma(scale.x, acc, scale.y * of_x.w);
    }
    if (SCALE == SCALE_F32) {
        return of_x.x * bitcast<f32>(b.scale.x) * (acc - zero * of_x.w);
    }
    return of_x.x * unpack2x16float(b.scale.x).x * (acc - zero * of_x.w);
}

// The row of W that a lane's r-th column of a tile is. Past the edge the last one is computed again
//   and not stored.
fn column(tile: u32, lane: u32, r: u32) -> u32 {
    if (GATE != 0u) {
        return min(tile * COLS + lane % COLS, params.cols - 1u) + r * params.cols;
    }
    return min((tile * {{ROWS}}u + r) * COLS + lane % COLS, params.cols - 1u);
}

fn gated(gate: f32, up: f32) -> f32 {
    if (GATE == 1u) {
        return gate / (1.0 + exp(-gate)) * up;
    }
    let twice_u = 1.5957691216057308 * gate * fma(0.044715 * gate, gate, 1.0);
    return gate / (1.0 + exp(-twice_u)) * up;
}

fn column_sum(column: u32, slices: u32, step: u32) -> f32 {
    let all = COLS * {{ROWS}}u;
    var total = 0.0;
    for (var i = column; i < slices * all; i += step * all) {
        total += bitcast<f32>(scratch[i]);
    }
    return total;
}

// Adds the slices' sums, which lie in scratch as [slice][r][column], up and writes a tile of y.
fn finish(tile: u32, lane: u32) {
    let columns = select(COLS * {{ROWS}}u, COLS, GATE != 0u);
    var slices = LANES / COLS;
    workgroupBarrier();
    if (LANES / COLS > 2u * PARTS) {
        if (lane < PARTS * COLS * {{ROWS}}u) {
            scratch[lane] = bitcast<u32>(column_sum(lane, slices, PARTS));
        }
        slices = PARTS;
        workgroupBarrier();
    }
    if (lane < columns && tile * columns + lane < params.cols) {
        let times = select(1.0, factor, NORM == 1u);
        var result = times * column_sum(lane, slices, 1u);
        if (GATE != 0u) {
            result = gated(result, times * column_sum(COLS + lane, slices, 1u));
        }
        let at = params.col0 + tile * columns + lane;
        if (ACCUMULATE == 1u) {
            result += y[at];
        }
        y[at] = result;
    }
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let tile = params.first_tile + group.y * groups.x + group.x;
    if (tile >= params.tile_end) {
        return;
    }
    let slices = LANES / COLS;
    let slice = lane / COLS;
    let step = {{AHEAD}}u * slices;     // blocks that the slices take at a time

    var held: array<array<Block, {{ROWS}}>, {{AHEAD}}>;
    for (var j = 0u; j < {{AHEAD}}u; j++) {
        for (var r = 0u; r < {{ROWS}}u; r++) {
            held[j][r] = load(column(tile, lane, r), min(j * slices + slice, UNITS - 1u));
        }
    }
    stage(lane);

    var sum: array<f32, {{ROWS}}>;
    for (var first = 0u; first < UNITS; first += step) {
        for (var j = 0u; j < {{AHEAD}}u; j++) {
            let unit = first + j * slices + slice;
            for (var r = 0u; r < {{ROWS}}u; r++) {
                if (UNITS % step == 0u || unit < UNITS) {
                    sum[r] += block_product(held[j][r], unit);
                }
            }
        }
        if (first + step < UNITS) {
            for (var j = 0u; j < {{AHEAD}}u; j++) {
                let unit = min(first + step + j * slices + slice, UNITS - 1u);
                for (var r = 0u; r < {{ROWS}}u; r++) {
                    held[j][r] = load(column(tile, lane, r), unit);
                }
            }
        }
    }

    for (var r = 0u; r < {{ROWS}}u; r++) {
        scratch[(slice * {{ROWS}}u + r) * COLS + lane % COLS] = bitcast<u32>(sum[r]);
    }
    finish(tile, lane);
}
