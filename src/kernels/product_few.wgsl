// y[r, c] = xs[r] * sum_k x[r, k] * W[c, k], or that added to y[r, c] with accumulate = 1: f16
// times f16 added up in f32 by subgroup matrices, for few rows.
//
// Shapes: x f16 in blocks of 32 along k, [K / 32][x_rows][32], x_rows the rows rounded up to 16;
//   xs f32 [rows], powers of two; W one part of a weight (piece weight); y f32, read as vec4:
//   y_quads of them a row, the product's columns from quad `quad0` on. K a multiple of 32. cols is
//   a multiple of 4; columns past the weight's own are 0.
// Mapping: a workgroup makes tiles of 16 rows by 16 columns, `walk` tiles apart, from the first of
//   its own to last_column. In the grid lie the tiles of rows (x), the walks (y), and the slices of
//   k (z), `share` blocks of 32 each, whose sums go to y + slice * slice_quads. A slice is shared
//   out over TEAMS subgroups: each has a run of 2 STEPS blocks, and takes two of them a step.
// Needs: f16, subgroup matrices f16 to f32 of 16 x 16 x 16, subgroups of 32 lanes; 2 STEPS TEAMS
//   not less than share, TEAMS not less than 2; 32 TEAMS invocations; 2304 TEAMS bytes of workgroup
//   memory.
// Why this version: with few rows a product is as fast as words of the weight arrive, and those
//   under way must be as many as latency times bandwidth. So a lane asks for all the words of its
//   run before it unpacks the first, and for those of the next tile as soon as registers are free;
//   x stays in registers, as matrices, for all tiles. Of lab/few.wgsl's candidates on an H200, 16
//   rows: 5.7 us for 2048 x 2048 and 79 us for 128256 x 2048, where product_matrix.wgsl takes 8.8
//   and 155.
// Rounding: as product_matrix.wgsl.
// Reference: ref_matmul.

diagnostic(off, chromium.subgroup_matrix_uniformity);
enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;

// option TEAMS = 8
// option STEPS = 4
// option EXACT = 0

const TEAMS = {{TEAMS}}u;
const STEPS = {{STEPS}}u;                 // 1 to 4
const EXACT = {{EXACT}}u;                 // 1: every run is whole

const TILE = 16u;
const LANES = 32u * TEAMS;
const RUN = 2u * STEPS;                   // blocks
const PITCH = 9u;                         // of a staged column, in words of eight halves
const STAGE = TILE * PITCH;               // of a team
const STRIP_PITCH = 5u;                   // of a row of sums, in words of four floats
const STRIP = TILE * STRIP_PITCH;

struct Params {
    rows: u32,
    cols: u32,
    k: u32,
    stride: u32,       // of W's tables
    x_rows: u32,
    quad0: u32,
    y_quads: u32,
    share: u32,
    slice_quads: u32,
    first_column: u32, // tile columns [first_column, last_column) in this dispatch
    last_column: u32,
    walk: u32,
    accumulate: u32,
}

// use weight
// use weight_f16
// use weight_entry

@group(0) @binding(3) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> x_scale: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<vec4<f32>>;
@group(1) @binding(0) var<uniform> params: Params;

var<workgroup> tile: array<vec4<u32>, TEAMS * max(STAGE, STRIP)>;

// Matrices: from here to the next line of this kind, tests on devices without them put plain code.
alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Result = subgroup_matrix_result<f32, 16, 16>;

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

// A block of x, its halves.
struct Block {
    front: Left,
    back: Left,
}

// Past the end of k the last block is read again, and not multiplied.
fn x_block(kb: u32, m0: u32) -> Block {
    let at = (min(kb, params.k / 32u - 1u) * params.x_rows + m0) * 4u;
    return Block(left_of_x(at), left_of_x(at + 2u));
}

fn entry(n: u32, kb: u32) -> Entry {
    return weight_entry(n, min(kb, params.k / 32u - 1u));
}

fn stage(to: u32, e: Entry, n: u32) {
    tile[to] = entry_pairs(e, n, 0u);
    tile[to + 1u] = entry_pairs(e, n, 1u);
    tile[to + 2u] = entry_pairs(e, n, 2u);
    tile[to + 3u] = entry_pairs(e, n, 3u);
}

fn add(b: Block, at_w: u32, sum: Result) -> Result {
    let half = multiply(b.front, right_of_tile(at_w), sum);
    return multiply(b.back, right_of_tile(at_w + 2u), half);
}

