// y[r, c] = sum_k x[r, k] * W[c, k], or that added to y[r, c] with accumulate = 1.
//
// Shapes: x f32 [rows, K], y f32 [rows, y_cols]; W is one part of a weight (piece weight) whose
//   columns of y start at col0.
// Mapping: a lane owns a register tile of ROWS rows by COLS columns; its columns are LANES apart,
//   so that neighbouring lanes read neighbouring entries of the weight and their stores touch.
//   Tiles are numbered rows first (tiles of the same columns run next to each other and find the
//   weights in the cache) and fold into two grid dimensions.
// Needs: nothing. No workgroup memory, no barrier.
// Why this version: the row that fits everything. Barriers cost a CPU driver half its speed, x is
//   read by all lanes at one address, and a weight is decoded once for ROWS rows. ROWS = 1 is the
//   decoding step.
// Reference: ref_matmul.

// use weight

override LANES: u32 = 64;
// option ROWS = 4
// option COLS = 1

struct Params {
    rows: u32,
    k: u32,
    stride: u32,      // of the part's tables
    cols: u32,        // rows of this part of the weight
    col0: u32,        // where the part's columns start in y
    y_cols: u32,
    row_tiles: u32,
    first_tile: u32,  // tiles [first_tile, tile_end) in this dispatch
    tile_end: u32,
    accumulate: u32,
}

@group(0) @binding(3) var<storage, read> x: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

fn eight_inputs(row: u32, eighth: u32) -> Eight {
    let i = row * params.k + eighth * 8u;
    return Eight(vec4<f32>(x[i], x[i + 1u], x[i + 2u], x[i + 3u]),
                 vec4<f32>(x[i + 4u], x[i + 5u], x[i + 6u], x[i + 7u]));
}

// The last K mod 8 inputs of a row, and zeros.
fn last_inputs(row: u32) -> Eight {
    let first = params.k & ~7u;
    var v: array<f32, 8>;
    for (var i = 0u; i < 8u; i++) {
        v[i] = 0.0;
        if (first + i < params.k) {
            v[i] = x[row * params.k + first + i];
        }
    }
    return Eight(vec4<f32>(v[0], v[1], v[2], v[3]), vec4<f32>(v[4], v[5], v[6], v[7]));
}

fn add_eight(v: Eight, w: Eight, sum: f32) -> f32 {
    var s = sum;
    s = fma(v.low.x, w.low.x, s);
    s = fma(v.low.y, w.low.y, s);
    s = fma(v.low.z, w.low.z, s);
    s = fma(v.low.w, w.low.w, s);
    s = fma(v.high.x, w.high.x, s);
    s = fma(v.high.y, w.high.y, s);
    s = fma(v.high.z, w.high.z, s);
    s = fma(v.high.w, w.high.w, s);
    return s;
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let tile = params.first_tile + group.y * groups.x + group.x;
    if (tile >= params.tile_end) {
        return;
    }
    let first_row = (tile % params.row_tiles) * {{ROWS}}u;
    let first_col = (tile / params.row_tiles) * (LANES * {{COLS}}u) + lane;

    // Past the edge a lane works on the last row or column again and stores nothing.
    var row: array<u32, {{ROWS}}>;
    var col: array<u32, {{COLS}}>;
    for (var i = 0u; i < {{ROWS}}u; i++) {
        row[i] = min(first_row + i, params.rows - 1u);
    }
    for (var j = 0u; j < {{COLS}}u; j++) {
        col[j] = min(first_col + j * LANES, params.cols - 1u);
    }

    // A span has one scale: a block of 32, or a group where that is smaller.
    let span = min(GROUP, 32u) / 8u;
    var sum: array<array<f32, {{COLS}}>, {{ROWS}}>;
    for (var first = 0u; first < params.k / 8u; first += span) {
        var scale: array<vec2<f32>, {{COLS}}>;
        for (var j = 0u; j < {{COLS}}u; j++) {
            scale[j] = weight_scale(col[j], first / 4u, first % 4u);
        }
        for (var e = first; e < first + span; e++) {
            var w: array<Eight, {{COLS}}>;
            for (var j = 0u; j < {{COLS}}u; j++) {
                w[j] = weight_eight(col[j], e / 4u, e % 4u, scale[j]);
            }
            for (var i = 0u; i < {{ROWS}}u; i++) {
                let v = eight_inputs(row[i], e);
                for (var j = 0u; j < {{COLS}}u; j++) {
                    sum[i][j] = add_eight(v, w[j], sum[i][j]);
                }
            }
        }
    }
    if (LAYOUT < LAYOUT_Q8 && params.k % 8u != 0u) {
        let e = params.k / 8u;
        for (var i = 0u; i < {{ROWS}}u; i++) {
            let v = last_inputs(row[i]);
            for (var j = 0u; j < {{COLS}}u; j++) {
                let w = weight_eight(col[j], e / 4u, e % 4u, vec2<f32>(1.0, 0.0));
                sum[i][j] = add_eight(v, w, sum[i][j]);
            }
        }
    }

    for (var i = 0u; i < {{ROWS}}u; i++) {
        for (var j = 0u; j < {{COLS}}u; j++) {
            let r = first_row + i;
            let c = first_col + j * LANES;
            if (r < params.rows && c < params.cols) {
                let at = r * params.y_cols + params.col0 + c;
                if (params.accumulate == 1u) {
                    y[at] = y[at] + sum[i][j];
                } else {
                    y[at] = sum[i][j];
                }
            }
        }
    }
}
