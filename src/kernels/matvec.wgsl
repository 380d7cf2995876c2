// y[c] = sum_k x[k] * W[c, k], or that added to y[c] with ACCUMULATE = 1: the product of one row.
//
// Shapes: x f32 [K], read as vec4, K = 8 * EIGHTHS; y f32, columns from col0 on; W is one part of
//   a weight. Planes `data` and `scales` as base/dtype.h describes them (LAYOUT and SCALE are its
//   enums).
// Mapping: a workgroup is one subgroup of LANES lanes and computes ROWS columns. Neighbouring
//   lanes take neighbouring eights of a row of W: the weight is read in whole lines, and a lane's
//   two vec4 of x serve ROWS rows. subgroupAdd joins the lanes: no workgroup memory, no barrier.
//   Workgroups fold into two dimensions.
// Needs: subgroups, all of one size.
// Why this version: a decode step reads every weight once, so it is bound by memory if little
//   else is done for a weight. A nibble stays where it is in its word: with the bits of 2^23
//   around it, it is a float that is off by a power of two, and x is scaled by its inverse once
//   for all rows. That leaves an and, a subtraction and a multiply-add an element, without
//   conversions, which are slow.
// Reference: ref_matmul.

enable subgroups;

override LAYOUT: u32 = 4;
override SCALE: u32 = 1;
override GROUP: u32 = 32;      // elements under one scale
override ACCUMULATE: u32 = 0;
override LANES: u32 = 32;
override EIGHTHS: u32 = 64;
// option ROWS = 4

const LAYOUT_F32 = 0u;
const LAYOUT_F16 = 1u;
const LAYOUT_BF16 = 2u;
const LAYOUT_Q8 = 3u;
const LAYOUT_Q4 = 4u;
const SCALE_F16 = 1u;
const SCALE_F32 = 2u;
const SCALE_F16_MIN = 3u;

struct Params {
    cols: u32,         // rows of this part of the weight
    col0: u32,         // where the part's columns start in y
    data_words: u32,   // words a row of the planes
    scale_words: u32,
    first_group: u32,  // workgroups [first_group, group_end) in this dispatch
    group_end: u32,
}

@group(0) @binding(0) var<storage, read> data: array<u32>;
@group(0) @binding(1) var<storage, read> scales: array<u32>;
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

// Eight inputs of a lane; for nibbles each scaled by the inverse of the power its place has in
//   the word.
struct Inputs {
    low: vec4<f32>,
    high: vec4<f32>,
    sum: f32,
}

fn inputs(eighth: u32) -> Inputs {
    let low = x[2u * eighth];
    let high = x[2u * eighth + 1u];
    if (LAYOUT == LAYOUT_Q4) {
        let place = vec4<f32>(1.0, 0.0625, 0.00390625, 0.000244140625);
        let ones = vec4<f32>(1.0);
        return Inputs(low * place, high * place, dot(low, ones) + dot(high, ones));
    }
    return Inputs(low, high, 0.0);
}

fn pair_value(word: u32) -> vec2<f32> {
    if (LAYOUT == LAYOUT_BF16) {
        return vec2<f32>(bitcast<f32>(word << 16u), bitcast<f32>(word & 0xffff0000u));
    }
    return unpack2x16float(word);
}

// Four nibbles of the low half of a word, less `zero`, times 1, 16, 256, 4096.
fn nibbles(word: u32, zero: f32) -> vec4<f32> {
    let bits = (vec4<u32>(word) & vec4<u32>(0xfu, 0xf0u, 0xf00u, 0xf000u)) | vec4<u32>(0x4b000000u);
    return bitcast<vec4<f32>>(bits) -
           vec4<f32>(8388608.0 + zero, 8388608.0 + 16.0 * zero, 8388608.0 + 256.0 * zero,
                     8388608.0 + 4096.0 * zero);
}

fn bytes(word: u32) -> vec4<f32> {
    let up = vec4<u32>(24u, 16u, 8u, 0u);
    return vec4<f32>(bitcast<vec4<i32>>(vec4<u32>(word) << up) >> vec4<u32>(24u));
}

fn group_scale(row: u32, group: u32) -> vec2<f32> {
    let at = row * params.scale_words;
    if (SCALE == SCALE_F32) {
        return vec2<f32>(bitcast<f32>(scales[at + group]), 0.0);
    }
    if (SCALE == SCALE_F16_MIN) {
        return unpack2x16float(scales[at + group]);
    }
    let pair = unpack2x16float(scales[at + group / 2u]);
    return vec2<f32>(select(pair.x, pair.y, (group & 1u) == 1u), 0.0);
}

// The products of eight elements of a row, summed.
fn eight_products(row: u32, eighth: u32, v: Inputs) -> f32 {
    let at = row * params.data_words;
    if (LAYOUT == LAYOUT_Q4) {
        let word = data[at + eighth];
        let scale = group_scale(row, eighth / (GROUP / 8u));
        if (SCALE == SCALE_F16_MIN) {
            let sum = dot(nibbles(word, 0.0), v.low) + dot(nibbles(word >> 16u, 0.0), v.high);
            return fma(scale.x, sum, scale.y * v.sum);
        }
        return scale.x * (dot(nibbles(word, 8.0), v.low) + dot(nibbles(word >> 16u, 8.0), v.high));
    }
    if (LAYOUT == LAYOUT_Q8) {
        let i = at + 2u * eighth;
        let scale = group_scale(row, eighth / (GROUP / 8u));
        return scale.x * (dot(bytes(data[i]), v.low) + dot(bytes(data[i + 1u]), v.high));
    }
    if (LAYOUT == LAYOUT_F32) {
        let i = at + 8u * eighth;
        let low = vec4<u32>(data[i], data[i + 1u], data[i + 2u], data[i + 3u]);
        let high = vec4<u32>(data[i + 4u], data[i + 5u], data[i + 6u], data[i + 7u]);
        return dot(bitcast<vec4<f32>>(low), v.low) + dot(bitcast<vec4<f32>>(high), v.high);
    }
    let i = at + 4u * eighth;
    let low = vec4<f32>(pair_value(data[i]), pair_value(data[i + 1u]));
    let high = vec4<f32>(pair_value(data[i + 2u]), pair_value(data[i + 3u]));
    return dot(low, v.low) + dot(high, v.high);
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let index = params.first_group + group.y * groups.x + group.x;
    let first_row = index * {{ROWS}}u;

    // Past the edge the last row is computed again and not stored.
    var row: array<u32, {{ROWS}}>;
    var sum: array<f32, {{ROWS}}>;
    for (var r = 0u; r < {{ROWS}}u; r++) {
        row[r] = min(first_row + r, params.cols - 1u);
        sum[r] = 0.0;
    }
    for (var eighth = lane; eighth < EIGHTHS; eighth += LANES) {
        let v = inputs(eighth);
        for (var r = 0u; r < {{ROWS}}u; r++) {
            sum[r] += eight_products(row[r], eighth, v);
        }
    }
    for (var r = 0u; r < {{ROWS}}u; r++) {
        let total = subgroupAdd(sum[r]);
        if (lane == 0u && index < params.group_end && first_row + r < params.cols) {
            let at = params.col0 + first_row + r;
            if (ACCUMULATE == 1u) {
                y[at] = y[at] + total;
            } else {
                y[at] = total;
            }
        }
    }
}
