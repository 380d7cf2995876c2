// out[r, h, :] = sum_p softmax_p(scale * q[r, h] . K[p, kv]) V[p, kv] over the positions that row
//   r sees, a row at a time: positions position[r] - window + 1 .. position[r], kv = h / (Hq /
//   Hkv).
//
// Shapes: as attention.wgsl; out f32 [rows, Hq, D], or where there are splits [rows, Hq, splits,
//   D + 4]: o, m, l and two unused of each, for attention_join.
// Mapping: a workgroup of 64 lanes takes one row, one KV head, HEADS of its query heads and a
//   split of the positions. It walks them 64 at a time: first a lane is a position (scores), then
//   a quadruple of D and a share of the positions (o). Maxima and sums go through trees in
//   workgroup memory.
// Needs: nothing; 1536 bytes of workgroup memory a query head, 12 KiB at the most of 8.
// Why this version: a decode step has few queries: what counts is how soon the positions are read
//   by many workgroups, and that no lane adds up alone what 64 can. Positions outside a row's
//   view are never multiplied.
// Reference: ref_attention.

// use cache_type
// use cache_quad
// use softcap
// option HEADS = 4

struct Params {
    first_row: u32,      // of the views; rows count from there
    q_heads: u32,
    kv_heads: u32,
    head_dim: u32,
    head_tiles: u32,
    splits: u32,
    split_chunks: u32,   // chunks of 64 positions a split
    first_tile: u32,     // tiles [first_tile, tile_end) in this dispatch
    tile_end: u32,
    scale: f32,
    window: u32,         // positions a row sees, at least 1
    softcap: f32,        // 0: none
    row_words: u32,      // of 16 bytes, a row of the cache
}

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> k_cache: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> v_cache: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> row_info: array<u32>;
@group(0) @binding(4) var<storage, read> block_table: array<u32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

const BLOCK = 256u;
const LANES = 64u;
const LOWEST = -3.0e38;

var<workgroup> weights: array<array<f32, 64>, {{HEADS}}>;
var<workgroup> tree: array<array<f32, 64>, {{HEADS}}>;
var<workgroup> shares: array<array<vec4<f32>, 64>, {{HEADS}}>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let tile = params.first_tile + group.y * groups.x + group.x;
    if (tile >= params.tile_end) {
        return;
    }
    let split = tile % params.splits;
    let kv_head = (tile / params.splits) % params.kv_heads;
    let query_tile = tile / (params.splits * params.kv_heads);
    let row = params.first_row + query_tile / params.head_tiles;
    let group_heads = params.q_heads / params.kv_heads;
    let first_head = (query_tile % params.head_tiles) * {{HEADS}}u;
    let head_count = min({{HEADS}}u, group_heads - first_head);
    let quads = params.head_dim / 4u;
    let first_out = row * params.q_heads + kv_head * group_heads + first_head;

    let limit = row_info[2u * row];
    let table = row_info[2u * row + 1u];
    let start = limit + 1u - min(params.window, limit + 1u);
    // The last split goes on to the row's own position.
    let first_chunk = start / LANES + split * params.split_chunks;
    var end_chunk = first_chunk + params.split_chunks;
    if (split + 1u == params.splits) {
        end_chunk = max(end_chunk, limit / LANES + 1u);
    }
    end_chunk = min(end_chunk, limit / LANES + 1u);

    var highest: array<f32, {{HEADS}}>;
    var total: array<f32, {{HEADS}}>;
    var o: array<vec4<f32>, {{HEADS}}>;
    for (var h = 0u; h < {{HEADS}}u; h++) {
        highest[h] = LOWEST;
        total[h] = 0.0;
        o[h] = vec4<f32>(0.0);
    }
    let quad = lane % quads;
    let part = lane / quads;
    let parts = LANES / quads;

    for (var chunk = first_chunk; chunk < end_chunk; chunk++) {
        let position = chunk * LANES + lane;
        let seen = position >= start && position <= limit;
        let block = block_table[table + chunk * LANES / BLOCK];
        let base = (block * params.kv_heads + kv_head) * BLOCK + chunk * LANES % BLOCK;

        var score: array<f32, {{HEADS}}>;
        for (var h = 0u; h < {{HEADS}}u; h++) {
            score[h] = 0.0;
        }
        if (seen) {
            for (var d = 0u; d < quads; d++) {
                let k = k_quad(base + lane, d);
                for (var h = 0u; h < {{HEADS}}u; h++) {
                    score[h] += dot(q[(first_out + min(h, head_count - 1u)) * quads + d], k);
                }
            }
        }
        for (var h = 0u; h < {{HEADS}}u; h++) {
            score[h] = select(LOWEST, capped(score[h] * params.scale), seen);
            tree[h][lane] = score[h];
        }
        workgroupBarrier();
        for (var far = LANES / 2u; far > 0u; far /= 2u) {
            if (lane < far) {
                for (var h = 0u; h < {{HEADS}}u; h++) {
                    tree[h][lane] = max(tree[h][lane], tree[h][lane + far]);
                }
            }
            workgroupBarrier();
        }
        for (var h = 0u; h < {{HEADS}}u; h++) {
            let m = max(highest[h], tree[h][0]);
            let shrink = exp(highest[h] - m);
            highest[h] = m;
            total[h] *= shrink;
            o[h] *= shrink;
            let weight = select(0.0, exp(score[h] - m), seen);
            weights[h][lane] = weight;
            total[h] += weight;
        }
        workgroupBarrier();

        let first = max(start, chunk * LANES) - chunk * LANES;
        let end = min(limit + 1u, (chunk + 1u) * LANES) - chunk * LANES;
        if (part < parts) {
            for (var s = first + part; s < end; s += parts) {
                let v = v_quad(base + s, quad);
                for (var h = 0u; h < {{HEADS}}u; h++) {
                    o[h] += weights[h][s] * v;
                }
            }
        }
        workgroupBarrier();
    }

    for (var h = 0u; h < {{HEADS}}u; h++) {
        tree[h][lane] = total[h];
        shares[h][lane] = o[h];
    }
    workgroupBarrier();
    for (var far = LANES / 2u; far > 0u; far /= 2u) {
        if (lane < far) {
            for (var h = 0u; h < {{HEADS}}u; h++) {
                tree[h][lane] += tree[h][lane + far];
            }
        }
        workgroupBarrier();
    }
    if (lane < quads) {
        for (var h = 0u; h < head_count; h++) {
            var sum = shares[h][lane];
            for (var p = 1u; p < parts; p++) {
                sum += shares[h][p * quads + lane];
            }
            if (params.splits == 1u) {
                let at = (first_out + h) * params.head_dim + 4u * lane;
                let mean = sum / tree[h][0];
                out[at] = mean.x;
                out[at + 1u] = mean.y;
                out[at + 2u] = mean.z;
                out[at + 3u] = mean.w;
            } else {
                let local = first_out + h - params.first_row * params.q_heads;
                let part_at = (local * params.splits + split) * (params.head_dim + 4u);
                let at = part_at + 4u * lane;
                out[at] = sum.x;
                out[at + 1u] = sum.y;
                out[at + 2u] = sum.z;
                out[at + 3u] = sum.w;
                if (lane == 0u) {
                    out[part_at + params.head_dim] = highest[h];
                    out[part_at + params.head_dim + 1u] = tree[h][0];
                }
            }
        }
    }
}
