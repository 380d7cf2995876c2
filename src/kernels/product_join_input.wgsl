// v[r, k] = sum over s of sums[s][r, k], plus y[r, k] with accumulate = 1; y[r, k] = v[r, k];
// out[k / 32][r][k % 32] = f16(n[r, k] * lift[r]) and scale[r] = 1 / lift[r], with
//   n[r, k] = v[r, k] / sqrt(mean(v[r, .]^2) + eps) * weight[k].
//
// Shapes: sums f32, `slices` of them one after another, each [rows, K]; y f32 [rows, K]; weight f32
//   [K]; out f16 [K / 32][x_rows][32]; scale f32 [rows]. K a multiple of 32, at most 32 LANES.
// Mapping: a workgroup a row, folded into two grid dimensions; a lane eight elements at a time.
// Needs: f16. LANES invocations (a multiple of 16), 8 LANES + 128 bytes of workgroup memory.
// Why this version: product_join.wgsl and product_input.wgsl in one, where a norm follows a product
//   that was split along k: a dispatch less, and the row is read where it was just made. The sums
//   of four slices are asked for at a time.
// NaN and infinity: as product_input.wgsl.
// Reference: ref_matmul, of the product before; ref_rmsnorm.

enable f16;

override LANES: u32 = 256;

struct Params {
    rows: u32,
    k: u32,
    x_rows: u32,
    eps: f32,
    low: u32,
    high: u32,
    slices: u32,
    accumulate: u32,
}

struct Eight {
    low: vec4<f32>,
    high: vec4<f32>,
}

@group(0) @binding(0) var<storage, read> sums: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> out: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> scale: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

// use row_halves

fn sum_of(slice: u32, row: u32, eighth: u32) -> Eight {
    let at = (min(slice, params.slices - 1u) * params.rows + row) * (params.k / 4u) + 2u * eighth;
    return Eight(sums[at], sums[at + 1u]);
}

fn plus(v: Eight, more: Eight, is_there: bool) -> Eight {
    return Eight(select(v.low, v.low + more.low, is_there),
                 select(v.high, v.high + more.high, is_there));
}

// Elements 8 * eighth .. of v, which go to y. 0 past the end of the row.
fn joined(row: u32, eighth: u32) -> Eight {
    var v = Eight(vec4<f32>(0.0), vec4<f32>(0.0));
    if (8u * eighth >= params.k) {
        return v;
    }
    let at = row * (params.k / 4u) + 2u * eighth;
    if (params.accumulate == 1u) {
        v = Eight(y[at], y[at + 1u]);
    }
    for (var s = 0u; s < params.slices; s += 4u) {
        let s0 = sum_of(s, row, eighth);
        let s1 = sum_of(s + 1u, row, eighth);
        let s2 = sum_of(s + 2u, row, eighth);
        let s3 = sum_of(s + 3u, row, eighth);
        v = plus(v, s0, true);
        v = plus(v, s1, s + 1u < params.slices);
        v = plus(v, s2, s + 2u < params.slices);
        v = plus(v, s3, s + 3u < params.slices);
    }
    y[at] = v.low;
    y[at + 1u] = v.high;
    return v;
}

fn squares_of(v: Eight) -> f32 {
    return dot(v.low, v.low) + dot(v.high, v.high);
}

fn bits_of_largest(v: Eight) -> u32 {
    let bits = max(bitcast<vec4<u32>>(v.low) & vec4<u32>(0x7fffffffu),
                   bitcast<vec4<u32>>(v.high) & vec4<u32>(0x7fffffffu));
    return max(max(bits.x, bits.y), max(bits.z, bits.w));
}

fn weighted(v: Eight, eighth: u32) -> Eight {
    if (8u * eighth >= params.k) {
        return v;
    }
    return Eight(v.low * weight[2u * eighth], v.high * weight[2u * eighth + 1u]);
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
    let v0 = joined(row, e0);
    let v1 = joined(row, e1);
    let v2 = joined(row, e2);
    let v3 = joined(row, e3);
    let n0 = weighted(v0, e0);
    let n1 = weighted(v1, e1);
    let n2 = weighted(v2, e2);
    let n3 = weighted(v3, e3);
    let most = max(max(bits_of_largest(n0), bits_of_largest(n1)),
                   max(bits_of_largest(n2), bits_of_largest(n3)));
    let sum = squares_of(v0) + squares_of(v1) + squares_of(v2) + squares_of(v3);
    let factors = row_factors(row, lane, most, sum, true);
    put(row, e0, n0, factors.x, factors.y);
    put(row, e1, n1, factors.x, factors.y);
    put(row, e2, n2, factors.x, factors.y);
    put(row, e3, n3, factors.x, factors.y);
}
