// y[r, c] = xs[r] * sum_k x[r, k] * W[c, k], or that added to y[r, c] with accumulate = 1: f16
// times f16 added up by subgroup matrices in f32 or, lossy, in f16.
//
// Shapes: x f16 in blocks of 32 along k, [K / 32][x_rows][32], x_rows the rows rounded up to
//   whole tiles; xs f32 [rows], powers of two; W one part of a weight (piece weight); y f32, read
//   as vec4: y_quads of them a row, the product's columns from quad `quad0` on. K a multiple of 32,
//   and with UNITS above 1 of 32 UNITS TEAMS. cols is a multiple of 4; columns past the weight's
//   own are 0.
// Mapping: a workgroup makes a tile of 16 DOWN SUB_M rows by 16 ACROSS SUB_N columns. Its
//   subgroups stand in TEAMS teams, which take the steps of 32 UNITS along k in turn; a team is
//   SUB_M by SUB_N subgroups, each with DOWN by ACROSS matrices of 16 by 16. In the grid lie the
//   tiles of a band of rows (x), of all columns (y), and the bands (z): what runs at one time
//   shares its inputs in the cache. With slices above 1 (one band at most) z is a slice of k
//   instead, whose sums go to y + slice * slice_quads.
// Needs: f16, subgroup matrices f16 to f32 (RESULT_BITS = 32) or f16 (16) of 16 x 16 x 16,
//   subgroups of 32 lanes, 32 SUB_M SUB_N TEAMS invocations; 16 TEAMS max((STAGE_X TILE_M + TILE_N)
//   (4 UNITS + 1), SUB_M SUB_N 16 (4 ACROSS + 1)) bytes of workgroup memory.
// Why this version: the weight is unpacked on its way into workgroup memory, a quarter of the
//   bytes of halves and no scratch; words of the next step wait in registers while this one
//   multiplies. Rows there are padded by 16 bytes against bank conflicts. STAGE_X = 0 reads x from
//   its buffer: where one subgroup needs it, staging costs more. Matrices leave by way of
//   workgroup memory, where teams are added up, rows scaled and edges cut: that is 6 % faster than
//   storing them to y. They are named, in structs, because arrays of matrices end in memory (8
//   times slower). 295 TFLOP/s on an H200 (2048 x 8192 x 2048, 4-bit), 46 % of what its matrix
//   units do in registers.
//   Results in f16 take half the registers, and on some cards half the time. That they become f32
//   after every block of k was tried: they cannot but through memory, and that way lost (SPEED.md).
// Rounding: an element of W is rounded to f16 as pieces weight_f16 and weight_entry say; x was.
//   That no sum in f16 overflows is product_input's care, which knows the weight's largest element.
// Reference: ref_matmul.

diagnostic(off, chromium.subgroup_matrix_uniformity);
enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;

// option DOWN = 4
// option ACROSS = 4
// option SUB_M = 2
// option SUB_N = 2
// option TEAMS = 1
// option UNITS = 1
// option STAGE_X = 1
// option RESULT_BITS = 32

const DOWN = {{DOWN}}u;
const ACROSS = {{ACROSS}}u;
const SUB_M = {{SUB_M}}u;
const SUB_N = {{SUB_N}}u;
const TEAMS = {{TEAMS}}u;
const UNITS = {{UNITS}}u;
const STAGE_X = {{STAGE_X}}u;

const TILE_M = 16u * DOWN * SUB_M;
const TILE_N = 16u * ACROSS * SUB_N;
const BAND = 8u;                          // tile rows that run side by side
const SUBGROUPS = SUB_M * SUB_N;          // of a team
const TEAM = 32u * SUBGROUPS;             // lanes
const LANES = TEAM * TEAMS;
const STEP = UNITS * TEAMS;               // blocks along k
const PITCH = 4u * UNITS + 1u;            // of a staged row, in words of eight halves
const AT_W = STAGE_X * TILE_M * PITCH;    // in a team's stage: x, then W
const STAGE = AT_W + TILE_N * PITCH;
const X_LOADS = TILE_M * UNITS * 4u / TEAM;
const ENTRIES = TILE_N * UNITS / TEAM;
const STRIP_PITCH = 4u * ACROSS + 1u;     // of 16 rows of sums, in words of four floats
const RESULT = {{RESULT_BITS}}u / 8u;     // words of a matrix's row of sums
const HALF_STRIPS = {{RESULT_BITS}}u == 16u;
const STRIP = 16u * STRIP_PITCH;
const STRIP_QUADS = 64u * ACROSS;

