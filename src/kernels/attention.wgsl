// out[r, h, :] = sum_p softmax_p(score) V[p, kv] over p = max(0, position[r] + 1 - window) ..
// position[r], score = scale * q[r, h] . K[p, kv] or softcap * tanh(score / softcap) of it, kv = h
// / (Hq / Hkv), by streaming softmax: running maximum m, sum l and weighted sum o; a larger m
// rescales l and o.
//
// Shapes: q f32 [rows, Hq D] read as vec4; caches [block][Hkv][256] rows of row_words; row_info u32
//   pairs (position, table_offset) [rows]; out f32 [rows, Hq, D], or where there are splits of the
//   positions [rows, Hq, splits, D + 4]: o, m, l and two unused of each, for attention_join.
// Mapping: a workgroup of 64 lanes takes one KV head and a tile of at most QUERIES queries:
//   tile_rows rows by tile_heads of the query heads that share the KV head, so K and V are read
//   once for all of them. It walks the cache a block of 256 positions at a time, from the block
//   where the window of the tile's first row begins; splits are counted from there, and the last
//   split goes to the end. In a block first a lane is four positions (scores), then, after the
//   weights are in workgroup memory, a lane is four values of D at every (256 / D)th position (o).
//   Tiles fold into two grid dimensions.
// Rows of several sequences may meet in a tile: then it makes a pass a row, the others masked.
//   Masked positions are never multiplied: what is in the cache there (NaN of another sequence too)
//   cannot reach a query that must not see it.
// Needs: nothing; 1312 bytes of workgroup memory a query.
// Why this version: three barriers for 256 positions, memory linear in the context, and four
//   products for each number loaded, in both halves.
// Reference: ref_attention.

// use cache_type
// use cache_quad
// use softcap
// option QUERIES = 4

struct Params {
    first_row: u32,       // of the views; rows below count from there
    rows: u32,
    q_heads: u32,
    kv_heads: u32,
    head_dim: u32,
    tile_rows: u32,
    tile_heads: u32,
    head_tiles: u32,
    splits: u32,
    split_blocks: u32,    // blocks of positions a split
    first_tile: u32,      // tiles [first_tile, tile_end) in this dispatch
    tile_end: u32,
    scale: f32,
    window: u32,          // positions a row sees, at least 1
    softcap: f32,         // 0: none
    row_words: u32,       // of 16 bytes, a row of the cache
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

var<workgroup> weights: array<array<f32, 256>, {{QUERIES}}>;
var<workgroup> lane_values: array<array<f32, 64>, {{QUERIES}}>;
var<workgroup> eighth_highest: array<array<f32, 8>, {{QUERIES}}>;

// The first position that a row at `position` sees.
fn window_start(position: u32) -> u32 {
    return position + 1u - min(params.window, position + 1u);
}

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
    let first_row = (query_tile / params.head_tiles) * params.tile_rows;
    let row_count = min(params.tile_rows, params.rows - first_row);
    let heads = params.q_heads / params.kv_heads;
    let first_head = (query_tile % params.head_tiles) * params.tile_heads;
    let head_count = min(params.tile_heads, heads - first_head);
    let quads = params.head_dim / 4u;

    // Query j is row j / head_count, head j % head_count of the tile; past the last it repeats the
    // last row.
    var q_at: array<u32, {{QUERIES}}>;
    var limit: array<u32, {{QUERIES}}>;      // the last position a query sees, and the first
    var start: array<u32, {{QUERIES}}>;
    var highest: array<f32, {{QUERIES}}>;
    var total: array<f32, {{QUERIES}}>;
    var o: array<vec4<f32>, {{QUERIES}}>;
    for (var j = 0u; j < {{QUERIES}}u; j++) {
        let row = params.first_row + first_row + min(j / head_count, row_count - 1u);
        let head = kv_head * heads + first_head + j % head_count;
        q_at[j] = (row * params.q_heads + head) * quads;
        limit[j] = row_info[2u * row];
        start[j] = window_start(limit[j]);
        highest[j] = LOWEST;
    }

    let quad = lane % quads;        // of D, in the second half
    let part = lane / quads;        // of the positions; a last part short of lanes stays idle
    let parts = LANES / quads;

