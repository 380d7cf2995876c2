// out[r, h, :] = sum_p softmax_p(scale * q[r, h] . K[p, kv]) V[p, kv] over the positions that row
//   r sees, a row at a time: positions position[r] + 1 - window .. position[r], kv = h / (Hq /
//   Hkv). With ROPE = 1 what op_rope_store does comes first: q and k are turned here, and k and v
//   are stored.
//
// Shapes: qkv f32 [rows, (Hq + 2 Hkv) D], or with ROPE = 0 the turned queries [rows, Hq D], read as
//   vec4; turns u32 pairs (low, high) [rotary / 2], read with ROPE alone; row_info u32 pairs
//   (position, table_offset) [rows]; caches [block][Hkv][256] rows of row_words; out f32 [rows,
//   Hq, D], or where there are splits [rows, Hq, splits, D + 4]: o, m, l and two unused of each,
//   for attention_join.
// Mapping: a workgroup of LANES takes HEADS of the query heads of one KV head (grid x: KV heads
//   times their tiles), a split of the positions (y) and a row (z). A team of TEAM neighbouring
//   lanes holds a position, a lane eight of its values. In a turn each team takes DEEP positions; a
//   turn's positions lie in one block of the cache. A lane's products of DEEP positions are added
//   up over the team by exchanging halves, so that each lane ends with the scores of one position,
//   whose exponential it takes for all. A team has a maximum and sums of its own; they are merged
//   at the end, within a subgroup by exchange and then through workgroup memory.
// Needs: subgroups, all of SUBGROUP lanes, neighbours in the workgroup; D at most 8 TEAM, TEAM at
//   most SUBGROUP, HEADS at most 4, DEEP 1, 2, 4 or 8 and at most TEAM. 8 KiB of workgroup memory
//   and 8 bytes a subgroup and head.
// Why this version: a decode step has few queries, and what it takes is a dispatch, a chain of
//   loads (position, block, K), and the bytes of K and V. So nothing is divided and no barrier
//   stands before the last sums; what no position is needed for is asked for first, K and V of a
//   turn before the turn before them is through; lanes read whole lines. Rotation and store need no
//   dispatch of their own: the row's own position is turned, rounded and counted in registers while
//   the others are on their way. With ROPE = 1 each row must be a sequence of its own: no row sees
//   another's new position. Positions outside a row's view are never multiplied. Arrays that loops
//   index may lie in memory: what belongs to a position is a field of Turn, what belongs to a query
//   head a component of a vec4 or a field of Four.
// Reference: ref_attention (after ref_rope_store).

enable subgroups;

// use cache_type
// use cache_eights
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
    first_row: u32,      // of this dispatch
    first_part: u32,     // its row's number among those of the shape
    first_split: u32,
    kv_heads: u32,
    group_heads: u32,    // query heads of a KV head
    head_tiles: u32,     // workgroups of a KV head
    head_dim: u32,
    rotary: u32,
    splits: u32,
    split_turns: u32,    // turns of positions a split
    row_words: u32,      // of 16 bytes, a row of the cache
    window: u32,         // positions a row sees, at least 1
    scale: f32,
    softcap: f32,        // 0: none
    magnitude: f32,
}

@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> turns: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read> row_info: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> block_table: array<u32>;
@group(0) @binding(4) var<storage, read_write> k_cache: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read_write> v_cache: array<vec4<u32>>;
@group(0) @binding(6) var<storage, read_write> out: array<vec4<f32>>;
@group(1) @binding(0) var<uniform> params: Params;

const BLOCK = 256u;
const LOWEST = -3.0e38;

var<workgroup> sums: array<vec2<f32>, LANES / SUBGROUP * MERGED * 4 * TEAM>;
var<workgroup> peaks: array<vec2<f32>, LANES / SUBGROUP * HEADS>;      // maximum and sum

// ---- a lane's part of a row ----

