// y[r, c] = sum_k x[r, k] * W[c, k], or that added to y[r, c] with accumulate = 1.
//
// Shapes: x f32 [rows, K], y f32 [rows, y_cols]; W is one part of a weight whose columns of y start
//   at col0. Planes `data`, `high_bits` and `scales` as base/dtype.h describes them (LAYOUT and
//   SCALE are its enums); a plane that the layout lacks is bound to another and never read.
// Mapping: a lane owns a register tile of ROWS rows by COLS columns; its columns are LANES apart,
//   so that stores of neighbouring lanes touch. Tiles are numbered rows first (tiles of the same
//   columns run next to each other and find the weights in the cache) and fold into two grid
//   dimensions.
// Needs: nothing. No workgroup memory, no barrier.
// Why this version: the row that fits everything. Barriers cost a CPU driver half its speed, x is
//   read by all lanes at one address, and a weight is decoded once for ROWS rows. ROWS = 1 is the
//   decoding step.
// Reference: ref_matmul.

override LAYOUT: u32 = 4;
override SCALE: u32 = 1;
override GROUP: u32 = 32;     // elements under one scale; 8 for layouts without scales
override LANES: u32 = 64;
// option ROWS = 4
// option COLS = 1

const LAYOUT_F32 = 0u;
const LAYOUT_F16 = 1u;
const LAYOUT_BF16 = 2u;
const LAYOUT_Q8 = 3u;
const LAYOUT_Q4 = 4u;
const LAYOUT_Q5 = 5u;
const LAYOUT_Q6 = 6u;
const SCALE_F16 = 1u;
const SCALE_F32 = 2u;
const SCALE_F16_MIN = 3u;
const SCALE_K = 4u;
const SCALE_K_MIN = 5u;
const K_BLOCK = 256u;          // elements under one factor of the K scales

struct Params {
    rows: u32,
    k: u32,
    cols: u32,        // rows of this part of the weight
    col0: u32,        // where the part's columns start in y
    y_cols: u32,
    data_words: u32,  // words a row of the planes
    high_words: u32,
    scale_words: u32,
    row_tiles: u32,
    first_tile: u32,  // tiles [first_tile, tile_end) in this dispatch
    tile_end: u32,
    accumulate: u32,
}

@group(0) @binding(0) var<storage, read> data: array<u32>;
@group(0) @binding(1) var<storage, read> high_bits: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
@group(0) @binding(3) var<storage, read> x: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

struct Eight {
    low: vec4<f32>,
    high: vec4<f32>,
}

// binary16 by integer arithmetic: unpack2x16float may flush subnormals.
fn half_value(h: u32) -> f32 {
    let magnitude = (h & 0x7fffu) << 13u;
    let exponent = h & 0x7c00u;
    // A subnormal m * 2^-24 is (1 + m / 1024) * 2^-14 - 2^-14, whose steps are all normal numbers.
    let tiny = bitcast<f32>(magnitude + (113u << 23u)) - bitcast<f32>(113u << 23u);
    let offset = select(112u << 23u, 224u << 23u, exponent == 0x7c00u);
    let bits = select(magnitude + offset, bitcast<u32>(tiny), exponent == 0u);
    return bitcast<f32>(bits | ((h & 0x8000u) << 16u));
}

fn pair_value(word: u32) -> vec2<f32> {
    if (LAYOUT == LAYOUT_BF16) {
        return vec2<f32>(bitcast<f32>(word << 16u), bitcast<f32>(word & 0xffff0000u));
    }
    return vec2<f32>(half_value(word & 0xffffu), half_value(word >> 16u));
}

