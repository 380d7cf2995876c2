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
//   8 i + 7. In a turn each team takes DEEP positions; a turn's positions lie in one block of the
//   cache. A team has a maximum and sums of its own; they are merged at the end, within a subgroup
//   by exchange and then through workgroup memory.
// Needs: subgroups, all of SUBGROUP lanes, neighbours in the workgroup; D at most 8 TEAM, TEAM at
//   most SUBGROUP, HEADS at most 4, DEEP 1, 2, 4 or 8. 16 KiB of workgroup memory.
// Why this version: a decode step has few queries, and what it takes is a dispatch, a chain of
//   loads (position, block, K), and the bytes of K and V. So there is no barrier between
//   positions, K and V of a turn are asked for before the turn before them is through, lanes read
//   whole lines, and rotation and store need no dispatch of their own. With ROPE = 1 each row must
//   be a sequence of its own: no row sees another's new position. Positions outside a row's view
//   are never multiplied. Arrays that loops index may lie in memory: what belongs to a position is
//   a field of Turn, what belongs to a query head a component of a vec4 or a field of Four.
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

const HEADS = {{HEADS}}u;
const DEEP = {{DEEP}}u;

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

// Rows of 2 TEAM vec4: the queries, then k and v as they come.
var<workgroup> staged: array<vec4<f32>, (HEADS + 2) * 2 * TEAM>;
var<workgroup> own: array<vec4<u32>, 128>;   // rows of 64 words: k and v as they are stored
var<workgroup> largest: array<u32, 16>;      // of groups of 32 of k, then of v, as bits
var<workgroup> sums: array<vec4<f32>, LANES / SUBGROUP * MERGED * 2 * TEAM>;
var<workgroup> peaks: array<vec2<f32>, LANES / SUBGROUP * HEADS>;      // maximum and sum

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

// ---- values of positions and heads ----

// Words of a team's positions in a turn: up to eight.
struct Turn {
    a: Words,
    b: Words,
    c: Words,
    d: Words,
    e: Words,
    f: Words,
    g: Words,
    h: Words,
}

// Eight values for each query head.
struct Four {
    a: Eight,
    b: Eight,
    c: Eight,
    d: Eight,
}

// For each of the positions, a component for each query head.
struct Scores {
    a: vec4<f32>,
    b: vec4<f32>,
    c: vec4<f32>,
    d: vec4<f32>,
    e: vec4<f32>,
    f: vec4<f32>,
    g: vec4<f32>,
    h: vec4<f32>,
}

// Where a team's position number d of a turn lies: past the end, the last one.
fn slot_of(slots: u32, base: u32, d: u32, end: u32) -> u32 {
    return slots + min(base + d * (LANES / TEAM), end - 1u) % BLOCK;
}

fn k_turn(slots: u32, base: u32, end: u32, lane: u32) -> Turn {
    var t: Turn;
    t.a = k_words(slot_of(slots, base, 0u, end), lane);
    if (DEEP > 1u) {
        t.b = k_words(slot_of(slots, base, 1u, end), lane);
    }
    if (DEEP > 2u) {
        t.c = k_words(slot_of(slots, base, 2u, end), lane);
        t.d = k_words(slot_of(slots, base, 3u, end), lane);
    }
    if (DEEP > 4u) {
        t.e = k_words(slot_of(slots, base, 4u, end), lane);
        t.f = k_words(slot_of(slots, base, 5u, end), lane);
        t.g = k_words(slot_of(slots, base, 6u, end), lane);
        t.h = k_words(slot_of(slots, base, 7u, end), lane);
    }
    return t;
}

fn v_turn(slots: u32, base: u32, end: u32, lane: u32) -> Turn {
    var t: Turn;
    t.a = v_words(slot_of(slots, base, 0u, end), lane);
    if (DEEP > 1u) {
        t.b = v_words(slot_of(slots, base, 1u, end), lane);
    }
    if (DEEP > 2u) {
        t.c = v_words(slot_of(slots, base, 2u, end), lane);
        t.d = v_words(slot_of(slots, base, 3u, end), lane);
    }
    if (DEEP > 4u) {
        t.e = v_words(slot_of(slots, base, 4u, end), lane);
        t.f = v_words(slot_of(slots, base, 5u, end), lane);
        t.g = v_words(slot_of(slots, base, 6u, end), lane);
        t.h = v_words(slot_of(slots, base, 7u, end), lane);
    }
    return t;
}

