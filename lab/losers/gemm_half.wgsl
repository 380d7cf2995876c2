// y[m][n] = sum over k of x[m][k] * w[n][k] by subgroup matrices, f16 times f16 added up in f32.
//
// A workgroup makes a tile of bm x bn, each of its subgroups wm x wn of it. Per step of ks along k the
// tiles of x and w are staged in workgroup memory, whose rows are padded by pa and pb halves. The step is
// two halves of 16: as soon as every subgroup has multiplied one half, the next step's words take its
// place while the other half multiplies, so that no subgroup waits for the writing.
//
// x and w lie in blocks of 32 along k, [K / 32][rows][32] (scales [K / 32][N]), so that the words that a
// workgroup's step needs are one run of memory: a subgroup's load touches 4 cache lines, not 8 to 32.
//
// gm: tiles of rows that run side by side for the L2's sake.
// order: 0 nibble j of a word is element j; 1 nibble j is element 2j (j < 4) or 2j - 7
//
// One H200, M 2048, N 8192, K 2048: 310 us against 233 of gemm_kb.wgsl: four products between barriers instead of
// eight matter more than the hidden stores.
//% let kb 1
//% let b 2
//% let buf 1
//% let ks 32
//% need wm <= bm && wn <= bn && ks % 32 == 0 && b != 1
//% let threads bm/wm*(bn/wn)*32
//% let sa ks + pa
//% let sb ks + pb
//% let brows bn
//% let size_a bm * sa
//% let size_b brows * sb
//% let la bm * ks / 8 / threads
//% let lb bn * ks / 8 / threads
//% need bm * ks / 8 % threads == 0 && bn * ks / 8 % threads == 0 && threads <= 1024 && la >= 1 && lb >= 1
//% need buf * (size_a + size_b) * 2 <= 49152 && M % bm == 0 && N % bn == 0 && K % ks == 0
//% need wm <= bm && wn <= bn && wm * wn <= 8192
//% need pa % 8 == 0 && pb % 8 == 0
//% let qu 1
//% if b == 2 && lb % 2 == 0
//% let qu 2
//% end
//% if b == 2 && lb % 4 == 0 && ks % 32 == 0
//% let qu 4
//% end
//% let lq lb / qu
//% need la % 2 == 0 && qu == 4
//% let e 8
//% let e 8
//% let unit 4
//% let limit 4000
//% grid (M/bm)*(N/bn) 1
//% ref q4
//% bind dims xh w4 y s
diagnostic(off, chromium.subgroup_matrix_uniformity);
enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;

alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Result = subgroup_matrix_result<f32, 16, 16>;

alias Packed = vec{{qu}}<u32>;

@group(0) @binding(0) var<uniform> dims: vec4<u32>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> w: array<Packed>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read> scales: array<f16>;

