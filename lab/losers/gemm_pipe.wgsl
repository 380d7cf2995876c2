// y[m][n] = sum over k of x[m][k] * w[n][k] by subgroup matrices, f16 times f16 added up in f32.
//
// A workgroup makes a tile of bm x bn, each of its subgroups wm x wn of it. Per step of ks along k the
// tiles of x and w are staged in workgroup memory, whose rows are padded by pa and pb halves. Two stages:
// while a step multiplies, the next one's words go from registers into the other stage, and those of the
// one after are asked for: one barrier a step, and a whole step for a load to arrive. Stages are fixed
// places in the unrolled pair of steps, so that no address is computed.
//
// b 0: w is f16 [N][K]; 1: f16 [K][N]; 2: 4-bit, unpacked on the way into workgroup memory
// v4 1: workgroup memory is an array of vec4<u32>, written 16 bytes at a time; 0: an array of f16
// at: the 16 of k after which the other stage is written.  gm: tiles of rows that run side by side for the L2's sake.
// order (b 2): 0 nibble j of a word is element j; 1 nibble j is element 2j (j < 4) or 2j - 7
//
// One H200, M 2048, N 8192, K 2048: 128 x 128, ks=32: b=1 377 us against 267 of gemm.wgsl's single stage: its 37 KiB of
// workgroup memory leave room for one workgroup a multiprocessor, not two.
//% let buf 2
//% need wm <= bm && wn <= bn && at < ks / 16 && K % (2 * ks) == 0
//% let threads bm/wm*(bn/wn)*32
//% let sa ks + pa
//% let sb ks + pb
//% let brows bn
//% if b == 1
//% let sb bn + pb
//% let brows ks
//% end
//% let size_a bm * sa
//% let size_b brows * sb
//% let la bm * ks / 8 / threads
//% let lb bn * ks / 8 / threads
//% need bm * ks / 8 % threads == 0 && bn * ks / 8 % threads == 0 && threads <= 1024 && la >= 1 && lb >= 1
//% need buf * (size_a + size_b) * 2 <= 49152 && M % bm == 0 && N % bn == 0 && K % ks == 0
//% need wm <= bm && wn <= bn && wm * wn <= 8192
//% need (pa % 8 == 0 && pb % 8 == 0) || !v4
//% let qu 1
//% if b == 2 && lb % 2 == 0
//% let qu 2
//% end
//% if b == 2 && lb % 4 == 0 && ks % 32 == 0
//% let qu 4
//% end
//% let lq lb / qu
//% let e 1
//% if v4
//% let e 8
//% end
//% let unit 4
//% let limit 4000
//% grid (M/bm)*(N/bn) 1
//% if b == 0
//% ref nk
//% bind dims xh bh y
//% end
//% if b == 1
//% ref kn
//% bind dims xh bh y
//% end
//% if b == 2
//% ref q4
//% bind dims xh w4 y s
//% end
diagnostic(off, chromium.subgroup_matrix_uniformity);
enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;

alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Result = subgroup_matrix_result<f32, 16, 16>;

//% if qu == 1 && b == 2
alias Packed = u32;
//% end
//% if qu > 1 && b == 2
alias Packed = vec{{qu}}<u32>;
//% end
//% if b < 2
alias Packed = vec4<u32>;
//% end

@group(0) @binding(0) var<uniform> dims: vec4<u32>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> w: array<Packed>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
//% if b == 2
@group(0) @binding(4) var<storage, read> scales: array<f16>;
//% end

//% if v4
var<workgroup> tile_x: array<vec4<u32>, {{buf * size_a / 8}}>;
var<workgroup> tile_w: array<vec4<u32>, {{buf * size_b / 8}}>;
//% else
var<workgroup> tile_x: array<f16, {{buf * size_a}}>;
var<workgroup> tile_w: array<f16, {{buf * size_b}}>;