fn product(a: vec4<f32>, b: vec4<f32>, sum: f32) -> f32 {
    return fma(a.x, b.x, fma(a.y, b.y, fma(a.z, b.z, fma(a.w, b.w, sum))));
}

fn dot8(a: Eight, b: Eight) -> f32 {
    return product(a.high, b.high, product(a.low, b.low, 0.0));
}

// Of the lanes of a team together.
fn over_team(value: vec4<f32>) -> vec4<f32> {
    var sum = value;
    for (var far = TEAM / 2u; far > 0u; far /= 2u) {
        if (HEADS == 1u) {
            sum.x += subgroupShuffleXor(sum.x, far);
        } else if (HEADS == 2u) {
            let other = subgroupShuffleXor(sum.xy, far);
            sum.x += other.x;
            sum.y += other.y;
        } else {
            sum += subgroupShuffleXor(sum, far);
        }
    }
    return sum;
}

fn score_of(q: Four, w: Words) -> vec4<f32> {
    let k = widened(w);
    var s = vec4<f32>(dot8(q.a, k), 0.0, 0.0, 0.0);
    if (HEADS > 1u) {
        s.y = dot8(q.b, k);
    }
    if (HEADS > 2u) {
        s.z = dot8(q.c, k);
    }
    if (HEADS > 3u) {
        s.w = dot8(q.d, k);
    }
    return capped4(over_team(s) * params.scale);
}

// Position number d of the team's, in a turn whose first one is `base`.
fn is_seen(base: u32, d: u32, start: u32, end: u32) -> bool {
    let at = base + d * (LANES / TEAM);
    return at >= start && at < end;
}

fn masked(s: vec4<f32>, seen: bool) -> vec4<f32> {
    return select(vec4<f32>(LOWEST), s, seen);
}

fn scores_of(q: Four, k: Turn, base: u32, start: u32, end: u32) -> Scores {
    var s: Scores;
    s.a = masked(score_of(q, k.a), is_seen(base, 0u, start, end));
    if (DEEP > 1u) {
        s.b = masked(score_of(q, k.b), is_seen(base, 1u, start, end));
    }
    if (DEEP > 2u) {
        s.c = masked(score_of(q, k.c), is_seen(base, 2u, start, end));
        s.d = masked(score_of(q, k.d), is_seen(base, 3u, start, end));
    }
    if (DEEP > 4u) {
        s.e = masked(score_of(q, k.e), is_seen(base, 4u, start, end));
        s.f = masked(score_of(q, k.f), is_seen(base, 5u, start, end));
        s.g = masked(score_of(q, k.g), is_seen(base, 6u, start, end));
        s.h = masked(score_of(q, k.h), is_seen(base, 7u, start, end));
    }
    return s;
}

fn highest_of(m: vec4<f32>, s: Scores) -> vec4<f32> {
    var high = max(m, s.a);
    if (DEEP > 1u) {
        high = max(high, s.b);
    }
    if (DEEP > 2u) {
        high = max(high, max(s.c, s.d));
    }
    if (DEEP > 4u) {
        high = max(high, max(max(s.e, s.f), max(s.g, s.h)));
    }
    return high;
}

// e^(score - m); LOWEST is what is not seen, and m may be no more.
fn weight_of(s: vec4<f32>, m: vec4<f32>) -> vec4<f32> {
    return select(exp(s - m), vec4<f32>(0.0), s == vec4<f32>(LOWEST));
}

fn scaled(o: Eight, factor: f32) -> Eight {
    return Eight(o.low * factor, o.high * factor);
}

fn scaled_four(o: Four, factor: vec4<f32>) -> Four {
    var sum = o;
    sum.a = scaled(o.a, factor.x);
    if (HEADS > 1u) {
        sum.b = scaled(o.b, factor.y);
    }
    if (HEADS > 2u) {
        sum.c = scaled(o.c, factor.z);
    }
    if (HEADS > 3u) {
        sum.d = scaled(o.d, factor.w);
    }
    return sum;
}

