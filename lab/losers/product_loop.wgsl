// product_variants.wgsl with arrays of matrices and loops over them: the compiler leaves the arrays in
// memory. One H200, M 2048, N 8192, K 2048: 1953 us where the same written out takes 253.
//% let kb 1
//% let order 1
//% let units ks / 32
//% let bm wm * sm
//% let bn wn * sn
//% let team sm * sn * 32
//% let threads team * sk
//% let pitch ks / 8 + 1
//% let tm (M + bm - 1) / bm
//% let tn (N + bn - 1) / bn
//% let xrows tm * bm
//% let blocks K / 32
//% let mine blocks / split
//% let steps (mine + units * sk - 1) / (units * sk)
//% let size (xs * bm + bn) * pitch
//% let la 0
//% if xs == 1
//% let la bm * ks / 8 / team
//% need bm * ks / 8 % team == 0
//% end
//% let lq bn * ks / 32 / team
//% let ew wn / 4 + 1
//% let region size / (sm * sn)
//% if region < 16 * ew
//% let region 16 * ew
//% end
//% let total size * sk
//% if total < region * sm * sn * sk
//% let total region * sm * sn * sk
//% end
//% need bn * ks / 32 % team == 0 && lq >= 1 && threads <= 1024 && blocks % split == 0
//% need total * 16 <= 49152 && wm * wn <= 4096 && ks % 32 == 0 && ep > 0
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

alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Result = subgroup_matrix_result<f32, 16, 16>;

@group(0) @binding(0) var<uniform> dims: vec4<u32>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> w: array<vec4<u32>>;
//% if ep == 2
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;
//% else
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
//% end
@group(0) @binding(4) var<storage, read> scales: array<f16>;
@group(0) @binding(5) var<storage, read> x_scale: array<f32>;

const I = {{wm / 16}}u;
const J = {{wn / 16}}u;
const UNITS = {{units}}u;
const TEAM = {{team}}u;
const TEAMS = {{sk}}u;
const BM = {{bm}}u;
const BN = {{bn}}u;
const PITCH = {{pitch}}u;
const SIZE = {{size}}u;
const LOADS_X = {{la}}u;
const LOADS_W = {{lq}}u;
const REGION = {{region}}u;
const EDGE = {{ew}}u;

var<workgroup> tile: array<vec4<u32>, {{total}}>;

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

