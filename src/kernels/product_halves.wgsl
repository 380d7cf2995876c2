// y[r, c] = xs[r] * sum_k x[r, k] * W[c, k], or that added to y[r, c] with accumulate = 1: f16
//   times f16 added up in f16, with ALL = 0 inside each 32 of k and in f32 across them, with
//   ALL = 1 over all of k.
//
// Shapes: x f16 [K / 32][x_rows][32] and xs f32 [rows], powers of two, as product_input writes
//   them; W one part of a weight (piece weight) that f16 holds; y f32 [rows, y_cols], the product's
//   columns from col0 on. K a multiple of 32.
// Mapping: a workgroup of 16 x 16 lanes makes a tile of 16 ROWS rows by 64 columns; a lane has ROWS
//   rows, 16 apart, by four columns, 16 apart. Tiles run in bands of eight tile rows and fold into
//   two grid dimensions.
// Needs: f16. 256 invocations, 5 + 1.25 ROWS KiB of workgroup memory. ROWS is 1 or 4.
// Why this version: where there are no matrix units a pair of halves is one multiply-add of two. An
//   even and an odd sum of each result are such a pair, so that neither operand is turned over:
//   rows and columns lie in workgroup memory as they lie along k, in words of eight halves, padded
//   so that lanes side by side find them in banks of their own. What the next step needs waits in
//   registers.
// Rounding: operands as product_matrix says; each addition of a pair's half to 2^-12 of the sum.
//   That no sum overflows is product_input's care, which knows the weight's largest element.
// Reference: ref_matmul.

enable f16;

// option ROWS = 4
// option ALL = 0

const TILE_M = 16u * {{ROWS}}u;
const TILE_N = 64u;
const BAND = 8u;             // tile rows that run side by side
const LANES = 256u;
const PITCH = 5u;            // of a staged row or column, in words of eight halves

struct Params {
    rows: u32,
    cols: u32,
    k: u32,
    stride: u32,      // of W's tables
    x_rows: u32,
    col0: u32,
    y_cols: u32,
    first_tile: u32,  // tiles [first_tile, tile_end) in this dispatch
    tile_end: u32,
    accumulate: u32,
}

// use weight
// use weight_f16

@group(0) @binding(3) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> x_scale: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

var<workgroup> tile_x: array<vec4<u32>, TILE_M * PITCH>;
var<workgroup> tile_w: array<vec4<u32>, TILE_N * PITCH>;

// The even and the odd sum of each row of the lane, by a column of it.
struct Pairs {
    a: vec2<f16>,
    b: vec2<f16>,
    c: vec2<f16>,
    d: vec2<f16>,
}

// Eight elements of k of the lane's rows.
struct Rows {
    a: vec4<u32>,
    b: vec4<u32>,
    c: vec4<u32>,
    d: vec4<u32>,
}

fn add_pairs(x: vec4<u32>, w: vec4<u32>, sum: vec2<f16>) -> vec2<f16> {
    var s = sum;
    s = fma(bitcast<vec2<f16>>(x.x), bitcast<vec2<f16>>(w.x), s);
    s = fma(bitcast<vec2<f16>>(x.y), bitcast<vec2<f16>>(w.y), s);
    s = fma(bitcast<vec2<f16>>(x.z), bitcast<vec2<f16>>(w.z), s);
    s = fma(bitcast<vec2<f16>>(x.w), bitcast<vec2<f16>>(w.w), s);
    return s;
}

fn add_column(x: Rows, at: u32, sum: Pairs) -> Pairs {
    let w = tile_w[at];
    var s = sum;
    s.a = add_pairs(x.a, w, s.a);
    if ({{ROWS}}u > 1u) {
        s.b = add_pairs(x.b, w, s.b);
        s.c = add_pairs(x.c, w, s.c);
        s.d = add_pairs(x.d, w, s.d);
    }
    return s;
}