var<workgroup> tile_x: array<vec4<u32>, {{buf * size_a / 8}}>;
var<workgroup> tile_w: array<vec4<u32>, {{buf * size_b / 8}}>;

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
    let xm{{i}} = thread / 2u + {{i % (la / 2) * (threads / 2)}}u;
    var xa{{i}} = (m0 + xm{{i}}) * 4u + {{i / (la / 2) * 2}}u + thread % 2u;
    let xt{{i}} = xm{{i}} * {{sa / 8}}u + {{i / (la / 2) * 2}}u + thread % 2u;
    var xr{{i}} = x[xa{{i}}];
    //% end
    //% for i lq
    let wc{{i}} = thread + {{i * threads}}u;
    let wb{{i}} = wc{{i}} / {{bn * 4 / qu}}u;
    let wn{{i}} = wc{{i}} % {{bn * 4 / qu}}u / {{4 / qu}}u;
    var wa{{i}} = (wb{{i}} * dims.y + n0) * {{4 / qu}}u + wc{{i}} % {{bn * 4 / qu}}u;
    let wt{{i}} = wn{{i}} * {{sb / 8}}u + wb{{i}} * 4u + wc{{i}} % {{4 / qu}}u * {{qu}}u;
    var wr{{i}} = w[wa{{i}}];
    var wg{{i}} = wb{{i}} * dims.y + n0 + wn{{i}};
    var ws{{i}} = scales[wg{{i}}];
    //% end

    //% for i wm/16
    //% for j wn/16
    var c{{i}}_{{j}} = Result();
    //% end
    //% end

    //% for i la/2
    tile_x[xt{{i + 0 * la / 2}}] = xr{{i + 0 * la / 2}};
    //% end
    //% for i lq
    //% for q 2
    tile_w[wt{{i}} + {{q + 2 * 0}}u] = unpack(wr{{i}}[{{q + 2 * 0}}], ws{{i}});
    //% end
    //% end
    //% for i la/2
    tile_x[xt{{i + 1 * la / 2}}] = xr{{i + 1 * la / 2}};
    //% end
    //% for i lq
    //% for q 2
    tile_w[wt{{i}} + {{q + 2 * 1}}u] = unpack(wr{{i}}[{{q + 2 * 1}}], ws{{i}});
    //% end
    //% end
    if ({{ks}}u < dims.z) {
        //% for i la
        xa{{i}} += 4u * dims.x;
        xr{{i}} = x[xa{{i}}];
        //% end
        //% for i lq
        wa{{i}} += dims.y;
        wr{{i}} = w[wa{{i}}];
        wg{{i}} += dims.y;
        ws{{i}} = scales[wg{{i}}];
        //% end
    }
    workgroupBarrier();
    for (var k = 0u; k < dims.z; k += {{ks}}u) {
        //% for kk 2
        //% for i wm/16
        let l{{kk}}_{{i}} = subgroupMatrixLoad<Left, row_major>(&tile_x, (sub_m + {{16 * i}}u) * {{sa / 8}}u + {{2 * kk}}u, {{sa / 8}}u);
        //% end
        //% for j wn/16
        {
            let r = subgroupMatrixLoad<Right, col_major>(&tile_w, (sub_n + {{16 * j}}u) * {{sb / 8}}u + {{2 * kk}}u, {{sb / 8}}u);
            //% for i wm/16
            c{{i}}_{{j}} = subgroupMatrixMultiplyAccumulate(l{{kk}}_{{i}}, r, c{{i}}_{{j}});
            //% end
        }
        //% end
        workgroupBarrier();
        //% if kk == 0
        //% for i la/2
        tile_x[xt{{i + 0 * la / 2}}] = xr{{i + 0 * la / 2}};
        //% end
        //% for i lq
        //% for q 2
        tile_w[wt{{i}} + {{q + 2 * 0}}u] = unpack(wr{{i}}[{{q + 2 * 0}}], ws{{i}});
        //% end
        //% end
        //% else
        //% for i la/2
        tile_x[xt{{i + 1 * la / 2}}] = xr{{i + 1 * la / 2}};
        //% end
        //% for i lq
        //% for q 2
        tile_w[wt{{i}} + {{q + 2 * 1}}u] = unpack(wr{{i}}[{{q + 2 * 1}}], ws{{i}});
        //% end
        //% end
        if (k + {{2 * ks}}u < dims.z) {
            //% for i la
            xa{{i}} += 4u * dims.x;
            xr{{i}} = x[xa{{i}}];
            //% end
            //% for i lq
            wa{{i}} += dims.y;
            wr{{i}} = w[wa{{i}}];
            wg{{i}} += dims.y;
            ws{{i}} = scales[wg{{i}}];
            //% end
        }
        //% end
        //% end
    }

    //% for i wm/16
    //% for j wn/16
    subgroupMatrixStore<row_major>(&y, (m0 + sub_m + {{16 * i}}u) * dims.y + n0 + sub_n + {{16 * j}}u, c{{i}}_{{j}}, dims.y);
    //% end
    //% end
}