struct Params {
    rows: u32,
    cols: u32,
    k: u32,
    stride: u32,       // of W's tables
    x_rows: u32,
    quad0: u32,
    y_quads: u32,
    slices: u32,
    share: u32,        // blocks of a slice
    slice_quads: u32,
    first_column: u32, // tile columns before this dispatch
    accumulate: u32,
}

// use weight
// use weight_f16
// use weight_entry

@group(0) @binding(3) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> x_scale: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<vec4<f32>>;
@group(1) @binding(0) var<uniform> params: Params;

var<workgroup> tile: array<vec4<u32>, TEAMS * max(STAGE, SUBGROUPS * STRIP)>;

// Matrices: from here to the next line of this kind, tests on devices without them put plain code.
alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Result = subgroup_matrix_result<f{{RESULT_BITS}}, 16, 16>;

fn left_of_tile(at: u32) -> Left {
    return subgroupMatrixLoad<Left, row_major>(&tile, at, PITCH);
}

fn left_of_x(at: u32) -> Left {
    return subgroupMatrixLoad<Left, row_major>(&x, at, 4u);
}

fn right_of_tile(at: u32) -> Right {
    return subgroupMatrixLoad<Right, col_major>(&tile, at, PITCH);
}

fn multiply(left: Left, right: Right, sum: Result) -> Result {
    return subgroupMatrixMultiplyAccumulate(left, right, sum);
}

fn store(at: u32, sum: Result) {
    subgroupMatrixStore<row_major>(&tile, at, sum, STRIP_PITCH);
}
// Matrices: to here.

// A column of matrices, DOWN of them.
struct Lefts {
    a: Left,
    b: Left,
    c: Left,
    d: Left,
}

struct Column {
    a: Result,
    b: Result,
    c: Result,
    d: Result,
}

fn left(at: u32, at_x: u32) -> Left {
    if (STAGE_X == 1u) {
        return left_of_tile(at);
    }
    return left_of_x(at_x);
}

// x for a subgroup: at `at` of the tile, or of the buffer.
fn lefts(at: u32, at_x: u32) -> Lefts {
    var l: Lefts;
    l.a = left(at, at_x);
    if (DOWN > 1u) {
        l.b = left(at + 16u * PITCH, at_x + 64u);
    }
    if (DOWN > 2u) {
        l.c = left(at + 32u * PITCH, at_x + 128u);
        l.d = left(at + 48u * PITCH, at_x + 192u);
    }
    return l;
}

fn add(l: Lefts, at_w: u32, column: Column) -> Column {
    let right = right_of_tile(at_w);
    var sum = column;
    sum.a = multiply(l.a, right, sum.a);
    if (DOWN > 1u) {
        sum.b = multiply(l.b, right, sum.b);
    }
    if (DOWN > 2u) {
        sum.c = multiply(l.c, right, sum.c);
        sum.d = multiply(l.d, right, sum.d);
    }
    return sum;
}

fn store_strip(at: u32, s0: Result, s1: Result, s2: Result, s3: Result) {
    store(at, s0);
    if (ACROSS > 1u) {
        store(at + RESULT, s1);
    }
    if (ACROSS > 2u) {
        store(at + 2u * RESULT, s2);
        store(at + 3u * RESULT, s3);
    }
}

fn two_halves(word: u32) -> vec2<f32> {
    return vec2<f32>(bitcast<vec2<f16>>(word));
}

fn four_halves(words: vec2<u32>) -> vec4<f32> {
    return vec4<f32>(two_halves(words.x), two_halves(words.y));
}

// A quad of sums: where it is in the strips (of halves also which half of the word), its row and
//   its column of quads in y; none: past the edge.
struct Quad {
    at: u32,
    odd: bool,
    row: u32,
    quad: u32,
    none: bool,
}

