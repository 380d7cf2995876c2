// y[m][n] = sum over k of x[m][k] * s[n][k / 32] * (q[n][k] - 8) for few rows m, by subgroup matrices.
//
// x and w lie in blocks of 32 along k, [K / 32][rows][32], the scales as [K / 32][N].
//
// A workgroup makes tn columns for all rows (padded to 16); its `split` subgroups take every split-th
// step of tk along k, so that many subgroups read the weight at once, and their sums are added up in
// workgroup memory. A step: a lane reads vec4 of words (32 nibbles), unpacks them to f16 into its
// subgroup's own tile, and the subgroup multiplies it with x, read as matrices from the buffer (early 1:
// before the step's barrier).
//
// One H200, K 2048, N 8192: M 16 13.6 us (tn=16 tk=128 split=2), M 64 23.4 us; N 2048: M 16 5.7 us (split=8).
//% let mt (M + 15) / 16
//% let xrows mt * 16
//% let kb 1
//% let units tk / 32
//% let each tn * units / 32
//% let sb tk + 8
//% let size_b tn * sb / 8
//% need each >= 1 && tn * units % 32 == 0 && K % (tk * split) == 0 && N % tn == 0 && M <= 64
//% need (split * size_b * 16 * buf + split * 16 * tn * 4) <= 49152
//% need mt * (tn / 16) <= 16
//% let threads split * 32
//% let unit 4
//% let limit 4000
//% grid N/tn 1
//% ref q4
//% bind xh w4 y s
diagnostic(off, chromium.subgroup_matrix_uniformity);
enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;

alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Result = subgroup_matrix_result<f32, 16, 16>;

@group(0) @binding(0) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> scales: array<f16>;

var<workgroup> tile: array<vec4<u32>, {{split * size_b * buf}}>;
var<workgroup> partial: array<f32, {{split * 16 * tn}}>;

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
    let subgroup = thread / 32u;
    let lane = thread % 32u;
    let n0 = group.x * {{tn}}u;
    let mine = subgroup * {{size_b * buf}}u;

    //% for i each
    let col{{i}} = (lane + {{32 * i}}u) % {{tn}}u;
    let unit{{i}} = (lane + {{32 * i}}u) / {{tn}}u;
    var at{{i}} = (subgroup * {{units}}u + unit{{i}}) * {{N}}u + n0 + col{{i}};
    var q{{i}} = w[at{{i}}];
    var s{{i}} = scales[at{{i}}];
    //% end
    //% for i mt
    //% for j tn/16
    var c{{i}}_{{j}} = Result();
    //% end
    //% end

    var stage = 0u;
    for (var step = 0u; step < {{K / tk / split}}u; step++) {
        let base = mine + stage * {{size_b}}u;
        let k8 = (step * {{split}}u + subgroup) * {{tk / 8 * xrows}}u;
        //% if early == 1
        //% for kk tk/16
        //% for i mt
        let l{{kk}}_{{i}} = subgroupMatrixLoad<Left, row_major>(&x, {{kk / 2 * xrows * 4 + 16 * i * 4 + kk % 2 * 2}}u + k8, 4u);
        //% end
        //% end
        //% end
        //% for i each
        //% for p 4
        tile[base + col{{i}} * {{sb / 8}}u + unit{{i}} * 4u + {{p}}u] = unpack(q{{i}}[{{p}}], s{{i}});
        //% end
        //% end
        workgroupBarrier();
        if (step + 1u < {{K / tk / split}}u) {
            //% for i each
            at{{i}} += {{units * split * N}}u;
            q{{i}} = w[at{{i}}];
            s{{i}} = scales[at{{i}}];
            //% end
        }
        //% for kk tk/16
        //% if early == 0
        //% for i mt
        let l{{kk}}_{{i}} = subgroupMatrixLoad<Left, row_major>(&x, {{kk / 2 * xrows * 4 + 16 * i * 4 + kk % 2 * 2}}u + k8, 4u);
        //% end
        //% end
        //% for j tn/16
        {
            let r = subgroupMatrixLoad<Right, col_major>(&tile, base + {{16 * j * sb / 8 + 2 * kk}}u, {{sb / 8}}u);
            //% for i mt
            c{{i}}_{{j}} = subgroupMatrixMultiplyAccumulate(l{{kk}}_{{i}}, r, c{{i}}_{{j}});
            //% end
        }
        //% end
        //% end
        //% if buf == 1
        workgroupBarrier();
        //% else
        stage = 1u - stage;
        //% end
    }

    //% for i mt
    //% for j tn/16
    subgroupMatrixStore<row_major>(&partial, subgroup * {{16 * tn}}u + {{16 * j}}u, c{{i}}_{{j}}, {{tn}}u);
    //% end
    workgroupBarrier();
    for (var e = thread; e < {{16 * tn}}u; e += {{threads}}u) {
        let m = {{16 * i}}u + e / {{tn}}u;
        var sum = 0.0;
        //% for p split
        sum += partial[{{p * 16 * tn}}u + e];
        //% end
        if (m < {{M}}u) {
            y[m * {{N}}u + n0 + e % {{tn}}u] = sum;
        }
    }
    workgroupBarrier();
    //% end
}
