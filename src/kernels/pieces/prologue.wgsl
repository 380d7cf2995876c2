// The rows v of a product's inputs, eight elements at a time:
//   PROLOGUE 0  v = x
//            1  v = rmsnorm(x) = x / sqrt(mean(x^2) + eps) * weight
//            2  v = silu(x[k]) * x[K + k]
//
// x f32 [rows, K], of PROLOGUE 2 [rows, 2 K], read as vec4; weight f32 [K] (PROLOGUE 1, else any
// buffer). A kernel that uses this piece has k in its Params.

override PROLOGUE: u32 = 0;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<f32>>;

struct Eight {
    low: vec4<f32>,
    high: vec4<f32>,
}

fn silu(gate: vec4<f32>) -> vec4<f32> {
    return gate / (vec4<f32>(1.0) + exp(-gate));
}

// Elements 8 * eighth .. of v; of PROLOGUE 1 but for the row's factor. 0 past the end of the row.
fn inputs(row: u32, eighth: u32) -> Eight {
    if (8u * eighth >= params.k) {
        return Eight(vec4<f32>(0.0), vec4<f32>(0.0));
    }
    let fours = params.k / 4u;
    if (PROLOGUE == 2u) {
        let at = 2u * (row * fours + eighth);
        return Eight(silu(x[at]) * x[at + fours], silu(x[at + 1u]) * x[at + fours + 1u]);
    }
    let at = row * fours + 2u * eighth;
    if (PROLOGUE == 1u) {
        return Eight(x[at] * weight[2u * eighth], x[at + 1u] * weight[2u * eighth + 1u]);
    }
    return Eight(x[at], x[at + 1u]);
}

fn squares_of(row: u32, eighth: u32) -> f32 {
    if (PROLOGUE != 1u || 8u * eighth >= params.k) {
        return 0.0;
    }
    let at = row * (params.k / 4u) + 2u * eighth;
    return dot(x[at], x[at]) + dot(x[at + 1u], x[at + 1u]);
}

fn bits_of_largest(v: Eight) -> u32 {
    let bits = max(bitcast<vec4<u32>>(v.low) & vec4<u32>(0x7fffffffu),
                   bitcast<vec4<u32>>(v.high) & vec4<u32>(0x7fffffffu));
    return max(max(bits.x, bits.y), max(bits.z, bits.w));
}
