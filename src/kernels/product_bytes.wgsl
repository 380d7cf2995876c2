// y[r, c] = sum_k x[r, k] * W[c, k], or that added to y[r, c] with accumulate = 1, x in bytes: of
//   32 along k the sum is one of integers, and across them f32.
//
// Shapes: x [K / 32][x_rows] entries of 48 bytes as product_input_bytes writes them; W one part of
//   a quantised weight (piece weight) in groups of 32 and more, or of 16 under the K scales; y f32
//   [rows, y_cols], the product's columns from col0 on. K a multiple of 32.
// Mapping: a workgroup of 16 x 16 lanes makes a tile of 16 ROWS rows by 64 columns; a lane has ROWS
//   rows, 16 apart, by four columns, 16 apart. Tiles run in bands of eight tile rows and fold into
//   two grid dimensions.
// Needs: 256 invocations, 8 KiB + 1.5 ROWS KiB of workgroup memory. ROWS is 1 or 4.
// Why this version: a block's bytes of x and of the weight, its nibbles spread to bytes and less
//   their zero, lie in workgroup memory as words of 16, which lanes side by side find in banks of
//   their own (entries are 48 bytes apart); a pair of such words is four dot4I8Packed. A step is
//   two blocks, and what the next step needs waits in registers. A minimum is one product more:
//   with the sum of the inputs, which lies beside them.
// Rounding: what product_input_bytes did to x, and nothing else.
// Reference: ref_matmul.

// option ROWS = 4

const TILE_M = 16u * {{ROWS}}u;
const TILE_N = 64u;
const BAND = 8u;                 // tile rows that run side by side
const STEP = 2u;                 // blocks
const LANES = 256u;
const ENTRY = 3u;                // words of four of an entry
const X_WORDS = TILE_M * ENTRY;  // of a block
const W_WORDS = TILE_N * ENTRY;

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
// use bytes

@group(0) @binding(3) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

var<workgroup> tile_x: array<vec4<u32>, STEP * X_WORDS>;
var<workgroup> tile_w: array<vec4<u32>, STEP * W_WORDS>;
// What a half of a block is times and plus: [block][half][column].
var<workgroup> scales_w: array<vec2<f32>, STEP * 2u * TILE_N>;

fn has_minimum() -> bool {
    return SCALE == SCALE_F16_MIN || SCALE == SCALE_K_MIN;
}

// Unsigned bytes less the zero of the layout.
fn less_zero(bytes: vec4<u32>) -> vec4<u32> {
    if (has_minimum()) {
        return bytes;
    }
    var zero = 0x08080808u;
    if (LAYOUT == LAYOUT_Q5) {
        zero = 0x10101010u;
    } else if (LAYOUT == LAYOUT_Q6) {
        zero = 0x20202020u;
    }
    let top = vec4<u32>(0x80808080u);
    return ((bytes | top) - vec4<u32>(zero)) ^ top;
}

// 16 elements of column n: half 0 or 1 of block kb.
fn w_bytes(n: u32, kb: u32, half: u32) -> vec4<u32> {
    let at = kb * params.stride + n;
    if (LAYOUT == LAYOUT_Q8) {
        return data[2u * at + half];
    }
    let words = data[at];
    var first = words.x;
    var second = words.y;
    if (half == 1u) {
        first = words.z;
        second = words.w;
    }
    var high = vec2<u32>();
    if (LAYOUT != LAYOUT_Q4) {
        high = vec2<u32>(weight_high(n, kb, 2u * half), weight_high(n, kb, 2u * half + 1u));
    }
    return less_zero(vec4<u32>(nibble_bytes(first, high.x), nibble_bytes(second, high.y)));
}

// Of a row's block: 16 bytes, 16 bytes, and (scale, scale times sums: of half 0, of half 1, of
//   both).
struct Inputs {
    low: vec4<u32>,
    high: vec4<u32>,
    scale: vec4<f32>,
}

fn inputs_at(at: u32) -> Inputs {
    return Inputs(tile_x[at], tile_x[at + 1u], bitcast<vec4<f32>>(tile_x[at + 2u]));
}

fn dot_words(a: vec4<u32>, b: vec4<u32>) -> i32 {
    return dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y) + dot4I8Packed(a.z, b.z) +
           dot4I8Packed(a.w, b.w);
}

// A block of a column: its bytes, and what its halves are times and plus.
struct Column {
    low: vec4<u32>,
    high: vec4<u32>,
    first: vec2<f32>,
    second: vec2<f32>,
}

fn column_at(block: u32, column: u32) -> Column {
    let at = block * W_WORDS + column * ENTRY;
    let scale_at = block * 2u * TILE_N + column;
    return Column(tile_w[at], tile_w[at + 1u], scales_w[scale_at], scales_w[scale_at + TILE_N]);
}

