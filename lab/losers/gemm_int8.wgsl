// y[m][n] = sum over g of sx[g][m] * sw[g][n] * sum over k in g of x8[m][k] * w8[n][k] by subgroup matrices
// of bytes, which add up in i32: 4-bit weights become bytes on their way into workgroup memory.
//
// A group g is `flush` blocks of 32 along k. There, sums leave the matrices: WGSL has no access to a
// matrix's elements, so they pass through workgroup memory, 16 rows of a subgroup's part at a time, are scaled
// and added up in f32 registers. Groups of all of K leave once.
//
// flush 1: w8 is q - 8, sw the weight's own scale: exact but for x8. More: the scales of a group's blocks
// differ, so w8 is (q - 8) * scale / sw to the nearest integer, sw 8 / 127 of the group's largest scale.
// x8 and w8 lie in blocks, [K / 32][rows][32 bytes], of each eight in the order 0 2 1 3 4 6 5 7, in which
// nibbles come out of a word.
//
// One H200, M 2048, N 8192, K 2048, where gemm_kb.wgsl takes 238 us: flush 1 (a scale a block, as the formats have
// them) 592 us, 116 TOP/s: each product of 16 x 16 x 32 is written, read, converted and scaled, and f32 sums beside
// i32 ones leave registers for half the part. flush 16: 247 us (278), error 2e-2. flush 0, one scale a row and one a
// column: 143 us, 481 TOP/s, 38 % of what bytes do in registers; a bound, as no format's weights are like that.
//
// two: buffers for strips of sums: with 2 one barrier a strip
// mem: what matrices are loaded from: 0 array<vec4<u32>>; array<u32> counted in 1 words, 2 bytes
// plain: 1 plain code in the place of matrices, for devices without them
//% let kb 1
//% let order 1
//% let threads bm/wm*(bn/wn)*32
//% let pitch ks / 16 + 1
//% let qu 4
//% if bn * ks / 32 % threads != 0
//% let qu 2
//% end
//% let la bm * ks / 16 / threads
//% let lb bn * ks / 32 * 4 / qu / threads
//% need wm <= bm && wn <= bn && wn >= 32 && threads <= 1024 && ks % 32 == 0 && (flush == 0 || flush * 32 % ks == 0)
//% need bm * ks / 16 % threads == 0 && bn * ks / 32 * 4 / qu % threads == 0 && la >= 1 && lb >= 1
//% need M % bm == 0 && N % bn == 0 && K % ks == 0
//% let all flush == 0
//% let span flush * 32
//% if all
//% let span K
//% end
//% need K % span == 0
//% let exact flush == 1
//% let cq wn / 4
//% let passes cq / 2
//% let sp cq + 2
//% let strip 16 * sp
//% let tile_size (bm + bn) * pitch
//% let strip_size threads / 32 * strip * two
//% let size tile_size
//% if strip_size > tile_size
//% let size strip_size
//% end
//% need size * 16 <= 49152
//% let bytes M * K + N * K / 2 + N * K / 16 + M * N * 4
//% let unit 7
//% let limit 40000
//% grid (M/bm)*(N/bn) 1
//% ref q4
//% bind dims b8 w4 y s b8s w8s
enable f16;
//% if plain == 0
diagnostic(off, chromium.subgroup_matrix_uniformity);
enable subgroups;
enable chromium_experimental_subgroup_matrix;
//% end

@group(0) @binding(0) var<uniform> dims: vec4<u32>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> w: array<vec{{qu}}<u32>>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> scales: array<f16>;
@group(0) @binding(5) var<storage, read> sx: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read> sw: array<f32>;

//% if mem == 0
var<workgroup> tile: array<vec4<u32>, {{size}}>;

fn put(at: u32, v: vec4<u32>) {
    tile[at] = v;
}

fn fetch(at: u32) -> vec4<u32> {
    return tile[at];
}
//% else
var<workgroup> tile: array<u32, {{size * 4}}>;

