// out[r, h, :] = sum_p softmax_p(score) V[p, kv] over the positions that row r sees, score = scale
// * q[r, h] . K[p, kv] or that capped, by subgroup matrices: f16 operands, f32 sums.
//
// Shapes: as attention.wgsl.
// Mapping: a workgroup of eight subgroups takes one KV head and 128 of its queries, 16 a subgroup;
//   query j is row j / G, head j % G of the G = Hq / Hkv heads, so that all of them share K and V.
//   It walks the positions 32 at a time, from the step where the window of its first row begins;
//   splits are counted from there, and the last split goes to the end. In a step K and V go into
//   workgroup memory as halves; scores, by matrices, go through the subgroup's strip there to two
//   lanes a query, come back as exponentials in f16, and their product with V is added up. The
//   last workgroups' queries are the longest: they come first.
// Rows of several sequences may meet in a workgroup: it makes a pass a sequence, the others masked.
// Masked positions have weight 0 and finite numbers: what is no number in V is left out of the
//   product, and what sees it is told so at the end.
// Needs: f16, subgroup matrices f16 to f32 of 16 x 16 x 16, subgroups of 32 lanes, 256 invocations;
//   16 (32 (2 TILES + 1) + 1152) bytes of workgroup memory.
// Why this version: a result matrix cannot be scaled by row. So exponentials are taken against a
//   reference m of the row: it is set 2^7 below the row's maximum, which uses f16 where it is fine,
//   and moves only where the maximum has outgrown it by 2^15, near f16's largest; only then do sums
//   pass through workgroup memory to be rescaled. V takes K's place there: with less than 24 KiB
//   (TILES up to 4) two workgroups run on a multiprocessor. Matrices are named, in structs, because
//   arrays of matrices end in memory.
// Rounding: q, K, V and the exponentials to f16, what is finite and beyond +-65504 to that; sums, m
//   and the softmax's denominator are f32.
// Reference: ref_attention.

diagnostic(off, chromium.subgroup_matrix_uniformity);
enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;

// option TILES = 4

const TILES = {{TILES}}u;                // of 16 values in a row of q, K and V
const STEP = 32u;                        // positions
const SUBGROUPS = 8u;
const LANES = 32u * SUBGROUPS;
const QUERIES = 16u * SUBGROUPS;
const PIECES = 2u * TILES;               // of eight values in a row
const PITCH = PIECES + 1u;               // of a staged row, in words of eight halves
const STRIP_PITCH = STEP / 4u + 1u;      // of a row of scores, in vec4
const STRIP = 16u * STRIP_PITCH;
const AT_STRIPS = STEP * PITCH;
const WORDS = STEP * PIECES;             // of K, and of V, in a step
const BLOCK = 256u;
const NONE = 0xffffffffu;
const LOWEST = -1.0e30;
const ABOVE = 7.0;                       // of a row's maximum over its reference, in powers of two
const MOST_ABOVE = 15.0;

const OUTGROWN = 1u;                     // bits of `flags`
const NO_NUMBER = 2u;

struct Params {
    first_row: u32,      // of the views; rows count from there
    rows: u32,
    q_heads: u32,
    kv_heads: u32,
    head_dim: u32,
    splits: u32,
    split_steps: u32,    // steps of positions a split
    first_tile: u32,     // tiles [first_tile, tile_end) in this dispatch
    tile_end: u32,
    row_words: u32,      // of 16 bytes, a row of the cache
    window: u32,         // positions a row sees, at least 1
    scale: f32,
    softcap: f32,        // 0: none
}

// use cache_type
// use cache_eights
// use cache_words
// use softcap

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> k_cache: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> v_cache: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> row_info: array<u32>;
@group(0) @binding(4) var<storage, read> block_table: array<u32>;
@group(0) @binding(5) var<storage, read_write> out: array<vec4<f32>>;
@group(1) @binding(0) var<uniform> params: Params;

