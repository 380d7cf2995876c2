// y[c] = sum_k v[k] * W[c, k], or that added to y[c] with ACCUMULATE = 1, for one row v in 16-bit
//   fixed point: PROLOGUE 0  v = x
//            1  v = rmsnorm(x) = x / sqrt(mean(x^2) + eps) * weight
//            2  v = silu(x[k]) * x[K + k]
//
// Shapes: x f32 [K], of PROLOGUE 2 [2 K], read as vec4; weight f32 [K] (PROLOGUE 1, else any
//   buffer); y f32, columns from col0 on; W is one part of a 4-bit weight (LAYOUT_Q4 of
//   base/dtype.h), GROUP a multiple of 32.
// Mapping: a workgroup of 256 lanes turns v into fixed point once, in workgroup memory: of 32
//   values the largest becomes 32512, each is an integer of two signed bytes. Then eight teams of
//   32 lanes take ROWS rows of W each; a lane takes every 32nd unit of 32 nibbles, whose products
//   are 16 dot4I8Packed, and the team adds up in memory.
// Needs: 256 lanes, 16 (K / 8) + 8 (K / 32) + 1024 ROWS + 1088 bytes of workgroup memory.
// Why this version: a nibble is a byte with an and, and four products are one instruction: a
//   tenth of what floats cost. Two bytes an input keep the error at 2^-16 of the largest of 32,
//   below f16's. Norm or gate are recomputed by every workgroup, which costs less than a dispatch
//   of their own.
// NaN and infinity: a unit that holds one has a NaN scale, and so has every result.
// Reference: ref_matmul, after ref_rmsnorm or ref_silu_gate.

override SCALE: u32 = 1;
override GROUP: u32 = 32;
override ACCUMULATE: u32 = 0;
override PROLOGUE: u32 = 0;
override EIGHTHS: u32 = 64;     // K / 8
override UNITS: u32 = 16;       // K / 32
override PARTIALS: u32 = 256;   // 256 ROWS
// option ROWS = 1

const SCALE_F16 = 1u;
const SCALE_F32 = 2u;
const SCALE_F16_MIN = 3u;
const LANES = 256u;
const TEAM = 32u;
const TEAMS = 8u;

struct Params {
    cols: u32,         // rows of this part of the weight
    col0: u32,         // where the part's columns start in y
    data_quads: u32,   // quadruples of words a row of the plane
    scale_words: u32,
    first_group: u32,  // workgroups [first_group, group_end) in this dispatch
    group_end: u32,
    eps: f32,
}

@group(0) @binding(0) var<storage, read> data: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> scales: array<u32>;
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

// Word c of unit u of the inputs: high bytes of elements 0 2 4 6, of 1 3 5 7, and the low bytes
//   of these.
var<workgroup> staged: array<vec4<u32>, EIGHTHS>;
var<workgroup> units: array<vec2<f32>, UNITS>;       // a unit's scale, and the sum of its integers
var<workgroup> partial: array<f32, PARTIALS>;
var<workgroup> sixteenth: array<f32, 16>;
var<workgroup> largest: array<u32, 256>;

struct Eight {
    low: vec4<f32>,
    high: vec4<f32>,
}

fn silu(gate: vec4<f32>) -> vec4<f32> {
    return gate / (vec4<f32>(1.0) + exp(-gate));
}

fn inputs(eighth: u32, factor: f32) -> Eight {
    let low = x[2u * eighth];
    let high = x[2u * eighth + 1u];
    if (PROLOGUE == 1u) {
        return Eight(low * factor * weight[2u * eighth], high * factor * weight[2u * eighth + 1u]);
    }
    if (PROLOGUE == 2u) {
        let up = 2u * (EIGHTHS + eighth);
        return Eight(silu(low) * x[up], silu(high) * x[up + 1u]);
    }
    return Eight(low, high);
}

// 1 / sqrt(mean(x^2) + eps), the same in every lane.
fn norm_factor(lane: u32) -> f32 {
    var squares = 0.0;
    for (var e = lane; e < EIGHTHS; e += LANES) {
        let low = x[2u * e];
        let high = x[2u * e + 1u];
        squares += dot(low, low) + dot(high, high);
    }
    partial[lane] = squares;
    workgroupBarrier();
    if (lane < 16u) {
        var few = 0.0;
        for (var i = lane; i < LANES; i += 16u) {
            few += partial[i];
        }
        sixteenth[lane] = few;
    }
    workgroupBarrier();
    var total = 0.0;
    for (var i = 0u; i < 16u; i++) {
        total += sixteenth[i];
    }
    return 1.0 / sqrt(total / f32(8u * EIGHTHS) + params.eps);
}

fn bits_of_largest(v: vec4<f32>) -> u32 {
    let bits = bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu);
    return max(max(bits.x, bits.y), max(bits.z, bits.w));
}

fn bytes(v: vec4<i32>) -> u32 {
    let b = bitcast<vec4<u32>>(v) & vec4<u32>(0xffu);
    return b.x | (b.y << 8u) | (b.z << 16u) | (b.w << 24u);
}

