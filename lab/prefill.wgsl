// Causal attention of M rows by subgroup matrices: y[m][h] = softmax over p <= m of (q[m][h] . k[p]) / 8
// times v[p]; 32 query heads on 8 KV heads of 64, q f16 [M][32][64], K and V f16 [8][M][64].
//
// A workgroup makes 64 rows of `heads` query heads of one KV head, a subgroup 16 rows of one. Per 64
// positions: K and V into workgroup memory; scores by matrices, through workgroup memory to two lanes a
// row; exponentials against the row's reference m; back as f16; and their product with V. A result
// matrix can't be scaled by row, so m moves only where a row's maximum has outgrown it by 2^8 (P then
// stays below f16's largest), and only then does the sum pass through workgroup memory to be rescaled.
// one 1: V takes K's place in workgroup memory once the scores are there.
//
// One H200, heads=2 one=1: M 512 25.5 us, M 1024 73.7 us, M 2048 202 us (85 TFLOP/s of the causal half).
//% let warps 4 * heads
//% let threads warps * 32
//% let rows_s 17
//% need M == K && M % 64 == 0 && N == 2048 && (heads == 1 || heads == 2)
//% let held 512 / threads
//% need (64 * 9 * (2 - one) + warps * 16 * 17) * 16 <= 49152
//% let unit 4
//% let copies 1
//% let limit 4000
//% let ops 2 * 64 * 32 * M * M
//% let bytes M * 2048 * 6 + 2 * 8 * K * 64 * 2
//% grid M/64 32/heads
//% ref prefill
//% bind xh kv y
diagnostic(off, chromium.subgroup_matrix_uniformity);
enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;

alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Result = subgroup_matrix_result<f32, 16, 16>;

@group(0) @binding(0) var<storage, read> q: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> kv: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;

var<workgroup> tile_k: array<vec4<u32>, 64 * 9>;    // 64 halves a row and 8 of padding
//% if one == 0
var<workgroup> tile_v: array<vec4<u32>, 64 * 9>;
//% end
var<workgroup> scores: array<vec4<u32>, {{warps * 16 * 17}}>;   // 64 f32 a row and 4 of padding; then P
var<workgroup> outgrown: atomic<u32>;

fn pack(a: vec4<f32>, b: vec4<f32>) -> vec4<u32> {
    return vec4<u32>(pack2x16float(a.xy), pack2x16float(a.zw), pack2x16float(b.xy), pack2x16float(b.zw));
}