fn put_x(at: u32, v: vec4<u32>) {
    //% for p 4
    let h{{p}} = bitcast<vec2<f16>>(v[{{p}}]);
    tile_x[at + {{2 * p}}u] = h{{p}}.x;
    tile_x[at + {{2 * p + 1}}u] = h{{p}}.y;
    //% end
}

fn put_w(at: u32, v: vec4<u32>) {
    //% for p 4
    let h{{p}} = bitcast<vec2<f16>>(v[{{p}}]);
    tile_w[at + {{2 * p}}u] = h{{p}}.x;
    tile_w[at + {{2 * p + 1}}u] = h{{p}}.y;
    //% end
}
//% end

//% if b == 2
// The eight weights of a word in their order, as f16.
fn unpack(word: u32, scale: f16) -> vec4<u32> {
    let s = vec2<f16>(scale);
    //% if order == 1
    let up = word >> 8u;
    let a = bitcast<vec2<f16>>((word & 0x000f000fu) | 0x64006400u) - vec2<f16>(1032.0h);
    let b = bitcast<vec2<f16>>((word & 0x00f000f0u) | 0x54005400u) - vec2<f16>(72.0h);
    let c = bitcast<vec2<f16>>((up & 0x000f000fu) | 0x64006400u) - vec2<f16>(1032.0h);
    let d = bitcast<vec2<f16>>((up & 0x00f000f0u) | 0x54005400u) - vec2<f16>(72.0h);
    //% else
    let far = word >> 16u;
    let a = bitcast<vec2<f16>>((word & 0xfu) | ((word << 12u) & 0xf0000u) | 0x64006400u) - vec2<f16>(1032.0h);
    let b = bitcast<vec2<f16>>(((word >> 8u) & 0xfu) | ((word << 4u) & 0xf0000u) | 0x64006400u) - vec2<f16>(1032.0h);
    let c = bitcast<vec2<f16>>((far & 0xfu) | ((far << 12u) & 0xf0000u) | 0x64006400u) - vec2<f16>(1032.0h);
    let d = bitcast<vec2<f16>>(((far >> 8u) & 0xfu) | ((far << 4u) & 0xf0000u) | 0x64006400u) - vec2<f16>(1032.0h);
    //% end
    return vec4<u32>(bitcast<u32>(a * s), bitcast<u32>(b * s), bitcast<u32>(c * s), bitcast<u32>(d * s));
}
//% end