fn plus(o: Eight, weight: f32, v: Eight) -> Eight {
    return Eight(fma(vec4<f32>(weight), v.low, o.low), fma(vec4<f32>(weight), v.high, o.high));
}

// What is not seen may be NaN: zeros are multiplied instead.
fn weighed(o: Four, weight: vec4<f32>, w: Words, seen: bool) -> Four {
    let mask = vec4<u32>(select(0u, 0xffffffffu, seen));
    let v = widened(Words(w.a & mask, w.b & mask));
    var sum = o;
    sum.a = plus(o.a, weight.x, v);
    if (HEADS > 1u) {
        sum.b = plus(o.b, weight.y, v);
    }
    if (HEADS > 2u) {
        sum.c = plus(o.c, weight.z, v);
    }
    if (HEADS > 3u) {
        sum.d = plus(o.d, weight.w, v);
    }
    return sum;
}

fn over_teams(o: Eight, far: u32) -> Eight {
    return Eight(o.low + subgroupShuffleXor(o.low, far), o.high + subgroupShuffleXor(o.high, far));
}

fn query_of(first: u32) -> Eight {
    return Eight(staged[first], staged[first + 1u]);
}

fn eight_of(o: Four, h: u32) -> Eight {
    if (h == 0u) {
        return o.a;
    }
    if (h == 1u) {
        return o.b;
    }
    if (h == 2u) {
        return o.c;
    }
    return o.d;
}