fn add(v: Inputs, w: Column, sum: f32) -> f32 {
    let low = dot_words(v.low, w.low);
    let high = dot_words(v.high, w.high);
    if (GROUP == 16u) {
        var s = fma(v.scale.x, fma(w.first.x, f32(low), w.second.x * f32(high)), sum);
        if (has_minimum()) {
            s = fma(v.scale.y, w.first.y, fma(v.scale.z, w.second.y, s));
        }
        return s;
    }
    let s = fma(v.scale.x * w.first.x, f32(low + high), sum);
    if (has_minimum()) {
        return fma(v.scale.w, w.first.y, s);
    }
    return s;
}

// The rows of a lane, by a column of it.
fn add_rows(v0: Inputs, v1: Inputs, v2: Inputs, v3: Inputs, w: Column,
            sum: vec4<f32>) -> vec4<f32> {
    var s = sum;
    s.x = add(v0, w, s.x);
    if ({{ROWS}}u > 1u) {
        s.y = add(v1, w, s.y);
        s.z = add(v2, w, s.z);
        s.w = add(v3, w, s.w);
    }
    return s;
}

fn put(row: u32, column: u32, sum: f32) {
    if (row >= params.rows || column >= params.cols) {
        return;
    }
    let at = row * params.y_cols + params.col0 + column;
    if (params.accumulate == 1u) {
        y[at] = y[at] + sum;
    } else {
        y[at] = sum;
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

// Word i of the step that begins at block kb; past the end of k the last block again.
fn x_word(i: u32, kb: u32, m0: u32) -> vec4<u32> {
    let block = min(kb + i / X_WORDS, params.k / 32u - 1u);
    return x[(block * params.x_rows + m0) * ENTRY + i % X_WORDS];
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

    // A lane stages half a block of a column, and up to two words of x.
    const ALL_X = STEP * X_WORDS;
    let blocks = params.k / 32u;
    let column = lane % TILE_N;
    let half = lane / TILE_N % 2u;
    let block = lane / (2u * TILE_N);
    let n = min(n0 + column, params.cols - 1u);
    let w_to = block * W_WORDS + column * ENTRY + half;
    let scale_to = (block * 2u + half) * TILE_N + column;
    var kb = min(block, blocks - 1u);
    var w = w_bytes(n, kb, half);
    var scale = weight_scale(n, kb, 2u * half);
    var x0 = x_word(min(lane, ALL_X - 1u), 0u, m0);
    var x1 = x_word(min(lane + LANES, ALL_X - 1u), 0u, m0);

    // sJ: columns 16 J of the tile, of each row of the lane.
    var s0 = vec4<f32>();
    var s1 = vec4<f32>();
    var s2 = vec4<f32>();
    var s3 = vec4<f32>();
    for (var first = 0u; first < blocks; first += STEP) {
        tile_w[w_to] = w;
        scales_w[scale_to] = scale;
        if (lane < ALL_X) {
            tile_x[lane] = x0;
        }
        if (lane + LANES < ALL_X) {
            tile_x[lane + LANES] = x1;
        }
        workgroupBarrier();
        // What the next step needs, asked for before this one multiplies.
        if (first + STEP < blocks) {
            kb = min(first + STEP + block, blocks - 1u);
            w = w_bytes(n, kb, half);
            scale = weight_scale(n, kb, 2u * half);
            x0 = x_word(min(lane, ALL_X - 1u), first + STEP, m0);
            x1 = x_word(min(lane + LANES, ALL_X - 1u), first + STEP, m0);
        }
        for (var b = 0u; b < min(STEP, blocks - first); b++) {
            let at = b * X_WORDS + ty * ENTRY;
            let v0 = inputs_at(at);
            var v1: Inputs = v0;
            var v2: Inputs = v0;
            var v3: Inputs = v0;
            if ({{ROWS}}u > 1u) {
                v1 = inputs_at(at + 16u * ENTRY);
                v2 = inputs_at(at + 32u * ENTRY);
                v3 = inputs_at(at + 48u * ENTRY);
            }
            s0 = add_rows(v0, v1, v2, v3, column_at(b, tx), s0);
            s1 = add_rows(v0, v1, v2, v3, column_at(b, tx + 16u), s1);
            s2 = add_rows(v0, v1, v2, v3, column_at(b, tx + 32u), s2);
            s3 = add_rows(v0, v1, v2, v3, column_at(b, tx + 48u), s3);
        }
        workgroupBarrier();
    }

    put_rows(m0 + ty, n0 + tx, s0);
    put_rows(m0 + ty, n0 + tx + 16u, s1);
    put_rows(m0 + ty, n0 + tx + 32u, s2);
    put_rows(m0 + ty, n0 + tx + 48u, s3);
}