// The two quads of a row that a lane holds: as neighbouring lanes read whole lines.
fn low_quad(lane: u32) -> u32 {
    return select(2u * lane, lane, CACHE == CACHE_F32);
}

fn high_quad(lane: u32) -> u32 {
    return select(2u * lane + 1u, TEAM + lane, CACHE == CACHE_F32);
}

// Where a lane's words lie in a row of the cache; a lane past the row has those of the last one.
struct Place {
    low: u32,
    high: u32,
    scale: u32,    // a word of 4 bytes
}

fn place_of(lane: u32) -> Place {
    let quads = params.head_dim / 4u;
    if (CACHE == CACHE_F32) {
        return Place(min(low_quad(lane), quads - 1u), min(high_quad(lane), quads - 1u), 0u);
    }
    if (CACHE == CACHE_F16) {
        return Place(min(lane, params.row_words - 1u), 0u, 0u);
    }
    return Place(min(lane / 2u, (quads - 1u) / 4u), 0u, quads + min(lane / 4u, (quads - 1u) / 8u));
}

fn k_at(slot: u32, place: Place) -> Words {
    let row = slot * params.row_words;
    if (CACHE == CACHE_F32) {
        return Words(k_cache[row + place.low], k_cache[row + place.high]);
    }
    if (CACHE == CACHE_F16) {
        return Words(k_cache[row + place.low], vec4<u32>(0u));
    }
    let scale = k_cache[row + place.scale / 4u][place.scale % 4u];
    return Words(k_cache[row + place.low], vec4<u32>(scale, 0u, 0u, 0u));
}

fn v_at(slot: u32, place: Place) -> Words {
    let row = slot * params.row_words;
    if (CACHE == CACHE_F32) {
        return Words(v_cache[row + place.low], v_cache[row + place.high]);
    }
    if (CACHE == CACHE_F16) {
        return Words(v_cache[row + place.low], vec4<u32>(0u));
    }
    let scale = v_cache[row + place.scale / 4u][place.scale % 4u];
    return Words(v_cache[row + place.low], vec4<u32>(scale, 0u, 0u, 0u));
}

// A word of 16 bytes holds the eight values of two lanes.
fn half_of(w: Words, lane: u32) -> Words {
    if (CACHE == CACHE_Q8) {
        return Words(select(w.a, w.a.zwxy, lane % 2u == 1u), w.b);
    }
    return w;
}

// Eight values of the head that begins at qkv[first]; past the head zeros.
fn values_of(first: u32, lane: u32) -> Eight {
    let quads = params.head_dim / 4u;
    let low = qkv[first + min(low_quad(lane), quads - 1u)];
    let high = qkv[first + min(high_quad(lane), quads - 1u)];
    return Eight(select(vec4<f32>(0.0), low, low_quad(lane) < quads),
                 select(vec4<f32>(0.0), high, high_quad(lane) < quads));
}

// Cosines and sines of a lane's four pairs.
struct Turning {
    a: vec2<f32>,
    b: vec2<f32>,
    c: vec2<f32>,
    d: vec2<f32>,
}

fn turned_eight(v: Eight, t: Turning) -> Eight {
    return Eight(vec4<f32>(turned_by(v.low.xy, t.a), turned_by(v.low.zw, t.b)),
                 vec4<f32>(turned_by(v.high.xy, t.c), turned_by(v.high.zw, t.d)));
}

