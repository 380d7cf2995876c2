// y[r, c] = xs[r] * ws[c] * sum_k x[r, k] * w[c, k], or that added to y[r, c] with accumulate = 1:
// f16 times f16 added up in f32 by subgroup matrices.
//
// Shapes: x f16 [rows, K], w f16 [cols, K], their scales xs f32 [rows] and ws f32 [cols] (1 for all
//   with w_scaled = 0); y f32 [rows, y_cols], the columns of w from col0 on. K a multiple of 32.
// Mapping: a workgroup makes a tile of 64 SUBS_M rows by 64 SUBS_N columns, each of its subgroups
//   64 by 64 of it in 16 matrices of 16 by 16. Tiles run in bands of eight tile rows, so that
//   what runs at one time shares its inputs in the cache; they fold into two grid dimensions.
// Needs: f16, subgroup matrices f16 to f32 of 16 x 16 x 16, subgroups of 32 lanes.
//   For 128 x 128: 128 invocations, 26 KiB of workgroup memory.
// Why this version: steps of 32 along k are staged in workgroup memory, whose rows are padded by
//   eight halves against bank conflicts and written 16 bytes at a time, while the words of the next
//   step wait in registers. A tile that is whole and needs no scales goes from registers to y;
//   others go through workgroup memory, element by element.
// Reference: ref_matmul.

diagnostic(off, chromium.subgroup_matrix_uniformity);
enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;

// option SUBS_M = 2
// option SUBS_N = 2

alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Result = subgroup_matrix_result<f32, 16, 16>;

const K_STEP = 32u;
const BAND = 8u;                 // tile rows that run side by side
const TILE_M = 64u * {{SUBS_M}}u;
const TILE_N = 64u * {{SUBS_N}}u;
const LANES = 32u * {{SUBS_M}}u * {{SUBS_N}}u;
const PITCH = 5u;                // of a staged row, in words of eight halves: four and the pad
const X_LOADS = 8u / {{SUBS_N}}u;  // words of a step that a lane fetches
const W_LOADS = 8u / {{SUBS_M}}u;

struct Params {
    rows: u32,
    cols: u32,
    k: u32,
    col0: u32,
    y_cols: u32,
    first_tile: u32,  // tiles [first_tile, tile_end) in this dispatch
    tile_end: u32,
    w_scaled: u32,
    accumulate: u32,
}

@group(0) @binding(0) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> x_scale: array<f32>;
@group(0) @binding(3) var<storage, read> w_scale: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

var<workgroup> tile_x: array<vec4<u32>, TILE_M * PITCH>;
var<workgroup> tile_w: array<vec4<u32>, TILE_N * PITCH>;
var<workgroup> block: array<f32, LANES * 8u>;  // 16 x 16 a subgroup
var<workgroup> scaled: atomic<u32>;
var<workgroup> element_wise: u32;

fn x_factor(row: u32) -> f32 {
    return x_scale[min(row, params.rows - 1u)];
}

fn w_factor(col: u32) -> f32 {
    if (params.w_scaled == 0u) {
        return 1.0;
    }
    return w_scale[min(col, params.cols - 1u)];
}

