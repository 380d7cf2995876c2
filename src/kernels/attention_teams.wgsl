// out[r, h, :] = sum_p softmax_p(scale * q[r, h] . K[p, kv]) V[p, kv] over the positions that row
//   r sees, a row at a time: positions position[r] + 1 - window .. position[r], kv = h / (Hq /
//   Hkv). With ROPE = 1 what op_rope_store does comes first: q and k are turned here, k and v are
//   stored, and the row's own position is taken from workgroup memory.
//
// Shapes: qkv f32 [rows, (Hq + 2 Hkv) D], or with ROPE = 0 the turned queries [rows, Hq D], read as
//   vec4; turns u32 pairs (low, high) [rotary / 2], read with ROPE alone; row_info u32 pairs
//   (position, table_offset) [rows]; caches [block][Hkv][256] rows of row_words; out f32 [rows,
//   Hq, D], or where there are splits [rows, Hq, splits, D + 4]: o, m, l and two unused of each,
//   for attention_join.
// Mapping: a workgroup of LANES takes one row, HEADS of the query heads of one KV head and a split
//   of the positions. A team of TEAM neighbouring lanes holds a position: lane i its values 8 i ..
//   8 i + 7, and with PIECES > 1 those 8 TEAM further on. In a turn each team takes DEEP positions;
//   a turn's positions lie in one block of the cache. A team has a maximum and sums of its own;
//   they are merged at the end, within a subgroup by exchange and then through workgroup memory.
// Needs: subgroups, all of SUBGROUP lanes, neighbours in the workgroup, TEAM at most SUBGROUP. 16
//   KiB of workgroup memory.
// Why this version: a decode step has few queries, and what it takes is a dispatch, a chain of
//   loads (position, block, K), and the bytes of K and V. So there is no barrier between
//   positions, K and V of a turn are asked for before the turn before them is through, lanes read
//   whole lines, and rotation and store need no dispatch of their own. With ROPE = 1 each row must
//   be a sequence of its own: no row sees another's new position. Positions outside a row's view
//   are never multiplied.
// Reference: ref_attention (after ref_rope_store).

enable subgroups;

// use cache_type
// use cache_words
// use rotation
// use softcap

override ROPE: u32 = 0;
override LANES: u32 = 64;
override SUBGROUP: u32 = 8;
override TEAM: u32 = 8;
override MERGED: u32 = 1;    // heads that are merged at once
// option HEADS = 4
// option DEEP = 4
// option PIECES = 1

struct Params {
    first_row: u32,      // of the views; rows count from there
    q_heads: u32,
    kv_heads: u32,
    head_dim: u32,
    rotary: u32,
    head_tiles: u32,
    splits: u32,
    split_turns: u32,    // turns of positions a split
    first_tile: u32,     // tiles [first_tile, tile_end) in this dispatch
    tile_end: u32,
    row_words: u32,      // of 16 bytes, a row of the cache
    window: u32,         // positions a row sees, at least 1
    scale: f32,
    softcap: f32,        // 0: none
    magnitude: f32,
}

@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> turns: array<u32>;
@group(0) @binding(2) var<storage, read> row_info: array<u32>;
@group(0) @binding(3) var<storage, read> block_table: array<u32>;
@group(0) @binding(4) var<storage, read_write> k_cache: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read_write> v_cache: array<vec4<u32>>;
@group(0) @binding(6) var<storage, read_write> out: array<vec4<f32>>;
@group(1) @binding(0) var<uniform> params: Params;

const BLOCK = 256u;
const LOWEST = -3.0e38;

// Rows of 2 TEAM PIECES vec4: the queries, then k and v as they come.
var<workgroup> staged: array<vec4<f32>, ({{HEADS}} + 2) * 2 * TEAM * {{PIECES}}>;
var<workgroup> own: array<vec4<u32>, 128>;   // rows of 64 words: k and v as they are stored
var<workgroup> largest: array<u32, 16>;      // of groups of 32 of k, then of v, as bits
var<workgroup> sums: array<vec4<f32>, LANES / SUBGROUP * MERGED * 2 * TEAM * {{PIECES}}>;
var<workgroup> peaks: array<vec2<f32>, LANES / SUBGROUP * {{HEADS}}>;      // maximum and sum

