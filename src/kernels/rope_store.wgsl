// q, k turn by adjacent pairs: (a, b) -> magnitude (a cos t - b sin t, a sin t + b cos t), t =
// position * inv_freq[i] for the pair i = (2i, 2i+1) of a head; q goes to q_out, k and v to the
// blocked cache at the row's position.
//
// Shapes: qkv f32 [rows, (q_heads + 2 kv_heads) D]; turns u32 pairs (low, high) [rotary / 2];
//   row_info u32 pairs (position, table_offset) [rows]; q_out f32 [rows, q_heads D]; caches f32
//   [block][kv_heads][256][D].
// Mapping: one lane a pair of values, 64 lanes a workgroup, folded into two grid dimensions.
// Needs: nothing. Seven storage buffers.
// Why this version: an f32 angle at position 131071 is off by 4e-3, and WGSL promises sin and cos
//   only to 2^-11. So the host gives each frequency as a 64-bit fraction of a turn; position *
//   fraction modulo 1 is exact integer arithmetic to 2^-32 of a turn (1.5e-9 rad), the octant is
//   its top bits, and the rest, within +-pi/4, goes through Taylor polynomials whose truncation is
//   below 3e-9. What is left is f32 rounding, below 3e-7.
// Reference: ref_rope_store.

struct Params {
    base: u32,      // first pair of this dispatch
    count: u32,     // pairs in all
    q_heads: u32,
    kv_heads: u32,
    head_dim: u32,
    rotary: u32,
    magnitude: f32,
}

@group(0) @binding(0) var<storage, read> qkv: array<f32>;
@group(0) @binding(1) var<storage, read> turns: array<u32>;
@group(0) @binding(2) var<storage, read> row_info: array<u32>;
@group(0) @binding(3) var<storage, read> block_table: array<u32>;
@group(0) @binding(4) var<storage, read_write> q_out: array<f32>;
@group(0) @binding(5) var<storage, read_write> k_cache: array<f32>;
@group(0) @binding(6) var<storage, read_write> v_cache: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

const BLOCK = 256u;

fn multiply_high(a: u32, b: u32) -> u32 {
    let a0 = a & 0xffffu;
    let a1 = a >> 16u;
    let b0 = b & 0xffffu;
    let b1 = b >> 16u;
    let middle = a1 * b0 + ((a0 * b0) >> 16u);
    let other = a0 * b1 + (middle & 0xffffu);
    return a1 * b1 + (middle >> 16u) + (other >> 16u);
}

// (cos, sin) of position * inv_freq.
fn rotation(position: u32, low: u32, high: u32) -> vec2<f32> {
    // Modulo 2^32: the whole turns fall away.
    let turn = position * high + multiply_high(position, low);
    let quarter = (turn + 0x20000000u) >> 30u;
    let rest = bitcast<i32>(turn - (quarter << 30u));           // within +- 1/8 turn
    let t = f32(rest) * 1.4629180792671596e-9;                  // 2 pi / 2^32
    let u = t * t;
    let s5 = fma(u, fma(u, 2.7557319e-6, -1.9841270e-4), 8.3333333e-3);
    let s = t * fma(u, fma(u, s5, -0.16666667), 1.0);
    let c6 = fma(u, fma(u, -2.7557319e-7, 2.4801587e-5), -1.3888889e-3);
    let c = fma(u, fma(u, fma(u, c6, 4.1666667e-2), -0.5), 1.0);
    let swapped = select(vec2<f32>(c, s), vec2<f32>(-s, c), (quarter & 1u) == 1u);
    return select(swapped, -swapped, (quarter & 2u) == 2u);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let index = params.base + (group.y * groups.x + group.x) * 64u + lane;
    if (index >= params.count) {
        return;
    }
    let heads = params.q_heads + 2u * params.kv_heads;
    let half = params.head_dim / 2u;
    let pair = index % half;
    let head = (index / half) % heads;
    let row = index / (half * heads);
    let position = row_info[2u * row];

    let at = 2u * index;
    var value = vec2<f32>(qkv[at], qkv[at + 1u]);
    if (head < params.q_heads + params.kv_heads && 2u * pair < params.rotary) {
        let r = params.magnitude * rotation(position, turns[2u * pair], turns[2u * pair + 1u]);
        value = vec2<f32>(value.x * r.x - value.y * r.y, value.x * r.y + value.y * r.x);
    }
    if (head < params.q_heads) {
        let to = (row * params.q_heads + head) * params.head_dim + 2u * pair;
        q_out[to] = value.x;
        q_out[to + 1u] = value.y;
        return;
    }
    let is_value = head >= params.q_heads + params.kv_heads;
    let kv_head = head - params.q_heads - select(0u, params.kv_heads, is_value);
    let block = block_table[row_info[2u * row + 1u] + position / BLOCK];
    let slot = (block * params.kv_heads + kv_head) * BLOCK + position % BLOCK;
    let to = slot * params.head_dim + 2u * pair;
    if (is_value) {
        v_cache[to] = value.x;
        v_cache[to + 1u] = value.y;
    } else {
        k_cache[to] = value.x;
        k_cache[to + 1u] = value.y;
    }
}