// K or V of a step, then a strip of scores a subgroup.
var<workgroup> tile: array<vec4<u32>, AT_STRIPS + SUBGROUPS * STRIP>;
var<workgroup> flags: atomic<u32>;
var<workgroup> next_row: atomic<u32>;
// Positions from .. to - 1 that some query of the pass sees, then those that all of them see.
var<workgroup> bounds: array<atomic<u32>, 4>;
var<workgroup> pass_bounds: vec4<u32>;   // the same, for workgroupUniformLoad

// Matrices: from here to the next line of this kind, tests on devices without them put plain code.
alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Result = subgroup_matrix_result<f32, 16, 16>;

fn left_of_strip(at: u32) -> Left {
    return subgroupMatrixLoad<Left, row_major>(&tile, at, STRIP_PITCH);
}

fn keys(at: u32) -> Right {
    return subgroupMatrixLoad<Right, col_major>(&tile, at, PITCH);
}

fn values(at: u32) -> Right {
    return subgroupMatrixLoad<Right, row_major>(&tile, at, PITCH);
}

fn multiply(left: Left, right: Right, sum: Result) -> Result {
    return subgroupMatrixMultiplyAccumulate(left, right, sum);
}

fn store(at: u32, sum: Result) {
    subgroupMatrixStore<row_major>(&tile, at, sum, STRIP_PITCH);
}

fn load(at: u32) -> Result {
    return subgroupMatrixLoad<Result, row_major>(&tile, at, STRIP_PITCH);
}
// Matrices: to here.

// Four matrices of a row of TILES, from number `first` on.
struct Lefts {
    a: Left,
    b: Left,
    c: Left,
    d: Left,
}

struct Sums {
    a: Result,
    b: Result,
    c: Result,
    d: Result,
}

struct Two {
    a: Result,
    b: Result,
}

fn lefts(strip: u32, first: u32) -> Lefts {
    var l: Lefts;
    l.a = left_of_strip(strip);
    if (TILES > first + 1u) {
        l.b = left_of_strip(strip + 2u);
    }
    if (TILES > first + 2u) {
        l.c = left_of_strip(strip + 4u);
    }
    if (TILES > first + 3u) {
        l.d = left_of_strip(strip + 6u);
    }
    return l;
}

// sum + q . K^T for 16 positions, whose first row is at `at`.
fn scored(l: Lefts, at: u32, first: u32, sum: Result) -> Result {
    var s = multiply(l.a, keys(at + 2u * first), sum);
    if (TILES > first + 1u) {
        s = multiply(l.b, keys(at + 2u * first + 2u), s);
    }
    if (TILES > first + 2u) {
        s = multiply(l.c, keys(at + 2u * first + 4u), s);
    }
    if (TILES > first + 3u) {
        s = multiply(l.d, keys(at + 2u * first + 6u), s);
    }
    return s;
}

// o + P . V for 16 positions, whose first row is at `at`.
fn weighted(p: Left, at: u32, first: u32, o: Sums) -> Sums {
    var sum = o;
    sum.a = multiply(p, values(at + 2u * first), sum.a);
    if (TILES > first + 1u) {
        sum.b = multiply(p, values(at + 2u * first + 2u), sum.b);
    }
    if (TILES > first + 2u) {
        sum.c = multiply(p, values(at + 2u * first + 4u), sum.c);
    }
    if (TILES > first + 3u) {
        sum.d = multiply(p, values(at + 2u * first + 6u), sum.d);
    }
    return sum;
}

// Two sums by way of the strip, a lane's half of its row (at `part`) multiplied.
fn rescaled_two(strip: u32, part: u32, factor: f32, two: Two) -> Two {
    store(strip, two.a);
    store(strip + 4u, two.b);
    workgroupBarrier();
    for (var i = 0u; i < 4u; i++) {
        tile[part + i] = bitcast<vec4<u32>>(bitcast<vec4<f32>>(tile[part + i]) * factor);
    }
    workgroupBarrier();
    var scaled: Two;
    scaled.a = load(strip);
    scaled.b = load(strip + 4u);
    workgroupBarrier();
    return scaled;
}