// Turns the inputs into fixed point. Four lanes in a row hold a unit.
fn stage(lane: u32, factor: f32) {
    for (var turn = 0u; turn * LANES < EIGHTHS; turn++) {
        let eighth = turn * LANES + lane;
        var v = Eight(vec4<f32>(0.0), vec4<f32>(0.0));
        if (eighth < EIGHTHS) {
            v = inputs(eighth, factor);
        }
        largest[lane] = max(bits_of_largest(v.low), bits_of_largest(v.high));
        workgroupBarrier();
        let first = lane & ~3u;
        let most = max(max(largest[first], largest[first + 1u]),
                       max(largest[first + 2u], largest[first + 3u]));
        let most_value = bitcast<f32>(most);
        // Below 2^-111 the quotient would pass the largest float: such a unit counts as 0.
        let tiny = most < 0x08000000u;
        let up = select(32512.0 / most_value, 0.0, tiny);
        let low = vec4<i32>(round(v.low * up));
        let high = vec4<i32>(round(v.high * up));
        let even = vec4<i32>(low.x, low.z, high.x, high.z);
        let odd = vec4<i32>(low.y, low.w, high.y, high.w);
        let even_high = (even + vec4<i32>(128)) >> vec4<u32>(8u);
        let odd_high = (odd + vec4<i32>(128)) >> vec4<u32>(8u);
        let sums = low + high;
        partial[lane] = f32(sums.x + sums.y + sums.z + sums.w);
        workgroupBarrier();
        if (eighth < EIGHTHS) {
            staged[(eighth & 3u) * UNITS + eighth / 4u] =
                vec4<u32>(bytes(even_high), bytes(odd_high), bytes(even), bytes(odd));
        }
        if ((lane & 3u) == 0u && eighth < EIGHTHS) {
            var scale = select(most_value / 32512.0, 0.0, tiny);
            if (most >= 0x7f800000u) {
                var quiet_nan = 0x7fc00000u;
                scale = bitcast<f32>(quiet_nan);
            }
            let sum = partial[lane] + partial[lane + 1u] + partial[lane + 2u] + partial[lane + 3u];
            units[eighth / 4u] = vec2<f32>(scale, sum);
        }
        workgroupBarrier();
    }
}

fn word_product(word: u32, v: vec4<u32>) -> i32 {
    let even = word & 0x0f0f0f0fu;
    let odd = (word >> 4u) & 0x0f0f0f0fu;
    return ((dot4I8Packed(even, v.x) + dot4I8Packed(odd, v.y)) << 8u) +
           dot4I8Packed(even, v.z) + dot4I8Packed(odd, v.w);
}

// The products of a unit of a row, summed.
fn unit_product(row: u32, unit: u32) -> f32 {
    let words = data[row * params.data_quads + unit];
    let acc = word_product(words.x, staged[unit]) + word_product(words.y, staged[UNITS + unit]) +
              word_product(words.z, staged[2u * UNITS + unit]) +
              word_product(words.w, staged[3u * UNITS + unit]);
    let of_x = units[unit];
    let at = row * params.scale_words;
    let group = unit / (GROUP / 32u);
    if (SCALE == SCALE_F16_MIN) {
        let scale = unpack2x16float(scales[at + group]);
        return of_x.x * fma(scale.x, f32(acc), scale.y * of_x.y);
    }
    let centred = f32(acc) - 8.0 * of_x.y;
    if (SCALE == SCALE_F32) {
        return of_x.x * bitcast<f32>(scales[at + group]) * centred;
    }
    let pair = unpack2x16float(scales[at + group / 2u]);
    return of_x.x * select(pair.x, pair.y, (group & 1u) == 1u) * centred;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let index = params.first_group + group.y * groups.x + group.x;
    if (index >= params.group_end) {
        return;
    }
    var factor = 1.0;
    if (PROLOGUE == 1u) {
        factor = norm_factor(lane);
        workgroupBarrier();
    }
    stage(lane, factor);

    let in_team = lane % TEAM;
    let first_row = (index * TEAMS + lane / TEAM) * {{ROWS}}u;
    for (var r = 0u; r < {{ROWS}}u; r++) {
        let row = min(first_row + r, params.cols - 1u);
        var sum = 0.0;
        for (var unit = in_team; unit < UNITS; unit += TEAM) {
            sum += unit_product(row, unit);
        }
        partial[r * LANES + lane] = sum;
    }
    workgroupBarrier();
    for (var far = TEAM / 2u; far > 0u; far /= 2u) {
        if (in_team < far) {
            for (var r = 0u; r < {{ROWS}}u; r++) {
                partial[r * LANES + lane] += partial[r * LANES + lane + far];
            }
        }
        workgroupBarrier();
    }
    if (in_team < {{ROWS}}u && first_row + in_team < params.cols) {
        let total = partial[in_team * LANES + lane - in_team];
        let at = params.col0 + first_row + in_team;
        if (ACCUMULATE == 1u) {
            y[at] = y[at] + total;
        } else {
            y[at] = total;
        }
    }
}