fn quad_of(i: u32, corner: vec2<u32>) -> Quad {
    let strip = i / STRIP_QUADS;
    let r = i % STRIP_QUADS / (4u * ACROSS);
    let c = i % (4u * ACROSS);
    let row = corner.x + strip / SUB_N * (16u * DOWN) + r;
    let quad = corner.y + strip % SUB_N * (4u * ACROSS) + c;
    let word = select(c, c / 2u, HALF_STRIPS);
    return Quad(strip * STRIP + r * STRIP_PITCH + word, c % 2u == 1u, row, quad,
                i >= SUBGROUPS * STRIP_QUADS || row >= params.rows || 4u * quad >= params.cols);
}

fn y_at(q: Quad, slice: u32) -> u32 {
    return slice * params.slice_quads + q.row * params.y_quads + params.quad0 + q.quad;
}

fn sum_before(q: Quad) -> vec4<f32> {
    if (q.none || params.accumulate == 0u) {
        return vec4<f32>(0.0);
    }
    return y[y_at(q, 0u)];
}

fn quad_at(at: u32, odd: bool) -> vec4<f32> {
    let words = tile[at];
    if (HALF_STRIPS) {
        return four_halves(select(words.xy, words.zw, odd));
    }
    return bitcast<vec4<f32>>(words);
}

fn write_quad(q: Quad, slice: u32, before: vec4<f32>) {
    if (q.none) {
        return;
    }
    var sum = vec4<f32>(0.0);
    for (var t = 0u; t < TEAMS; t++) {
        sum += quad_at(q.at + t * SUBGROUPS * STRIP, q.odd);
    }
    y[y_at(q, slice)] = fma(sum, vec4<f32>(x_scale[q.row]), before);
}

// 16 rows of every subgroup's part, from the strips to y; corner: the first row, and the tile's
//   first quad. What is in y is asked for four quads at a time.
fn write_strips(thread: u32, corner: vec2<u32>, slice: u32) {
    workgroupBarrier();
    for (var i = thread; i < SUBGROUPS * STRIP_QUADS; i += 4u * LANES) {
        let q0 = quad_of(i, corner);
        let q1 = quad_of(i + LANES, corner);
        let q2 = quad_of(i + 2u * LANES, corner);
        let q3 = quad_of(i + 3u * LANES, corner);
        let before0 = sum_before(q0);
        let before1 = sum_before(q1);
        let before2 = sum_before(q2);
        let before3 = sum_before(q3);
        write_quad(q0, slice, before0);
        write_quad(q1, slice, before1);
        write_quad(q2, slice, before2);
        write_quad(q3, slice, before3);
    }
    workgroupBarrier();
}

// What a lane has of TEAM entries, `lot` the first of them: one of its own or, of layouts without
//   scales, a quarter of each of four.
struct Lot {
    entry: Entry,
    a: vec4<u32>,
    b: vec4<u32>,
    c: vec4<u32>,
    d: vec4<u32>,
}

// Columns and blocks of entries, from column n0 and block kb on; past the end the last one again.
fn column_of(n0: u32, i: u32) -> u32 {
    return min(n0 + i % TILE_N, params.stride - 1u);
}

fn block_of(kb: u32, i: u32) -> u32 {
    return min(kb + i / TILE_N, params.k / 32u - 1u);
}

fn own_quarter(n0: u32, kb: u32, i: u32, lane: u32) -> vec4<u32> {
    return weight_quarter(column_of(n0, i), block_of(kb, i), lane % 4u);
}

fn lot_at(n0: u32, kb: u32, lot: u32, lane: u32) -> Lot {
    var l: Lot;
    if (LAYOUT < LAYOUT_Q8) {
        let i = lot + lane / 4u;
        l.a = own_quarter(n0, kb, i, lane);
        l.b = own_quarter(n0, kb, i + TEAM / 4u, lane);
        l.c = own_quarter(n0, kb, i + TEAM / 2u, lane);
        l.d = own_quarter(n0, kb, i + TEAM / 4u * 3u, lane);
    } else {
        l.entry = weight_entry(column_of(n0, lot + lane), block_of(kb, lot + lane));
    }
    return l;
}