fn rescaled(strip: u32, part: u32, factor: f32, first: u32, o: Sums) -> Sums {
    var sum = o;
    let low = rescaled_two(strip, part, factor, Two(o.a, o.b));
    sum.a = low.a;
    sum.b = low.b;
    if (TILES > first + 2u) {
        let high = rescaled_two(strip, part, factor, Two(o.c, o.d));
        sum.c = high.a;
        sum.d = high.b;
    }
    return sum;
}

// ---- K and V into workgroup memory ----

fn packed(w: Words) -> vec4<u32> {
    if (CACHE == CACHE_F16) {
        return w.a;
    }
    let v = widened(w);
    return vec4<u32>(pack2x16float(held(v.low.xy)), pack2x16float(held(v.low.zw)),
                     pack2x16float(held(v.high.xy)), pack2x16float(held(v.high.zw)));
}

// Bits 15 and 31: the half is infinite or no number.
fn no_numbers(word: vec4<u32>) -> vec4<u32> {
    return ((word & vec4<u32>(0x7c007c00u)) + vec4<u32>(0x04000400u)) & vec4<u32>(0x80008000u);
}

// Word i of K in the step that begins at position `base`; zeros for what nobody sees.
fn k_of(slots: u32, base: u32, i: u32, begin: u32, end: u32) -> Words {
    let at = base + i / PIECES;
    if (i >= WORDS || at < begin || at >= end) {
        return Words(vec4<u32>(0u), vec4<u32>(0u));
    }
    return k_words(slots + at % BLOCK, i % PIECES);
}

fn v_of(slots: u32, base: u32, i: u32, begin: u32, end: u32) -> Words {
    let at = base + i / PIECES;
    if (i >= WORDS || at < begin || at >= end) {
        return Words(vec4<u32>(0u), vec4<u32>(0u));
    }
    return v_words(slots + at % BLOCK, i % PIECES);
}

fn put_k(i: u32, w: Words) {
    if (i < WORDS) {
        tile[i / PIECES * PITCH + i % PIECES] = packed(w);
    }
}

fn put_v(i: u32, w: Words) {
    if (i < WORDS) {
        let word = packed(w);
        let wrong = no_numbers(word);
        if (any(wrong != vec4<u32>(0u))) {
            atomicOr(&flags, NO_NUMBER);
        }
        tile[i / PIECES * PITCH + i % PIECES] = word & ~((wrong >> vec4<u32>(15u)) * 0xffffu);
    }
}

// The four bits of values 4 quad .. 4 quad + 3 of a row of V: no numbers.
fn wrong_of(slot: u32, quad: u32) -> u32 {
    let wrong = no_numbers(packed(v_words(slot, quad / 2u)));
    let pair = select(wrong.xy, wrong.zw, quad % 2u == 1u);
    return ((pair.x >> 15u) & 1u) | ((pair.x >> 30u) & 2u) | ((pair.y >> 13u) & 4u) |
           ((pair.y >> 28u) & 8u);
}

// ---- what a lane knows of its query ----

struct Query {
    at: u32,         // of row and head: (row * Hq + head)
    row: u32,
    none: bool,      // past the last
    table: u32,
    begin: u32,      // positions begin .. end - 1 are seen
    end: u32,
}

fn query_of(number: u32, kv_head: u32) -> Query {
    let group_heads = params.q_heads / params.kv_heads;
    let count = params.rows * group_heads;
    let j = min(number, count - 1u);
    let row = params.first_row + j / group_heads;
    let end = row_info[2u * row] + 1u;
    return Query(row * params.q_heads + kv_head * group_heads + j % group_heads, row,
                 number >= count, row_info[2u * row + 1u], end - min(params.window, end), end);
}

