// y[c] = sum_k v[k] * W[c, k], or that added to y[c] with ACCUMULATE = 1, for one row v in 16-bit
//   fixed point: PROLOGUE 0  v = x
//            1  v = rmsnorm(x) = x / sqrt(mean(x^2) + eps) * weight
//            2  v = silu(x[k]) * x[K + k]
//
// Shapes: x f32 [K], of PROLOGUE 2 [2 K], read as vec4; norm f32 [K] (PROLOGUE 1, else any buffer);
//   y f32, columns from col0 on; W is one part of a 4-bit weight (LAYOUT_Q4 of piece weight), GROUP
//   a multiple of 32.
// Mapping: a workgroup of 256 lanes turns v into fixed point once, in workgroup memory: of 32
//   values the largest becomes 32512, each is an integer of two signed bytes. Then it computes COLS
//   * ROWS columns of y: its lanes are COLS by SLICES of K, ROWS columns each, COLS apart, so that
//   neighbouring lanes read neighbouring entries; a block's products are 16 dot4I8Packed, and the
//   slices' sums meet in workgroup memory.
// Needs: 256 lanes, 16 (K / 8) + 8 (K / 32) + 1024 ROWS + 1088 bytes of workgroup memory.
// Why this version: a nibble is a byte with an and, and four products are one instruction: a
//   tenth of what floats cost. Two bytes an input keep the error at 2^-16 of the largest of 32,
//   below f16's. Norm or gate are recomputed by every workgroup, which costs less than a dispatch
//   of their own.
// NaN and infinity: a unit that holds one has a NaN scale, and so has every result.
// Reference: ref_matmul, after ref_rmsnorm or ref_silu_gate.

// use weight

override ACCUMULATE: u32 = 0;
override PROLOGUE: u32 = 0;
override EIGHTHS: u32 = 64;     // K / 8
override UNITS: u32 = 16;       // K / 32
override PARTIALS: u32 = 256;   // 256 ROWS
override COLS: u32 = 32;        // a divisor of 256
// option ROWS = 1

const LANES = 256u;

struct Params {
    k: u32,
    stride: u32,       // of the part's tables
    cols: u32,         // rows of this part of the weight
    col0: u32,         // where the part's columns start in y
    first_group: u32,  // workgroups [first_group, group_end) in this dispatch
    group_end: u32,
    eps: f32,
}

@group(0) @binding(3) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> norm: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

// An eight of the inputs: high bytes of elements 0 4 1 5, of 2 6 3 7, and the low bytes of these,
//   in the order of the nibbles of a word.
var<workgroup> staged: array<vec4<u32>, EIGHTHS>;
var<workgroup> units: array<vec2<f32>, UNITS>;       // a unit's scale, and the sum of its integers
var<workgroup> partial: array<f32, PARTIALS>;
var<workgroup> sixteenth: array<f32, 16>;
var<workgroup> largest: array<u32, 256>;

fn silu(gate: vec4<f32>) -> vec4<f32> {
    return gate / (vec4<f32>(1.0) + exp(-gate));
}

fn inputs(eighth: u32, factor: f32) -> Eight {
    let low = x[2u * eighth];
    let high = x[2u * eighth + 1u];
    if (PROLOGUE == 1u) {
        return Eight(low * factor * norm[2u * eighth], high * factor * norm[2u * eighth + 1u]);
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
        let four = lane & ~3u;
        let most = max(max(largest[four], largest[four + 1u]),
                       max(largest[four + 2u], largest[four + 3u]));
        let most_value = bitcast<f32>(most);
        // Below 2^-111 the quotient would pass the largest float: such a unit counts as 0.
        let tiny = most < 0x08000000u;
        let up = select(32512.0 / most_value, 0.0, tiny);
        let low = vec4<i32>(round(v.low * up));
        let high = vec4<i32>(round(v.high * up));
        let first = vec4<i32>(low.x, high.x, low.y, high.y);
        let second = vec4<i32>(low.z, high.z, low.w, high.w);
        let first_high = (first + vec4<i32>(128)) >> vec4<u32>(8u);
        let second_high = (second + vec4<i32>(128)) >> vec4<u32>(8u);
        let sums = low + high;
        partial[lane] = f32(sums.x + sums.y + sums.z + sums.w);
        workgroupBarrier();
        if (eighth < EIGHTHS) {
            staged[eighth] =
                vec4<u32>(bytes(first_high), bytes(second_high), bytes(first), bytes(second));
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
    let first = word & 0x0f0f0f0fu;
    let second = (word >> 4u) & 0x0f0f0f0fu;
    return ((dot4I8Packed(first, v.x) + dot4I8Packed(second, v.y)) << 8u) +
           dot4I8Packed(first, v.z) + dot4I8Packed(second, v.w);
}

// The products of a unit of a column, summed.
fn unit_product(n: u32, unit: u32) -> f32 {
    let words = data[unit * params.stride + n];
    let at = 4u * unit;
    let acc = word_product(words.x, staged[at]) + word_product(words.y, staged[at + 1u]) +
              word_product(words.z, staged[at + 2u]) + word_product(words.w, staged[at + 3u]);
    let of_x = units[unit];
    let line = unit / (GROUP / 32u);
    if (SCALE == SCALE_F16_MIN) {
        let scale = unpack2x16float(scales[line * params.stride + n]);
        return of_x.x * fma(scale.x, f32(acc), scale.y * of_x.y);
    }
    let centred = f32(acc) - 8.0 * of_x.y;
    if (SCALE == SCALE_F32) {
        return of_x.x * bitcast<f32>(scales[line * params.stride + n]) * centred;
    }
    return of_x.x * unpack2x16float(scale_half(0u, line, n)).x * centred;
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

    let first_col = index * COLS * {{ROWS}}u;
    for (var r = 0u; r < {{ROWS}}u; r++) {
        // Past the edge the last column is computed again and not stored.
        let n = min(first_col + r * COLS + lane % COLS, params.cols - 1u);
        var sum = 0.0;
        for (var unit = lane / COLS; unit < UNITS; unit += LANES / COLS) {
            sum += unit_product(n, unit);
        }
        partial[r * LANES + lane] = sum;
    }
    workgroupBarrier();
    if (lane < COLS * {{ROWS}}u && first_col + lane < params.cols) {
        var total = 0.0;
        for (var i = lane % COLS; i < LANES; i += COLS) {
            total += partial[lane / COLS * LANES + i];
        }
        let at = params.col0 + first_col + lane;
        if (ACCUMULATE == 1u) {
            total += y[at];
        }
        y[at] = total;
    }
}