fn entry_to(base: u32, i: u32) -> u32 {
    return base + AT_W + i % TILE_N * PITCH + i / TILE_N * 4u;
}

fn stage_lot(l: Lot, base: u32, n0: u32, lot: u32, lane: u32) {
    if (LAYOUT < LAYOUT_Q8) {
        let i = lot + lane / 4u;
        tile[entry_to(base, i) + lane % 4u] = quarter_pairs(l.a);
        tile[entry_to(base, i + TEAM / 4u) + lane % 4u] = quarter_pairs(l.b);
        tile[entry_to(base, i + TEAM / 2u) + lane % 4u] = quarter_pairs(l.c);
        tile[entry_to(base, i + TEAM / 4u * 3u) + lane % 4u] = quarter_pairs(l.d);
        return;
    }
    let to = entry_to(base, lot + lane);
    let n = column_of(n0, lot + lane);
    tile[to] = entry_pairs(l.entry, n, 0u);
    tile[to + 1u] = entry_pairs(l.entry, n, 1u);
    tile[to + 2u] = entry_pairs(l.entry, n, 2u);
    tile[to + 3u] = entry_pairs(l.entry, n, 3u);
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let slice = select(0u, group.z, params.slices > 1u);
    let band = select(group.z, 0u, params.slices > 1u);
    let m0 = (band * BAND + group.x) * TILE_M;
    let n0 = (params.first_column + group.y) * TILE_N;
    if (m0 >= params.rows) {
        return;
    }
    let subgroup = thread / 32u;
    let own = subgroup % SUBGROUPS;
    let sub_m = own / SUB_N * (16u * DOWN);
    let sub_n = own % SUB_N * (16u * ACROSS);
    let lane = thread % TEAM;
    let team = thread / TEAM;

    let blocks = params.k / 32u;
    let first = slice * params.share;
    let end = min(first + params.share, blocks);
    let steps = (end - first + STEP - 1u) / STEP;
    let start = first + team * UNITS;
    let base = team * STAGE;

    // What a lane stages: words of x, and entries of W. Past the end of k the last block is read
    // again, and not multiplied.
    const ROW_WORDS = 4u * TILE_M;
    let x_more = STEP * 4u * params.x_rows;
    let i0 = lane;
    let i1 = lane + TEAM;
    let i2 = lane + 2u * TEAM;
    let i3 = lane + 3u * TEAM;
    var x_at0 = ((start + i0 / ROW_WORDS) * params.x_rows + m0) * 4u + i0 % ROW_WORDS;
    var x_at1 = ((start + i1 / ROW_WORDS) * params.x_rows + m0) * 4u + i1 % ROW_WORDS;
    var x_at2 = ((start + i2 / ROW_WORDS) * params.x_rows + m0) * 4u + i2 % ROW_WORDS;
    var x_at3 = ((start + i3 / ROW_WORDS) * params.x_rows + m0) * 4u + i3 % ROW_WORDS;
    let x_last = ((blocks - 1u) * params.x_rows + m0) * 4u;
    let x_to0 = base + i0 % ROW_WORDS / 4u * PITCH + i0 / ROW_WORDS * 4u + i0 % 4u;
    let x_to1 = base + i1 % ROW_WORDS / 4u * PITCH + i1 / ROW_WORDS * 4u + i1 % 4u;
    let x_to2 = base + i2 % ROW_WORDS / 4u * PITCH + i2 / ROW_WORDS * 4u + i2 % 4u;
    let x_to3 = base + i3 % ROW_WORDS / 4u * PITCH + i3 / ROW_WORDS * 4u + i3 % 4u;
    var w_kb = start;

    var x0 = vec4<u32>();
    var x1 = vec4<u32>();
    var x2 = vec4<u32>();
    var x3 = vec4<u32>();
    if (STAGE_X == 1u) {
        x0 = x[min(x_at0, x_last + i0 % ROW_WORDS)];
        if (X_LOADS > 1u) {
            x1 = x[min(x_at1, x_last + i1 % ROW_WORDS)];
        }
        if (X_LOADS > 2u) {
            x2 = x[min(x_at2, x_last + i2 % ROW_WORDS)];
            x3 = x[min(x_at3, x_last + i3 % ROW_WORDS)];
        }
    }
    var w0 = lot_at(n0, w_kb, 0u, lane);
    var w1: Lot;
    if (ENTRIES > 1u) {
        w1 = lot_at(n0, w_kb, TEAM, lane);
    }

    // sJ: columns 16 J of the subgroup's part.
    var s0: Column;
    var s1: Column;
    var s2: Column;
    var s3: Column;
    let strip = subgroup * STRIP;
    for (var step = 0u; step < steps; step++) {
        if (STAGE_X == 1u) {
            tile[x_to0] = x0;
            if (X_LOADS > 1u) {
                tile[x_to1] = x1;
            }
            if (X_LOADS > 2u) {
                tile[x_to2] = x2;
                tile[x_to3] = x3;
            }
        }
        stage_lot(w0, base, n0, 0u, lane);
        if (ENTRIES > 1u) {
            stage_lot(w1, base, n0, TEAM, lane);
        }
        workgroupBarrier();
        // The words of the next step, asked for before this one multiplies.
        if (step + 1u < steps) {
            if (STAGE_X == 1u) {
                x_at0 += x_more;
                x0 = x[min(x_at0, x_last + i0 % ROW_WORDS)];
                if (X_LOADS > 1u) {
                    x_at1 += x_more;
                    x1 = x[min(x_at1, x_last + i1 % ROW_WORDS)];
                }
                if (X_LOADS > 2u) {
                    x_at2 += x_more;
                    x_at3 += x_more;
                    x2 = x[min(x_at2, x_last + i2 % ROW_WORDS)];
                    x3 = x[min(x_at3, x_last + i3 % ROW_WORDS)];
                }
            }
            w_kb += STEP;
            w0 = lot_at(n0, w_kb, 0u, lane);
            if (ENTRIES > 1u) {
                w1 = lot_at(n0, w_kb, TEAM, lane);
            }
        }
        let block = start + step * STEP;
        if (STEP == 1u || UNITS > 1u || block < end) {
            for (var unit = 0u; unit < UNITS; unit++) {
                let at_x = ((block + unit) * params.x_rows + m0 + sub_m) * 4u;
                let at = base + sub_m * PITCH + 4u * unit;
                let at_w = base + AT_W + sub_n * PITCH + 4u * unit;
                let front = lefts(at, at_x);
                s0 = add(front, at_w, s0);
                if (ACROSS > 1u) {
                    s1 = add(front, at_w + 16u * PITCH, s1);
                }
                if (ACROSS > 2u) {
                    s2 = add(front, at_w + 32u * PITCH, s2);
                    s3 = add(front, at_w + 48u * PITCH, s3);
                }
                let back = lefts(at + 2u, at_x + 2u);
                s0 = add(back, at_w + 2u, s0);
                if (ACROSS > 1u) {
                    s1 = add(back, at_w + 16u * PITCH + 2u, s1);
                }
                if (ACROSS > 2u) {
                    s2 = add(back, at_w + 32u * PITCH + 2u, s2);
                    s3 = add(back, at_w + 48u * PITCH + 2u, s3);
                }
            }
        }
        workgroupBarrier();
    }

    let corner = vec2<u32>(m0, n0 / 4u);
    store_strip(strip, s0.a, s1.a, s2.a, s3.a);
    write_strips(thread, corner, slice);
    if (DOWN > 1u) {
        store_strip(strip, s0.b, s1.b, s2.b, s3.b);
        write_strips(thread, corner + vec2<u32>(16u, 0u), slice);
    }
    if (DOWN > 2u) {
        store_strip(strip, s0.c, s1.c, s2.c, s3.c);
        write_strips(thread, corner + vec2<u32>(32u, 0u), slice);
        store_strip(strip, s0.d, s1.d, s2.d, s3.d);
        write_strips(thread, corner + vec2<u32>(48u, 0u), slice);
    }
}
