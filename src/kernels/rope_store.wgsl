// q, k turn by adjacent pairs: (a, b) -> magnitude (a cos t - b sin t, a sin t + b cos t), t =
// position * inv_freq[i] for the pair i = (2i, 2i+1) of a head; q goes to q_out, k and v to the
// blocked cache at the row's position, as f32, halves, or int8 times a scale per 32.
//
// Shapes: qkv f32 [rows, (q_heads + 2 kv_heads) D] read as vec4; turns u32 pairs (low, high)
//   [rotary / 2]; row_info u32 pairs (position, table_offset) [rows]; q_out f32 [rows, q_heads D];
//   caches u32, [block][kv_heads][256] rows of row_words.
// Mapping: one lane four values, 64 lanes a workgroup, folded into two grid dimensions. With CACHE
//   2 a head takes whole groups of eight lanes, 32 values, that find their largest together.
// Needs: nothing. Seven storage buffers; 256 bytes of workgroup memory.
// Why this version: an f32 angle at position 131071 is off by 4e-3, and WGSL promises sin and cos
//   only to 2^-11: see the piece rotation. The cache is written by single words: two lanes may
//   share 16 bytes.
// Reference: ref_rope_store.

// use cache_type
// use rotation

struct Params {
    base: u32,        // first lane of this dispatch
    count: u32,       // lanes in all
    q_heads: u32,
    kv_heads: u32,
    head_dim: u32,
    rotary: u32,
    row_words: u32,   // of 16 bytes, a row of the cache
    magnitude: f32,
}

@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> turns: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read> row_info: array<u32>;
@group(0) @binding(3) var<storage, read> block_table: array<u32>;
@group(0) @binding(4) var<storage, read_write> q_out: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> k_cache: array<u32>;
@group(0) @binding(6) var<storage, read_write> v_cache: array<u32>;
@group(1) @binding(0) var<uniform> params: Params;

const BLOCK = 256u;
const GROUP = 8u;   // lanes under one scale

var<workgroup> largest: array<u32, 64>;

fn store(is_value: bool, at: u32, word: u32) {
    if (is_value) {
        v_cache[at] = word;
    } else {
        k_cache[at] = word;
    }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let index = params.base + (group.y * groups.x + group.x) * 64u + lane;
    let heads = params.q_heads + 2u * params.kv_heads;
    let quads = params.head_dim / 4u;
    let lanes = select(quads, (quads + GROUP - 1u) / GROUP * GROUP, CACHE == CACHE_Q8);
    let quad = index % lanes;
    let head = (index / lanes) % heads;
    let row = index / (lanes * heads);
    let live = index < params.count && quad < quads;

    var value = vec4<f32>(0.0);
    var position = 0u;
    if (live) {
        position = row_info[2u * row];
        value = qkv[(row * heads + head) * quads + quad];
        if (head < params.q_heads + params.kv_heads) {
            let pair = 2u * quad;
            value = vec4<f32>(
                turned_by(value.xy, turning_of(pair, fraction_of(pair), position)),
                turned_by(value.zw, turning_of(pair + 1u, fraction_of(pair + 1u), position)));
        }
    }
    var most = 0u;
    if (CACHE == CACHE_Q8) {
        largest[lane] = bits_of_largest(value);
        workgroupBarrier();
        for (var i = 0u; i < GROUP; i++) {
            most = max(most, largest[lane / GROUP * GROUP + i]);
        }
    }
    if (!live) {
        return;
    }
    if (head < params.q_heads) {
        q_out[(row * params.q_heads + head) * quads + quad] = value;
        return;
    }
    let is_value = head >= params.q_heads + params.kv_heads;
    let kv_head = head - params.q_heads - select(0u, params.kv_heads, is_value);
    let block = block_table[row_info[2u * row + 1u] + position / BLOCK];
    let slot = (block * params.kv_heads + kv_head) * BLOCK + position % BLOCK;
    let to = 4u * slot * params.row_words;
    if (CACHE == CACHE_F32) {
        let words = bitcast<vec4<u32>>(value);
        store(is_value, to + 4u * quad, words.x);
        store(is_value, to + 4u * quad + 1u, words.y);
        store(is_value, to + 4u * quad + 2u, words.z);
        store(is_value, to + 4u * quad + 3u, words.w);
    } else if (CACHE == CACHE_F16) {
        store(is_value, to + 2u * quad, pack2x16float(held(value.xy)));
        store(is_value, to + 2u * quad + 1u, pack2x16float(held(value.zw)));
    } else {
        let up = select(127.0 / bitcast<f32>(most), 0.0, is_tiny(most));
        store(is_value, to + quad, bytes(vec4<i32>(round(value * up))));
        if (quad % GROUP == 0u) {
            store(is_value, to + quads + quad / GROUP, scale_of(most));
        }
    }
}