// (scale, minimum) of one group.
fn group_scale(row: u32, group: u32) -> vec2<f32> {
    if (LAYOUT < LAYOUT_Q8) {
        return vec2<f32>(1.0, 0.0);
    }
    let at = row * params.scale_words;
    if (SCALE == SCALE_F32) {
        return vec2<f32>(bitcast<f32>(scales[at + group]), 0.0);
    }
    if (SCALE == SCALE_F16_MIN) {
        let word = scales[at + group];
        return vec2<f32>(half_value(word & 0xffffu), half_value(word >> 16u));
    }
    if (SCALE == SCALE_K) {
        let factor = half_value(scales[at + group * GROUP / K_BLOCK] & 0xffffu);
        let four = scales[at + params.k / K_BLOCK + group / 4u];
        return vec2<f32>(factor * f32(bitcast<i32>(four << (24u - 8u * (group & 3u))) >> 24u), 0.0);
    }
    if (SCALE == SCALE_K_MIN) {
        let factors = scales[at + group * GROUP / K_BLOCK];
        let pair = scales[at + params.k / K_BLOCK + group / 2u] >> (16u * (group & 1u));
        return vec2<f32>(half_value(factors & 0xffffu) * f32(pair & 0xffu),
                         -(half_value(factors >> 16u) * f32((pair >> 8u) & 0xffu)));
    }
    let word = scales[at + group / 2u];
    return vec2<f32>(half_value((word >> (16u * (group & 1u))) & 0xffffu), 0.0);
}

// The bits above the nibbles of elements 8 * eighth .. 8 * eighth + 7, in the low bits of a word.
fn eight_high_bits(row: u32, eighth: u32) -> u32 {
    let at = row * params.high_words;
    if (LAYOUT == LAYOUT_Q5) {
        return high_bits[at + eighth / 4u] >> (8u * (eighth & 3u));
    }
    return high_bits[at + eighth / 2u] >> (16u * (eighth & 1u));
}