fn part_of(v: vec4<f32>, h: u32) -> f32 {
    return select(select(v.w, v.z, h == 2u), select(v.y, v.x, h == 0u), h < 2u);
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
    let first_head = (query_tile % params.head_tiles) * HEADS;
    let head_count = min(HEADS, group_heads - first_head);
    let first_query = kv_head * group_heads + first_head;
    let quads = params.head_dim / 4u;
    let width = 2u * TEAM;        // of a row of `staged`

    let lane = index % TEAM;
    let team = index / TEAM;
    let teams = LANES / TEAM;
    let turn_size = teams * DEEP;

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
    var k: Turn;
    var v: Turn;
    if (first_turn < end_turn) {
        let base = first_turn * turn_size;
        let slots = (block_table[table + base / BLOCK] * params.kv_heads + kv_head) * BLOCK;
        k = k_turn(slots, base + team, end, lane);
        v = v_turn(slots, base + team, end, lane);
    }

    for (var e = index; e < (HEADS + 2u * ROPE) * quads; e += LANES) {
        let which = e / quads;
        let quad = e % quads;
        var head = first_query + min(which, head_count - 1u);
        if (which >= HEADS) {
            head = params.q_heads + (which - HEADS) * params.kv_heads + kv_head;
        }
        let heads = params.q_heads + ROPE * 2u * params.kv_heads;
        var value = qkv[(row * heads + head) * quads + quad];
        if (ROPE == 1u && which <= HEADS) {
            value = vec4<f32>(turned(value.xy, 2u * quad, limit),
                              turned(value.zw, 2u * quad + 1u, limit));
        }
        staged[which * width + quad] = value;
    }
    workgroupBarrier();
    let fresh = HEADS * width;     // where k and v are in `staged`
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

    var q: Four;
    q.a = query_of(2u * lane);
    if (HEADS > 1u) {
        q.b = query_of(width + 2u * lane);
    }
    if (HEADS > 2u) {
        q.c = query_of(2u * width + 2u * lane);
    }
    if (HEADS > 3u) {
        q.d = query_of(3u * width + 2u * lane);
    }
    var highest = vec4<f32>(LOWEST);
    var total = vec4<f32>(0.0);
    var o: Four;

    for (var turn = first_turn; turn < end_turn; turn++) {
        let base = turn * turn_size + team;
        let s = scores_of(q, k, base, start, end);
        let next = (turn + 1u) * turn_size;
        var slots = 0u;
        if (turn + 1u < end_turn) {
            slots = (block_table[table + next / BLOCK] * params.kv_heads + kv_head) * BLOCK;
            k = k_turn(slots, next + team, end, lane);
        }
        let m = highest_of(highest, s);
        let shrink = exp(highest - m);
        highest = m;
        total *= shrink;
        o = scaled_four(o, shrink);
        let weight_a = weight_of(s.a, m);
        total += weight_a;
        o = weighed(o, weight_a, v.a, is_seen(base, 0u, start, end));
        if (DEEP > 1u) {
            let weight = weight_of(s.b, m);
            total += weight;
            o = weighed(o, weight, v.b, is_seen(base, 1u, start, end));
        }
        if (DEEP > 2u) {
            let weight_c = weight_of(s.c, m);
            total += weight_c;
            o = weighed(o, weight_c, v.c, is_seen(base, 2u, start, end));
            let weight_d = weight_of(s.d, m);
            total += weight_d;
            o = weighed(o, weight_d, v.d, is_seen(base, 3u, start, end));
        }
        if (DEEP > 4u) {
            let weight_e = weight_of(s.e, m);
            total += weight_e;
            o = weighed(o, weight_e, v.e, is_seen(base, 4u, start, end));
            let weight_f = weight_of(s.f, m);
            total += weight_f;
            o = weighed(o, weight_f, v.f, is_seen(base, 5u, start, end));
            let weight_g = weight_of(s.g, m);
            total += weight_g;
            o = weighed(o, weight_g, v.g, is_seen(base, 6u, start, end));
            let weight_h = weight_of(s.h, m);
            total += weight_h;
            o = weighed(o, weight_h, v.h, is_seen(base, 7u, start, end));
        }
        if (turn + 1u < end_turn) {
            v = v_turn(slots, next + team, end, lane);
        }
    }

    // The row's own position: the first team's.
    if (ROPE == 1u && is_last) {
        let first_team = team == 0u;
        let s = masked(score_of(q, own_words(0u, lane)), first_team);
        let m = max(highest, s);
        let shrink = exp(highest - m);
        let weight = weight_of(s, m);
        highest = m;
        total = total * shrink + weight;
        o = weighed(scaled_four(o, shrink), weight, own_words(1u, lane), first_team);
    }

    // The teams of a subgroup into its first.
    let subgroup = index / SUBGROUP;
    var m = highest;
    for (var far = TEAM; far < SUBGROUP; far *= 2u) {
        m = max(m, subgroupShuffleXor(m, far));
    }
    let shrink = exp(highest - m);
    var l = total * shrink;
    o = scaled_four(o, shrink);
    for (var far = TEAM; far < SUBGROUP; far *= 2u) {
        l += subgroupShuffleXor(l, far);
        o.a = over_teams(o.a, far);
        if (HEADS > 1u) {
            o.b = over_teams(o.b, far);
        }
        if (HEADS > 2u) {
            o.c = over_teams(o.c, far);
        }
        if (HEADS > 3u) {
            o.d = over_teams(o.d, far);
        }
    }
    if (index % SUBGROUP == 0u) {
        for (var h = 0u; h < HEADS; h++) {
            peaks[subgroup * HEADS + h] = vec2<f32>(part_of(m, h), part_of(l, h));
        }
    }

    // The subgroups, MERGED heads at a time.
    for (var h = 0u; h < HEADS; h++) {
        if (index % SUBGROUP < TEAM) {
            let to = (subgroup * MERGED + h % MERGED) * width + 2u * lane;
            let part = eight_of(o, h);
            sums[to] = part.low;
            sums[to + 1u] = part.high;
        }
        if ((h + 1u) % MERGED == 0u || h + 1u == HEADS) {
            workgroupBarrier();
            let first = h / MERGED * MERGED;
            for (var e = index; e < (min(h + 1u, head_count) - min(first, head_count)) * quads;
                 e += LANES) {
                let head = first + e / quads;
                let quad = e % quads;
                var m = LOWEST;
                for (var i = 0u; i < LANES / SUBGROUP; i++) {
                    m = max(m, peaks[i * HEADS + head].x);
                }
                var l = 0.0;
                var sum = vec4<f32>(0.0);
                for (var i = 0u; i < LANES / SUBGROUP; i++) {
                    let peak = peaks[i * HEADS + head];
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