// Word i of 16 bytes of the row that k (side 0) or v (side 1) becomes; it comes at staged[row].
fn stored(i: u32, side: u32, row: u32) -> vec4<u32> {
    let quads = params.head_dim / 4u;
    if (CACHE == CACHE_F32) {
        return bitcast<vec4<u32>>(staged[row + i]);
    }
    var word = vec4<u32>(0u);
    if (CACHE == CACHE_F16) {
        for (var j = 0u; j < 2u && 2u * i + j < quads; j++) {
            let value = staged[row + 2u * i + j];
            word[2u * j] = pack2x16float(held(value.xy));
            word[2u * j + 1u] = pack2x16float(held(value.zw));
        }
        return word;
    }
    let groups = (params.head_dim + 31u) / 32u;
    for (var j = 0u; j < 4u; j++) {
        let quad = 4u * i + j;
        if (quad < quads) {
            let most = largest[8u * side + quad / 8u];
            let up = select(127.0 / bitcast<f32>(most), 0.0, is_tiny(most));
            word[j] = bytes(vec4<i32>(round(staged[row + quad] * up)));
        } else if (quad < quads + groups) {
            word[j] = scale_of(largest[8u * side + quad - quads]);
        }
    }
    return word;
}

// As k_words and v_words, of the row's own position.
fn own_words(side: u32, piece: u32) -> Words {
    var w = Words(vec4<u32>(0u), vec4<u32>(0u));
    let row = 64u * side;
    if (8u * piece >= params.head_dim) {
        return w;
    }
    if (CACHE == CACHE_F32) {
        w.a = own[row + 2u * piece];
        if (8u * piece + 4u < params.head_dim) {
            w.b = own[row + 2u * piece + 1u];
        }
    } else if (CACHE == CACHE_F16) {
        w.a = own[row + piece];
    } else {
        let word = own[row + piece / 2u];
        let at = 4u * row + params.head_dim / 4u + piece / 4u;
        w.a = select(word, word.zwxy, piece % 2u == 1u);
        w.b.x = own[at / 4u][at % 4u];
    }
    return w;
}

fn product(a: vec4<f32>, b: vec4<f32>, sum: f32) -> f32 {
    return fma(a.x, b.x, fma(a.y, b.y, fma(a.z, b.z, fma(a.w, b.w, sum))));
}