// The words that the row's own k or v becomes. All lanes of a team together.
fn words_of(v: Eight) -> Words {
    if (CACHE == CACHE_F32) {
        return Words(bitcast<vec4<u32>>(v.low), bitcast<vec4<u32>>(v.high));
    }
    if (CACHE == CACHE_F16) {
        return Words(vec4<u32>(pack2x16float(held(v.low.xy)), pack2x16float(held(v.low.zw)),
                               pack2x16float(held(v.high.xy)), pack2x16float(held(v.high.zw))),
                     vec4<u32>(0u));
    }
    var most = max(bits_of_largest(v.low), bits_of_largest(v.high));
    for (var far = 1u; far < min(TEAM, 4u); far *= 2u) {
        most = max(most, subgroupShuffleXor(most, far));
    }
    let up = select(127.0 / bitcast<f32>(most), 0.0, is_tiny(most));
    return Words(vec4<u32>(bytes(vec4<i32>(round(v.low * up))),
                           bytes(vec4<i32>(round(v.high * up))), 0u, 0u),
                 vec4<u32>(scale_of(most), 0u, 0u, 0u));
}

// Word i of 4 bytes of a row of bytes and scales; lane `first` of the subgroup holds its beginning.
fn word_of_row(w: Words, i: u32, first: u32) -> u32 {
    let quads = params.head_dim / 4u;
    let pair = subgroupShuffle(w.a.xy, first + min(i / 2u, TEAM - 1u));
    let scale = subgroupShuffle(w.b.x, first + min(4u * (max(i, quads) - quads), TEAM - 1u));
    return select(select(pair.x, pair.y, i % 2u == 1u), scale, i >= quads);
}

