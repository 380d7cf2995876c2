// y[m][n] = sum over k of x[m][k] * w[n][k] by subgroup matrices, f16 times f16 added up in f32: one side's matrices
// are read from its buffer, the other side goes through workgroup memory, which then has room for two stages.
//
// x and w lie in blocks of 32 along k, as in gemm_kb.wgsl.
//
// One H200, M 2048, N 8192, K 2048, 4-bit: 292 us at best (ahead=1 buf=2 at=1) where gemm_kb.wgsl takes 238; f16: 311
// with x read from its buffer, 449 with w, where gemm_kb.wgsl takes 274. What two subgroups need is asked for twice,
// and in pieces of 32 bytes of a row, where staging asks for whole lines once.
//
// b 0: w is f16; 2: 4-bit, unpacked on the way into workgroup memory (direct 0)
// direct 0: x is read from its buffer; 1: w is (b 0)
// ahead 0: its matrices are read when they are multiplied; 1: a step before, as soon as those in hand are used
// buf 1, 2: stages, with two barriers a step, or one
// at (buf 2): the next stage is written 0 before this one multiplies, 1 between its halves
// plain: 1 plain code in the place of matrices, for devices without them
//% let kb 1
//% let order 1
//% let ks 32
//% let threads bm/wm*(bn/wn)*32
//% need b == 0 || (b == 2 && direct == 0)
//% need at == 0 || buf == 2
//% let rows bn
//% if direct == 1
//% let rows bm
//% end
//% let qu 1
//% if b == 2
//% let qu 4
//% if rows % threads != 0
//% let qu 2
//% end
//% end
//% let per 4 / qu
//% let ld rows * per / threads
//% need rows * per % threads == 0 && ld >= 1 && threads <= 1024
//% need M % bm == 0 && N % bn == 0 && K % 32 == 0 && buf * rows * 5 * 16 <= 49152
//% let unit 4
//% let limit 4000
//% grid (M/bm)*(N/bn) 1
//% if b == 2
//% ref q4
//% bind dims xh w4 y s
//% else
//% ref nk
//% bind dims xh bh y
//% end
enable f16;
//% if plain == 0
diagnostic(off, chromium.subgroup_matrix_uniformity);
enable subgroups;
enable chromium_experimental_subgroup_matrix;
//% end

@group(0) @binding(0) var<uniform> dims: vec4<u32>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
//% if b == 2
@group(0) @binding(2) var<storage, read> w: array<vec{{qu}}<u32>>;
//% else
@group(0) @binding(2) var<storage, read> w: array<vec4<u32>>;
//% end
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
//% if b == 2
@group(0) @binding(4) var<storage, read> scales: array<f16>;
//% end

var<workgroup> tile: array<vec4<u32>, {{buf * rows * 5}}>;

//% if plain == 1
var<private> own: u32;

struct Left {
    at: u32,
}

struct Right {
    at: u32,
}

struct Result {
    low: vec4<f32>,
    high: vec4<f32>,
}

fn left(at: u32) -> Left {
    return Left(at);
}

fn right(at: u32) -> Right {
    return Right(at);
}

fn eight(a: vec4<u32>, b: vec4<u32>) -> f32 {
    return dot(unpack2x16float(a.x), unpack2x16float(b.x)) + dot(unpack2x16float(a.y), unpack2x16float(b.y)) +
           dot(unpack2x16float(a.z), unpack2x16float(b.z)) + dot(unpack2x16float(a.w), unpack2x16float(b.w));
}

fn multiply(l: Left, r: Right, sum: Result) -> Result {
    var v = array<f32, 8>();
    let end = select(8u, 7u, dims.z == 0u);
    for (var i = 0u; i < end; i++) {
        for (var h = 0u; h < 2u; h++) {
            //% if direct == 0
            v[i] += eight(x[l.at + own / 2u * 4u + h], tile[r.at + (own % 2u * 8u + i) * 5u + h]);
            //% else
            v[i] += eight(tile[l.at + own / 2u * 5u + h], w[r.at + (own % 2u * 8u + i) * 4u + h]);
            //% end
        }
    }
    return Result(sum.low + vec4<f32>(v[0], v[1], v[2], v[3]), sum.high + vec4<f32>(v[4], v[5], v[6], v[7]));
}

fn store(at: u32, sum: Result) {
    let to = at + own / 2u * dims.y + own % 2u * 8u;
    for (var i = 0u; i < 4u; i++) {
        y[to + i] = sum.low[i];
        y[to + 4u + i] = sum.high[i];
    }
}
//% else
alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Result = subgroup_matrix_result<f32, 16, 16>;

