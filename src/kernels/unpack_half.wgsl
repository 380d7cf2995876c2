// out[c, k] = f16(W[c, k] * up[c]) and scale[c] = 1 / up[c]: a weight unpacked once for many rows.
//
// Shapes: W one part of a weight (pieces weight and weight_f16); its rows [row0, row_end) become
//   rows 0 .. of out, f16 [.., K], and of scale, f32. K a multiple of 8.
// Mapping: a workgroup a row, folded into two grid dimensions; a lane eight elements at a time.
// Needs: f16. LANES invocations, 4 bytes of workgroup memory.
// Why this version: the matrix units want f16 and read every weight once for a tile of rows;
//   decoding in their loop costs more than writing the halves out once. up[c] is 1 unless the row's
//   values leave what f16 holds well (2^-12 .. 2^15); then it is the power of two that brings the
//   largest to 2^14, so that no format overflows.
// Reference: weight_dequantize_row.

enable f16;

// use weight
// use weight_f16

override LANES: u32 = 64;

const EXPONENT_LOW = 115u;     // of 2^-12
const EXPONENT_HIGH = 141u;    // of 2^14
const EXPONENT_NONE = 255u;    // of NaN and infinity

struct Params {
    row0: u32,
    row_end: u32,
    k: u32,
    stride: u32,      // of the part's tables
}

@group(0) @binding(3) var<storage, read_write> out: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> scale: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

// The bits of the largest magnitude of the row, or of a bound on it.
var<workgroup> largest: atomic<u32>;

fn magnitude_bits(v: f32) -> u32 {
    return bitcast<u32>(v) & 0x7fffffffu;
}

fn largest_of(v: vec4<f32>) -> u32 {
    let m = bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu);
    return max(max(m.x, m.y), max(m.z, m.w));
}

// What no stored number passes, times the scale.
fn top_of_layout() -> f32 {
    let minimum = SCALE == SCALE_F16_MIN || SCALE == SCALE_K_MIN;
    if (LAYOUT == LAYOUT_Q8) {
        return 128.0;
    }
    let top = select(select(8.0, 16.0, LAYOUT == LAYOUT_Q5), 32.0, LAYOUT == LAYOUT_Q6);
    return select(top, 2.0 * top, minimum);
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let to = group.y * groups.x + group.x;
    let row = params.row0 + to;
    if (row >= params.row_end) {
        return;
    }
    let eighths = params.k / 8u;
    var most = 0u;
    for (var e = lane; e < eighths; e += LANES) {
        let s = weight_scale(row, e / 4u, e % 4u);
        if (LAYOUT < LAYOUT_Q8) {
            let w = weight_eight(row, e / 4u, e % 4u, s);
            most = max(most, max(largest_of(w.low), largest_of(w.high)));
        } else {
            most = max(most, magnitude_bits(abs(s.x) * top_of_layout() + abs(s.y)));
        }
    }
    atomicMax(&largest, most);
    workgroupBarrier();

    // Powers of two by their exponents; a row of zeros, NaN or infinity stays as it is.
    let exponent = atomicLoad(&largest) >> 23u;
    let held = exponent == 0u || exponent == EXPONENT_NONE ||
               (exponent >= EXPONENT_LOW && exponent <= EXPONENT_HIGH);
    let top = max(exponent, 16u);
    let up = select(bitcast<f32>((268u - top) << 23u), 1.0, held);
    if (lane == 0u) {
        scale[to] = select(bitcast<f32>((top - 14u) << 23u), 1.0, held);
    }
    for (var e = lane; e < eighths; e += LANES) {
        let kb = e / 4u;
        out[to * eighths + e] =
            weight_pairs(row, kb, e % 4u, weight_scale(row, kb, e % 4u) * up);
    }
}
