// What bounds gemm_kb.wgsl's best tile (b=2, 128 x 128 of 64 x 64, ks=32): the same with parts of its work left out,
// so that what a part costs is what is gained without it. Only with every part is y right.
//
// One H200, M 2048, N 8192, K 2048, all of it 238 us: without results 189, without barriers 211, with a quarter of the products
// 220, reading matrices and multiplying alone 116 (94 % of the peak), and with results 131. RESULTS.md has the rest.
//
// loads 0: words of the first step are staged again and again, unpacked once
// unpack 0: words are staged as they are
// stage 0: no word is staged but the first step's, and there are no barriers; 2: barriers alone are left out
// frags 0: matrices are read once
// mma 0: a quarter of the products
// out 0: y is not written
// touch n: a lane reads a word of a line of the step n ahead, so that it is in the first cache when it is asked for: 315 us
// early 1: all matrices of half a step are read before its products; 2: of a step
//% let kb 1
//% let order 1
//% need M % 128 == 0 && N % 128 == 0 && K % 32 == 0
//% let unit 4
//% let limit 4000
//% grid (M/128)*(N/128) 1
//% if loads == 1 && unpack == 1 && stage == 1 && frags == 1 && mma == 1 && out == 1
//% ref q4
//% else
//% ref none
//% end
//% bind dims xh w4 y s
diagnostic(off, chromium.subgroup_matrix_uniformity);
enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;

alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Result = subgroup_matrix_result<f32, 16, 16>;

@group(0) @binding(0) var<uniform> dims: vec4<u32>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read> scales: array<f16>;

var<workgroup> tile_x: array<vec4<u32>, 640>;
var<workgroup> tile_w: array<vec4<u32>, 640>;

