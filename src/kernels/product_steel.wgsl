// y[r, c] = sum_k x[r, k] * W[c, k], or that added to y[r, c] with accumulate = 1, in f32.
//
// Shapes: x f32 [rows, K]; W one part of a weight, cols rows of it (piece weight); y f32 [rows,
//   y_cols], the product's columns from col0 on; where K is split [slices][rows, y_cols], slice s
//   the sum over k from s * share on. K a multiple of 16, share of 8.
// Mapping: a workgroup of 16 x 16 lanes makes a tile of 128 rows by 128 columns, a lane 8 by 8 of
//   it in registers: two groups of four rows, 64 apart, by two of four columns, so that lanes
//   side by side read words side by side. Tiles run in bands of eight tile rows, slice by slice,
//   and fold into two grid dimensions.
// Needs: 256 invocations, 16 KiB of workgroup memory.
// Why this version: steps of 8 along k lie transposed in workgroup memory ([k][row]), so that a
//   lane's operands are whole words. Half of the lanes stage x, half W, each eight elements of a
//   row. There are two stages, so that a step has one barrier, and what the next step needs waits
//   in registers, the weight decoded. K is split where there are few tiles: sums of slices are
//   product_join's to add up.
// Reference: ref_matmul.

const STEP = 8u;
const BAND = 8u;                 // tile rows that run side by side
const TILE = 128u;
const LANES = 256u;
const PITCH = TILE / 4u;         // of a staged k, in words of four
const SIDE = STEP * PITCH;       // of a stage: x, then W

struct Params {
    rows: u32,
    cols: u32,
    k: u32,
    stride: u32,      // of W's tables
    col0: u32,
    y_cols: u32,
    first_tile: u32,  // tiles [first_tile, tile_end) of all slices in this dispatch
    tile_end: u32,
    share: u32,       // of k, that a slice has; all of it where there is one
    accumulate: u32,
}

// use weight

@group(0) @binding(3) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

var<workgroup> tile: array<vec4<f32>, 4u * SIDE>;

// Eight elements along k of a row of x or of W.
fn eight(of_w: bool, row: u32, at: u32) -> Eight {
    if (of_w) {
        return weight_eight(row, at / 4u, at % 4u, weight_scale(row, at / 4u, at % 4u));
    }
    let word = row * (params.k / 4u) + 2u * at;
    return Eight(x[word], x[word + 1u]);
}

// Elements along k of row 4 * (to % PITCH) + part.
fn stage(to: u32, part: u32, e: Eight) {
    tile[to][part] = e.low.x;
    tile[to + PITCH][part] = e.low.y;
    tile[to + 2u * PITCH][part] = e.low.z;
    tile[to + 3u * PITCH][part] = e.low.w;
    tile[to + 4u * PITCH][part] = e.high.x;
    tile[to + 5u * PITCH][part] = e.high.y;
    tile[to + 6u * PITCH][part] = e.high.z;
    tile[to + 7u * PITCH][part] = e.high.w;
}

// rI_J: row I of a lane's eight, columns 4 J of its eight.
struct Sums {
    r0_0: vec4<f32>,
    r0_1: vec4<f32>,
    r1_0: vec4<f32>,
    r1_1: vec4<f32>,
    r2_0: vec4<f32>,
    r2_1: vec4<f32>,
    r3_0: vec4<f32>,
    r3_1: vec4<f32>,
    r4_0: vec4<f32>,
    r4_1: vec4<f32>,
    r5_0: vec4<f32>,
    r5_1: vec4<f32>,
    r6_0: vec4<f32>,
    r6_1: vec4<f32>,
    r7_0: vec4<f32>,
    r7_1: vec4<f32>,
}

// One k: at_x and at_w are where the lane's operands lie.
fn add(at_x: u32, at_w: u32, sums: Sums) -> Sums {
    let a0 = tile[at_x];
    let a1 = tile[at_x + PITCH / 2u];
    let b0 = tile[at_w];
    let b1 = tile[at_w + PITCH / 2u];
    var s = sums;
    s.r0_0 = fma(vec4<f32>(a0.x), b0, s.r0_0);
    s.r0_1 = fma(vec4<f32>(a0.x), b1, s.r0_1);
    s.r1_0 = fma(vec4<f32>(a0.y), b0, s.r1_0);
    s.r1_1 = fma(vec4<f32>(a0.y), b1, s.r1_1);
    s.r2_0 = fma(vec4<f32>(a0.z), b0, s.r2_0);
    s.r2_1 = fma(vec4<f32>(a0.z), b1, s.r2_1);
    s.r3_0 = fma(vec4<f32>(a0.w), b0, s.r3_0);
    s.r3_1 = fma(vec4<f32>(a0.w), b1, s.r3_1);
    s.r4_0 = fma(vec4<f32>(a1.x), b0, s.r4_0);
    s.r4_1 = fma(vec4<f32>(a1.x), b1, s.r4_1);
    s.r5_0 = fma(vec4<f32>(a1.y), b0, s.r5_0);
    s.r5_1 = fma(vec4<f32>(a1.y), b1, s.r5_1);
    s.r6_0 = fma(vec4<f32>(a1.z), b0, s.r6_0);
    s.r6_1 = fma(vec4<f32>(a1.z), b1, s.r6_1);
    s.r7_0 = fma(vec4<f32>(a1.w), b0, s.r7_0);
    s.r7_1 = fma(vec4<f32>(a1.w), b1, s.r7_1);
    return s;
}