// Writes the 16 by 16 results in a subgroup's block element by element: scaled, and only what is
// inside y.
fn put_block(row0: u32, column0: u32, subgroup: u32, lane: u32) {
    workgroupBarrier();
    for (var e = lane; e < 256u; e += 32u) {
        let r = row0 + e / 16u;
        let c = column0 + e % 16u;
        if (r < params.rows && c < params.cols) {
            let at = r * params.y_cols + params.col0 + c;
            let v = block[subgroup * 256u + e] * x_factor(r) * w_factor(c);
            if (params.accumulate == 1u) {
                y[at] = y[at] + v;
            } else {
                y[at] = v;
            }
        }
    }
    workgroupBarrier();
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let tile = params.first_tile + group.y * groups.x + group.x;
    if (tile >= params.tile_end) {
        return;
    }
    // Bands of BAND tile rows; the last one may have fewer.
    let tiles_m = (params.rows + TILE_M - 1u) / TILE_M;
    let tiles_n = (params.cols + TILE_N - 1u) / TILE_N;
    let band = tile / (BAND * tiles_n);
    let rest = tile % (BAND * tiles_n);
    let side = min(BAND, tiles_m - band * BAND);
    let m0 = (band * BAND + rest % side) * TILE_M;
    let n0 = (rest / side) * TILE_N;
    let subgroup = lane / 32u;
    let sub_m = (subgroup / {{SUBS_N}}u) * 64u;
    let sub_n = (subgroup % {{SUBS_N}}u) * 64u;

    // Must the results be looked at one by one?
    var differs = false;
    for (var i = lane; i < TILE_M; i += LANES) {
        differs = differs || x_factor(m0 + i) != 1.0;
    }
    for (var i = lane; i < TILE_N; i += LANES) {
        differs = differs || w_factor(n0 + i) != 1.0;
    }
    if (differs || m0 + TILE_M > params.rows || n0 + TILE_N > params.cols ||
        ((params.y_cols | params.col0) & 3u) != 0u) {
        atomicMax(&scaled, 1u);
    }
    workgroupBarrier();
    if (lane == 0u) {
        element_wise = atomicLoad(&scaled);
    }
    let by_element = workgroupUniformLoad(&element_wise) != 0u;
    let corner = (m0 + sub_m) * params.y_cols + params.col0 + n0 + sub_n;

    // Past the edge the last row or column is read again.
    let words = params.k / 8u;
    var x_at: array<u32, X_LOADS>;
    var x_word: array<vec4<u32>, X_LOADS>;
    for (var i = 0u; i < X_LOADS; i++) {
        let at = lane + i * LANES;
        x_at[i] = min(m0 + at / 4u, params.rows - 1u) * words + at % 4u;
        x_word[i] = x[x_at[i]];
    }
    var w_at: array<u32, W_LOADS>;
    var w_word: array<vec4<u32>, W_LOADS>;
    for (var i = 0u; i < W_LOADS; i++) {
        let at = lane + i * LANES;
        w_at[i] = min(n0 + at / 4u, params.cols - 1u) * words + at % 4u;
        w_word[i] = w[w_at[i]];
    }

    // sIJ: rows 16 I, columns 16 J of the subgroup's part.
    var s00 = Result();
    var s01 = Result();
    var s02 = Result();
    var s03 = Result();
    var s10 = Result();
    var s11 = Result();
    var s12 = Result();
    var s13 = Result();
    var s20 = Result();
    var s21 = Result();
    var s22 = Result();
    var s23 = Result();
    var s30 = Result();
    var s31 = Result();
    var s32 = Result();
    var s33 = Result();
    let width = params.y_cols;
    let down = 16u * width;
    if (params.accumulate == 1u && !by_element) {
        s00 = subgroupMatrixLoad<Result, row_major>(&y, corner, width);
        s01 = subgroupMatrixLoad<Result, row_major>(&y, corner + 16u, width);
        s02 = subgroupMatrixLoad<Result, row_major>(&y, corner + 32u, width);
        s03 = subgroupMatrixLoad<Result, row_major>(&y, corner + 48u, width);
        s10 = subgroupMatrixLoad<Result, row_major>(&y, corner + down, width);
        s11 = subgroupMatrixLoad<Result, row_major>(&y, corner + down + 16u, width);
        s12 = subgroupMatrixLoad<Result, row_major>(&y, corner + down + 32u, width);
        s13 = subgroupMatrixLoad<Result, row_major>(&y, corner + down + 48u, width);
        s20 = subgroupMatrixLoad<Result, row_major>(&y, corner + 2u * down, width);
        s21 = subgroupMatrixLoad<Result, row_major>(&y, corner + 2u * down + 16u, width);
        s22 = subgroupMatrixLoad<Result, row_major>(&y, corner + 2u * down + 32u, width);
        s23 = subgroupMatrixLoad<Result, row_major>(&y, corner + 2u * down + 48u, width);
        s30 = subgroupMatrixLoad<Result, row_major>(&y, corner + 3u * down, width);
        s31 = subgroupMatrixLoad<Result, row_major>(&y, corner + 3u * down + 16u, width);
        s32 = subgroupMatrixLoad<Result, row_major>(&y, corner + 3u * down + 32u, width);
        s33 = subgroupMatrixLoad<Result, row_major>(&y, corner + 3u * down + 48u, width);
    }
    for (var k = 0u; k < params.k; k += K_STEP) {
        for (var i = 0u; i < X_LOADS; i++) {
            let at = lane + i * LANES;
            tile_x[at / 4u * PITCH + at % 4u] = x_word[i];
        }
        for (var i = 0u; i < W_LOADS; i++) {
            let at = lane + i * LANES;
            tile_w[at / 4u * PITCH + at % 4u] = w_word[i];
        }
        workgroupBarrier();
        // The words of the next step, asked for before this one multiplies.
        if (k + K_STEP < params.k) {
            for (var i = 0u; i < X_LOADS; i++) {
                x_at[i] += K_STEP / 8u;
                x_word[i] = x[x_at[i]];
            }
            for (var i = 0u; i < W_LOADS; i++) {
                w_at[i] += K_STEP / 8u;
                w_word[i] = w[w_at[i]];
            }
        }
        for (var half = 0u; half < 2u; half++) {
            let x0 = sub_m * PITCH + 2u * half;
            let w0 = sub_n * PITCH + 2u * half;
            let left0 = subgroupMatrixLoad<Left, row_major>(&tile_x, x0, PITCH);
            let left1 = subgroupMatrixLoad<Left, row_major>(&tile_x, x0 + 16u * PITCH, PITCH);
            let left2 = subgroupMatrixLoad<Left, row_major>(&tile_x, x0 + 32u * PITCH, PITCH);
            let left3 = subgroupMatrixLoad<Left, row_major>(&tile_x, x0 + 48u * PITCH, PITCH);
            let right0 = subgroupMatrixLoad<Right, col_major>(&tile_w, w0, PITCH);
            s00 = subgroupMatrixMultiplyAccumulate(left0, right0, s00);
            s10 = subgroupMatrixMultiplyAccumulate(left1, right0, s10);
            s20 = subgroupMatrixMultiplyAccumulate(left2, right0, s20);
            s30 = subgroupMatrixMultiplyAccumulate(left3, right0, s30);
            let right1 = subgroupMatrixLoad<Right, col_major>(&tile_w, w0 + 16u * PITCH, PITCH);
            s01 = subgroupMatrixMultiplyAccumulate(left0, right1, s01);
            s11 = subgroupMatrixMultiplyAccumulate(left1, right1, s11);
            s21 = subgroupMatrixMultiplyAccumulate(left2, right1, s21);
            s31 = subgroupMatrixMultiplyAccumulate(left3, right1, s31);
            let right2 = subgroupMatrixLoad<Right, col_major>(&tile_w, w0 + 32u * PITCH, PITCH);
            s02 = subgroupMatrixMultiplyAccumulate(left0, right2, s02);
            s12 = subgroupMatrixMultiplyAccumulate(left1, right2, s12);
            s22 = subgroupMatrixMultiplyAccumulate(left2, right2, s22);
            s32 = subgroupMatrixMultiplyAccumulate(left3, right2, s32);
            let right3 = subgroupMatrixLoad<Right, col_major>(&tile_w, w0 + 48u * PITCH, PITCH);
            s03 = subgroupMatrixMultiplyAccumulate(left0, right3, s03);
            s13 = subgroupMatrixMultiplyAccumulate(left1, right3, s13);
            s23 = subgroupMatrixMultiplyAccumulate(left2, right3, s23);
            s33 = subgroupMatrixMultiplyAccumulate(left3, right3, s33);
        }
        workgroupBarrier();
    }

    if (by_element) {
        let row0 = m0 + sub_m;
        let col = n0 + sub_n;
        let own = lane % 32u;
        let mine = subgroup * 256u;
        subgroupMatrixStore<row_major>(&block, mine, s00, 16u);
        put_block(row0, col, subgroup, own);
        subgroupMatrixStore<row_major>(&block, mine, s01, 16u);
        put_block(row0, col + 16u, subgroup, own);
        subgroupMatrixStore<row_major>(&block, mine, s02, 16u);
        put_block(row0, col + 32u, subgroup, own);
        subgroupMatrixStore<row_major>(&block, mine, s03, 16u);
        put_block(row0, col + 48u, subgroup, own);
        subgroupMatrixStore<row_major>(&block, mine, s10, 16u);
        put_block(row0 + 16u, col, subgroup, own);
        subgroupMatrixStore<row_major>(&block, mine, s11, 16u);
        put_block(row0 + 16u, col + 16u, subgroup, own);
        subgroupMatrixStore<row_major>(&block, mine, s12, 16u);
        put_block(row0 + 16u, col + 32u, subgroup, own);
        subgroupMatrixStore<row_major>(&block, mine, s13, 16u);
        put_block(row0 + 16u, col + 48u, subgroup, own);
        subgroupMatrixStore<row_major>(&block, mine, s20, 16u);
        put_block(row0 + 32u, col, subgroup, own);
        subgroupMatrixStore<row_major>(&block, mine, s21, 16u);
        put_block(row0 + 32u, col + 16u, subgroup, own);
        subgroupMatrixStore<row_major>(&block, mine, s22, 16u);
        put_block(row0 + 32u, col + 32u, subgroup, own);
        subgroupMatrixStore<row_major>(&block, mine, s23, 16u);
        put_block(row0 + 32u, col + 48u, subgroup, own);
        subgroupMatrixStore<row_major>(&block, mine, s30, 16u);
        put_block(row0 + 48u, col, subgroup, own);
        subgroupMatrixStore<row_major>(&block, mine, s31, 16u);
        put_block(row0 + 48u, col + 16u, subgroup, own);
        subgroupMatrixStore<row_major>(&block, mine, s32, 16u);
        put_block(row0 + 48u, col + 32u, subgroup, own);
        subgroupMatrixStore<row_major>(&block, mine, s33, 16u);
        put_block(row0 + 48u, col + 48u, subgroup, own);
        return;
    }
    subgroupMatrixStore<row_major>(&y, corner, s00, width);
    subgroupMatrixStore<row_major>(&y, corner + 16u, s01, width);
    subgroupMatrixStore<row_major>(&y, corner + 32u, s02, width);
    subgroupMatrixStore<row_major>(&y, corner + 48u, s03, width);
    subgroupMatrixStore<row_major>(&y, corner + down, s10, width);
    subgroupMatrixStore<row_major>(&y, corner + down + 16u, s11, width);
    subgroupMatrixStore<row_major>(&y, corner + down + 32u, s12, width);
    subgroupMatrixStore<row_major>(&y, corner + down + 48u, s13, width);
    subgroupMatrixStore<row_major>(&y, corner + 2u * down, s20, width);
    subgroupMatrixStore<row_major>(&y, corner + 2u * down + 16u, s21, width);
    subgroupMatrixStore<row_major>(&y, corner + 2u * down + 32u, s22, width);
    subgroupMatrixStore<row_major>(&y, corner + 2u * down + 48u, s23, width);
    subgroupMatrixStore<row_major>(&y, corner + 3u * down, s30, width);
    subgroupMatrixStore<row_major>(&y, corner + 3u * down + 16u, s31, width);
    subgroupMatrixStore<row_major>(&y, corner + 3u * down + 32u, s32, width);
    subgroupMatrixStore<row_major>(&y, corner + 3u * down + 48u, s33, width);
}