fn left(at: u32) -> Left {
    //% if direct == 0
    return subgroupMatrixLoad<Left, row_major>(&x, at, 4u);
    //% else
    return subgroupMatrixLoad<Left, row_major>(&tile, at, 5u);
    //% end
}

fn right(at: u32) -> Right {
    //% if direct == 1
    return subgroupMatrixLoad<Right, col_major>(&w, at, 4u);
    //% else
    return subgroupMatrixLoad<Right, col_major>(&tile, at, 5u);
    //% end
}

fn multiply(l: Left, r: Right, sum: Result) -> Result {
    return subgroupMatrixMultiplyAccumulate(l, r, sum);
}

fn store(at: u32, sum: Result) {
    subgroupMatrixStore<row_major>(&y, at, sum, dims.y);
}
//% end

//% if b == 2
fn unpack(word: u32, scale: f16) -> vec4<u32> {
    let s = vec2<f16>(scale);
    let up = word >> 8u;
    let a = bitcast<vec2<f16>>((word & 0x000f000fu) | 0x64006400u) - vec2<f16>(1032.0h);
    let b = bitcast<vec2<f16>>((word & 0x00f000f0u) | 0x54005400u) - vec2<f16>(72.0h);
    let c = bitcast<vec2<f16>>((up & 0x000f000fu) | 0x64006400u) - vec2<f16>(1032.0h);
    let d = bitcast<vec2<f16>>((up & 0x00f000f0u) | 0x54005400u) - vec2<f16>(72.0h);
    return vec4<u32>(bitcast<u32>(a * s), bitcast<u32>(b * s), bitcast<u32>(c * s), bitcast<u32>(d * s));
}
//% end

