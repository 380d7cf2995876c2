// product.wgsl written out, with more to choose: what lost in it is in RESULTS.md, "One kernel for any
// number of rows".
//
// A workgroup makes a tile of bm x bn. Its subgroups stand in sk teams, each of which takes every sk-th
// step of ks along k; a team is sm x sn subgroups that make wm x wn of the tile each. A team stages w
// (unpacked) and with xs 1 also x in its own part of workgroup memory, `buf` stages of it; with xs 0 x
// is read as matrices from the buffer. At the end the teams' sums are added up in workgroup memory.
//
// split: workgroups along k, whose sums lie one after another in y
// deep: steps whose words wait in registers
// pre: 0 words are loaded where they are unpacked, 1 before the multiplication of the step before,
//   2 unpacked there too
// ep: 0 matrices are stored to y, 1 they go through workgroup memory and are scaled, cut at the edges and
//   written as f32, 2 as vec4
// acc: 1 added to y
// need M % bm == 0 && N % bn == 0 where ep is 0
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
//% let guard mine % (units * sk) != 0
//% let size (xs * bm + bn) * pitch
//% let eights bn * ks / 8 / team
//% let la 0
//% if xs == 1
//% let la bm * ks / 8 / team
//% need bm * ks / 8 % team == 0
//% end
//% let qu 1
//% if eights % 2 == 0
//% let qu 2
//% end
//% if eights % 4 == 0
//% let qu 4
//% end
//% let lq eights / qu
//% let ew wn / 4 + 1
//% let region size * buf / (sm * sn)
//% if region < 16 * ew && ep > 0
//% let region 16 * ew
//% end
//% let total size * buf * sk
//% if total < region * sm * sn * sk
//% let total region * sm * sn * sk
//% end
//% need bn * ks / 8 % team == 0 && eights >= 1 && threads <= 1024 && blocks % split == 0
//% need ep > 0 || M % bm == 0 && N % bn == 0 && sk == 1
//% need total * 16 <= 49152 && wm * wn <= 4096 && ks % 32 == 0
//% need wm / 16 * (wn / 16) * 8 + deep * (la * 4 + lq * (qu + 3)) <= 210
//% need pre == 1 || deep == 1
//% let unit 4
//% let limit 4000
//% let chunks split
//% grid tm*tn*split 1
//% if split == 1 && acc == 0
//% ref q4
//% else
//% ref none
//% end
//% if ep == 0
//% bind dims xh w4 y s
//% else
//% bind dims xh w4 y s one
//% end
diagnostic(off, chromium.subgroup_matrix_uniformity);
enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;

alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Result = subgroup_matrix_result<f32, 16, 16>;

//% if qu == 1
alias Packed = u32;
//% else
alias Packed = vec{{qu}}<u32>;
//% end