fn put(slice: u32, row: u32, column: u32, sum: vec4<f32>) {
    if (row >= params.rows) {
        return;
    }
    let at = (slice * params.rows + row) * params.y_cols + params.col0 + column;
    for (var i = 0u; i < 4u; i++) {
        if (column + i < params.cols) {
            if (params.accumulate == 1u) {
                y[at + i] = y[at + i] + sum[i];
            } else {
                y[at + i] = sum[i];
            }
        }
    }
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let index = params.first_tile + group.y * groups.x + group.x;
    if (index >= params.tile_end) {
        return;
    }
    // Bands of BAND tile rows; the last one may have fewer.
    let tiles_m = (params.rows + TILE - 1u) / TILE;
    let tiles_n = (params.cols + TILE - 1u) / TILE;
    let slice = index / (tiles_m * tiles_n);
    let own_tile = index % (tiles_m * tiles_n);
    let band = own_tile / (BAND * tiles_n);
    let rest = own_tile % (BAND * tiles_n);
    let side = min(BAND, tiles_m - band * BAND);
    let m0 = (band * BAND + rest % side) * TILE;
    let n0 = (rest / side) * TILE;
    let tx = lane % 16u;
    let ty = lane / 16u;

    // Past the edge the last row is read again.
    let of_w = lane < TILE;
    let own = lane % TILE;
    let part = own % 4u;
    let row = select(min(m0 + own, params.rows - 1u), min(n0 + own, params.cols - 1u), of_w);
    let begin = slice * params.share;
    let end = min(begin + params.share, params.k);
    var e = eight(of_w, row, begin / STEP);
    var s: Sums;
    var first = 0u;
    for (var k = begin; k < end; k += STEP) {
        stage(first + select(0u, SIDE, of_w) + own / 4u, part, e);
        workgroupBarrier();
        // What the next step needs, asked for before this one multiplies.
        if (k + STEP < end) {
            e = eight(of_w, row, k / STEP + 1u);
        }
        let at_x = first + ty;
        let at_w = first + SIDE + tx;
        s = add(at_x, at_w, s);
        s = add(at_x + PITCH, at_w + PITCH, s);
        s = add(at_x + 2u * PITCH, at_w + 2u * PITCH, s);
        s = add(at_x + 3u * PITCH, at_w + 3u * PITCH, s);
        s = add(at_x + 4u * PITCH, at_w + 4u * PITCH, s);
        s = add(at_x + 5u * PITCH, at_w + 5u * PITCH, s);
        s = add(at_x + 6u * PITCH, at_w + 6u * PITCH, s);
        s = add(at_x + 7u * PITCH, at_w + 7u * PITCH, s);
        first = 2u * SIDE - first;
    }

    let r = m0 + ty * 4u;
    let c = n0 + tx * 4u;
    put(slice, r, c, s.r0_0);
    put(slice, r, c + 64u, s.r0_1);
    put(slice, r + 1u, c, s.r1_0);
    put(slice, r + 1u, c + 64u, s.r1_1);
    put(slice, r + 2u, c, s.r2_0);
    put(slice, r + 2u, c + 64u, s.r2_1);
    put(slice, r + 3u, c, s.r3_0);
    put(slice, r + 3u, c + 64u, s.r3_1);
    put(slice, r + 64u, c, s.r4_0);
    put(slice, r + 64u, c + 64u, s.r4_1);
    put(slice, r + 65u, c, s.r5_0);
    put(slice, r + 65u, c + 64u, s.r5_1);
    put(slice, r + 66u, c, s.r6_0);
    put(slice, r + 66u, c + 64u, s.r6_1);
    put(slice, r + 67u, c, s.r7_0);
    put(slice, r + 67u, c + 64u, s.r7_1);
}