// A lane's part of the queries, in f16, into its strip: half of values 64 c .. 64 c + 63 of a row.
fn stage_query(at: u32, c: u32, side: u32, part: u32) {
    let quads = params.head_dim / 4u;
    for (var i = 0u; i < 4u; i++) {
        let quad = 16u * c + 8u * side + 2u * i;
        var low = vec4<f32>(0.0);
        var high = vec4<f32>(0.0);
        if (quad < quads) {
            low = q[at * quads + quad];
        }
        if (quad + 1u < quads) {
            high = q[at * quads + quad + 1u];
        }
        tile[part + i] = vec4<u32>(pack2x16float(held(low.xy)), pack2x16float(held(low.zw)),
                                   pack2x16float(held(high.xy)), pack2x16float(held(high.zw)));
    }
}

// Where the split's part of a query lies in out.
fn part_of(query: Query, split: u32) -> u32 {
    let local = query.at - params.first_row * params.q_heads;
    return (local * params.splits + split) * (params.head_dim / 4u + 1u);
}

// Two sums, columns 32 `pair` on, from the strip to out.
fn write_two(strip: u32, part: u32, side: u32, pair: u32, two: Two, query: Query, split: u32,
             total: f32, wrong: u32) {
    store(strip, two.a);
    store(strip + 4u, two.b);
    workgroupBarrier();
    let quads = params.head_dim / 4u;
    let direct = params.splits == 1u;
    let to = select(part_of(query, split), query.at * quads, direct);
    var quiet_nan = 0x7fc00000u;
    for (var i = 0u; i < 4u; i++) {
        let quad = 8u * pair + 4u * side + i;
        let bits = (vec4<u32>(wrong) >> vec4<u32>(4u * i, 4u * i + 1u, 4u * i + 2u, 4u * i + 3u)) &
                   vec4<u32>(1u);
        let sum = select(bitcast<vec4<f32>>(tile[part + i]), vec4<f32>(bitcast<f32>(quiet_nan)),
                         bits == vec4<u32>(1u));
        if (quad < quads && !query.none) {
            out[to + quad] = select(sum, sum / total, direct);
        }
    }
    workgroupBarrier();
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
    let number = params.first_tile + group.y * groups.x + group.x;
    if (number >= params.tile_end) {
        return;
    }
    let split = number % params.splits;
    let kv_head = (number / params.splits) % params.kv_heads;
    let blocks = (params.rows * (params.q_heads / params.kv_heads) + QUERIES - 1u) / QUERIES;
    let block = blocks - 1u - number / (params.splits * params.kv_heads);

    let subgroup = thread / 32u;
    let side = thread % 2u;
    let strip = AT_STRIPS + subgroup * STRIP;
    let part = strip + thread % 32u / 2u * STRIP_PITCH + side * 4u;    // a lane's half of a row
    let query = query_of(block * QUERIES + thread / 2u, kv_head);

    var q0: Lefts;
    var q1: Lefts;
    var q2: Lefts;
    var q3: Lefts;
    stage_query(query.at, 0u, side, part);
    workgroupBarrier();
    q0 = lefts(strip, 0u);
    if (TILES > 4u) {
        workgroupBarrier();
        stage_query(query.at, 1u, side, part);
        workgroupBarrier();
        q1 = lefts(strip, 4u);
    }
    if (TILES > 8u) {
        workgroupBarrier();
        stage_query(query.at, 2u, side, part);
        workgroupBarrier();
        q2 = lefts(strip, 8u);
    }
    if (TILES > 12u) {
        workgroupBarrier();
        stage_query(query.at, 3u, side, part);
        workgroupBarrier();
        q3 = lefts(strip, 12u);
    }

    var o0: Sums;
    var o1: Sums;
    var o2: Sums;
    var o3: Sums;
    var m = LOWEST;
    var l = 0.0;                    // of the lane's own columns
    var wrong = vec4<u32>(0u);      // a bit for each value of the lane's columns: no number
    let to_two = params.scale * 1.4426950408889634;     // e^x = 2^(x log2(e))
    var todo = true;

    loop {
        if (thread == 0u) {
            atomicStore(&flags, 0u);
            atomicStore(&next_row, NONE);
            atomicStore(&bounds[0], NONE);
            atomicStore(&bounds[1], 0u);
            atomicStore(&bounds[2], 0u);
            atomicStore(&bounds[3], NONE);
        }
        workgroupBarrier();
        if (todo) {
            atomicMin(&next_row, query.row);
        }
        let pass_row = workgroupUniformLoad(&next_row);
        if (pass_row == NONE) {
            break;
        }
        let table = row_info[2u * pass_row + 1u];
        let mine = todo && query.table == table;
        todo = todo && !mine;
        let begin = select(NONE, query.begin, mine);
        let end = select(0u, query.end, mine);
        atomicMin(&bounds[0], begin);
        atomicMax(&bounds[1], end);
        atomicMax(&bounds[2], begin);
        atomicMin(&bounds[3], end);
        workgroupBarrier();
        if (thread == 0u) {
            pass_bounds = vec4<u32>(atomicLoad(&bounds[0]), atomicLoad(&bounds[1]),
                                    atomicLoad(&bounds[2]), atomicLoad(&bounds[3]));
        }
        let seen = workgroupUniformLoad(&pass_bounds);
        let pass_begin = seen.x;
        let pass_end = seen.y;

        let first_step = pass_begin / STEP + split * params.split_steps;
        var end_step = (pass_end + STEP - 1u) / STEP;
        if (split + 1u < params.splits) {
            end_step = min(end_step, first_step + params.split_steps);
        }
        var slots = 0u;
        if (first_step < end_step) {
            let base = first_step * STEP;
            slots = (block_table[table + base / BLOCK] * params.kv_heads + kv_head) * BLOCK;
            put_k(thread, k_of(slots, base, thread, pass_begin, pass_end));
            if (TILES > 4u) {
                put_k(thread + LANES, k_of(slots, base, thread + LANES, pass_begin, pass_end));
            }
            if (TILES > 8u) {
                let i = thread + 2u * LANES;
                put_k(i, k_of(slots, base, i, pass_begin, pass_end));
            }
            if (TILES > 12u) {
                let i = thread + 3u * LANES;
                put_k(i, k_of(slots, base, i, pass_begin, pass_end));
            }
        }

        for (var step = first_step; step < end_step; step++) {
            let base = step * STEP;
            let v0 = v_of(slots, base, thread, pass_begin, pass_end);
            var v1: Words;
            var v2: Words;
            var v3: Words;
            if (TILES > 4u) {
                v1 = v_of(slots, base, thread + LANES, pass_begin, pass_end);
            }
            if (TILES > 8u) {
                v2 = v_of(slots, base, thread + 2u * LANES, pass_begin, pass_end);
            }
            if (TILES > 12u) {
                v3 = v_of(slots, base, thread + 3u * LANES, pass_begin, pass_end);
            }
            workgroupBarrier();

            // Scores of positions 0 .. 15 and 16 .. 31 of the step.
            var s_low = scored(q0, 0u, 0u, Result());
            var s_high = scored(q0, 16u * PITCH, 0u, Result());
            if (TILES > 4u) {
                s_low = scored(q1, 0u, 4u, s_low);
                s_high = scored(q1, 16u * PITCH, 4u, s_high);
            }
            if (TILES > 8u) {
                s_low = scored(q2, 0u, 8u, s_low);
                s_high = scored(q2, 16u * PITCH, 8u, s_high);
            }
            if (TILES > 12u) {
                s_low = scored(q3, 0u, 12u, s_low);
                s_high = scored(q3, 16u * PITCH, 12u, s_high);
            }
            store(strip, s_low);
            store(strip + 4u, s_high);
            workgroupBarrier();
            put_v(thread, v0);
            if (TILES > 4u) {
                put_v(thread + LANES, v1);
            }
            if (TILES > 8u) {
                put_v(thread + 2u * LANES, v2);
            }
            if (TILES > 12u) {
                put_v(thread + 3u * LANES, v3);
            }

            // K of the next step, asked for now.
            let next = base + STEP;
            let more = step + 1u < end_step;
            var k0: Words;
            var k1: Words;
            var k2: Words;
            var k3: Words;
            let own_slots = slots;
            if (more) {
                slots = (block_table[table + next / BLOCK] * params.kv_heads + kv_head) * BLOCK;
                k0 = k_of(slots, next, thread, pass_begin, pass_end);
                if (TILES > 4u) {
                    k1 = k_of(slots, next, thread + LANES, pass_begin, pass_end);
                }
                if (TILES > 8u) {
                    k2 = k_of(slots, next, thread + 2u * LANES, pass_begin, pass_end);
                }
                if (TILES > 12u) {
                    k3 = k_of(slots, next, thread + 3u * LANES, pass_begin, pass_end);
                }
            }

            // A lane has 16 columns of its query's scores, in powers of two.
            var s0 = bitcast<vec4<f32>>(tile[part]);
            var s1 = bitcast<vec4<f32>>(tile[part + 1u]);
            var s2 = bitcast<vec4<f32>>(tile[part + 2u]);
            var s3 = bitcast<vec4<f32>>(tile[part + 3u]);
            if (params.softcap == 0.0) {
                s0 *= to_two;
                s1 *= to_two;
                s2 *= to_two;
                s3 *= to_two;
            } else {
                s0 = capped4(s0 * params.scale) * 1.4426950408889634;
                s1 = capped4(s1 * params.scale) * 1.4426950408889634;
                s2 = capped4(s2 * params.scale) * 1.4426950408889634;
                s3 = capped4(s3 * params.scale) * 1.4426950408889634;
            }
            let open = base >= seen.z && base + STEP <= seen.w;
            let first_column = vec4<u32>(base + 16u * side) + vec4<u32>(0u, 1u, 2u, 3u);
            let low = vec4<u32>(begin);
            let past = vec4<u32>(end);
            if (!open) {
                let c1 = first_column + vec4<u32>(4u);
                let c2 = first_column + vec4<u32>(8u);
                let c3 = first_column + vec4<u32>(12u);
                s0 = select(vec4<f32>(LOWEST), s0, (first_column >= low) & (first_column < past));
                s1 = select(vec4<f32>(LOWEST), s1, (c1 >= low) & (c1 < past));
                s2 = select(vec4<f32>(LOWEST), s2, (c2 >= low) & (c2 < past));
                s3 = select(vec4<f32>(LOWEST), s3, (c3 >= low) & (c3 < past));
            }
            let high = max(max(s0, s1), max(s2, s3));
            var top = max(max(high.x, high.y), max(high.z, high.w));
            top = max(top, subgroupShuffleXor(top, 1u));
            let before = m;
            if (top > m + MOST_ABOVE) {
                m = top - ABOVE;
                if (before > LOWEST) {
                    atomicOr(&flags, OUTGROWN);
                }
            }
            // 2^(LOWEST - m) is 0, but for a query that has seen nothing yet.
            let reference = select(m, 0.0, m == LOWEST);
            s0 = exp2(s0 - reference);
            s1 = exp2(s1 - reference);
            s2 = exp2(s2 - reference);
            s3 = exp2(s3 - reference);
            let p0 = vec4<u32>(pack2x16float(s0.xy), pack2x16float(s0.zw), pack2x16float(s1.xy),
                               pack2x16float(s1.zw));
            let p1 = vec4<u32>(pack2x16float(s2.xy), pack2x16float(s2.zw), pack2x16float(s3.xy),
                               pack2x16float(s3.zw));
            tile[part] = p0;
            tile[part + 1u] = p1;
            let found = workgroupUniformLoad(&flags);
            if (found != 0u) {
                if ((found & OUTGROWN) != 0u) {
                    let factor = exp2(before - m);
                    l *= factor;
                    o0 = rescaled(strip, part, factor, 0u, o0);
                    if (TILES > 4u) {
                        o1 = rescaled(strip, part, factor, 4u, o1);
                    }
                    if (TILES > 8u) {
                        o2 = rescaled(strip, part, factor, 8u, o2);
                    }
                    if (TILES > 12u) {
                        o3 = rescaled(strip, part, factor, 12u, o3);
                    }
                    tile[part] = p0;
                    tile[part + 1u] = p1;
                }
                if ((found & NO_NUMBER) != 0u) {
                    for (var at = max(base, begin); at < min(base + STEP, end); at++) {
                        for (var n = 0u; n < 4u * ((TILES + 1u) / 2u); n++) {
                            let quad = 8u * (n / 4u) + 4u * side + n % 4u;
                            wrong[n / 8u] |= wrong_of(own_slots + at % BLOCK, quad)
                                             << (4u * (n % 8u));
                        }
                    }
                }
                if (thread == 0u) {
                    atomicStore(&flags, 0u);
                }
                workgroupBarrier();
            }
            let sum = (s0 + s1) + (s2 + s3);
            l += (sum.x + sum.y) + (sum.z + sum.w);

            let p_low = left_of_strip(strip);
            let p_high = left_of_strip(strip + 4u);
            o0 = weighted(p_low, 0u, 0u, o0);
            o0 = weighted(p_high, 16u * PITCH, 0u, o0);
            if (TILES > 4u) {
                o1 = weighted(p_low, 0u, 4u, o1);
                o1 = weighted(p_high, 16u * PITCH, 4u, o1);
            }
            if (TILES > 8u) {
                o2 = weighted(p_low, 0u, 8u, o2);
                o2 = weighted(p_high, 16u * PITCH, 8u, o2);
            }
            if (TILES > 12u) {
                o3 = weighted(p_low, 0u, 12u, o3);
                o3 = weighted(p_high, 16u * PITCH, 12u, o3);
            }
            workgroupBarrier();
            if (more) {
                put_k(thread, k0);
                if (TILES > 4u) {
                    put_k(thread + LANES, k1);
                }
                if (TILES > 8u) {
                    put_k(thread + 2u * LANES, k2);
                }
                if (TILES > 12u) {
                    put_k(thread + 3u * LANES, k3);
                }
            }
        }
    }

    let total = l + subgroupShuffleXor(l, 1u);
    write_two(strip, part, side, 0u, Two(o0.a, o0.b), query, split, total, wrong.x & 0xffffu);
    if (TILES > 2u) {
        write_two(strip, part, side, 1u, Two(o0.c, o0.d), query, split, total, wrong.x >> 16u);
    }
    if (TILES > 4u) {
        write_two(strip, part, side, 2u, Two(o1.a, o1.b), query, split, total, wrong.y & 0xffffu);
    }
    if (TILES > 6u) {
        write_two(strip, part, side, 3u, Two(o1.c, o1.d), query, split, total, wrong.y >> 16u);
    }
    if (TILES > 8u) {
        write_two(strip, part, side, 4u, Two(o2.a, o2.b), query, split, total, wrong.z & 0xffffu);
    }
    if (TILES > 10u) {
        write_two(strip, part, side, 5u, Two(o2.c, o2.d), query, split, total, wrong.z >> 16u);
    }
    if (TILES > 12u) {
        write_two(strip, part, side, 6u, Two(o3.a, o3.b), query, split, total, wrong.w & 0xffffu);
    }
    if (TILES > 14u) {
        write_two(strip, part, side, 7u, Two(o3.c, o3.d), query, split, total, wrong.w >> 16u);
    }
    if (params.splits > 1u && side == 0u && !query.none) {
        // The join knows powers of e.
        out[part_of(query, split) + params.head_dim / 4u] =
            vec4<f32>(m * 0.6931471805599453, total, 0.0, 0.0);
    }
}