@compute @workgroup_size({{threads}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let tiles_m = dims.x / {{bm}}u;
    let tiles_n = dims.y / {{bn}}u;
    let tall = min(8u, tiles_m);
    let band = group.x / (tall * tiles_n);
    let rest = group.x % (tall * tiles_n);
    let m0 = (band * tall + rest % tall) * {{bm}}u;
    let n0 = (rest / tall) * {{bn}}u;
    let subgroup = thread / 32u;
    let sub_m = (subgroup / {{bn / wn}}u) * {{wm}}u;
    let sub_n = (subgroup % {{bn / wn}}u) * {{wn}}u;
    //% if plain == 1
    own = thread % 32u;
    //% end

    // What is staged: `side` rows a block, `per` words of a row.
    //% if direct == 0
    let side = dims.y;
    let first = n0;
    //% else
    let side = dims.x;
    let first = m0;
    //% end
    let last = dims.z / 32u - 1u;
    //% for i ld
    let c{{i}} = thread + {{i * threads}}u;
    let t{{i}} = c{{i}} / {{per}}u * 5u + c{{i}} % {{per}}u * {{qu}}u;
    let a{{i}} = first * {{per}}u + c{{i}};
    //% if direct == 0
    var q{{i}} = w[a{{i}}];
    //% else
    var q{{i}} = x[a{{i}}];
    //% end
    //% if b == 2
    var s{{i}} = scales[first + c{{i}} / {{per}}u];
    //% end
    //% end
    //% for i wm/16
    //% for j wn/16
    var r{{i}}_{{j}}: Result;
    //% end
    //% end
    //% if direct == 0
    let direct_at = (m0 + sub_m) * 4u;
    let direct_side = dims.x * 4u;
    //% if ahead == 1
    //% for kk 2
    //% for i wm/16
    var d{{kk}}_{{i}} = left(direct_at + {{64 * i + 2 * kk}}u);
    //% end
    //% end
    //% end
    //% else
    let direct_at = (n0 + sub_n) * 4u;
    let direct_side = dims.y * 4u;
    //% if ahead == 1
    //% for kk 2
    //% for i wn/16
    var d{{kk}}_{{i}} = right(direct_at + {{64 * i + 2 * kk}}u);
    //% end
    //% end
    //% end
    //% end
    //% if direct == 0
    let staged_at = sub_n * 5u;
    //% else
    let staged_at = sub_m * 5u;
    //% end

    //% if buf == 2
    // The first stage, and the words of the second.
    //% for i ld
    //% if b == 2
    //% if qu == 4
    //% for h 4
    tile[t{{i}} + {{h}}u] = unpack(q{{i}}[{{h}}], s{{i}});
    //% end
    //% else
    tile[t{{i}}] = unpack(q{{i}}.x, s{{i}});
    tile[t{{i}} + 1u] = unpack(q{{i}}.y, s{{i}});
    //% end
    s{{i}} = scales[min(1u, last) * side + first + c{{i}} / {{per}}u];
    //% else
    tile[t{{i}}] = q{{i}};
    //% end
    //% if direct == 0
    q{{i}} = w[min(1u, last) * side * {{per}}u + a{{i}}];
    //% else
    q{{i}} = x[min(1u, last) * side * {{per}}u + a{{i}}];
    //% end
    //% end
    //% end
    var stage = 0u;
    for (var block = 0u; block <= last; block++) {
        //% if buf == 1
        //% for i ld
        //% if b == 2
        //% if qu == 4
        //% for h 4
        tile[t{{i}} + {{h}}u] = unpack(q{{i}}[{{h}}], s{{i}});
        //% end
        //% else
        tile[t{{i}}] = unpack(q{{i}}.x, s{{i}});
        tile[t{{i}} + 1u] = unpack(q{{i}}.y, s{{i}});
        //% end
        //% else
        tile[t{{i}}] = q{{i}};
        //% end
        //% end
        workgroupBarrier();
        let next = min(block + 1u, last);
        //% for i ld
        //% if direct == 0
        q{{i}} = w[next * side * {{per}}u + a{{i}}];
        //% else
        q{{i}} = x[next * side * {{per}}u + a{{i}}];
        //% end
        //% if b == 2
        s{{i}} = scales[next * side + first + c{{i}} / {{per}}u];
        //% end
        //% end
        //% else
        workgroupBarrier();
        let next = min(block + 1u, last);
        let after = min(block + 2u, last);
        let other = {{rows * 5}}u - stage;
        //% end
        //% for kk 2
        //% if buf == 2 && kk == at
        //% for i ld
        //% if b == 2
        //% if qu == 4
        //% for h 4
        tile[other + t{{i}} + {{h}}u] = unpack(q{{i}}[{{h}}], s{{i}});
        //% end
        //% else
        tile[other + t{{i}}] = unpack(q{{i}}.x, s{{i}});
        tile[other + t{{i}} + 1u] = unpack(q{{i}}.y, s{{i}});
        //% end
        s{{i}} = scales[after * side + first + c{{i}} / {{per}}u];
        //% else
        tile[other + t{{i}}] = q{{i}};
        //% end
        //% if direct == 0
        q{{i}} = w[after * side * {{per}}u + a{{i}}];
        //% else
        q{{i}} = x[after * side * {{per}}u + a{{i}}];
        //% end
        //% end
        //% end
        {
            //% if direct == 0
            //% if ahead == 0
            //% for i wm/16
            let d{{kk}}_{{i}} = left(block * direct_side + direct_at + {{64 * i + 2 * kk}}u);
            //% end
            //% end
            //% for j wn/16
            {
                let r = right(stage + staged_at + {{80 * j + 2 * kk}}u);
                //% for i wm/16
                r{{i}}_{{j}} = multiply(d{{kk}}_{{i}}, r, r{{i}}_{{j}});
                //% end
            }
            //% end
            //% if ahead == 1
            //% for i wm/16
            d{{kk}}_{{i}} = left(next * direct_side + direct_at + {{64 * i + 2 * kk}}u);
            //% end
            //% end
            //% else
            //% if ahead == 0
            //% for j wn/16
            let d{{kk}}_{{j}} = right(block * direct_side + direct_at + {{64 * j + 2 * kk}}u);
            //% end
            //% end
            //% for i wm/16
            {
                let l = left(stage + staged_at + {{80 * i + 2 * kk}}u);
                //% for j wn/16
                r{{i}}_{{j}} = multiply(l, d{{kk}}_{{j}}, r{{i}}_{{j}});
                //% end
            }
            //% end
            //% if ahead == 1
            //% for j wn/16
            d{{kk}}_{{j}} = right(next * direct_side + direct_at + {{64 * j + 2 * kk}}u);
            //% end
            //% end
            //% end
        }
        //% end
        //% if buf == 1
        workgroupBarrier();
        //% else
        stage = other;
        //% end
    }

    //% for i wm/16
    //% for j wn/16
    store((m0 + sub_m + {{16 * i}}u) * dims.y + n0 + sub_n + {{16 * j}}u, r{{i}}_{{j}});
    //% end
    //% end
}
