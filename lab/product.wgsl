// y[m][n] = sum over k of x[m][k] * s[n][k / 32] * (q[n][k] - 8) by subgroup matrices, for any number of
// rows, with edges, scales of rows and slices of k: what src/kernels/product_matrix.wgsl was made from.
//
// A workgroup makes a tile; its subgroups stand in teams, which take the steps of 32 * units along k in
// turn; a team is sub_m x sub_n subgroups of down x across matrices each. Matrices are named in structs, and
// every size of the problem is in a uniform: one pipeline for all shapes.
//
// stage_x: 1 x is staged in workgroup memory too, 0 read as matrices from its buffer
// pre: 0 words are loaded where they are unpacked, 1 they wait in registers
// split: slices of k, whose sums lie one after another in y (product_join.wgsl adds them up)
// acc: 1 added to y
//
// One H200: M 2048, N 8192, K 2048: 233 us, 295 TFLOP/s (down=4 across=4 sub_m=2 sub_n=2 teams=1).
//% let kb 1
//% let order 1
//% let tile_m 16 * down * sub_m
//% let tile_n 16 * across * sub_n
//% let team 32 * sub_m * sub_n
//% let tm (M + tile_m - 1) / tile_m
//% let tn (N + tile_n - 1) / tile_n
//% let xrows (M + 127) / 128 * 128
//% need tile_n * units % team == 0
//% need stage_x == 0 || tile_m * units * 4 % team == 0
//% let entries tile_n * units / team
//% let loads tile_m * units * 4 / team
//% need entries <= 2 && (stage_x == 0 || loads <= 4) && down * across <= 16
//% let size (stage_x * tile_m + tile_n) * (4 * units + 1)
//% need size * teams * 16 <= 49152 && sub_m * sub_n * teams * 16 * (4 * across + 1) * 16 <= 49152
//% let unit 4
//% let limit 4000
//% let chunks split
//% grid tm*tn*split 1
//% if split == 1 && acc == 0
//% ref q4
//% else
//% ref none
//% end
//% bind dims xh w4 y s one
diagnostic(off, chromium.subgroup_matrix_uniformity);
enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;

const DOWN = {{down}}u;
const ACROSS = {{across}}u;
const SUB_M = {{sub_m}}u;
const SUB_N = {{sub_n}}u;
const TEAMS = {{teams}}u;
const UNITS = {{units}}u;
const STAGE_X = {{stage_x}}u;
const BAND = 8u;

const TILE_M = 16u * DOWN * SUB_M;
const TILE_N = 16u * ACROSS * SUB_N;
const TEAM = 32u * SUB_M * SUB_N;
const LANES = TEAM * TEAMS;
const STEP = UNITS * TEAMS;
const PITCH = 4u * UNITS + 1u;
const FROM_W = STAGE_X * TILE_M * PITCH;
const STAGE = FROM_W + TILE_N * PITCH;
const STRIP_PITCH = 4u * ACROSS + 1u;
const STRIP = 16u * STRIP_PITCH;
const LOADS = TILE_M * UNITS * 4u / TEAM;
const ENTRIES = TILE_N * UNITS / TEAM;
const SUBGROUPS = SUB_M * SUB_N;

alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Result = subgroup_matrix_result<f32, 16, 16>;

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

@group(0) @binding(0) var<uniform> dims: vec4<u32>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> scales: array<f16>;
@group(0) @binding(5) var<storage, read> x_scale: array<f32>;

var<workgroup> tile: array<vec4<u32>, max(STAGE * TEAMS, STRIP * SUBGROUPS * TEAMS)>;