@group(0) @binding(0) var<uniform> dims: vec4<u32>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> w: array<Packed>;
//% if ep == 2
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;
//% else
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
//% end
@group(0) @binding(4) var<storage, read> scales: array<f16>;
@group(0) @binding(5) var<storage, read> x_scale: array<f32>;

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
    let m0 = (band * {{gm}}u + rest % side) * {{bm}}u;
    let n0 = (rest / side) * {{bn}}u;
    let subgroup = thread / 32u;
    let own = subgroup % {{sm * sn}}u;
    let sub_m = (own / {{sn}}u) * {{wm}}u;
    let sub_n = (own % {{sn}}u) * {{wn}}u;
    let lane = thread % {{team}}u;
    let which = thread / {{team}}u;
    let first = part * {{mine}}u + which * {{units}}u;

    //% for i la
    let xc{{i}} = lane + {{i * team}}u;
    let xb{{i}} = xc{{i}} / {{bm * 4}}u;
    var xa{{i}} = ((first + xb{{i}}) * {{xrows}}u + m0) * 4u + xc{{i}} % {{bm * 4}}u;
    let xt{{i}} = (xc{{i}} % {{bm * 4}}u) / 4u * {{pitch}}u + xb{{i}} * 4u + xc{{i}} % 4u;
    //% end
    //% for i lq
    let wc{{i}} = lane + {{i * team}}u;
    let wb{{i}} = wc{{i}} / {{bn * 4 / qu}}u;
    let wn{{i}} = wc{{i}} % {{bn * 4 / qu}}u / {{4 / qu}}u;
    let wg{{i}} = min(n0 + wn{{i}}, dims.y - 1u);
    var wa{{i}} = (first + wb{{i}}) * dims.y + wg{{i}};
    let wp{{i}} = wc{{i}} % {{4 / qu}}u;
    let wt{{i}} = {{xs * bm * pitch}}u + wn{{i}} * {{pitch}}u + wb{{i}} * 4u + wp{{i}} * {{qu}}u;
    //% end
    //% if pre > 0
    //% for d deep
    //% for i la
    var xr{{d}}_{{i}} = x[xa{{i}}];
    xa{{i}} += {{units * sk * xrows * 4}}u;
    //% end
    //% for i lq
    var wr{{d}}_{{i}} = w[wa{{i}} * {{4 / qu}}u + wp{{i}}];
    var ws{{d}}_{{i}} = scales[wa{{i}}];
    wa{{i}} += {{units * sk}}u * dims.y;
    //% if pre == 2
    //% for q qu
    //% if qu == 1
    var wu{{i}}_{{q}} = unpack(wr{{d}}_{{i}}, ws{{d}}_{{i}});
    //% else
    var wu{{i}}_{{q}} = unpack(wr{{d}}_{{i}}[{{q}}], ws{{d}}_{{i}});
    //% end
    //% end
    //% end
    //% end
    //% end
    //% end

    //% for i wm/16
    //% for j wn/16
    //% if acc == 1 && ep == 0
    var c{{i}}_{{j}} = subgroupMatrixLoad<Result, row_major>(&y, (m0 + sub_m + {{16 * i}}u) * dims.y + n0 + sub_n + {{16 * j}}u, dims.y);
    //% else
    var c{{i}}_{{j}} = Result();
    //% end
    //% end
    //% end

    for (var s = 0u; s < {{steps}}u; s += {{deep}}u) {
        //% for d deep
        {
        //% if buf == 2
        let base = (which * 2u + (s + {{d}}u) % 2u) * {{size}}u;
        //% else
        let base = which * {{size}}u;
        //% end
        //% for i la
        //% if pre == 0
        tile[base + xt{{i}}] = x[xa{{i}}];
        xa{{i}} += {{units * sk * xrows * 4}}u;
        //% else
        tile[base + xt{{i}}] = xr{{d}}_{{i}};
        //% end
        //% end
        //% for i lq
        {
        //% if pre == 0
        let wr = w[wa{{i}} * {{4 / qu}}u + wp{{i}}];
        let ws = scales[wa{{i}}];
        wa{{i}} += {{units * sk}}u * dims.y;
        //% end
        //% for q qu
        //% if pre == 2
        tile[base + wt{{i}} + {{q}}u] = wu{{i}}_{{q}};
        //% end
        //% if pre == 0
        //% if qu == 1
        tile[base + wt{{i}} + {{q}}u] = unpack(wr, ws);
        //% else
        tile[base + wt{{i}} + {{q}}u] = unpack(wr[{{q}}], ws);
        //% end
        //% end
        //% if pre == 1
        //% if qu == 1
        tile[base + wt{{i}} + {{q}}u] = unpack(wr{{d}}_{{i}}, ws{{d}}_{{i}});
        //% else
        tile[base + wt{{i}} + {{q}}u] = unpack(wr{{d}}_{{i}}[{{q}}], ws{{d}}_{{i}});
        //% end
        //% end
        //% end
        }
        //% end
        workgroupBarrier();
        //% if pre > 0
        if (s + {{d + deep}}u < {{steps}}u) {
            //% for i la
            xr{{d}}_{{i}} = x[xa{{i}}];
            xa{{i}} += {{units * sk * xrows * 4}}u;
            //% end
            //% for i lq
            wr{{d}}_{{i}} = w[wa{{i}} * {{4 / qu}}u + wp{{i}}];
            ws{{d}}_{{i}} = scales[wa{{i}}];
            wa{{i}} += {{units * sk}}u * dims.y;
            //% if pre == 2
            //% for q qu
            //% if qu == 1
            wu{{i}}_{{q}} = unpack(wr{{d}}_{{i}}, ws{{d}}_{{i}});
            //% else
            wu{{i}}_{{q}} = unpack(wr{{d}}_{{i}}[{{q}}], ws{{d}}_{{i}});
            //% end
            //% end
            //% end
            //% end
        }
        //% end
        let block = (s + {{d}}u) * {{units * sk}}u + which * {{units}}u;
        //% for kk ks/16
        //% if guard || deep > 1
        if (block + {{kk / 2}}u < {{mine}}u) {
        //% else
        {
        //% end
        //% for i wm/16
        //% if xs == 1
        let l{{i}} = subgroupMatrixLoad<Left, row_major>(&tile, base + (sub_m + {{16 * i}}u) * {{pitch}}u + {{2 * kk}}u, {{pitch}}u);
        //% else
        let l{{i}} = subgroupMatrixLoad<Left, row_major>(&x, ((part * {{mine}}u + block + {{kk / 2}}u) * {{xrows}}u + m0 + sub_m + {{16 * i}}u) * 4u + {{kk % 2 * 2}}u, 4u);
        //% end
        //% end
        //% for j wn/16
        {
            let r = subgroupMatrixLoad<Right, col_major>(&tile, base + {{xs * bm * pitch}}u + (sub_n + {{16 * j}}u) * {{pitch}}u + {{2 * kk}}u, {{pitch}}u);
            //% for i wm/16
            c{{i}}_{{j}} = subgroupMatrixMultiplyAccumulate(l{{i}}, r, c{{i}}_{{j}});
            //% end
        }
        //% end
        }
        //% end
        //% if buf == 1
        workgroupBarrier();
        //% end
        }
        //% end
    }
    //% if ep == 0
    //% for i wm/16
    //% for j wn/16
    subgroupMatrixStore<row_major>(&y, part * dims.x * dims.y + (m0 + sub_m + {{16 * i}}u) * dims.y + n0 + sub_n + {{16 * j}}u, c{{i}}_{{j}}, dims.y);
    //% end
    //% end
    //% else
    //% for i wm/16
    //% if buf == 2 || i > 0
    workgroupBarrier();
    //% end
    //% for j wn/16
    subgroupMatrixStore<row_major>(&tile, subgroup * {{region}}u + {{4 * j}}u, c{{i}}_{{j}}, {{ew}}u);
    //% end
    workgroupBarrier();
    //% let per 16 * wn
    //% if ep == 2
    //% let per 4 * wn
    //% end
    for (var e = thread; e < {{sm * sn * per}}u; e += {{threads}}u) {
        let strip = e / {{per}}u;
        let r = e % {{per}}u / {{per / 16}}u;
        let c = e % {{per / 16}}u;
        let m = m0 + strip / {{sn}}u * {{wm}}u + {{16 * i}}u + r;
        //% if ep == 2
        var sum = vec4<f32>();
        //% for g sk
        sum += bitcast<vec4<f32>>(tile[(strip + {{g * sm * sn}}u) * {{region}}u + r * {{ew}}u + c]);
        //% end
        let n = n0 + strip % {{sn}}u * {{wn}}u + 4u * c;
        let at = (part * dims.x * dims.y + m * dims.y + n) / 4u;
        //% else
        var sum = 0.0;
        //% for g sk
        sum += bitcast<f32>(tile[(strip + {{g * sm * sn}}u) * {{region}}u + r * {{ew}}u + c / 4u][c % 4u]);
        //% end
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
    //% end
    //% end
}