@compute @workgroup_size({{threads}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let part = group.x / {{tm * tn}}u;
    let index = group.x % {{tm * tn}}u;
    let band = index / ({{gm}}u * {{tn}}u);
    let rest = index % ({{gm}}u * {{tn}}u);
    let side = min({{gm}}u, {{tm}}u - band * {{gm}}u);
    let m0 = (band * {{gm}}u + rest % side) * BM;
    let n0 = (rest / side) * BN;
    let subgroup = thread / 32u;
    let own = subgroup % {{sm * sn}}u;
    let sub_m = (own / {{sn}}u) * {{wm}}u;
    let sub_n = (own % {{sn}}u) * {{wn}}u;
    let lane = thread % TEAM;
    let which = thread / TEAM;
    let first = part * {{mine}}u + which * UNITS;
    let base = which * SIZE;

    //% if xs == 1
    var xr: array<vec4<u32>, LOADS_X>;
    for (var i = 0u; i < LOADS_X; i++) {
        let c = lane + i * TEAM;
        xr[i] = x[((first + c / (BM * 4u)) * {{xrows}}u + m0) * 4u + c % (BM * 4u)];
    }
    //% end
    var wr: array<vec4<u32>, LOADS_W>;
    var ws: array<f16, LOADS_W>;
    for (var i = 0u; i < LOADS_W; i++) {
        let c = lane + i * TEAM;
        let at = (first + c / BN) * dims.y + min(n0 + c % BN, dims.y - 1u);
        wr[i] = w[at];
        ws[i] = scales[at];
    }

    var sums: array<array<Result, J>, I>;
    for (var s = 0u; s < {{steps}}u; s++) {
        let block = first + s * (UNITS * TEAMS);
        //% if xs == 1
        for (var i = 0u; i < LOADS_X; i++) {
            let c = lane + i * TEAM;
            tile[base + c % (BM * 4u) / 4u * PITCH + c / (BM * 4u) * 4u + c % 4u] = xr[i];
        }
        //% end
        for (var i = 0u; i < LOADS_W; i++) {
            let c = lane + i * TEAM;
            let to = base + {{xs}}u * BM * PITCH + c % BN * PITCH + c / BN * 4u;
            for (var q = 0u; q < 4u; q++) {
                tile[to + q] = unpack(wr[i][q], ws[i]);
            }
        }
        workgroupBarrier();
        // The words of the next step, asked for before this one multiplies.
        if (s + 1u < {{steps}}u) {
            let next = block + UNITS * TEAMS;
            //% if xs == 1
            for (var i = 0u; i < LOADS_X; i++) {
                let c = lane + i * TEAM;
                xr[i] = x[((next + c / (BM * 4u)) * {{xrows}}u + m0) * 4u + c % (BM * 4u)];
            }
            //% end
            for (var i = 0u; i < LOADS_W; i++) {
                let c = lane + i * TEAM;
                let at = (next + c / BN) * dims.y + min(n0 + c % BN, dims.y - 1u);
                wr[i] = w[at];
                ws[i] = scales[at];
            }
        }
        for (var kk = 0u; kk < 2u * UNITS; kk++) {
            if (block + kk / 2u < (part + 1u) * {{mine}}u) {
                var left: array<Left, I>;
                for (var i = 0u; i < I; i++) {
                    //% if xs == 1
                    left[i] = subgroupMatrixLoad<Left, row_major>(&tile, base + (sub_m + 16u * i) * PITCH + 2u * kk, PITCH);
                    //% else
                    left[i] = subgroupMatrixLoad<Left, row_major>(&x, ((block + kk / 2u) * {{xrows}}u + m0 + sub_m + 16u * i) * 4u + kk % 2u * 2u, 4u);
                    //% end
                }
                for (var j = 0u; j < J; j++) {
                    let right = subgroupMatrixLoad<Right, col_major>(&tile, base + {{xs * bm}}u * PITCH + (sub_n + 16u * j) * PITCH + 2u * kk, PITCH);
                    for (var i = 0u; i < I; i++) {
                        sums[i][j] = subgroupMatrixMultiplyAccumulate(left[i], right, sums[i][j]);
                    }
                }
            }
        }
        workgroupBarrier();
    }

    for (var i = 0u; i < I; i++) {
        for (var j = 0u; j < J; j++) {
            subgroupMatrixStore<row_major>(&tile, subgroup * REGION + 4u * j, sums[i][j], EDGE);
        }
        workgroupBarrier();
        //% let per 16 * wn
        //% if ep == 2
        //% let per 4 * wn
        //% end
        for (var e = thread; e < {{sm * sn * per}}u; e += {{threads}}u) {
            let strip = e / {{per}}u;
            let r = e % {{per}}u / {{per / 16}}u;
            let c = e % {{per / 16}}u;
            let m = m0 + strip / {{sn}}u * {{wm}}u + 16u * i + r;
            //% if ep == 2
            var sum = vec4<f32>();
            for (var g = 0u; g < TEAMS; g++) {
                sum += bitcast<vec4<f32>>(tile[(strip + g * {{sm * sn}}u) * REGION + r * EDGE + c]);
            }
            let n = n0 + strip % {{sn}}u * {{wn}}u + 4u * c;
            let at = (part * dims.x * dims.y + m * dims.y + n) / 4u;
            //% else
            var sum = 0.0;
            for (var g = 0u; g < TEAMS; g++) {
                sum += bitcast<f32>(tile[(strip + g * {{sm * sn}}u) * REGION + r * EDGE + c / 4u][c % 4u]);
            }
            let n = n0 + strip % {{sn}}u * {{wn}}u + c;
            let at = part * dims.x * dims.y + m * dims.y + n;
            //% end
            if (m < dims.x && n < dims.y) {
                sum *= x_scale[m];
                //% if acc == 1
                sum += y[at];
                //% end
                y[at] = sum;
            }
        }
        workgroupBarrier();
    }
}