// The eight weights of a word in their order, as f16.
fn unpack(word: u32, scale: f16) -> vec4<u32> {
    let s = vec2<f16>(scale);
    let up = word >> 8u;
    let a = bitcast<vec2<f16>>((word & 0x000f000fu) | 0x64006400u) - vec2<f16>(1032.0h);
    let b = bitcast<vec2<f16>>((word & 0x00f000f0u) | 0x54005400u) - vec2<f16>(72.0h);
    let c = bitcast<vec2<f16>>((up & 0x000f000fu) | 0x64006400u) - vec2<f16>(1032.0h);
    let d = bitcast<vec2<f16>>((up & 0x00f000f0u) | 0x54005400u) - vec2<f16>(72.0h);
    return vec4<u32>(bitcast<u32>(a * s), bitcast<u32>(b * s), bitcast<u32>(c * s), bitcast<u32>(d * s));
}

struct Entry {
    words: vec4<u32>,
    scale: f16,
}

fn entry(at: u32) -> Entry {
    return Entry(w[at], scales[at]);
}

fn stage_entry(to: u32, e: Entry) {
    tile[to] = unpack(e.words.x, e.scale);
    tile[to + 1u] = unpack(e.words.y, e.scale);
    tile[to + 2u] = unpack(e.words.z, e.scale);
    tile[to + 3u] = unpack(e.words.w, e.scale);
}

fn left(at: u32, from_x: u32) -> Left {
    if (STAGE_X == 1u) {
        return subgroupMatrixLoad<Left, row_major>(&tile, at, PITCH);
    }
    return subgroupMatrixLoad<Left, row_major>(&x, from_x, 4u);
}

// DOWN matrices of x: in the workgroup's memory, or in the buffer.
fn lefts(at: u32, from_x: u32) -> Lefts {
    var l: Lefts;
    l.a = left(at, from_x);
    if (DOWN > 1u) {
        l.b = left(at + 16u * PITCH, from_x + 64u);
    }
    if (DOWN > 2u) {
        l.c = left(at + 32u * PITCH, from_x + 128u);
        l.d = left(at + 48u * PITCH, from_x + 192u);
    }
    return l;
}

fn add(l: Lefts, at: u32, column: Column) -> Column {
    let right = subgroupMatrixLoad<Right, col_major>(&tile, at, PITCH);
    var sum = column;
    sum.a = subgroupMatrixMultiplyAccumulate(l.a, right, sum.a);
    if (DOWN > 1u) {
        sum.b = subgroupMatrixMultiplyAccumulate(l.b, right, sum.b);
    }
    if (DOWN > 2u) {
        sum.c = subgroupMatrixMultiplyAccumulate(l.c, right, sum.c);
        sum.d = subgroupMatrixMultiplyAccumulate(l.d, right, sum.d);
    }
    return sum;
}

fn put_strip(at: u32, s0: Result, s1: Result, s2: Result, s3: Result) {
    subgroupMatrixStore<row_major>(&tile, at, s0, STRIP_PITCH);
    if (ACROSS > 1u) {
        subgroupMatrixStore<row_major>(&tile, at + 4u, s1, STRIP_PITCH);
    }
    if (ACROSS > 2u) {
        subgroupMatrixStore<row_major>(&tile, at + 8u, s2, STRIP_PITCH);
        subgroupMatrixStore<row_major>(&tile, at + 12u, s3, STRIP_PITCH);
    }
}

