// sums[r, to0 + c] = sum_k x[r, k] * w[c, k], for whole tiles: f16 times f16 added up in f32 by
// subgroup matrices.
//
// Shapes: x f16 [rows, K], w f16 [cols, K]; sums f32, `pitch` columns a row, with room for whole
//   tiles of 128 by 128: past the edge of x or w the last row or column is multiplied again, and
//   what it gives means nothing. K a multiple of 32, pitch and to0 of 4.
// Mapping: a workgroup of four subgroups makes a tile, each of them 64 by 64 of it in 16 matrices
//   of 16 by 16. Tiles run in bands of eight tile rows, so that what runs at one time shares its
//   inputs in the cache; they fold into two grid dimensions.
// Needs: f16, subgroup matrices f16 to f32 of 16 x 16 x 16, subgroups of 32 lanes, 128 invocations,
//   20 KiB of workgroup memory.
// Why this version: steps of 32 along k are staged in workgroup memory, whose rows are padded by
//   eight halves against bank conflicts and written 16 bytes at a time, while the words of the next
//   step wait in registers. Everything that touches a matrix is written out, and nothing but sums
//   is stored: with a second way out of the kernel (edges element by element, y added at the start)
//   it ran 1.6 to 5 times slower on an H200; scales, edges and y are product_join's. This
//   loop alone measured 218 TFLOP/s there, 34 % of what the matrix units do in registers.
// Reference: ref_matmul.

diagnostic(off, chromium.subgroup_matrix_uniformity);
enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;

alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Result = subgroup_matrix_result<f32, 16, 16>;

const STEP = 32u;
const BAND = 8u;    // tile rows that run side by side
const TILE = 128u;
const LANES = 128u;
const PITCH = 5u;   // of a staged row, in words of eight halves: four and the pad

struct Params {
    rows: u32,
    cols: u32,
    k: u32,
    to0: u32,
    pitch: u32,
    first_tile: u32,  // tiles [first_tile, tile_end) in this dispatch
    tile_end: u32,
}

@group(0) @binding(0) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> sums: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

var<workgroup> tile_x: array<vec4<u32>, TILE * PITCH>;
var<workgroup> tile_w: array<vec4<u32>, TILE * PITCH>;