fn put(at: u32, v: vec4<u32>) {
    tile[4u * at] = v.x;
    tile[4u * at + 1u] = v.y;
    tile[4u * at + 2u] = v.z;
    tile[4u * at + 3u] = v.w;
}

fn fetch(at: u32) -> vec4<u32> {
    return vec4<u32>(tile[4u * at], tile[4u * at + 1u], tile[4u * at + 2u], tile[4u * at + 3u]);
}
//% end

//% if plain == 1
var<private> own: u32;

struct Left {
    at: u32,
}

struct Right {
    at: u32,
}

struct Result {
    low: vec4<i32>,
    high: vec4<i32>,
}

fn left(at: u32) -> Left {
    return Left(at);
}

fn right(at: u32) -> Right {
    return Right(at);
}

fn four(a: vec4<u32>, b: vec4<u32>) -> i32 {
    return dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y) + dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w);
}

fn multiply(l: Left, r: Right, sum: Result) -> Result {
    var v = array<i32, 8>();
    let a = l.at + own / 2u * {{pitch}}u;
    let end = select(8u, 7u, dims.z == 0u);
    for (var i = 0u; i < end; i++) {
        let b = r.at + (own % 2u * 8u + i) * {{pitch}}u;
        v[i] = four(fetch(a), fetch(b)) + four(fetch(a + 1u), fetch(b + 1u));
    }
    return Result(sum.low + vec4<i32>(v[0], v[1], v[2], v[3]), sum.high + vec4<i32>(v[4], v[5], v[6], v[7]));
}

fn store(at: u32, sum: Result) {
    let to = at + own / 2u * {{sp}}u + own % 2u * 2u;
    put(to, bitcast<vec4<u32>>(sum.low));
    put(to + 1u, bitcast<vec4<u32>>(sum.high));
}
//% else
//% let u8s (mem == 0) + (mem == 1) * 4 + (mem == 2) * 16
//% let u32s (mem == 0) + (mem != 0) * 4
alias Left = subgroup_matrix_left<i8, 32, 16>;
alias Right = subgroup_matrix_right<i8, 16, 32>;
alias Result = subgroup_matrix_result<i32, 16, 16>;

fn left(at: u32) -> Left {
    return subgroupMatrixLoad<Left, row_major>(&tile, at * {{u8s}}u, {{pitch * u8s}}u);
}

fn right(at: u32) -> Right {
    return subgroupMatrixLoad<Right, col_major>(&tile, at * {{u8s}}u, {{pitch * u8s}}u);
}

fn multiply(l: Left, r: Right, sum: Result) -> Result {
    return subgroupMatrixMultiplyAccumulate(l, r, sum);
}

fn store(at: u32, sum: Result) {
    subgroupMatrixStore<row_major>(&tile, at * {{u32s}}u, sum, {{sp * u32s}}u);
}
//% end

// Eight weights of a word as bytes.
//% if exact
fn unpack(word: u32) -> vec2<u32> {
    let v = vec2<u32>(word, word >> 8u);
    let q = (v & vec2<u32>(0x000f000fu)) | ((v & vec2<u32>(0x00f000f0u)) << vec2<u32>(4u));
    return ((q | vec2<u32>(0x80808080u)) - vec2<u32>(0x08080808u)) ^ vec2<u32>(0x80808080u);
}
//% else
// 1536 + v is an f16 whose lowest byte is the integer next to v.
fn pair(q: vec2<f16>, ratio: vec2<f16>) -> u32 {
    return bitcast<u32>(fma(q, ratio, vec2<f16>(1536.0h))) & 0x00ff00ffu;
}