fn unpack(word: u32, scale: f16) -> vec4<u32> {
    //% if unpack == 0
    return vec4<u32>(word, word, word, bitcast<u32>(vec2<f16>(scale)));
    //% else
    let s = vec2<f16>(scale);
    let up = word >> 8u;
    let a = bitcast<vec2<f16>>((word & 0x000f000fu) | 0x64006400u) - vec2<f16>(1032.0h);
    let b = bitcast<vec2<f16>>((word & 0x00f000f0u) | 0x54005400u) - vec2<f16>(72.0h);
    let c = bitcast<vec2<f16>>((up & 0x000f000fu) | 0x64006400u) - vec2<f16>(1032.0h);
    let d = bitcast<vec2<f16>>((up & 0x00f000f0u) | 0x54005400u) - vec2<f16>(72.0h);
    return vec4<u32>(bitcast<u32>(a * s), bitcast<u32>(b * s), bitcast<u32>(c * s), bitcast<u32>(d * s));
    //% end
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let tiles_m = dims.x / 128u;
    let tiles_n = dims.y / 128u;
    let side = min(8u, tiles_m);
    let band = group.x / (side * tiles_n);
    let rest = group.x % (side * tiles_n);
    let m0 = (band * side + rest % side) * 128u;
    let n0 = (rest / side) * 128u;
    let sub_m = thread / 64u * 64u;
    let sub_n = thread / 32u % 2u * 64u;

    //% for i 4
    let xt{{i}} = (thread + {{i * 128}}u) / 4u * 5u + thread % 4u;
    var xa{{i}} = m0 * 4u + thread + {{i * 128}}u;
    var xr{{i}} = x[xa{{i}}];
    //% end
    let wt = thread * 5u;
    var wa = n0 + thread;
    var wr = w[wa];
    var ws = scales[wa];
    //% if touch > 0
    var touched = 0u;
    var seen = 0u;
    //% end
    //% for i 4
    //% for j 4
    var c{{i}}_{{j}}: Result;
    //% end
    //% end
    //% if stage == 0 || frags == 0
    //% for i 4
    tile_x[xt{{i}}] = xr{{i}};
    tile_w[wt + {{i}}u] = unpack(wr[{{i}}], ws);
    //% end
    workgroupBarrier();
    //% end
    //% if frags == 0
    //% for kk 2
    //% for i 4
    let l{{kk}}_{{i}} = subgroupMatrixLoad<Left, row_major>(&tile_x, (sub_m + {{16 * i}}u) * 5u + {{2 * kk}}u, 5u);
    let r{{kk}}_{{i}} = subgroupMatrixLoad<Right, col_major>(&tile_w, (sub_n + {{16 * i}}u) * 5u + {{2 * kk}}u, 5u);
    //% end
    //% end
    workgroupBarrier();
    //% end

    for (var k = 0u; k < dims.z; k += 32u) {
        //% if stage > 0
        //% for i 4
        tile_x[xt{{i}}] = xr{{i}};
        //% end
        //% for i 4
        tile_w[wt + {{i}}u] = unpack(wr[{{i}}], ws);
        //% end
        //% if stage == 1
        workgroupBarrier();
        //% end
        //% end
        //% if touch > 0
        seen ^= touched;
        if (k + {{32 * touch}}u < dims.z) {
            let block = k / 32u + {{touch}}u;
            if (thread < 64u) {
                touched = x[(block * dims.x + m0) * 4u + thread * 8u].x;
            } else if (thread < 80u) {
                touched = w[block * dims.y + n0 + (thread - 64u) * 8u].x;
            } else if (thread < 82u) {
                touched = u32(scales[block * dims.y + n0 + (thread - 80u) * 64u]);
            }
        }
        //% end
        //% if loads == 1
        if (k + 32u < dims.z) {
            //% for i 4
            xa{{i}} += 4u * dims.x;
            xr{{i}} = x[xa{{i}}];
            //% end
            wa += dims.y;
            wr = w[wa];
            ws = scales[wa];
        }
        //% end
        //% if early == 2 && frags == 1
        //% for kk 2
        //% for i 4
        let l{{kk}}_{{i}} = subgroupMatrixLoad<Left, row_major>(&tile_x, (sub_m + {{16 * i}}u) * 5u + {{2 * kk}}u, 5u);
        let r{{kk}}_{{i}} = subgroupMatrixLoad<Right, col_major>(&tile_w, (sub_n + {{16 * i}}u) * 5u + {{2 * kk}}u, 5u);
        //% end
        //% end
        //% end
        //% for kk 2
        //% if frags == 1 && early < 2
        //% for i 4
        let l{{kk}}_{{i}} = subgroupMatrixLoad<Left, row_major>(&tile_x, (sub_m + {{16 * i}}u) * 5u + {{2 * kk}}u, 5u);
        //% end
        //% if early == 1
        //% for i 4
        let r{{kk}}_{{i}} = subgroupMatrixLoad<Right, col_major>(&tile_w, (sub_n + {{16 * i}}u) * 5u + {{2 * kk}}u, 5u);
        //% end
        //% end
        //% end
        //% for j 4
        {
            //% if frags == 1 && early == 0
            let r{{kk}}_{{j}} = subgroupMatrixLoad<Right, col_major>(&tile_w, (sub_n + {{16 * j}}u) * 5u + {{2 * kk}}u, 5u);
            //% end
            //% for i 4
            //% if mma == 1 || i == j
            c{{i}}_{{j}} = subgroupMatrixMultiplyAccumulate(l{{kk}}_{{i}}, r{{kk}}_{{j}}, c{{i}}_{{j}});
            //% end
            //% end
        }
        //% end
        //% end
        //% if stage == 1
        workgroupBarrier();
        //% end
    }

    //% if touch > 0
    if (seen == 0x5a5a1234u && dims.w == 77u) {
        y[0] = 0.0;
    }
    //% end
    //% if out == 0
    if (dims.w == 77u) {
    //% end
    //% for i 4
    //% for j 4
    subgroupMatrixStore<row_major>(&y, (m0 + sub_m + {{16 * i}}u) * dims.y + n0 + sub_n + {{16 * j}}u, c{{i}}_{{j}}, dims.y);
    //% end
    //% end
    //% if out == 0
    }
    //% end
}
