// y[m][n] = sum over k of x[m][k] * w[n][k] in f32: a workgroup makes bm x bn, a thread tm x 8 of it in
// registers, from tiles of ks along k that lie transposed ([k][m] and [k][n]) in workgroup memory.
//
// A thread's rows and columns come in groups of four, half or a quarter of the tile apart, so that the
// lanes of a subgroup read consecutive vec4. buf: stages; the next step's words wait in registers.
// map 0: the lanes of a load run along k; 1: along the rows (no two of a store meet in a bank).
//
// One H200, M 2048, N 8192, K 2048 (rung 4 of the ladder): bm=128 bn=128 tm=8 ks=8 pad=4 buf=2 map=0: 1542 us,
// 44.6 TFLOP/s, 69 % of the f32 peak measured beside it; bm=256 tm=16: 1525 us, 45.1 TFLOP/s.
//% let tx bn / 8
//% let ty bm / tm
//% let threads tx * ty
//% let sa (bm + pad) / 4
//% let sb (bn + pad) / 4
//% let la bm * ks / 4 / threads
//% let lb bn * ks / 4 / threads
//% need threads <= 1024 && bm * ks / 4 % threads == 0 && bn * ks / 4 % threads == 0 && la >= 1 && lb >= 1
//% need buf * ks * (sa + sb) * 16 <= 49152 && pad % 4 == 0 && tm % 4 == 0
//% need M % bm == 0 && N % bn == 0 && K % ks == 0
//% let unit 1
//% let limit 100
//% let bytes (M * K + N * K + M * N) * 4
//% grid (M/bm)*(N/bn) 1
//% ref nk
//% bind dims x32 b32 y
@group(0) @binding(0) var<uniform> dims: vec4<u32>;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> w: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;

var<workgroup> tile_x: array<vec4<f32>, {{buf * ks * sa}}>;
var<workgroup> tile_w: array<vec4<f32>, {{buf * ks * sb}}>;

@compute @workgroup_size({{threads}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let tiles_m = dims.x / {{bm}}u;
    let tiles_n = dims.y / {{bn}}u;
    let side = min({{gm}}u, tiles_m);
    let band = group.x / (side * tiles_n);
    let rest = group.x % (side * tiles_n);
    let m0 = (band * side + rest % side) * {{bm}}u;
    let n0 = (rest / side) * {{bn}}u;
    let tx = thread % {{tx}}u;
    let ty = thread / {{tx}}u;
    let words = dims.z / 4u;

    //% for i la
    //% if map == 0
    let xm{{i}} = (thread + {{i * threads}}u) / {{ks / 4}}u;
    let xk{{i}} = (thread + {{i * threads}}u) % {{ks / 4}}u;
    //% else
    let xm{{i}} = (thread + {{i * threads}}u) % {{bm}}u;
    let xk{{i}} = (thread + {{i * threads}}u) / {{bm}}u;
    //% end
    var xr{{i}} = x[(m0 + xm{{i}}) * words + xk{{i}}];
    //% end
    //% for i lb
    //% if map == 0
    let wn{{i}} = (thread + {{i * threads}}u) / {{ks / 4}}u;
    let wk{{i}} = (thread + {{i * threads}}u) % {{ks / 4}}u;
    //% else
    let wn{{i}} = (thread + {{i * threads}}u) % {{bn}}u;
    let wk{{i}} = (thread + {{i * threads}}u) / {{bn}}u;
    //% end
    var wr{{i}} = w[(n0 + wn{{i}}) * words + wk{{i}}];
    //% end
    //% for i tm
    var c{{i}}_0 = vec4<f32>();
    var c{{i}}_1 = vec4<f32>();
    //% end

    var stage = 0u;
    for (var k = 0u; k < dims.z; k += {{ks}}u) {
        let at_x = stage * {{ks * sa}}u;
        let at_w = stage * {{ks * sb}}u;
        //% for i la
        //% for j 4
        tile_x[at_x + (xk{{i}} * 4u + {{j}}u) * {{sa}}u + xm{{i}} / 4u][xm{{i}} % 4u] = xr{{i}}[{{j}}];
        //% end
        //% end
        //% for i lb
        //% for j 4
        tile_w[at_w + (wk{{i}} * 4u + {{j}}u) * {{sb}}u + wn{{i}} / 4u][wn{{i}} % 4u] = wr{{i}}[{{j}}];
        //% end
        //% end
        workgroupBarrier();
        if (k + {{ks}}u < dims.z) {
            //% for i la
            xr{{i}} = x[(m0 + xm{{i}}) * words + (k + {{ks}}u) / 4u + xk{{i}}];
            //% end
            //% for i lb
            wr{{i}} = w[(n0 + wn{{i}}) * words + (k + {{ks}}u) / 4u + wk{{i}}];
            //% end
        }
        //% for kk ks
        {
            //% for h tm/4
            let a{{h}} = tile_x[at_x + {{kk * sa + h * bm / tm}}u + ty];
            //% end
            let b0 = tile_w[at_w + {{kk * sb}}u + tx];
            let b1 = tile_w[at_w + {{kk * sb + bn / 8}}u + tx];
            //% for h tm/4
            //% for i 4
            c{{h * 4 + i}}_0 = fma(vec4<f32>(a{{h}}[{{i}}]), b0, c{{h * 4 + i}}_0);
            c{{h * 4 + i}}_1 = fma(vec4<f32>(a{{h}}[{{i}}]), b1, c{{h * 4 + i}}_1);
            //% end
            //% end
        }
        //% end
        //% if buf == 1
        workgroupBarrier();
        //% else
        stage = 1u - stage;
        //% end
    }

    //% for h tm/4
    //% for i 4
    {
        let row = (m0 + {{h * bm * 4 / tm + i}}u + ty * 4u) * (dims.y / 4u) + n0 / 4u + tx;
        y[row] = c{{h * 4 + i}}_0;
        y[row + {{bn / 8}}u] = c{{h * 4 + i}}_1;
    }
    //% end
    //% end
}