fn unpack(word: u32, ratio: f16) -> vec2<u32> {
    let r = vec2<f16>(ratio);
    let up = word >> 8u;
    let a = pair(bitcast<vec2<f16>>((word & 0x000f000fu) | 0x64006400u) - vec2<f16>(1032.0h), r);
    let b = pair(bitcast<vec2<f16>>((word & 0x00f000f0u) | 0x54005400u) - vec2<f16>(72.0h), r);
    let c = pair(bitcast<vec2<f16>>((up & 0x000f000fu) | 0x64006400u) - vec2<f16>(1032.0h), r);
    let d = pair(bitcast<vec2<f16>>((up & 0x00f000f0u) | 0x54005400u) - vec2<f16>(72.0h), r);
    return vec2<u32>(a | (b << 8u), c | (d << 8u));
}
//% end

@compute @workgroup_size({{threads}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let tiles_m = dims.x / {{bm}}u;
    let tiles_n = dims.y / {{bn}}u;
    let side = min(8u, tiles_m);
    let band = group.x / (side * tiles_n);
    let rest = group.x % (side * tiles_n);
    let m0 = (band * side + rest % side) * {{bm}}u;
    let n0 = (rest / side) * {{bn}}u;
    let subgroup = thread / 32u;
    let lane = thread % 32u;
    let sub_m = (subgroup / {{bn / wn}}u) * {{wm}}u;
    let sub_n = (subgroup % {{bn / wn}}u) * {{wn}}u;
    //% if exact
    _ = &scales;
    //% end
    //% if plain == 1
    own = lane;
    //% end

    //% for i la
    let xc{{i}} = thread + {{i * threads}}u;
    var xa{{i}} = (xc{{i}} / {{bm * 2}}u * dims.x + m0) * 2u + xc{{i}} % {{bm * 2}}u;
    let xt{{i}} = xc{{i}} % {{bm * 2}}u / 2u * {{pitch}}u + xc{{i}} / {{bm * 2}}u * 2u + xc{{i}} % 2u;
    var xr{{i}} = x[xa{{i}}];
    //% end
    //% for i lb
    let wc{{i}} = thread + {{i * threads}}u;
    let wb{{i}} = wc{{i}} / {{bn * 4 / qu}}u;
    let wn{{i}} = wc{{i}} % {{bn * 4 / qu}}u / {{4 / qu}}u;
    var wa{{i}} = (wb{{i}} * dims.y + n0) * {{4 / qu}}u + wc{{i}} % {{bn * 4 / qu}}u;
    let wt{{i}} = ({{bm}}u + wn{{i}}) * {{pitch}}u + wb{{i}} * 2u + wc{{i}} % {{4 / qu}}u * {{qu / 2}}u;
    var wr{{i}} = w[wa{{i}}];
    //% if !exact
    var wg{{i}} = wb{{i}} * dims.y + n0 + wn{{i}};
    var ws{{i}} = scales[wg{{i}}];
    var wd{{i}} = sw[n0 + wn{{i}}];
    //% end
    //% end

    // A lane has columns 4 * (lane % cq) .. of its subgroup's part, and of each strip `passes` rows.
    let first_row = lane / {{cq}}u * {{passes}}u;
    let own_strip = subgroup * {{strip * two}}u;
    let column = n0 + sub_n + lane % {{cq}}u * 4u;
    //% for i wm/16
    //% for j wn/16
    var c{{i}}_{{j}}: Result;
    //% end
    //% if !all
    //% for p passes
    var f{{i}}_{{p}} = vec4<f32>();
    //% end
    //% end
    //% end
    var none: Result;

    for (var k = 0u; k < dims.z; k += {{ks}}u) {
        //% for i la
        put(xt{{i}}, xr{{i}});
        //% end
        //% for i lb
        {
            //% if !exact
            let ratio = f16(f32(ws{{i}}) / wd{{i}});
            //% end
            //% for h qu/2
            //% if exact
            put(wt{{i}} + {{h}}u, vec4<u32>(unpack(wr{{i}}[{{h * 2}}]), unpack(wr{{i}}[{{h * 2 + 1}}])));
            //% else
            put(wt{{i}} + {{h}}u, vec4<u32>(unpack(wr{{i}}[{{h * 2}}], ratio), unpack(wr{{i}}[{{h * 2 + 1}}], ratio)));
            //% end
            //% end
        }
        //% end
        workgroupBarrier();
        if (k + {{ks}}u < dims.z) {
            //% for i la
            xa{{i}} += {{ks / 16}}u * dims.x;
            xr{{i}} = x[xa{{i}}];
            //% end
            //% for i lb
            wa{{i}} += {{ks / 8 / qu}}u * dims.y;
            wr{{i}} = w[wa{{i}}];
            //% if !exact
            wg{{i}} += {{ks / 32}}u * dims.y;
            ws{{i}} = scales[wg{{i}}];
            //% if !all
            wd{{i}} = sw[(k + {{ks}}u) / {{span}}u * dims.y + n0 + wn{{i}}];
            //% end
            //% end
            //% end
        }
        //% if !all
        let g = k / {{span}}u;
        let by_column = vec4<f32>(sw[g * dims.y + column], sw[g * dims.y + column + 1u],
                                  sw[g * dims.y + column + 2u], sw[g * dims.y + column + 3u]);
        //% end
        //% for kk ks/32
        {
            //% for i wm/16
            let l{{i}} = left((sub_m + {{16 * i}}u) * {{pitch}}u + {{2 * kk}}u);
            //% end
            //% for j wn/16
            {
                let r = right(({{bm}}u + sub_n + {{16 * j}}u) * {{pitch}}u + {{2 * kk}}u);
                //% for i wm/16
                c{{i}}_{{j}} = multiply(l{{i}}, r, c{{i}}_{{j}});
                //% end
            }
            //% end
        }
        //% end
        //% if !all
        if ((k + {{ks}}u) % {{span}}u == 0u) {
            //% if two == 2
            workgroupBarrier();
            //% end
            //% for i wm/16
            {
                //% if two == 1
                workgroupBarrier();
                //% end
                let at = own_strip + {{i % two * strip}}u;
                //% for j wn/16
                store(at + {{4 * j}}u, c{{i}}_{{j}});
                c{{i}}_{{j}} = none;
                //% end
                workgroupBarrier();
                //% for q passes/4
                let by_row{{q}} = sx[(g * dims.x + m0 + sub_m + {{16 * i + 4 * q}}u + first_row) / 4u];
                //% for p 4
                f{{i}}_{{q * 4 + p}} = fma(vec4<f32>(bitcast<vec4<i32>>(fetch(at + (first_row + {{q * 4 + p}}u) * {{sp}}u + lane % {{cq}}u))),
                                           by_column * by_row{{q}}[{{p}}], f{{i}}_{{q * 4 + p}});
                //% end
                //% end
            }
            //% end
        }
        //% end
        workgroupBarrier();
    }

    //% if all
    let by_column = vec4<f32>(sw[column], sw[column + 1u], sw[column + 2u], sw[column + 3u]);
    //% end
    //% for i wm/16
    {
        //% if all
        let at = own_strip + {{i % two * strip}}u;
        //% for j wn/16
        store(at + {{4 * j}}u, c{{i}}_{{j}});
        //% end
        workgroupBarrier();
        //% end
        let row = m0 + sub_m + {{16 * i}}u + first_row;
        //% for p passes
        //% if all
        y[((row + {{p}}u) * dims.y + column) / 4u] = vec4<f32>(bitcast<vec4<i32>>(fetch(at + (first_row + {{p}}u) * {{sp}}u + lane % {{cq}}u))) *
                                                     (by_column * sx[(row + {{p}}u) / 4u][{{p % 4}}]);
        //% else
        y[((row + {{p}}u) * dims.y + column) / 4u] = f{{i}}_{{p}};
        //% end
        //% end
        //% if all && two == 1
        workgroupBarrier();
        //% end
    }
    //% end
}
