// out[r, h, :] = sum_p softmax_p(scale * q[r, h] . K[p, kv]) V[p, kv] over p = 0 .. position[r], kv = h / (Hq / Hkv),
// by streaming softmax: running maximum m, sum l and weighted sum o; a larger m rescales l and o.
//
// Shapes: q f32 [rows, Hq D] read as vec4; caches f32 [block][Hkv][256][D] (K read as vec4); row_info u32 pairs
//   (position, table_offset) [rows]; parts f32 [rows, Hq, splits, D + 2]: o, m and l of each split of the positions;
//   attention_join makes the output of them.
// Mapping: a workgroup of 64 lanes takes one KV head and a tile of at most QUERIES queries: tile_rows rows by
//   tile_heads of the query heads that share the KV head, so K and V are read once for all of them. It walks the
//   cache a block of 256 positions at a time: first a lane is four positions (scores), then, after the weights are in
//   workgroup memory, a lane is up to WIDTH values of D (o). Tiles fold into two grid dimensions.
// Rows of several sequences may meet in a tile: then it makes a pass a row, the others masked. Masked positions are
//   never multiplied: what is in the cache there (NaN of another sequence too) cannot reach a query that must not
//   see it.
// Needs: nothing; 1280 bytes of workgroup memory a query, 15 KiB at the most of 12.
// Why this version: three barriers for 256 positions, memory linear in the context.
// Reference: ref_attention.

// option QUERIES = 4
// option WIDTH = 1

struct Params {
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
}

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> k_cache: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> v_cache: array<f32>;
@group(0) @binding(3) var<storage, read> row_info: array<u32>;
@group(0) @binding(4) var<storage, read> block_table: array<u32>;
@group(0) @binding(5) var<storage, read_write> parts: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

const BLOCK = 256u;
const LANES = 64u;
const LOWEST = -3.0e38;