fn over_team(value: f32) -> f32 {
    var sum = value;
    for (var far = TEAM / 2u; far > 0u; far /= 2u) {
        sum += subgroupShuffleXor(sum, far);
    }
    return sum;
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) index: u32) {
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
    let first_query = kv_head * group_heads + first_head;
    let quads = params.head_dim / 4u;
    let width = 2u * TEAM * {{PIECES}}u;        // of a row of `staged`

    let lane = index % TEAM;
    let team = index / TEAM;
    let teams = LANES / TEAM;
    let turn_size = teams * {{DEEP}}u;

    // Positions start .. end - 1 come from the cache.
    let limit = row_info[2u * row];
    let table = row_info[2u * row + 1u];
    let start = limit + 1u - min(params.window, limit + 1u);
    let end = limit + 1u - ROPE;
    let first_turn = start / turn_size + split * params.split_turns;
    let turns_of_all = (end + turn_size - 1u) / turn_size;
    let is_last = split + 1u == params.splits;
    let end_turn =
        select(min(first_turn + params.split_turns, turns_of_all), turns_of_all, is_last);

    // The first turn's K and V, asked for before anything else.
    var k: array<Words, {{DEEP}} * {{PIECES}}>;
    var v: array<Words, {{DEEP}} * {{PIECES}}>;
    if (first_turn < end_turn) {
        let base = first_turn * turn_size;
        let slots = (block_table[table + base / BLOCK] * params.kv_heads + kv_head) * BLOCK;
        for (var d = 0u; d < {{DEEP}}u; d++) {
            let slot = slots + min(base + d * teams + team, end - 1u) % BLOCK;
            for (var w = 0u; w < {{PIECES}}u; w++) {
                k[d * {{PIECES}}u + w] = k_words(slot, lane + w * TEAM);
                v[d * {{PIECES}}u + w] = v_words(slot, lane + w * TEAM);
            }
        }
    }

    for (var e = index; e < ({{HEADS}}u + 2u * ROPE) * quads; e += LANES) {
        let which = e / quads;
        let quad = e % quads;
        var head = first_query + min(which, head_count - 1u);
        if (which >= {{HEADS}}u) {
            head = params.q_heads + (which - {{HEADS}}u) * params.kv_heads + kv_head;
        }
        let heads = params.q_heads + ROPE * 2u * params.kv_heads;
        var value = qkv[(row * heads + head) * quads + quad];
        if (ROPE == 1u && which <= {{HEADS}}u) {
            value = vec4<f32>(turned(value.xy, 2u * quad, limit),
                              turned(value.zw, 2u * quad + 1u, limit));
        }
        staged[which * width + quad] = value;
    }
    workgroupBarrier();
    let fresh = {{HEADS}}u * width;     // where k and v are in `staged`
    if (ROPE == 1u) {
        if (CACHE == CACHE_Q8) {
            let groups_of_row = (params.head_dim + 31u) / 32u;
            if (index < 16u && index % 8u < groups_of_row) {
                let first = index % 8u * 8u;
                var most = 0u;
                for (var i = first; i < min(first + 8u, quads); i++) {
                    most = max(most, bits_of_largest(staged[fresh + index / 8u * width + i]));
                }
                largest[index] = most;
            }
            workgroupBarrier();
        }
        let slots = (block_table[table + limit / BLOCK] * params.kv_heads + kv_head) * BLOCK;
        let at = (slots + limit % BLOCK) * params.row_words;
        for (var e = index; e < 2u * params.row_words; e += LANES) {
            let side = e / params.row_words;
            let i = e % params.row_words;
            let word = stored(i, side, fresh + side * width);
            own[64u * side + i] = word;
            if (is_last && first_head == 0u) {
                if (side == 0u) {
                    k_cache[at + i] = word;
                } else {
                    v_cache[at + i] = word;
                }
            }
        }
        workgroupBarrier();
    }

    var highest: array<f32, {{HEADS}}>;
    var total: array<f32, {{HEADS}}>;
    var o: array<Eight, {{HEADS}} * {{PIECES}}>;
    for (var h = 0u; h < {{HEADS}}u; h++) {
        highest[h] = LOWEST;
        total[h] = 0.0;
        for (var w = 0u; w < {{PIECES}}u; w++) {
            o[h * {{PIECES}}u + w] = Eight(vec4<f32>(0.0), vec4<f32>(0.0));
        }
    }

    for (var turn = first_turn; turn < end_turn; turn++) {
        let base = turn * turn_size + team;
        var score: array<array<f32, {{DEEP}}>, {{HEADS}}>;
        for (var h = 0u; h < {{HEADS}}u; h++) {
            for (var d = 0u; d < {{DEEP}}u; d++) {
                score[h][d] = 0.0;
            }
        }
        for (var d = 0u; d < {{DEEP}}u; d++) {
            for (var w = 0u; w < {{PIECES}}u; w++) {
                let values = widened(k[d * {{PIECES}}u + w]);
                for (var h = 0u; h < {{HEADS}}u; h++) {
                    let at = h * width + 2u * (lane + w * TEAM);
                    score[h][d] = product(staged[at], values.low, score[h][d]);
                    score[h][d] = product(staged[at + 1u], values.high, score[h][d]);
                }
            }
        }
        let next = (turn + 1u) * turn_size;
        var slots = 0u;
        if (turn + 1u < end_turn) {
            slots = (block_table[table + next / BLOCK] * params.kv_heads + kv_head) * BLOCK;
            for (var d = 0u; d < {{DEEP}}u; d++) {
                let slot = slots + min(next + d * teams + team, end - 1u) % BLOCK;
                for (var w = 0u; w < {{PIECES}}u; w++) {
                    k[d * {{PIECES}}u + w] = k_words(slot, lane + w * TEAM);
                }
            }
        }
        for (var h = 0u; h < {{HEADS}}u; h++) {
            var m = highest[h];
            for (var d = 0u; d < {{DEEP}}u; d++) {
                let seen = base + d * teams >= start && base + d * teams < end;
                let s = capped(over_team(score[h][d]) * params.scale);
                score[h][d] = select(LOWEST, s, seen);
                m = max(m, score[h][d]);
            }
            let shrink = exp(highest[h] - m);
            highest[h] = m;
            total[h] *= shrink;
            for (var w = 0u; w < {{PIECES}}u; w++) {
                o[h * {{PIECES}}u + w].low *= shrink;
                o[h * {{PIECES}}u + w].high *= shrink;
            }
            for (var d = 0u; d < {{DEEP}}u; d++) {
                let seen = base + d * teams >= start && base + d * teams < end;
                score[h][d] = select(0.0, exp(score[h][d] - m), seen);
                total[h] += score[h][d];
            }
        }
        for (var d = 0u; d < {{DEEP}}u; d++) {
            // What is not seen may be NaN: zeros are multiplied instead.
            let seen = base + d * teams >= start && base + d * teams < end;
            let mask = vec4<u32>(select(0u, 0xffffffffu, seen));
            for (var w = 0u; w < {{PIECES}}u; w++) {
                let words = v[d * {{PIECES}}u + w];
                let values = widened(Words(words.a & mask, words.b & mask));
                for (var h = 0u; h < {{HEADS}}u; h++) {
                    let weight = vec4<f32>(score[h][d]);
                    o[h * {{PIECES}}u + w].low =
                        fma(weight, values.low, o[h * {{PIECES}}u + w].low);
                    o[h * {{PIECES}}u + w].high =
                        fma(weight, values.high, o[h * {{PIECES}}u + w].high);
                }
            }
        }
        if (turn + 1u < end_turn) {
            for (var d = 0u; d < {{DEEP}}u; d++) {
                let slot = slots + min(next + d * teams + team, end - 1u) % BLOCK;
                for (var w = 0u; w < {{PIECES}}u; w++) {
                    v[d * {{PIECES}}u + w] = v_words(slot, lane + w * TEAM);
                }
            }
        }
    }

    // The row's own position: the first team's.
    if (ROPE == 1u && is_last) {
        for (var h = 0u; h < {{HEADS}}u; h++) {
            var s = 0.0;
            for (var w = 0u; w < {{PIECES}}u; w++) {
                let at = h * width + 2u * (lane + w * TEAM);
                let values = widened(own_words(0u, lane + w * TEAM));
                s = product(staged[at], values.low, s);
                s = product(staged[at + 1u], values.high, s);
            }
            s = select(LOWEST, capped(over_team(s) * params.scale), team == 0u);
            let m = max(highest[h], s);
            let shrink = exp(highest[h] - m);
            let weight = select(0.0, exp(s - m), team == 0u);
            highest[h] = m;
            total[h] = total[h] * shrink + weight;
            for (var w = 0u; w < {{PIECES}}u; w++) {
                let i = h * {{PIECES}}u + w;
                o[i].low *= shrink;
                o[i].high *= shrink;
                if (team == 0u) {
                    let values = widened(own_words(1u, lane + w * TEAM));
                    o[i].low = fma(vec4<f32>(weight), values.low, o[i].low);
                    o[i].high = fma(vec4<f32>(weight), values.high, o[i].high);
                }
            }
        }
    }

    // The teams of a subgroup into its first.
    let subgroup = index / SUBGROUP;
    for (var h = 0u; h < {{HEADS}}u; h++) {
        var m = highest[h];
        for (var far = TEAM; far < SUBGROUP; far *= 2u) {
            m = max(m, subgroupShuffleXor(m, far));
        }
        let shrink = exp(highest[h] - m);
        var l = total[h] * shrink;
        for (var far = TEAM; far < SUBGROUP; far *= 2u) {
            l += subgroupShuffleXor(l, far);
        }
        for (var w = 0u; w < {{PIECES}}u; w++) {
            let i = h * {{PIECES}}u + w;
            var sum = Eight(o[i].low * shrink, o[i].high * shrink);
            for (var far = TEAM; far < SUBGROUP; far *= 2u) {
                sum.low += subgroupShuffleXor(sum.low, far);
                sum.high += subgroupShuffleXor(sum.high, far);
            }
            o[i] = sum;
        }
        if (index % SUBGROUP == 0u) {
            peaks[subgroup * {{HEADS}}u + h] = vec2<f32>(m, l);
        }
    }

    // The subgroups, MERGED heads at a time.
    for (var h = 0u; h < {{HEADS}}u; h++) {
        if (index % SUBGROUP < TEAM) {
            for (var w = 0u; w < {{PIECES}}u; w++) {
                let to = (subgroup * MERGED + h % MERGED) * width + 2u * (lane + w * TEAM);
                sums[to] = o[h * {{PIECES}}u + w].low;
                sums[to + 1u] = o[h * {{PIECES}}u + w].high;
            }
        }
        if ((h + 1u) % MERGED == 0u || h + 1u == {{HEADS}}u) {
            workgroupBarrier();
            let first = h / MERGED * MERGED;
            for (var e = index; e < (min(h + 1u, head_count) - min(first, head_count)) * quads;
                 e += LANES) {
                let head = first + e / quads;
                let quad = e % quads;
                var m = LOWEST;
                for (var i = 0u; i < LANES / SUBGROUP; i++) {
                    m = max(m, peaks[i * {{HEADS}}u + head].x);
                }
                var l = 0.0;
                var sum = vec4<f32>(0.0);
                for (var i = 0u; i < LANES / SUBGROUP; i++) {
                    let peak = peaks[i * {{HEADS}}u + head];
                    let factor = exp(peak.x - m);
                    l = fma(factor, peak.y, l);
                    let part = sums[(i * MERGED + e / quads) * width + quad];
                    sum = fma(vec4<f32>(factor), part, sum);
                }
                let query = row * params.q_heads + first_query + head;
                if (params.splits == 1u) {
                    out[query * quads + quad] = sum / l;
                } else {
                    let local = query - params.first_row * params.q_heads;
                    let part = (local * params.splits + split) * (quads + 1u);
                    out[part + quad] = sum;
                    if (quad == 0u) {
                        out[part + quads] = vec4<f32>(m, l, 0.0, 0.0);
                    }
                }
            }
            workgroupBarrier();
        }
    }
}
