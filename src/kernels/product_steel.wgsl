// y[r, c] = sum_k x[r, k] * W[c, k], or that added to y[r, c] with accumulate = 1, in f32.
//
// Shapes: x f32 [rows, K]; W one part of a weight, cols rows of it (piece weight); y f32 [rows,
//   y_cols], the product's columns from col0 on. K a multiple of 16.
// Mapping: a workgroup of 16 x 16 lanes makes a tile of 128 rows by 128 columns, a lane 8 by 8 of
//   it in registers: two groups of four rows, 64 apart, by two of four columns, so that lanes
//   side by side read words side by side. Tiles run in bands of eight tile rows and fold into two
//   grid dimensions.
// Needs: 256 invocations, 16.5 KiB of workgroup memory.
// Why this version: steps of 16 along k lie transposed in workgroup memory ([k][row]), so that a
//   lane's operands are whole words; rows are padded by four floats against bank conflicts, and
//   what the next step needs waits in registers, the weight decoded.
// Reference: ref_matmul.

const STEP = 16u;
const BAND = 8u;                 // tile rows that run side by side
const TILE = 128u;
const LANES = 256u;
const PITCH = 33u;               // of a staged k, in words of four: 128 floats and the pad

struct Params {
    rows: u32,
    cols: u32,
    k: u32,
    stride: u32,      // of W's tables
    col0: u32,
    y_cols: u32,
    first_tile: u32,  // tiles [first_tile, tile_end) in this dispatch
    tile_end: u32,
    accumulate: u32,
}

// use weight

@group(0) @binding(3) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

var<workgroup> tile_x: array<vec4<f32>, STEP * PITCH>;
var<workgroup> tile_w: array<vec4<f32>, STEP * PITCH>;

// Elements 8 * eighth .. of column n of W, as far as eighths count along all of k.
fn w_eight(n: u32, eighth: u32) -> Eight {
    let kb = eighth / 4u;
    return weight_eight(n, kb, eighth % 4u, weight_scale(n, kb, eighth % 4u));
}

fn put(row: u32, column: u32, sum: vec4<f32>) {
    if (row >= params.rows) {
        return;
    }
    let at = row * params.y_cols + params.col0 + column;
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
    let tile = params.first_tile + group.y * groups.x + group.x;
    if (tile >= params.tile_end) {
        return;
    }
    // Bands of BAND tile rows; the last one may have fewer.
    let tiles_m = (params.rows + TILE - 1u) / TILE;
    let tiles_n = (params.cols + TILE - 1u) / TILE;
    let band = tile / (BAND * tiles_n);
    let rest = tile % (BAND * tiles_n);
    let side = min(BAND, tiles_m - band * BAND);
    let m0 = (band * BAND + rest % side) * TILE;
    let n0 = (rest / side) * TILE;
    let tx = lane % 16u;
    let ty = lane / 16u;

    // A lane stages four elements of x, of rows 64 apart, and eight of a column of W. Past the edge
    // the last row is read again.
    let words = params.k / 4u;
    let part = lane % 4u;
    let own = lane / 4u;
    var x_at0 = min(m0 + own, params.rows - 1u) * words + part;
    var x_at1 = min(m0 + own + 64u, params.rows - 1u) * words + part;
    let w_column = lane % TILE;
    let w_n = min(n0 + w_column, params.cols - 1u);
    var w_eighth = lane / TILE;
    let w_to = w_eighth * 8u * PITCH + w_column / 4u;
    var x0 = x[x_at0];
    var x1 = x[x_at1];
    var w0 = w_eight(w_n, w_eighth);

    // sIJ: row I of the eight, columns 4 J of the eight.
    var s00 = vec4<f32>();
    var s01 = vec4<f32>();
    var s10 = vec4<f32>();
    var s11 = vec4<f32>();
    var s20 = vec4<f32>();
    var s21 = vec4<f32>();
    var s30 = vec4<f32>();
    var s31 = vec4<f32>();
    var s40 = vec4<f32>();
    var s41 = vec4<f32>();
    var s50 = vec4<f32>();
    var s51 = vec4<f32>();
    var s60 = vec4<f32>();
    var s61 = vec4<f32>();
    var s70 = vec4<f32>();
    var s71 = vec4<f32>();
    for (var k = 0u; k < params.k; k += STEP) {
        for (var i = 0u; i < 4u; i++) {
            let at = (part * 4u + i) * PITCH + own / 4u;
            tile_x[at][own % 4u] = x0[i];
            tile_x[at + 16u][own % 4u] = x1[i];
            tile_w[w_to + i * PITCH][w_column % 4u] = w0.low[i];
            tile_w[w_to + (4u + i) * PITCH][w_column % 4u] = w0.high[i];
        }
        workgroupBarrier();
        // What the next step needs, asked for before this one multiplies.
        if (k + STEP < params.k) {
            x_at0 += STEP / 4u;
            x_at1 += STEP / 4u;
            w_eighth += STEP / 8u;
            x0 = x[x_at0];
            x1 = x[x_at1];
            w0 = w_eight(w_n, w_eighth);
        }
        for (var i = 0u; i < STEP; i++) {
            let a0 = tile_x[i * PITCH + ty];
            let a1 = tile_x[i * PITCH + 16u + ty];
            let b0 = tile_w[i * PITCH + tx];
            let b1 = tile_w[i * PITCH + 16u + tx];
            s00 = fma(vec4<f32>(a0.x), b0, s00);
            s01 = fma(vec4<f32>(a0.x), b1, s01);
            s10 = fma(vec4<f32>(a0.y), b0, s10);
            s11 = fma(vec4<f32>(a0.y), b1, s11);
            s20 = fma(vec4<f32>(a0.z), b0, s20);
            s21 = fma(vec4<f32>(a0.z), b1, s21);
            s30 = fma(vec4<f32>(a0.w), b0, s30);
            s31 = fma(vec4<f32>(a0.w), b1, s31);
            s40 = fma(vec4<f32>(a1.x), b0, s40);
            s41 = fma(vec4<f32>(a1.x), b1, s41);
            s50 = fma(vec4<f32>(a1.y), b0, s50);
            s51 = fma(vec4<f32>(a1.y), b1, s51);
            s60 = fma(vec4<f32>(a1.z), b0, s60);
            s61 = fma(vec4<f32>(a1.z), b1, s61);
            s70 = fma(vec4<f32>(a1.w), b0, s70);
            s71 = fma(vec4<f32>(a1.w), b1, s71);
        }
        workgroupBarrier();
    }

    let row = m0 + ty * 4u;
    let column = n0 + tx * 4u;
    put(row, column, s00);
    put(row, column + 64u, s01);
    put(row + 1u, column, s10);
    put(row + 1u, column + 64u, s11);
    put(row + 2u, column, s20);
    put(row + 2u, column + 64u, s21);
    put(row + 3u, column, s30);
    put(row + 3u, column + 64u, s31);
    put(row + 64u, column, s40);
    put(row + 64u, column + 64u, s41);
    put(row + 65u, column, s50);
    put(row + 65u, column + 64u, s51);
    put(row + 66u, column, s60);
    put(row + 66u, column + 64u, s61);
    put(row + 67u, column, s70);
    put(row + 67u, column + 64u, s71);
}