// The sum with the two blocks of a step, as far as they are in the run.
fn add_two(b0: Block, b1: Block, at_w: u32, left: u32, sum: Result) -> Result {
    var more = sum;
    if (EXACT == 1u || left > 0u) {
        more = add(b0, at_w, more);
    }
    if (EXACT == 1u || left > 1u) {
        more = add(b1, at_w + 4u, more);
    }
    return more;
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let m0 = group.x * TILE;
    let slice = group.z;
    let subgroup = thread / 32u;
    let lane = thread % 32u;
    let end = min((slice + 1u) * params.share, params.k / 32u);
    let first = slice * params.share + subgroup * RUN;
    let run = max(end, first) - first;

    // A lane's entry of a step: one of 16 columns, one of two blocks.
    let column = lane % TILE;
    let kb = first + lane / TILE;
    let own = subgroup * STAGE;
    let to = own + column * PITCH + lane / TILE * 4u;
    var n = min((params.first_column + group.y) * TILE + column, params.stride - 1u);
    var e0 = entry(n, kb);
    var e1: Entry;
    var e2: Entry;
    var e3: Entry;
    if (STEPS > 1u) {
        e1 = entry(n, kb + 2u);
    }
    if (STEPS > 2u) {
        e2 = entry(n, kb + 4u);
    }
    if (STEPS > 3u) {
        e3 = entry(n, kb + 6u);
    }

    let x0 = x_block(first, m0);
    let x1 = x_block(first + 1u, m0);
    var x2: Block;
    var x3: Block;
    var x4: Block;
    var x5: Block;
    var x6: Block;
    var x7: Block;
    if (STEPS > 1u) {
        x2 = x_block(first + 2u, m0);
        x3 = x_block(first + 3u, m0);
    }
    if (STEPS > 2u) {
        x4 = x_block(first + 4u, m0);
        x5 = x_block(first + 5u, m0);
    }
    if (STEPS > 3u) {
        x6 = x_block(first + 6u, m0);
        x7 = x_block(first + 7u, m0);
    }

    // A lane's four sums of a tile, of the first 64.
    let row = m0 + thread / 4u;
    let is_sum = thread < 4u * TILE && row < params.rows;
    let factor = x_scale[min(row, params.rows - 1u)];

    for (var t = params.first_column + group.y; t < params.last_column; t += params.walk) {
        let next = t + params.walk;
        let more = next < params.last_column;
        let next_n = min(next * TILE + column, params.stride - 1u);
        let quad = t * 4u + thread % 4u;
        let is_mine = is_sum && 4u * quad < params.cols;
        let at = slice * params.slice_quads + row * params.y_quads + params.quad0 + quad;
        var before = vec4<f32>(0.0);
        if (is_mine && params.accumulate == 1u) {
            before = y[at];
        }
        var sum = Result();

        stage(to, e0, n);
        if (more) {
            e0 = entry(next_n, kb);
        }
        workgroupBarrier();
        sum = add_two(x0, x1, own, run, sum);
        workgroupBarrier();
        if (STEPS > 1u) {
            stage(to, e1, n);
            if (more) {
                e1 = entry(next_n, kb + 2u);
            }
            workgroupBarrier();
            sum = add_two(x2, x3, own, max(run, 2u) - 2u, sum);
            workgroupBarrier();
        }
        if (STEPS > 2u) {
            stage(to, e2, n);
            if (more) {
                e2 = entry(next_n, kb + 4u);
            }
            workgroupBarrier();
            sum = add_two(x4, x5, own, max(run, 4u) - 4u, sum);
            workgroupBarrier();
        }
        if (STEPS > 3u) {
            stage(to, e3, n);
            if (more) {
                e3 = entry(next_n, kb + 6u);
            }
            workgroupBarrier();
            sum = add_two(x6, x7, own, max(run, 6u) - 6u, sum);
            workgroupBarrier();
        }

        store(subgroup * STRIP, sum);
        workgroupBarrier();
        if (is_mine) {
            var total = vec4<f32>(0.0);
            for (var team = 0u; team < TEAMS; team++) {
                total += bitcast<vec4<f32>>(
                    tile[team * STRIP + thread / 4u * STRIP_PITCH + thread % 4u]);
            }
            y[at] = fma(total, vec4<f32>(factor), before);
        }
        workgroupBarrier();
        n = next_n;
    }
}