// Word number `lane` of 16 bytes of the row. All lanes of a team together.
fn row_word(w: Words, lane: u32, first: u32) -> vec4<u32> {
    if (CACHE == CACHE_Q8) {
        return vec4<u32>(word_of_row(w, 4u * lane, first), word_of_row(w, 4u * lane + 1u, first),
                         word_of_row(w, 4u * lane + 2u, first),
                         word_of_row(w, 4u * lane + 3u, first));
    }
    return w.a;
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

// Positions that a turn's loads keep to. Past them a position has the words of the nearest one, and
// weight 0: an infinity of V that is seen may come out as NaN.
struct Seen {
    start: u32,
    end: u32,
}

// Where a team's position number d of a turn lies.
fn slot_of(slots: u32, base: u32, d: u32, seen: Seen) -> u32 {
    return slots + clamp(base + d * (LANES / TEAM), seen.start, seen.end - 1u) % BLOCK;
}

fn k_turn(slots: u32, base: u32, seen: Seen, place: Place) -> Turn {
    var t: Turn;
    t.a = k_at(slot_of(slots, base, 0u, seen), place);
    if (DEEP > 1u) {
        t.b = k_at(slot_of(slots, base, 1u, seen), place);
    }
    if (DEEP > 2u) {
        t.c = k_at(slot_of(slots, base, 2u, seen), place);
        t.d = k_at(slot_of(slots, base, 3u, seen), place);
    }
    if (DEEP > 4u) {
        t.e = k_at(slot_of(slots, base, 4u, seen), place);
        t.f = k_at(slot_of(slots, base, 5u, seen), place);
        t.g = k_at(slot_of(slots, base, 6u, seen), place);
        t.h = k_at(slot_of(slots, base, 7u, seen), place);
    }
    return t;
}

fn v_turn(slots: u32, base: u32, seen: Seen, place: Place) -> Turn {
    var t: Turn;
    t.a = v_at(slot_of(slots, base, 0u, seen), place);
    if (DEEP > 1u) {
        t.b = v_at(slot_of(slots, base, 1u, seen), place);
    }
    if (DEEP > 2u) {
        t.c = v_at(slot_of(slots, base, 2u, seen), place);
        t.d = v_at(slot_of(slots, base, 3u, seen), place);
    }
    if (DEEP > 4u) {
        t.e = v_at(slot_of(slots, base, 4u, seen), place);
        t.f = v_at(slot_of(slots, base, 5u, seen), place);
        t.g = v_at(slot_of(slots, base, 6u, seen), place);
        t.h = v_at(slot_of(slots, base, 7u, seen), place);
    }
    return t;
}

fn product(a: vec4<f32>, b: vec4<f32>, sum: f32) -> f32 {
    return fma(a.x, b.x, fma(a.y, b.y, fma(a.z, b.z, fma(a.w, b.w, sum))));
}

fn dot8(a: Eight, b: Eight) -> f32 {
    return product(a.high, b.high, product(a.low, b.low, 0.0));
}

// Of the lane `source` of the subgroup.
fn of_lane(v: vec4<f32>, source: u32) -> vec4<f32> {
    var w = vec4<f32>(0.0);
    if (HEADS == 1u) {
        w.x = subgroupShuffle(v.x, source);
    } else if (HEADS == 2u) {
        let two = subgroupShuffle(v.xy, source);
        w.x = two.x;
        w.y = two.y;
    } else {
        w = subgroupShuffle(v, source);
    }
    return w;
}

// Of the lane whose number differs by `far`.
fn of_other(v: vec4<f32>, far: u32) -> vec4<f32> {
    var w = vec4<f32>(0.0);
    if (HEADS == 1u) {
        w.x = subgroupShuffleXor(v.x, far);
    } else if (HEADS == 2u) {
        let two = subgroupShuffleXor(v.xy, far);
        w.x = two.x;
        w.y = two.y;
    } else {
        w = subgroupShuffleXor(v, far);
    }
    return w;
}

// Of the lanes of a team together.
fn over_team(value: vec4<f32>) -> vec4<f32> {
    var sum = value;
    for (var far = TEAM / 2u; far > 0u; far /= 2u) {
        sum += of_other(sum, far);
    }
    return sum;
}

fn dots(q: Four, k: Eight) -> vec4<f32> {
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
    return s;
}

fn score_of(q: Four, k: Eight) -> vec4<f32> {
    return capped4(over_team(dots(q, k)) * params.scale);
}

// Position number d of the team's, in a turn whose first one is `base`.
fn is_seen(base: u32, d: u32, seen: Seen) -> bool {
    let at = base + d * (LANES / TEAM);
    return at >= seen.start && at < seen.end;
}

fn masked(s: vec4<f32>, seen: bool) -> vec4<f32> {
    return select(vec4<f32>(LOWEST), s, seen);
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

fn weighed(o: Four, weight: vec4<f32>, v: Eight) -> Four {
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

// Two sums of two lanes: the one whose bit `far` is 0 gets the first.
fn halved(a: vec4<f32>, b: vec4<f32>, far: u32, lane: u32) -> vec4<f32> {
    let upper = (lane & far) != 0u;
    return select(a, b, upper) + of_other(select(b, a, upper), far);
}

// The scores of a turn, a lane that of position lane % DEEP.
fn scores_of(q: Four, k: Turn, lane: u32) -> vec4<f32> {
    var s = dots(q, widened(half_of(k.a, lane)));
    if (DEEP == 2u) {
        s = halved(s, dots(q, widened(half_of(k.b, lane))), 1u, lane);
    }
    if (DEEP > 2u) {
        let b = dots(q, widened(half_of(k.b, lane)));
        let c = dots(q, widened(half_of(k.c, lane)));
        let d = dots(q, widened(half_of(k.d, lane)));
        if (DEEP == 4u) {
            s = halved(halved(s, c, 2u, lane), halved(b, d, 2u, lane), 1u, lane);
        } else {
            let ae = halved(s, dots(q, widened(half_of(k.e, lane))), 4u, lane);
            let bf = halved(b, dots(q, widened(half_of(k.f, lane))), 4u, lane);
            let cg = halved(c, dots(q, widened(half_of(k.g, lane))), 4u, lane);
            let dh = halved(d, dots(q, widened(half_of(k.h, lane))), 4u, lane);
            s = halved(halved(ae, cg, 2u, lane), halved(bf, dh, 2u, lane), 1u, lane);
        }
    }
    for (var far = DEEP; far < TEAM; far *= 2u) {
        s += of_other(s, far);
    }
    return capped4(s * params.scale);
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

// Adds up what the teams of a subgroup have, each lane the half and then the quarter that it keeps,
// into a row of `sums`. All lanes of a subgroup together.
fn keep_sum(row: u32, o: Eight, index: u32) {
    let lane = index % TEAM;
    let at_low = 2u * (row + low_quad(lane));
    let at_high = 2u * (row + high_quad(lane));
    if (SUBGROUP == TEAM) {
        sums[at_low] = o.low.xy;
        sums[at_low + 1u] = o.low.zw;
        sums[at_high] = o.high.xy;
        sums[at_high + 1u] = o.high.zw;
        return;
    }
    let second = (index & TEAM) != 0u;
    let four = select(o.low, o.high, second) +
               subgroupShuffleXor(select(o.high, o.low, second), TEAM);
    let at = select(at_low, at_high, second);
    if (SUBGROUP == 2u * TEAM) {
        sums[at] = four.xy;
        sums[at + 1u] = four.zw;
        return;
    }
    let odd = (index & (2u * TEAM)) != 0u;
    var two = select(four.xy, four.zw, odd) +
              subgroupShuffleXor(select(four.zw, four.xy, odd), 2u * TEAM);
    for (var far = 4u * TEAM; far < SUBGROUP; far *= 2u) {
        two += subgroupShuffleXor(two, far);
    }
    if (index % SUBGROUP < 4u * TEAM) {
        sums[at + u32(odd)] = two;
    }
}

// Heads first .. first + MERGED - 1 of a workgroup, from its subgroups to out: `query` is where its
// first head lies there, `part` where that does among the splits.
fn merge(o: Four, first: u32, index: u32, head_count: u32, query: u32, part: u32) {
    let width = 2u * TEAM;
    let quads = params.head_dim / 4u;
    let to = index / SUBGROUP * MERGED * width;
    keep_sum(to, eight_of(o, first), index);
    if (MERGED > 1u) {
        keep_sum(to + width, eight_of(o, first + 1u), index);
    }
    if (MERGED > 2u) {
        keep_sum(to + 2u * width, eight_of(o, first + 2u), index);
    }
    if (MERGED > 3u) {
        keep_sum(to + 3u * width, eight_of(o, first + 3u), index);
    }
    workgroupBarrier();
    for (var e = index; e < MERGED * width; e += LANES) {
        let head = first + e / width;
        let quad = e % width;
        if (head < head_count && quad < quads) {
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
                let at = 2u * (i * MERGED * width + e);
                sum = fma(vec4<f32>(factor), vec4<f32>(sums[at], sums[at + 1u]), sum);
            }
            if (params.splits == 1u) {
                out[(query + head) * quads + quad] = sum / l;
            } else {
                let at = (part + head * params.splits) * (quads + 1u);
                out[at + quad] = sum;
                if (quad == 0u) {
                    out[at + quads] = vec4<f32>(m, l, 0.0, 0.0);
                }
            }
        }
    }
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>,
        @builtin(local_invocation_index) index: u32) {
    // Exact: the quotient is half of 1 / head_tiles from a whole number.
    let kv_head = u32((f32(group.x) + 0.5) / f32(params.head_tiles));
    let split = params.first_split + group.y;
    let row = params.first_row + group.z;
    let first_head = (group.x - kv_head * params.head_tiles) * HEADS;
    let head_count = min(HEADS, params.group_heads - first_head);
    let q_heads = params.kv_heads * params.group_heads;
    let first_query = kv_head * params.group_heads + first_head;
    let quads = params.head_dim / 4u;

    let lane = index % TEAM;
    let team = index / TEAM;
    let teams = LANES / TEAM;
    let turn_size = teams * DEEP;
    let first_lane = index % SUBGROUP - lane;    // of the team
    let place = place_of(lane);

    // Everything that a position or a block is not needed for is asked for first.
    let heads = q_heads + ROPE * 2u * params.kv_heads;
    let first_value = row * heads * quads;
    let info = row_info[row];
    let last_query = first_query + head_count - 1u;
    var q: Four;
    q.a = values_of(first_value + first_query * quads, lane);
    if (HEADS > 1u) {
        q.b = values_of(first_value + min(first_query + 1u, last_query) * quads, lane);
    }
    if (HEADS > 2u) {
        q.c = values_of(first_value + min(first_query + 2u, last_query) * quads, lane);
    }
    if (HEADS > 3u) {
        q.d = values_of(first_value + min(first_query + 3u, last_query) * quads, lane);
    }
    var fresh_k: Eight;
    var fresh_v: Eight;
    let low_pair = 2u * low_quad(lane);
    let high_pair = 2u * high_quad(lane);
    var fractions_low: vec4<u32>;
    var fractions_high: vec4<u32>;
    if (ROPE == 1u) {
        fresh_k = values_of(first_value + (q_heads + kv_head) * quads, lane);
        fresh_v = values_of(first_value + (q_heads + params.kv_heads + kv_head) * quads, lane);
        fractions_low = vec4<u32>(fraction_of(low_pair), fraction_of(low_pair + 1u));
        fractions_high = vec4<u32>(fraction_of(high_pair), fraction_of(high_pair + 1u));
    }

    // Positions seen.start .. seen.end - 1 come from the cache.
    let limit = info.x;
    let table = info.y;
    let start = limit + 1u - min(params.window, limit + 1u);
    let end = limit + 1u - ROPE;
    let seen = Seen(start, end);
    let first_turn = start / turn_size + split * params.split_turns;
    let turns_of_all = select((end + turn_size - 1u) / turn_size, 0u, start >= end);
    let is_last = split + 1u == params.splits;
    let end_turn =
        select(min(first_turn + params.split_turns, turns_of_all), turns_of_all, is_last);

    // The first turn's K and V, and where the row's own go.
    var own_block = 0u;
    if (ROPE == 1u) {
        own_block = block_table[table + limit / BLOCK];
    }
    var k: Turn;
    var v: Turn;
    if (first_turn < end_turn) {
        let base = first_turn * turn_size;
        let slots = (block_table[table + base / BLOCK] * params.kv_heads + kv_head) * BLOCK;
        k = k_turn(slots, base + team, seen, place);
        v = v_turn(slots, base + team, seen, place);
    }

    var highest = vec4<f32>(LOWEST);
    var total = vec4<f32>(0.0);
    var o: Four;

    // The row's own position, the first team's, while the others are on their way.
    if (ROPE == 1u) {
        let t = Turning(turning_of(low_pair, fractions_low.xy, limit),
                        turning_of(low_pair + 1u, fractions_low.zw, limit),
                        turning_of(high_pair, fractions_high.xy, limit),
                        turning_of(high_pair + 1u, fractions_high.zw, limit));
        q.a = turned_eight(q.a, t);
        if (HEADS > 1u) {
            q.b = turned_eight(q.b, t);
        }
        if (HEADS > 2u) {
            q.c = turned_eight(q.c, t);
        }
        if (HEADS > 3u) {
            q.d = turned_eight(q.d, t);
        }
        if (is_last) {
            let k_own = words_of(turned_eight(fresh_k, t));
            let v_own = words_of(fresh_v);
            let s = score_of(q, widened(k_own));
            let k_word = row_word(k_own, lane, first_lane);
            let v_word = row_word(v_own, lane, first_lane);
            if (team == 0u) {
                highest = s;
                total = vec4<f32>(select(0.0, 1.0, lane % DEEP == 0u));
                o = weighed(o, vec4<f32>(1.0), widened(v_own));
                if (first_head == 0u) {
                    let slot = (own_block * params.kv_heads + kv_head) * BLOCK + limit % BLOCK;
                    let at = slot * params.row_words;
                    if (CACHE == CACHE_F32) {
                        if (low_quad(lane) < quads) {
                            k_cache[at + low_quad(lane)] = k_own.a;
                            v_cache[at + low_quad(lane)] = v_own.a;
                        }
                        if (high_quad(lane) < quads) {
                            k_cache[at + high_quad(lane)] = k_own.b;
                            v_cache[at + high_quad(lane)] = v_own.b;
                        }
                    } else if (lane < params.row_words) {
                        k_cache[at + lane] = k_word;
                        v_cache[at + lane] = v_word;
                    }
                }
            }
        }
    }

    for (var turn = first_turn; turn < end_turn; turn++) {
        let base = turn * turn_size + team;
        let s = masked(scores_of(q, k, lane), is_seen(base, lane % DEEP, seen));
        let next = (turn + 1u) * turn_size;
        var slots = 0u;
        let more = turn + 1u < end_turn;
        if (more) {
            slots = (block_table[table + next / BLOCK] * params.kv_heads + kv_head) * BLOCK;
            k = k_turn(slots, next + team, seen, place);
        }
        var m = max(s, highest);
        for (var far = 1u; far < DEEP; far *= 2u) {
            m = max(m, of_other(m, far));
        }
        let shrink = exp(highest - m);
        highest = m;
        total *= shrink;
        o = scaled_four(o, shrink);
        let weight = weight_of(s, m);
        total += weight;
        o = weighed(o, of_lane(weight, first_lane), widened(half_of(v.a, lane)));
        if (DEEP > 1u) {
            o = weighed(o, of_lane(weight, first_lane + 1u), widened(half_of(v.b, lane)));
        }
        if (DEEP > 2u) {
            o = weighed(o, of_lane(weight, first_lane + 2u), widened(half_of(v.c, lane)));
            o = weighed(o, of_lane(weight, first_lane + 3u), widened(half_of(v.d, lane)));
        }
        if (DEEP > 4u) {
            o = weighed(o, of_lane(weight, first_lane + 4u), widened(half_of(v.e, lane)));
            o = weighed(o, of_lane(weight, first_lane + 5u), widened(half_of(v.f, lane)));
            o = weighed(o, of_lane(weight, first_lane + 6u), widened(half_of(v.g, lane)));
            o = weighed(o, of_lane(weight, first_lane + 7u), widened(half_of(v.h, lane)));
        }
        if (more) {
            v = v_turn(slots, next + team, seen, place);
        }
    }

    // The teams of a subgroup into its first.
    let subgroup = index / SUBGROUP;
    var m = highest;
    for (var far = TEAM; far < SUBGROUP; far *= 2u) {
        m = max(m, of_other(m, far));
    }
    let shrink = exp(highest - m);
    var l = total * shrink;
    o = scaled_four(o, shrink);
    for (var far = 1u; far < DEEP; far *= 2u) {
        l += of_other(l, far);
    }
    for (var far = TEAM; far < SUBGROUP; far *= 2u) {
        l += of_other(l, far);
    }
    if (index % SUBGROUP == 0u) {
        for (var h = 0u; h < HEADS; h++) {
            peaks[subgroup * HEADS + h] = vec2<f32>(part_of(m, h), part_of(l, h));
        }
    }

    // The subgroups, MERGED heads at a time.
    let query = row * q_heads + first_query;
    let part = ((params.first_part + group.z) * q_heads + first_query) * params.splits + split;
    merge(o, 0u, index, head_count, query, part);
    if (MERGED < HEADS) {
        workgroupBarrier();
        merge(o, MERGED, index, head_count, query, part);
    }
    if (2u * MERGED < HEADS) {
        workgroupBarrier();
        merge(o, 2u * MERGED, index, head_count, query, part);
    }
    if (3u * MERGED < HEADS) {
        workgroupBarrier();
        merge(o, 3u * MERGED, index, head_count, query, part);
    }
}