fn both(pair: vec2<f16>) -> f32 {
    let wide = vec2<f32>(pair);
    return wide.x + wide.y;
}

fn sums_of(p: Pairs) -> vec4<f32> {
    return vec4<f32>(both(p.a), both(p.b), both(p.c), both(p.d));
}

fn put(row: u32, column: u32, sum: f32) {
    if (row >= params.rows || column >= params.cols) {
        return;
    }
    let at = row * params.y_cols + params.col0 + column;
    let result = sum * x_scale[row];
    if (params.accumulate == 1u) {
        y[at] = y[at] + result;
    } else {
        y[at] = result;
    }
}

fn put_rows(row: u32, column: u32, sum: vec4<f32>) {
    put(row, column, sum.x);
    if ({{ROWS}}u > 1u) {
        put(row + 16u, column, sum.y);
        put(row + 32u, column, sum.z);
        put(row + 48u, column, sum.w);
    }
}

fn w_eight(n: u32, kb: u32, eighth: u32) -> vec4<u32> {
    return weight_pairs(n, kb, eighth, weight_scale(n, kb, eighth));
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
    let tx = lane % 16u;
    let ty = lane / 16u;

    // A lane stages a quarter of a block: of a column, and of a row while there are any.
    let blocks = params.k / 32u;
    let column = lane % TILE_N;
    let eighth = lane / TILE_N;
    let n = min(n0 + column, params.cols - 1u);
    let w_to = column * PITCH + eighth;
    let x_to = lane / 4u * PITCH + lane % 4u;
    let x_from = (m0 + min(lane / 4u, TILE_M - 1u)) * 4u + lane % 4u;
    var w = w_eight(n, 0u, eighth);
    var x0 = x[x_from];

    // pJ, sJ: columns 16 J of the tile, of each row of the lane.
    var none: Pairs;
    var p0 = none;
    var p1 = none;
    var p2 = none;
    var p3 = none;
    var s0 = vec4<f32>();
    var s1 = vec4<f32>();
    var s2 = vec4<f32>();
    var s3 = vec4<f32>();
    for (var kb = 0u; kb < blocks; kb++) {
        tile_w[w_to] = w;
        if (lane < 4u * TILE_M) {
            tile_x[x_to] = x0;
        }
        workgroupBarrier();
        // What the next step needs, asked for before this one multiplies.
        if (kb + 1u < blocks) {
            w = w_eight(n, kb + 1u, eighth);
            x0 = x[(kb + 1u) * params.x_rows * 4u + x_from];
        }
        for (var q = 0u; q < 4u; q++) {
            let at = ty * PITCH + q;
            var rows: Rows;
            rows.a = tile_x[at];
            rows.b = rows.a;
            rows.c = rows.a;
            rows.d = rows.a;
            if ({{ROWS}}u > 1u) {
                rows.b = tile_x[at + 16u * PITCH];
                rows.c = tile_x[at + 32u * PITCH];
                rows.d = tile_x[at + 48u * PITCH];
            }
            let at_w = tx * PITCH + q;
            p0 = add_column(rows, at_w, p0);
            p1 = add_column(rows, at_w + 16u * PITCH, p1);
            p2 = add_column(rows, at_w + 32u * PITCH, p2);
            p3 = add_column(rows, at_w + 48u * PITCH, p3);
        }
        if ({{ALL}}u == 0u) {
            s0 += sums_of(p0);
            s1 += sums_of(p1);
            s2 += sums_of(p2);
            s3 += sums_of(p3);
            p0 = none;
            p1 = none;
            p2 = none;
            p3 = none;
        }
        workgroupBarrier();
    }

    put_rows(m0 + ty, n0 + tx, s0 + sums_of(p0));
    put_rows(m0 + ty, n0 + tx + 16u, s1 + sums_of(p1));
    put_rows(m0 + ty, n0 + tx + 32u, s2 + sums_of(p2));
    put_rows(m0 + ty, n0 + tx + 48u, s3 + sums_of(p3));
}