@compute @workgroup_size({{threads}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let tiles = {{M / 64}}u;
    let block = tiles - 1u - group.x;    // the longest first
    let warp = thread / 32u;
    let lane = thread % 32u;
    let head = group.y * {{heads}}u + warp / 4u;
    let kv_base = group.y * {{heads}}u / 4u * {{K * 8}}u;
    let row0 = block * 64u + (warp % 4u) * 16u;
    let mine = warp * {{16 * 17}}u;
    let row = lane / 2u;
    let part = mine + row * 17u + (lane % 2u) * 8u;

    //% for kk 4
    let q{{kk}} = subgroupMatrixLoad<Left, row_major>(&q, row0 * 256u + head * 8u + {{2 * kk}}u, 256u);
    var o{{kk}} = Result();
    //% end
    var m = -1e30;
    var l = 0.0;

    //% for i held
    var k{{i}} = kv[kv_base + thread + {{i * threads}}u];
    let to{{i}} = (thread + {{i * threads}}u) / 8u * 9u + thread % 8u;
    //% end

    for (var tile = 0u; tile <= block; tile++) {
        //% for i held
        tile_k[to{{i}}] = k{{i}};
        let v{{i}} = kv[kv_base + tile * 512u + thread + {{i * threads + 8 * K * 8}}u];
        //% end
        //% if one == 0
        //% for i held
        tile_v[to{{i}}] = v{{i}};
        //% end
        //% end
        if (thread == 0u) {
            atomicStore(&outgrown, 0u);
        }
        workgroupBarrier();

        //% for j 4
        {
            var s = Result();
            //% for kk 4
            s = subgroupMatrixMultiplyAccumulate(q{{kk}}, subgroupMatrixLoad<Right, col_major>(&tile_k, {{16 * j * 9 + 2 * kk}}u, 9u), s);
            //% end
            subgroupMatrixStore<row_major>(&scores, mine + {{4 * j}}u, s, 17u);
        }
        //% end
        workgroupBarrier();
        //% if one == 1
        //% for i held
        tile_k[to{{i}}] = v{{i}};
        //% end
        //% end

        // exp(s / 8) = 2^(s * 0.125 * log2(e))
        let last = select(64u, (warp % 4u) * 16u + row + 1u, tile == block);
        var high = vec4<f32>(-1e30);
        //% for i 8
        var s{{i}} = bitcast<vec4<f32>>(scores[part + {{i}}u]) * 0.18033688;
        s{{i}} = select(vec4<f32>(-1e30), s{{i}}, vec4<u32>((lane % 2u) * 32u + {{4 * i}}u) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(last));
        high = max(high, s{{i}});
        //% end
        var top = max(max(high.x, high.y), max(high.z, high.w));
        top = max(top, subgroupShuffleXor(top, 1u));
        let grown = top > m + 8.0;
        if (grown) {
            atomicStore(&outgrown, 1u);
        }
        workgroupBarrier();
        if (workgroupUniformLoad(&outgrown) != 0u) {
            let factor = select(1.0, exp2(m - top), grown);
            m = select(m, top, grown);
            l *= factor;
            //% for j 4
            subgroupMatrixStore<row_major>(&scores, mine + {{4 * j}}u, o{{j}}, 17u);
            //% end
            workgroupBarrier();
            //% for i 8
            scores[part + {{i}}u] = bitcast<vec4<u32>>(bitcast<vec4<f32>>(scores[part + {{i}}u]) * factor);
            //% end
            workgroupBarrier();
            //% for j 4
            o{{j}} = subgroupMatrixLoad<Result, row_major>(&scores, mine + {{4 * j}}u, 17u);
            //% end
            workgroupBarrier();
        }

        var sum = vec4<f32>();
        //% for i 8
        s{{i}} = exp2(s{{i}} - vec4<f32>(m));
        sum += s{{i}};
        //% end
        l += sum.x + sum.y + sum.z + sum.w;
        //% for i 4
        scores[mine + row * 17u + (lane % 2u) * 4u + {{i}}u] = pack(s{{2 * i}}, s{{2 * i + 1}});
        //% end
        workgroupBarrier();
        if (tile < block) {
            //% for i held
            k{{i}} = kv[kv_base + (tile + 1u) * 512u + thread + {{i * threads}}u];
            //% end
        }
        //% for kk 4
        {
            let p = subgroupMatrixLoad<Left, row_major>(&scores, mine + {{2 * kk}}u, 17u);
            //% if one == 1
            //% for j 4
            o{{j}} = subgroupMatrixMultiplyAccumulate(p, subgroupMatrixLoad<Right, row_major>(&tile_k, {{16 * kk * 9 + 2 * j}}u, 9u), o{{j}});
            //% end
            //% else
            //% for j 4
            o{{j}} = subgroupMatrixMultiplyAccumulate(p, subgroupMatrixLoad<Right, row_major>(&tile_v, {{16 * kk * 9 + 2 * j}}u, 9u), o{{j}});
            //% end
            //% end
        }
        //% end
        workgroupBarrier();
    }

    l += subgroupShuffleXor(l, 1u);
    //% for j 4
    subgroupMatrixStore<row_major>(&scores, mine + {{4 * j}}u, o{{j}}, 17u);
    //% end
    workgroupBarrier();
    //% for i 8
    y[(row0 + row) * 512u + head * 16u + (lane % 2u) * 8u + {{i}}u] = bitcast<vec4<f32>>(scores[part + {{i}}u]) / l;
    //% end
}