// Elements 8 * eighth .. 8 * eighth + 7 of a row of W.
fn eight_weights(row: u32, eighth: u32, scale: vec2<f32>) -> Eight {
    let at = row * params.data_words;
    if (LAYOUT == LAYOUT_F32) {
        let i = at + eighth * 8u;
        return Eight(
            bitcast<vec4<f32>>(vec4<u32>(data[i], data[i + 1u], data[i + 2u], data[i + 3u])),
            bitcast<vec4<f32>>(vec4<u32>(data[i + 4u], data[i + 5u], data[i + 6u], data[i + 7u])));
    }
    if (LAYOUT == LAYOUT_F16 || LAYOUT == LAYOUT_BF16) {
        let i = at + eighth * 4u;
        return Eight(vec4<f32>(pair_value(data[i]), pair_value(data[i + 1u])),
                     vec4<f32>(pair_value(data[i + 2u]), pair_value(data[i + 3u])));
    }
    if (LAYOUT == LAYOUT_Q8) {
        let i = at + eighth * 2u;
        let up = vec4<u32>(24u, 16u, 8u, 0u);
        let low = bitcast<vec4<i32>>(vec4<u32>(data[i]) << up) >> vec4<u32>(24u);
        let high = bitcast<vec4<i32>>(vec4<u32>(data[i + 1u]) << up) >> vec4<u32>(24u);
        return Eight(vec4<f32>(low) * scale.x, vec4<f32>(high) * scale.x);
    }
    let word = data[at + eighth];
    var low = (vec4<u32>(word) >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u);
    var high = (vec4<u32>(word) >> vec4<u32>(16u, 20u, 24u, 28u)) & vec4<u32>(15u);
    if (LAYOUT == LAYOUT_Q5) {
        let bits = vec4<u32>(eight_high_bits(row, eighth));
        low |= (bits << vec4<u32>(4u, 3u, 2u, 1u)) & vec4<u32>(16u);
        high |= (bits >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(16u);
    } else if (LAYOUT == LAYOUT_Q6) {
        let bits = vec4<u32>(eight_high_bits(row, eighth));
        low |= ((bits >> vec4<u32>(0u, 2u, 4u, 6u)) & vec4<u32>(3u)) << vec4<u32>(4u);
        high |= ((bits >> vec4<u32>(8u, 10u, 12u, 14u)) & vec4<u32>(3u)) << vec4<u32>(4u);
    }
    if (SCALE == SCALE_F16_MIN || SCALE == SCALE_K_MIN) {
        // scale * q has at most 24 significant bits: fused or not, one rounding.
        return Eight(fma(vec4<f32>(low), vec4<f32>(scale.x), vec4<f32>(scale.y)),
                     fma(vec4<f32>(high), vec4<f32>(scale.x), vec4<f32>(scale.y)));
    }
    if (LAYOUT != LAYOUT_Q4) {
        let zero = vec4<f32>(select(16.0, 32.0, LAYOUT == LAYOUT_Q6));
        return Eight((vec4<f32>(low) - zero) * scale.x, (vec4<f32>(high) - zero) * scale.x);
    }
    // nibble - 8 is the nibble with its top bit turned, read as a signed number.
    let turned = vec4<u32>(word ^ 0x88888888u);
    let first = bitcast<vec4<i32>>(turned << vec4<u32>(28u, 24u, 20u, 16u)) >> vec4<u32>(28u);
    let second = bitcast<vec4<i32>>(turned << vec4<u32>(12u, 8u, 4u, 0u)) >> vec4<u32>(28u);
    return Eight(vec4<f32>(first) * scale.x, vec4<f32>(second) * scale.x);
}

// The K mod 8 last elements of layouts without scales.
fn one_weight(row: u32, k: u32) -> f32 {
    let at = row * params.data_words;
    if (LAYOUT == LAYOUT_F32) {
        return bitcast<f32>(data[at + k]);
    }
    let pair = pair_value(data[at + k / 2u]);
    return select(pair.x, pair.y, (k & 1u) == 1u);
}

fn eight_inputs(row: u32, eighth: u32) -> Eight {
    let i = row * params.k + eighth * 8u;
    return Eight(vec4<f32>(x[i], x[i + 1u], x[i + 2u], x[i + 3u]),
                 vec4<f32>(x[i + 4u], x[i + 5u], x[i + 6u], x[i + 7u]));
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let tile = params.first_tile + group.y * groups.x + group.x;
    if (tile >= params.tile_end) {
        return;
    }
    let first_row = (tile % params.row_tiles) * {{ROWS}}u;
    let first_col = (tile / params.row_tiles) * (LANES * {{COLS}}u) + lane;

    // Past the edge a lane works on the last row or column again and stores nothing.
    var row: array<u32, {{ROWS}}>;
    var col: array<u32, {{COLS}}>;
    for (var i = 0u; i < {{ROWS}}u; i++) {
        row[i] = min(first_row + i, params.rows - 1u);
    }
    for (var j = 0u; j < {{COLS}}u; j++) {
        col[j] = min(first_col + j * LANES, params.cols - 1u);
    }

    var sum: array<array<f32, {{COLS}}>, {{ROWS}}>;
    let eighths = GROUP / 8u;
    for (var g = 0u; g < params.k / GROUP; g++) {
        var scale: array<vec2<f32>, {{COLS}}>;
        for (var j = 0u; j < {{COLS}}u; j++) {
            scale[j] = group_scale(col[j], g);
        }
        for (var e = g * eighths; e < (g + 1u) * eighths; e++) {
            var w: array<Eight, {{COLS}}>;
            for (var j = 0u; j < {{COLS}}u; j++) {
                w[j] = eight_weights(col[j], e, scale[j]);
            }
            for (var i = 0u; i < {{ROWS}}u; i++) {
                let v = eight_inputs(row[i], e);
                for (var j = 0u; j < {{COLS}}u; j++) {
                    var s = sum[i][j];
                    s = fma(v.low.x, w[j].low.x, s);
                    s = fma(v.low.y, w[j].low.y, s);
                    s = fma(v.low.z, w[j].low.z, s);
                    s = fma(v.low.w, w[j].low.w, s);
                    s = fma(v.high.x, w[j].high.x, s);
                    s = fma(v.high.y, w[j].high.y, s);
                    s = fma(v.high.z, w[j].high.z, s);
                    s = fma(v.high.w, w[j].high.w, s);
                    sum[i][j] = s;
                }
            }
        }
    }
    if (LAYOUT < LAYOUT_Q8) {
        for (var k = params.k & ~7u; k < params.k; k++) {
            for (var j = 0u; j < {{COLS}}u; j++) {
                let w = one_weight(col[j], k);
                for (var i = 0u; i < {{ROWS}}u; i++) {
                    sum[i][j] = fma(x[row[i] * params.k + k], w, sum[i][j]);
                }
            }
        }
    }

    for (var i = 0u; i < {{ROWS}}u; i++) {
        for (var j = 0u; j < {{COLS}}u; j++) {
            let r = first_row + i;
            let c = first_col + j * LANES;
            if (r < params.rows && c < params.cols) {
                let at = r * params.y_cols + params.col0 + c;
                if (params.accumulate == 1u) {
                    y[at] = y[at] + sum[i][j];
                } else {
                    y[at] = sum[i][j];
                }
            }
        }
    }
}