var<workgroup> weights: array<array<f32, 256>, {{QUERIES}}>;
var<workgroup> lane_values: array<array<f32, 64>, {{QUERIES}}>;

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

    // Query j is row j / head_count, head j % head_count of the tile; past the last it repeats the last row.
    var q_at: array<u32, {{QUERIES}}>;
    var limit: array<u32, {{QUERIES}}>;
    var highest: array<f32, {{QUERIES}}>;
    var total: array<f32, {{QUERIES}}>;
    var o: array<array<f32, {{WIDTH}}>, {{QUERIES}}>;
    for (var j = 0u; j < {{QUERIES}}u; j++) {
        let row = first_row + min(j / head_count, row_count - 1u);
        let head = kv_head * heads + first_head + j % head_count;
        q_at[j] = (row * params.q_heads + head) * quads;
        limit[j] = row_info[2u * row];
        highest[j] = LOWEST;
    }

    var alike = true;
    var lowest_position = row_info[2u * first_row];
    var last_position = lowest_position;
    for (var i = 1u; i < row_count; i++) {
        alike = alike && row_info[2u * (first_row + i) + 1u] == row_info[2u * first_row + 1u];
        lowest_position = min(lowest_position, row_info[2u * (first_row + i)]);
        last_position = max(last_position, row_info[2u * (first_row + i)]);
    }
    let passes = select(row_count, 1u, alike);
    for (var pass_row = 0u; pass_row < passes; pass_row++) {
        var open = lowest_position + 1u;     // positions below are seen by every query of the tile
        var last = last_position;
        if (!alike) {
            open = 0u;
            last = row_info[2u * (first_row + pass_row)];
        }
        let table = row_info[2u * (first_row + pass_row) + 1u];
        let block_end = min((split + 1u) * params.split_blocks, last / BLOCK + 1u);
        for (var b = split * params.split_blocks; b < block_end; b++) {
            let slots = (block_table[table + b] * params.kv_heads + kv_head) * BLOCK;
            let count = min(BLOCK, last + 1u - b * BLOCK);

            var lane_highest: array<f32, {{QUERIES}}>;
            for (var j = 0u; j < {{QUERIES}}u; j++) {
                lane_highest[j] = LOWEST;
            }
            for (var s = lane; s < count; s += LANES) {
                // Set to 0 by hand: compilers in use do not clear a variable anew in every turn of a loop.
                var score: array<f32, {{QUERIES}}>;
                for (var j = 0u; j < {{QUERIES}}u; j++) {
                    score[j] = 0.0;
                }
                let k_at = (slots + s) * quads;
                for (var d = 0u; d < quads; d++) {
                    let k = k_cache[k_at + d];
                    for (var j = 0u; j < {{QUERIES}}u; j++) {
                        let v = q[q_at[j] + d];
                        score[j] = fma(v.x, k.x, fma(v.y, k.y, fma(v.z, k.z, fma(v.w, k.w, score[j]))));
                    }
                }
                for (var j = 0u; j < {{QUERIES}}u; j++) {
                    let seen = b * BLOCK + s <= limit[j] && (alike || j / head_count == pass_row);
                    let value = select(LOWEST, score[j] * params.scale, seen);
                    weights[j][s] = value;
                    lane_highest[j] = max(lane_highest[j], value);
                }
            }
            for (var j = 0u; j < {{QUERIES}}u; j++) {
                lane_values[j][lane] = lane_highest[j];
            }
            workgroupBarrier();

            for (var j = 0u; j < {{QUERIES}}u; j++) {
                var m = highest[j];
                for (var i = 0u; i < LANES; i++) {
                    m = max(m, lane_values[j][i]);
                }
                let shrink = exp(highest[j] - m);
                highest[j] = m;
                total[j] *= shrink;
                for (var w = 0u; w < {{WIDTH}}u; w++) {
                    o[j][w] *= shrink;
                }
                let seen_by_j = alike || j / head_count == pass_row;
                for (var s = lane; s < count; s += LANES) {
                    let seen = b * BLOCK + s <= limit[j] && seen_by_j;
                    let weight = select(0.0, exp(weights[j][s] - m), seen);
                    weights[j][s] = weight;
                    total[j] += weight;
                }
            }
            workgroupBarrier();

            let open_count = clamp(open, b * BLOCK, b * BLOCK + count) - b * BLOCK;
            for (var w = 0u; w < {{WIDTH}}u; w++) {
                let v_at = slots * params.head_dim + min(lane + w * LANES, params.head_dim - 1u);
                for (var s = 0u; s < open_count; s++) {
                    let v = v_cache[v_at + s * params.head_dim];
                    for (var j = 0u; j < {{QUERIES}}u; j++) {
                        o[j][w] = fma(weights[j][s], v, o[j][w]);
                    }
                }
                for (var s = open_count; s < count; s++) {
                    let v = v_cache[v_at + s * params.head_dim];
                    for (var j = 0u; j < {{QUERIES}}u; j++) {
                        let seen = b * BLOCK + s <= limit[j] && (alike || j / head_count == pass_row);
                        o[j][w] = select(o[j][w], fma(weights[j][s], v, o[j][w]), seen);
                    }
                }
            }
            workgroupBarrier();
        }
    }

    for (var j = 0u; j < {{QUERIES}}u; j++) {
        lane_values[j][lane] = total[j];
    }
    workgroupBarrier();
    for (var j = 0u; j < {{QUERIES}}u; j++) {
        var sum = 0.0;
        for (var i = 0u; i < LANES; i++) {
            sum += lane_values[j][i];
        }
        let row = first_row + j / head_count;
        let head = row * params.q_heads + kv_head * heads + first_head + j % head_count;
        if (j < row_count * head_count) {
            for (var w = 0u; w < {{WIDTH}}u; w++) {
                let d = lane + w * LANES;
                let at = (head * params.splits + split) * (params.head_dim + 2u);
                if (d < params.head_dim) {
                    parts[at + d] = o[j][w];
                }
                if (d == 0u) {
                    parts[at + params.head_dim] = highest[j];
                    parts[at + params.head_dim + 1u] = sum;
                }
            }
        }
    }
}