@compute @workgroup_size({{threads}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let tiles_m = dims.x / {{bm}}u;
    let tiles_n = dims.y / {{bn}}u;
    let side = min({{gm}}u, tiles_m);
    let band = group.x / (side * tiles_n);
    let rest = group.x % (side * tiles_n);
    let m0 = (band * side + rest % side) * {{bm}}u;
    let n0 = (rest / side) * {{bn}}u;
    let subgroup = thread / 32u;
    let sub_m = (subgroup / {{bn / wn}}u) * {{wm}}u;
    let sub_n = (subgroup % {{bn / wn}}u) * {{wn}}u;

    //% for i la
    let xc{{i}} = thread + {{i * threads}}u;
    var xa{{i}} = (m0 + xc{{i}} / {{ks / 8}}u) * (dims.z / 8u) + xc{{i}} % {{ks / 8}}u;
    let xt{{i}} = (xc{{i}} / {{ks / 8}}u) * {{sa / e}}u + (xc{{i}} % {{ks / 8}}u) * {{8 / e}}u;
    var xr{{i}} = x[xa{{i}}];
    //% end
    //% if b == 2
    //% for i lq
    let wc{{i}} = thread + {{i * threads}}u;
    let wn{{i}} = wc{{i}} / {{ks / 8 / qu}}u;
    var wa{{i}} = (n0 + wn{{i}}) * (dims.z / {{8 * qu}}u) + wc{{i}} % {{ks / 8 / qu}}u;
    let wt{{i}} = wn{{i}} * {{sb / e}}u + (wc{{i}} % {{ks / 8 / qu}}u) * {{8 * qu / e}}u;
    var wr{{i}} = w[wa{{i}}];
    let wg{{i}} = (n0 + wn{{i}}) * (dims.z / 32u);
    var ws{{i}} = scales[wg{{i}} + (wc{{i}} % {{ks / 8 / qu}}u) * {{8 * qu}}u / 32u];
    //% end
    //% else
    //% for i lb
    let wc{{i}} = thread + {{i * threads}}u;
    //% if b == 0
    var wa{{i}} = (n0 + wc{{i}} / {{ks / 8}}u) * (dims.z / 8u) + wc{{i}} % {{ks / 8}}u;
    let wt{{i}} = (wc{{i}} / {{ks / 8}}u) * {{sb / e}}u + (wc{{i}} % {{ks / 8}}u) * {{8 / e}}u;
    //% else
    var wa{{i}} = (wc{{i}} / {{bn / 8}}u) * (dims.y / 8u) + n0 / 8u + wc{{i}} % {{bn / 8}}u;
    let wt{{i}} = (wc{{i}} / {{bn / 8}}u) * {{sb / e}}u + (wc{{i}} % {{bn / 8}}u) * {{8 / e}}u;
    //% end
    var wr{{i}} = w[wa{{i}}];
    //% end
    //% end

    //% for i wm/16
    //% for j wn/16
    var c{{i}}_{{j}} = Result();
    //% end
    //% end

    //% for i la
    //% if v4
    tile_x[{{0 * size_a / e}}u + xt{{i}}] = xr{{i}};
    //% else
    put_x({{0 * size_a / e}}u + xt{{i}}, xr{{i}});
    //% end
    //% end
    //% if b == 2
    //% for i lq
    //% for q qu
    {
        //% if qu == 1
        let eight = unpack(wr{{i}}, ws{{i}});
        //% else
        let eight = unpack(wr{{i}}[{{q}}], ws{{i}});
        //% end
        //% if v4
        tile_w[{{0 * size_b / e}}u + wt{{i}} + {{q}}u] = eight;
        //% else
        put_w({{0 * size_b / e}}u + wt{{i}} + {{8 * q}}u, eight);
        //% end
    }
    //% end
    //% end
    //% else
    //% for i lb
    //% if v4
    tile_w[{{0 * size_b / e}}u + wt{{i}}] = wr{{i}};
    //% else
    put_w({{0 * size_b / e}}u + wt{{i}}, wr{{i}});
    //% end
    //% end
    //% end
    //% for i la
    xa{{i}} += {{ks / 8}}u;
    xr{{i}} = x[xa{{i}}];
    //% end
    //% if b == 2
    //% for i lq
    wa{{i}} += {{ks / 8 / qu}}u;
    wr{{i}} = w[wa{{i}}];
    ws{{i}} = scales[wg{{i}} + ({{ks}}u + (wc{{i}} % {{ks / 8 / qu}}u) * {{8 * qu}}u) / 32u];
    //% end
    //% else
    //% for i lb
    //% if b == 0
    wa{{i}} += {{ks / 8}}u;
    //% else
    wa{{i}} += {{ks}}u * (dims.y / 8u);
    //% end
    wr{{i}} = w[wa{{i}}];
    //% end
    //% end
    workgroupBarrier();
    for (var k = 0u; k < dims.z; k += {{2 * ks}}u) {
        //% for st 2
        //% for kk ks/16
        //% for i wm/16
        //% if v4
        let l{{st}}{{kk}}_{{i}} = subgroupMatrixLoad<Left, row_major>(&tile_x, {{st * size_a / e}}u + (sub_m + {{16 * i}}u) * {{sa / 8}}u + {{2 * kk}}u, {{sa / 8}}u);
        //% else
        let l{{st}}{{kk}}_{{i}} = subgroupMatrixLoad<Left, row_major>(&tile_x, {{st * size_a / e}}u + (sub_m + {{16 * i}}u) * {{sa}}u + {{16 * kk}}u, {{sa}}u);
        //% end
        //% end
        //% for j wn/16
        {
            //% if b == 1
            //% if v4
            let r = subgroupMatrixLoad<Right, row_major>(&tile_w, {{st * size_b / e}}u + {{2 * kk * sb}}u + sub_n / 8u + {{2 * j}}u, {{sb / 8}}u);
            //% else
            let r = subgroupMatrixLoad<Right, row_major>(&tile_w, {{st * size_b / e}}u + {{16 * kk * sb}}u + sub_n + {{16 * j}}u, {{sb}}u);
            //% end
            //% else
            //% if v4
            let r = subgroupMatrixLoad<Right, col_major>(&tile_w, {{st * size_b / e}}u + (sub_n + {{16 * j}}u) * {{sb / 8}}u + {{2 * kk}}u, {{sb / 8}}u);
            //% else
            let r = subgroupMatrixLoad<Right, col_major>(&tile_w, {{st * size_b / e}}u + (sub_n + {{16 * j}}u) * {{sb}}u + {{16 * kk}}u, {{sb}}u);
            //% end
            //% end
            //% for i wm/16
            c{{i}}_{{j}} = subgroupMatrixMultiplyAccumulate(l{{st}}{{kk}}_{{i}}, r, c{{i}}_{{j}});
            //% end
        }
        //% end
        //% if kk == at
        if (k + {{st * ks + ks}}u < dims.z) {
            //% for i la
            //% if v4
            tile_x[{{(1 - st) * size_a / e}}u + xt{{i}}] = xr{{i}};
            //% else
            put_x({{(1 - st) * size_a / e}}u + xt{{i}}, xr{{i}});
            //% end
            //% end
            //% if b == 2
            //% for i lq
            //% for q qu
            {
                //% if qu == 1
                let eight = unpack(wr{{i}}, ws{{i}});
                //% else
                let eight = unpack(wr{{i}}[{{q}}], ws{{i}});
                //% end
                //% if v4
                tile_w[{{(1 - st) * size_b / e}}u + wt{{i}} + {{q}}u] = eight;
                //% else
                put_w({{(1 - st) * size_b / e}}u + wt{{i}} + {{8 * q}}u, eight);
                //% end
            }
            //% end
            //% end
            //% else
            //% for i lb
            //% if v4
            tile_w[{{(1 - st) * size_b / e}}u + wt{{i}}] = wr{{i}};
            //% else
            put_w({{(1 - st) * size_b / e}}u + wt{{i}}, wr{{i}});
            //% end
            //% end
            //% end
        }
        if (k + {{st * ks + 2 * ks}}u < dims.z) {
            //% for i la
            xa{{i}} += {{ks / 8}}u;
            xr{{i}} = x[xa{{i}}];
            //% end
            //% if b == 2
            //% for i lq
            wa{{i}} += {{ks / 8 / qu}}u;
            wr{{i}} = w[wa{{i}}];
            ws{{i}} = scales[wg{{i}} + (k + {{st * ks + 2 * ks}}u + (wc{{i}} % {{ks / 8 / qu}}u) * {{8 * qu}}u) / 32u];
            //% end
            //% else
            //% for i lb
            //% if b == 0
            wa{{i}} += {{ks / 8}}u;
            //% else
            wa{{i}} += {{ks}}u * (dims.y / 8u);
            //% end
            wr{{i}} = w[wa{{i}}];
            //% end
            //% end
        }
        //% end
        //% end
        workgroupBarrier();
        //% end
    }

    //% for i wm/16
    //% for j wn/16
    subgroupMatrixStore<row_major>(&y, (m0 + sub_m + {{16 * i}}u) * dims.y + n0 + sub_n + {{16 * j}}u, c{{i}}_{{j}}, dims.y);
    //% end
    //% end
}
