// out[r, k] = f16(x[r, k] * up[r]) and scale[r] = 1 / up[r].
//
// Shapes: x f32 [rows, K], out f16 [rows, K], scale f32 [rows]; K a multiple of 4.
// Mapping: a workgroup a row, folded into two grid dimensions; a lane four elements at a time.
// Needs: f16. LANES invocations, 4 bytes of workgroup memory.
// Why this version: the inputs of a product on matrix units. up[r] is 1 unless the row's largest
//   magnitude is outside 2^-12 .. 2^15; then it is the power of two that brings it to 2^14: a row
//   with 7e4 neither overflows nor loses its small values, and no other row is touched.
// Reference: ref_matmul, of the product that follows.

enable f16;

override LANES: u32 = 128;

const EXPONENT_LOW = 115u;     // of 2^-12
const EXPONENT_HIGH = 141u;    // of 2^14
const EXPONENT_NONE = 255u;    // of NaN and infinity

struct Params {
    rows: u32,
    k: u32,
}

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> out: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> scale: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

// The bits of the largest magnitude of the row: NaN and infinity are above all numbers.
var<workgroup> largest: atomic<u32>;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let row = group.y * groups.x + group.x;
    if (row >= params.rows) {
        return;
    }
    let fours = params.k / 4u;
    var most = vec4<u32>(0u);
    for (var i = lane; i < fours; i += LANES) {
        most = max(most, bitcast<vec4<u32>>(x[row * fours + i]) & vec4<u32>(0x7fffffffu));
    }
    atomicMax(&largest, max(max(most.x, most.y), max(most.z, most.w)));
    workgroupBarrier();

    // Powers of two by their exponents; a row of zeros, NaN or infinity stays as it is.
    let exponent = atomicLoad(&largest) >> 23u;
    let held = exponent == 0u || exponent == EXPONENT_NONE ||
               (exponent >= EXPONENT_LOW && exponent <= EXPONENT_HIGH);
    let top = max(exponent, 16u);
    let up = select(bitcast<f32>((268u - top) << 23u), 1.0, held);
    if (lane == 0u) {
        scale[row] = select(bitcast<f32>((top - 14u) << 23u), 1.0, held);
    }
    for (var i = lane; i < fours; i += LANES) {
        let v = x[row * fours + i] * up;
        out[row * fours + i] =
            vec2<u32>(bitcast<u32>(vec2<f16>(v.xy)), bitcast<u32>(vec2<f16>(v.zw)));
    }
}