// Rows 16 `which` .. of every subgroup's part of the tile, from the strips to y.
fn write_strips(thread: u32, m0: u32, n0: u32, slice: u32, which: u32) {
    workgroupBarrier();
    for (var i = thread; i < SUBGROUPS * 64u * ACROSS; i += LANES) {
        let strip = i / (64u * ACROSS);
        let r = i % (64u * ACROSS) / (4u * ACROSS);
        let c = i % (4u * ACROSS);
        let m = m0 + strip / SUB_N * (16u * DOWN) + 16u * which + r;
        let n = n0 + strip % SUB_N * (16u * ACROSS) + 4u * c;
        if (m < dims.x && n < dims.y) {
            let at = strip * STRIP + r * STRIP_PITCH + c;
            var sum = bitcast<vec4<f32>>(tile[at]);
            for (var t = 1u; t < TEAMS; t++) {
                sum += bitcast<vec4<f32>>(tile[at + t * SUBGROUPS * STRIP]);
            }
            sum *= x_scale[m];
            let to = ((slice * dims.x + m) * dims.y + n) / 4u;
            //% if acc == 1
            sum += y[to];
            //% end
            y[to] = sum;
        }
    }
    workgroupBarrier();
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let tiles_m = (dims.x + TILE_M - 1u) / TILE_M;
    let tiles_n = (dims.y + TILE_N - 1u) / TILE_N;
    let slice = group.x / (tiles_m * tiles_n);
    let index = group.x % (tiles_m * tiles_n);
    let band = index / (BAND * tiles_n);
    let rest = index % (BAND * tiles_n);
    let side = min(BAND, tiles_m - band * BAND);
    let m0 = (band * BAND + rest % side) * TILE_M;
    let n0 = (rest / side) * TILE_N;
    let subgroup = thread / 32u;
    let own = subgroup % SUBGROUPS;
    let sub_m = own / SUB_N * (16u * DOWN);
    let sub_n = own % SUB_N * (16u * ACROSS);
    let lane = thread % TEAM;
    let team = thread / TEAM;

    let x_rows = (dims.x + 127u) / 128u * 128u;
    let blocks = dims.z / 32u;
    let share = (blocks + dims.w - 1u) / dims.w;
    let first = slice * share;
    let end = min(first + share, blocks);
    let steps = (end - first + STEP - 1u) / STEP;
    let start = first + team * UNITS;
    let base = team * STAGE;

    // Where a lane's words of x and w are, and where they go.
    let x_more = STEP * 4u * x_rows;
    let x_last = ((blocks - 1u) * x_rows + m0) * 4u;
    let xc0 = lane;
    let xc1 = lane + TEAM;
    let xc2 = lane + 2u * TEAM;
    let xc3 = lane + 3u * TEAM;
    let row_words = 4u * TILE_M;
    var xa0 = ((start + xc0 / row_words) * x_rows + m0) * 4u + xc0 % row_words;
    var xa1 = ((start + xc1 / row_words) * x_rows + m0) * 4u + xc1 % row_words;
    var xa2 = ((start + xc2 / row_words) * x_rows + m0) * 4u + xc2 % row_words;
    var xa3 = ((start + xc3 / row_words) * x_rows + m0) * 4u + xc3 % row_words;
    let xt0 = base + xc0 % row_words / 4u * PITCH + xc0 / row_words * 4u + xc0 % 4u;
    let xt1 = base + xc1 % row_words / 4u * PITCH + xc1 / row_words * 4u + xc1 % 4u;
    let xt2 = base + xc2 % row_words / 4u * PITCH + xc2 / row_words * 4u + xc2 % 4u;
    let xt3 = base + xc3 % row_words / 4u * PITCH + xc3 / row_words * 4u + xc3 % 4u;
    let wc0 = lane;
    let wc1 = lane + TEAM;
    let wn0 = min(n0 + wc0 % TILE_N, dims.y - 1u);
    let wn1 = min(n0 + wc1 % TILE_N, dims.y - 1u);
    var wb0 = start + wc0 / TILE_N;
    var wb1 = start + wc1 / TILE_N;
    let wt0 = base + FROM_W + wc0 % TILE_N * PITCH + wc0 / TILE_N * 4u;
    let wt1 = base + FROM_W + wc1 % TILE_N * PITCH + wc1 / TILE_N * 4u;

    var s0: Column;
    var s1: Column;
    var s2: Column;
    var s3: Column;
    //% if pre == 1
    var x0 = vec4<u32>();
    var x1 = vec4<u32>();
    var x2 = vec4<u32>();
    var x3 = vec4<u32>();
    if (STAGE_X == 1u) {
        x0 = x[min(xa0, x_last + xc0 % row_words)];
        if (LOADS > 1u) {
            x1 = x[min(xa1, x_last + xc1 % row_words)];
        }
        if (LOADS > 2u) {
            x2 = x[min(xa2, x_last + xc2 % row_words)];
            x3 = x[min(xa3, x_last + xc3 % row_words)];
        }
    }
    var e0 = entry(min(wb0, blocks - 1u) * dims.y + wn0);
    var e1: Entry;
    if (ENTRIES > 1u) {
        e1 = entry(min(wb1, blocks - 1u) * dims.y + wn1);
    }
    //% end
    for (var s = 0u; s < steps; s++) {
        //% if pre == 0
        if (STAGE_X == 1u) {
            tile[xt0] = x[min(xa0, x_last + xc0 % row_words)];
            if (LOADS > 1u) {
                tile[xt1] = x[min(xa1, x_last + xc1 % row_words)];
            }
            if (LOADS > 2u) {
                tile[xt2] = x[min(xa2, x_last + xc2 % row_words)];
                tile[xt3] = x[min(xa3, x_last + xc3 % row_words)];
            }
            xa0 += x_more;
            xa1 += x_more;
            xa2 += x_more;
            xa3 += x_more;
        }
        stage_entry(wt0, entry(min(wb0, blocks - 1u) * dims.y + wn0));
        wb0 += STEP;
        if (ENTRIES > 1u) {
            stage_entry(wt1, entry(min(wb1, blocks - 1u) * dims.y + wn1));
            wb1 += STEP;
        }
        workgroupBarrier();
        //% else
        if (STAGE_X == 1u) {
            tile[xt0] = x0;
            if (LOADS > 1u) {
                tile[xt1] = x1;
            }
            if (LOADS > 2u) {
                tile[xt2] = x2;
                tile[xt3] = x3;
            }
        }
        stage_entry(wt0, e0);
        if (ENTRIES > 1u) {
            stage_entry(wt1, e1);
        }
        workgroupBarrier();
        // The words of the next step, asked for before this one multiplies.
        if (s + 1u < steps) {
            if (STAGE_X == 1u) {
                xa0 += x_more;
                xa1 += x_more;
                xa2 += x_more;
                xa3 += x_more;
                x0 = x[min(xa0, x_last + xc0 % row_words)];
                if (LOADS > 1u) {
                    x1 = x[min(xa1, x_last + xc1 % row_words)];
                }
                if (LOADS > 2u) {
                    x2 = x[min(xa2, x_last + xc2 % row_words)];
                    x3 = x[min(xa3, x_last + xc3 % row_words)];
                }
            }
            wb0 += STEP;
            e0 = entry(min(wb0, blocks - 1u) * dims.y + wn0);
            if (ENTRIES > 1u) {
                wb1 += STEP;
                e1 = entry(min(wb1, blocks - 1u) * dims.y + wn1);
            }
        }
        //% end
        let block = start + s * STEP;
        //% for kk units*2
        if (STEP == 1u || block + {{kk / 2}}u < end) {
            let l = lefts(base + sub_m * PITCH + {{2 * kk}}u,
                          ((block + {{kk / 2}}u) * x_rows + m0 + sub_m) * 4u + {{kk % 2 * 2}}u);
            let from_w = base + FROM_W + sub_n * PITCH + {{2 * kk}}u;
            s0 = add(l, from_w, s0);
            if (ACROSS > 1u) {
                s1 = add(l, from_w + 16u * PITCH, s1);
            }
            if (ACROSS > 2u) {
                s2 = add(l, from_w + 32u * PITCH, s2);
                s3 = add(l, from_w + 48u * PITCH, s3);
            }
        }
        //% end
        workgroupBarrier();
    }

    let at = subgroup * STRIP;
    put_strip(at, s0.a, s1.a, s2.a, s3.a);
    write_strips(thread, m0, n0, slice, 0u);
    if (DOWN > 1u) {
        put_strip(at, s0.b, s1.b, s2.b, s3.b);
        write_strips(thread, m0, n0, slice, 1u);
    }
    if (DOWN > 2u) {
        put_strip(at, s0.c, s1.c, s2.c, s3.c);
        write_strips(thread, m0, n0, slice, 2u);
        put_strip(at, s0.d, s1.d, s2.d, s3.d);
        write_strips(thread, m0, n0, slice, 3u);
    }
}