    var alike = true;
    let info_at = 2u * (params.first_row + first_row);     // of the tile's first row
    var lowest_position = row_info[info_at];
    var last_position = lowest_position;
    for (var i = 1u; i < row_count; i++) {
        alike = alike && row_info[info_at + 2u * i + 1u] == row_info[info_at + 1u];
        lowest_position = min(lowest_position, row_info[info_at + 2u * i]);
        last_position = max(last_position, row_info[info_at + 2u * i]);
    }
    let passes = select(row_count, 1u, alike);
    for (var pass_row = 0u; pass_row < passes; pass_row++) {
        // Positions open_start .. open_end - 1 are seen by every query of the tile.
        var open_start = window_start(last_position);
        var open_end = lowest_position + 1u;
        var first = window_start(lowest_position);
        var last = last_position;
        if (!alike) {
            open_end = 0u;
            last = row_info[info_at + 2u * pass_row];
            first = window_start(last);
        }
        let table = row_info[info_at + 2u * pass_row + 1u];
        let block_start = first / BLOCK + split * params.split_blocks;
        var block_end = last / BLOCK + 1u;
        if (split + 1u < params.splits) {
            block_end = min(block_end, block_start + params.split_blocks);
        }
        for (var b = block_start; b < block_end; b++) {
            let slots = (block_table[table + b] * params.kv_heads + kv_head) * BLOCK;
            let count = min(BLOCK, last + 1u - b * BLOCK);

            // Slots past `count` hold no position of this sequence yet; they are read, and masked
            // like those before the window.
            let position = vec4<u32>(b * BLOCK + lane) + vec4<u32>(0u, 64u, 128u, 192u);
            // Set to 0 by hand: the zero of the declaration does not come again on lavapipe's
            // second turn.
            var score: array<vec4<f32>, {{QUERIES}}>;
            for (var j = 0u; j < {{QUERIES}}u; j++) {
                score[j] = vec4<f32>(0.0);
            }
            for (var d = 0u; d < quads; d++) {
                let k0 = k_quad(slots + lane, d);
                let k1 = k_quad(slots + lane + 64u, d);
                let k2 = k_quad(slots + lane + 128u, d);
                let k3 = k_quad(slots + lane + 192u, d);
                for (var j = 0u; j < {{QUERIES}}u; j++) {
                    let v = q[q_at[j] + d];
                    var s = score[j];
                    s = fma(vec4<f32>(v.x), vec4<f32>(k0.x, k1.x, k2.x, k3.x), s);
                    s = fma(vec4<f32>(v.y), vec4<f32>(k0.y, k1.y, k2.y, k3.y), s);
                    s = fma(vec4<f32>(v.z), vec4<f32>(k0.z, k1.z, k2.z, k3.z), s);
                    s = fma(vec4<f32>(v.w), vec4<f32>(k0.w, k1.w, k2.w, k3.w), s);
                    score[j] = s;
                }
            }
            for (var j = 0u; j < {{QUERIES}}u; j++) {
                let mine = alike || j / head_count == pass_row;
                let seen = (position <= vec4<u32>(limit[j])) & (position >= vec4<u32>(start[j])) &
                    vec4<bool>(mine);
                let s = select(vec4<f32>(LOWEST), capped4(score[j] * params.scale), seen);
                score[j] = s;
                lane_values[j][lane] = max(max(s.x, s.y), max(s.z, s.w));
            }
            workgroupBarrier();
            for (var t = lane; t < {{QUERIES}}u * 8u; t += LANES) {
                var m = lane_values[t / 8u][(t % 8u) * 8u];
                for (var i = 1u; i < 8u; i++) {
                    m = max(m, lane_values[t / 8u][(t % 8u) * 8u + i]);
                }
                eighth_highest[t / 8u][t % 8u] = m;
            }
            workgroupBarrier();
            for (var j = 0u; j < {{QUERIES}}u; j++) {
                var m = highest[j];
                for (var i = 0u; i < 8u; i++) {
                    m = max(m, eighth_highest[j][i]);
                }
                let shrink = exp(highest[j] - m);
                highest[j] = m;
                let mine = alike || j / head_count == pass_row;
                let seen = (position <= vec4<u32>(limit[j])) & (position >= vec4<u32>(start[j])) &
                    vec4<bool>(mine);
                let weight = select(vec4<f32>(0.0), exp(score[j] - vec4<f32>(m)), seen);
                weights[j][lane] = weight.x;
                weights[j][lane + 64u] = weight.y;
                weights[j][lane + 128u] = weight.z;
                weights[j][lane + 192u] = weight.w;
                total[j] = total[j] * shrink + ((weight.x + weight.y) + (weight.z + weight.w));
                o[j] *= shrink;
            }
            workgroupBarrier();

            if (part < parts) {
                // Slots skipped .. masked - 1 and open .. count - 1 are seen by some of the
                // queries, those between by all.
                let skipped = clamp(first, b * BLOCK, b * BLOCK + count) - b * BLOCK;
                let open = clamp(open_end, b * BLOCK, b * BLOCK + count) - b * BLOCK;
                let masked = min(clamp(open_start, b * BLOCK, b * BLOCK + count) - b * BLOCK, open);
                var s = part + (max(skipped, part) - part + parts - 1u) / parts * parts;
                for (var stretch = 0u; stretch < 2u; stretch++) {
                    for (; s < select(count, masked, stretch == 0u); s += parts) {
                        let v = v_quad(slots + s, quad);
                        for (var j = 0u; j < {{QUERIES}}u; j++) {
                            let mine = alike || j / head_count == pass_row;
                            let at = b * BLOCK + s;
                            let seen = at <= limit[j] && at >= start[j] && mine;
                            o[j] = select(o[j], fma(vec4<f32>(weights[j][s]), v, o[j]), seen);
                        }
                    }
                    for (; s < open; s += parts) {
                        let v = v_quad(slots + s, quad);
                        for (var j = 0u; j < {{QUERIES}}u; j++) {
                            o[j] = fma(vec4<f32>(weights[j][s]), v, o[j]);
                        }
                    }
                }
            }
        }
    }

    workgroupBarrier();
    for (var j = 0u; j < {{QUERIES}}u; j++) {
        for (var i = 0u; i < 4u; i++) {
            weights[j][4u * lane + i] = o[j][i];
        }
        lane_values[j][lane] = total[j];
    }
    workgroupBarrier();
    for (var j = 0u; j < min({{QUERIES}}u, row_count * head_count); j++) {
        var sum = 0.0;
        for (var i = 0u; i < LANES; i++) {
            sum += lane_values[j][i];
        }
        let row = first_row + j / head_count;
        let head = row * params.q_heads + kv_head * heads + first_head + j % head_count;
        let direct = params.splits == 1u;
        let at = select((head * params.splits + split) * (params.head_dim + 4u),
                        (params.first_row * params.q_heads + head) * params.head_dim, direct);
        for (var d = lane; d < params.head_dim; d += LANES) {
            var value = 0.0;
            for (var i = 0u; i < parts; i++) {
                value += weights[j][i * params.head_dim + d];
            }
            out[at + d] = select(value, value / sum, direct);
        }
        if (lane == 0u && !direct) {
            out[at + params.head_dim] = highest[j];
            out[at + params.head_dim + 1u] = sum;
        }
    }
}