// The word of x or w where a row of a tile begins.
fn word_of(row: u32, end: u32) -> u32 {
    return min(row, end - 1u) * (params.k / 8u);
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
    let subgroup = lane / 32u;
    let sub_m = (subgroup / 2u) * 64u;
    let sub_n = (subgroup % 2u) * 64u;

    // A lane stages one word of each of four rows of x and of w, 32 apart.
    let row = lane / 4u;
    let part = lane % 4u;
    let to = row * PITCH + part;
    var x_at0 = word_of(m0 + row, params.rows) + part;
    var x_at1 = word_of(m0 + row + 32u, params.rows) + part;
    var x_at2 = word_of(m0 + row + 64u, params.rows) + part;
    var x_at3 = word_of(m0 + row + 96u, params.rows) + part;
    var w_at0 = word_of(n0 + row, params.cols) + part;
    var w_at1 = word_of(n0 + row + 32u, params.cols) + part;
    var w_at2 = word_of(n0 + row + 64u, params.cols) + part;
    var w_at3 = word_of(n0 + row + 96u, params.cols) + part;
    var x0 = x[x_at0];
    var x1 = x[x_at1];
    var x2 = x[x_at2];
    var x3 = x[x_at3];
    var w0 = w[w_at0];
    var w1 = w[w_at1];
    var w2 = w[w_at2];
    var w3 = w[w_at3];

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
    for (var k = 0u; k < params.k; k += STEP) {
        tile_x[to] = x0;
        tile_x[to + 32u * PITCH] = x1;
        tile_x[to + 64u * PITCH] = x2;
        tile_x[to + 96u * PITCH] = x3;
        tile_w[to] = w0;
        tile_w[to + 32u * PITCH] = w1;
        tile_w[to + 64u * PITCH] = w2;
        tile_w[to + 96u * PITCH] = w3;
        workgroupBarrier();
        // The words of the next step, asked for before this one multiplies.
        if (k + STEP < params.k) {
            x_at0 += STEP / 8u;
            x_at1 += STEP / 8u;
            x_at2 += STEP / 8u;
            x_at3 += STEP / 8u;
            w_at0 += STEP / 8u;
            w_at1 += STEP / 8u;
            w_at2 += STEP / 8u;
            w_at3 += STEP / 8u;
            x0 = x[x_at0];
            x1 = x[x_at1];
            x2 = x[x_at2];
            x3 = x[x_at3];
            w0 = w[w_at0];
            w1 = w[w_at1];
            w2 = w[w_at2];
            w3 = w[w_at3];
        }
        {
            let from_x = sub_m * PITCH;
            let from_w = sub_n * PITCH;
            let left0 = subgroupMatrixLoad<Left, row_major>(&tile_x, from_x, PITCH);
            let left1 = subgroupMatrixLoad<Left, row_major>(&tile_x, from_x + 16u * PITCH, PITCH);
            let left2 = subgroupMatrixLoad<Left, row_major>(&tile_x, from_x + 32u * PITCH, PITCH);
            let left3 = subgroupMatrixLoad<Left, row_major>(&tile_x, from_x + 48u * PITCH, PITCH);
            let right0 = subgroupMatrixLoad<Right, col_major>(&tile_w, from_w, PITCH);
            s00 = subgroupMatrixMultiplyAccumulate(left0, right0, s00);
            s10 = subgroupMatrixMultiplyAccumulate(left1, right0, s10);
            s20 = subgroupMatrixMultiplyAccumulate(left2, right0, s20);
            s30 = subgroupMatrixMultiplyAccumulate(left3, right0, s30);
            let right1 = subgroupMatrixLoad<Right, col_major>(&tile_w, from_w + 16u * PITCH, PITCH);
            s01 = subgroupMatrixMultiplyAccumulate(left0, right1, s01);
            s11 = subgroupMatrixMultiplyAccumulate(left1, right1, s11);
            s21 = subgroupMatrixMultiplyAccumulate(left2, right1, s21);
            s31 = subgroupMatrixMultiplyAccumulate(left3, right1, s31);
            let right2 = subgroupMatrixLoad<Right, col_major>(&tile_w, from_w + 32u * PITCH, PITCH);
            s02 = subgroupMatrixMultiplyAccumulate(left0, right2, s02);
            s12 = subgroupMatrixMultiplyAccumulate(left1, right2, s12);
            s22 = subgroupMatrixMultiplyAccumulate(left2, right2, s22);
            s32 = subgroupMatrixMultiplyAccumulate(left3, right2, s32);
            let right3 = subgroupMatrixLoad<Right, col_major>(&tile_w, from_w + 48u * PITCH, PITCH);
            s03 = subgroupMatrixMultiplyAccumulate(left0, right3, s03);
            s13 = subgroupMatrixMultiplyAccumulate(left1, right3, s13);
            s23 = subgroupMatrixMultiplyAccumulate(left2, right3, s23);
            s33 = subgroupMatrixMultiplyAccumulate(left3, right3, s33);
        }
        {
            let from_x = sub_m * PITCH + 2u;
            let from_w = sub_n * PITCH + 2u;
            let left0 = subgroupMatrixLoad<Left, row_major>(&tile_x, from_x, PITCH);
            let left1 = subgroupMatrixLoad<Left, row_major>(&tile_x, from_x + 16u * PITCH, PITCH);
            let left2 = subgroupMatrixLoad<Left, row_major>(&tile_x, from_x + 32u * PITCH, PITCH);
            let left3 = subgroupMatrixLoad<Left, row_major>(&tile_x, from_x + 48u * PITCH, PITCH);
            let right0 = subgroupMatrixLoad<Right, col_major>(&tile_w, from_w, PITCH);
            s00 = subgroupMatrixMultiplyAccumulate(left0, right0, s00);
            s10 = subgroupMatrixMultiplyAccumulate(left1, right0, s10);
            s20 = subgroupMatrixMultiplyAccumulate(left2, right0, s20);
            s30 = subgroupMatrixMultiplyAccumulate(left3, right0, s30);
            let right1 = subgroupMatrixLoad<Right, col_major>(&tile_w, from_w + 16u * PITCH, PITCH);
            s01 = subgroupMatrixMultiplyAccumulate(left0, right1, s01);
            s11 = subgroupMatrixMultiplyAccumulate(left1, right1, s11);
            s21 = subgroupMatrixMultiplyAccumulate(left2, right1, s21);
            s31 = subgroupMatrixMultiplyAccumulate(left3, right1, s31);
            let right2 = subgroupMatrixLoad<Right, col_major>(&tile_w, from_w + 32u * PITCH, PITCH);
            s02 = subgroupMatrixMultiplyAccumulate(left0, right2, s02);
            s12 = subgroupMatrixMultiplyAccumulate(left1, right2, s12);
            s22 = subgroupMatrixMultiplyAccumulate(left2, right2, s22);
            s32 = subgroupMatrixMultiplyAccumulate(left3, right2, s32);
            let right3 = subgroupMatrixLoad<Right, col_major>(&tile_w, from_w + 48u * PITCH, PITCH);
            s03 = subgroupMatrixMultiplyAccumulate(left0, right3, s03);
            s13 = subgroupMatrixMultiplyAccumulate(left1, right3, s13);
            s23 = subgroupMatrixMultiplyAccumulate(left2, right3, s23);
            s33 = subgroupMatrixMultiplyAccumulate(left3, right3, s33);
        }
        workgroupBarrier();
    }

    let corner = (m0 + sub_m) * params.pitch + params.to0 + n0 + sub_n;
    let down = 16u * params.pitch;
    subgroupMatrixStore<row_major>(&sums, corner, s00, params.pitch);
    subgroupMatrixStore<row_major>(&sums, corner + 16u, s01, params.pitch);
    subgroupMatrixStore<row_major>(&sums, corner + 32u, s02, params.pitch);
    subgroupMatrixStore<row_major>(&sums, corner + 48u, s03, params.pitch);
    subgroupMatrixStore<row_major>(&sums, corner + down, s10, params.pitch);
    subgroupMatrixStore<row_major>(&sums, corner + down + 16u, s11, params.pitch);
    subgroupMatrixStore<row_major>(&sums, corner + down + 32u, s12, params.pitch);
    subgroupMatrixStore<row_major>(&sums, corner + down + 48u, s13, params.pitch);
    subgroupMatrixStore<row_major>(&sums, corner + 2u * down, s20, params.pitch);
    subgroupMatrixStore<row_major>(&sums, corner + 2u * down + 16u, s21, params.pitch);
    subgroupMatrixStore<row_major>(&sums, corner + 2u * down + 32u, s22, params.pitch);
    subgroupMatrixStore<row_major>(&sums, corner + 2u * down + 48u, s23, params.pitch);
    subgroupMatrixStore<row_major>(&sums, corner + 3u * down, s30, params.pitch);
    subgroupMatrixStore<row_major>(&sums, corner + 3u * down + 16u, s31, params.pitch);
    subgroupMatrixStore<row_major>(&sums, corner + 3u * down + 32u, s32, params.pitch);
    subgroupMatrixStore<row_major>(&sums, corner + 3u * down + 48u, s33, params.pitch);
}
