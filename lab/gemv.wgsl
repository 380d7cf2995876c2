// y[m][n] = sum over k of x[m][k] * s[n][k / 32] * (q[n][k] - 8), for one row of x or a few.
//
// `lanes` lanes share `rows` rows of W: a lane takes `w` words (8 nibbles each) at a time of each of
// its rows, every `lanes`-th such unit, `un` units in flight; then the lanes' sums are added up by
// exchange within a subgroup, and through workgroup memory beyond it.
//
// kind 0  nibbles to f32 by conversion, x f32          (exact products)
//      1  nibbles to f32 by the magic number 0x4b000000, x f32
//      2  nibble pairs to f16 by the magic number 0x6400 (1024 + n), four f16 products added in f16
//      3  the same, all products of a unit added in f16
//      4  x as int8, dot4I8Packed
//      5  x as two bytes an element, two dot4I8Packed: exact to 2^-16 of the group's largest
//      6  nibble pairs to f16, then f32 products; x f16
// sl 0: scales [N][K / 32]; 1: [K / 32][N].  il: rows whose units lie side by side in memory.
//
// One H200, N 16384, K 2048 (rung 3 of the ladder), with a dispatch's own 2.1 us: kind 2 9.1 us, kind 5 8.1 us, kind 4
// 7.2 us (2632 GB/s); the head, N 128256: kind 5 37.3 us (3974 GB/s), kind 4 36.1 us (4104 GB/s, 89 %).
//% let sets wg / lanes
//% let units K / (8 * w)
//% let steps (units + lanes - 1) / lanes
//% let inside lanes - (lanes > sg) * (lanes - sg)
//% need wg % lanes == 0 && lanes <= wg && K % (8 * w) == 0 && steps % un == 0
//% need N % rows == 0 && (il == 1 || il == rows) && rows * un * w <= 64 && (units >= lanes || lanes <= 8)
//% need (kind != 4 && kind != 5) || w > 1 || kind == 5
//% need units * 2 > lanes
//% let tail units % lanes != 0
//% let mb M
//% need (N / rows + sets - 1) / sets <= 65535
//% grid (N/rows+sets-1)/sets 1
//% let limit 100
//% if kind == 2 || kind == 3
//% let limit 4000
//% end
//% if kind == 4
//% let limit 20000
//% end
//% ref q4
//% if kind < 2
//% bind w4 s y x32
//% end
//% if kind == 2 || kind == 3 || kind == 6
//% bind w4 s y xp
//% end
//% if kind == 4
//% bind w4 s y q8x q8m
//% end
//% if kind == 5
//% bind w4 s y q16x q16m
//% end
enable f16;
enable subgroups;

//% if w == 1
alias Words = u32;
//% else
alias Words = vec{{w}}<u32>;
//% end
@group(0) @binding(0) var<storage, read> data: array<Words>;
@group(0) @binding(1) var<storage, read> scales: array<f16>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
//% if kind < 2
@group(0) @binding(3) var<storage, read> x: array<vec4<f32>>;
//% else
//% if kind == 4
@group(0) @binding(3) var<storage, read> x: array<vec4<u32>>;
//% else
@group(0) @binding(3) var<storage, read> x: array<vec4<u32>>;
//% end
//% end
//% if kind == 4 || kind == 5
@group(0) @binding(4) var<storage, read> meta_: array<vec2<f32>>;
//% end
//% if lanes > sg
var<workgroup> partial: array<f32, {{sets * rows * mb * (lanes / inside)}}>;
//% end

fn nibbles_low(word: u32) -> vec4<u32> {
    return (vec4<u32>(word) >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u);
}

fn nibbles_high(word: u32) -> vec4<u32> {
    return (vec4<u32>(word) >> vec4<u32>(16u, 20u, 24u, 28u)) & vec4<u32>(15u);
}

fn magic_f32(n: vec4<u32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(n | vec4<u32>(0x4b000000u)) - vec4<f32>(8388616.0);
}

// Elements (0, 4), (1, 5), (2, 6), (3, 7) of a word, less 8.
fn pair0(word: u32) -> vec2<f16> {
    return bitcast<vec2<f16>>((word & 0x000f000fu) | 0x64006400u) - vec2<f16>(1032.0h);
}

fn pair1(word: u32) -> vec2<f16> {
    return bitcast<vec2<f16>>((word & 0x00f000f0u) | 0x54005400u) - vec2<f16>(72.0h);
}

@compute @workgroup_size({{wg}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
    let lane = index % {{lanes}}u;
    let team = index / {{lanes}}u;
    let first_row = min((group.x * {{sets}}u + team) * {{rows}}u, {{N - rows}}u);
    //% for r rows
    //% for m mb
    var sum{{r}}_{{m}} = 0.0;
    //% end
    //% end

    for (var step = 0u; step < {{steps / un}}u; step++) {
        //% for j un
        let unit{{j}} = (step * {{un}}u + {{j}}u) * {{lanes}}u + lane;
        //% if tail
        let at{{j}} = min(unit{{j}}, {{units - 1}}u);
        let on{{j}} = f32(unit{{j}} < {{units}}u);
        //% else
        let at{{j}} = unit{{j}};
        //% end
        //% for r rows
        //% if il > 1
        let q{{j}}_{{r}} = data[(first_row / {{rows}}u * {{units}}u + at{{j}}) * {{rows}}u + {{r}}u];
        //% else
        let q{{j}}_{{r}} = data[(first_row + {{r}}u) * {{units}}u + at{{j}}];
        //% end
        //% if sl == 1
        let h{{j}}_{{r}} = scales[(at{{j}} * {{w}}u / 4u) * {{N}}u + first_row + {{r}}u];
        //% else
        let h{{j}}_{{r}} = scales[(first_row + {{r}}u) * {{K / 32}}u + at{{j}} * {{w}}u / 4u];
        //% end
        //% end
        //% end
        //% for j un
        //% for r rows
        //% if tail
        let s{{j}}_{{r}} = f32(h{{j}}_{{r}}) * on{{j}};
        //% else
        let s{{j}}_{{r}} = f32(h{{j}}_{{r}});
        //% end
        //% end
        //% for m mb
        {
            //% if kind == 4 || kind == 5
            let factor = meta_[{{m * units}}u + at{{j}}];
            //% for r rows
            var acc{{r}} = 0;
            //% end
            //% end
            //% if kind == 3
            //% for r rows
            var pairs{{r}} = vec2<f16>(0.0h);
            //% end
            //% end
            //% if kind < 3 || kind == 6
            //% for r rows
            var acc{{r}} = 0.0;
            //% end
            //% end
            //% for c w
            {
                //% if kind < 2
                let low = x[({{m * units}}u + at{{j}}) * {{2 * w}}u + {{2 * c}}u];
                let high = x[({{m * units}}u + at{{j}}) * {{2 * w}}u + {{2 * c + 1}}u];
                //% end
                //% if kind == 2 || kind == 3 || kind == 5 || kind == 6
                let v = x[({{m * units}}u + at{{j}}) * {{w}}u + {{c}}u];
                //% end
                //% if kind == 6
                let x0 = vec2<f32>(bitcast<vec2<f16>>(v.x));
                let x1 = vec2<f32>(bitcast<vec2<f16>>(v.y));
                let x2 = vec2<f32>(bitcast<vec2<f16>>(v.z));
                let x3 = vec2<f32>(bitcast<vec2<f16>>(v.w));
                //% end
                //% if kind == 4
                let v4 = x[({{m * units}}u + at{{j}}) * {{w / 2}}u + {{c / 2}}u];
                //% if c % 2 == 0
                let v = v4.xy;
                //% else
                let v = v4.zw;
                //% end
                //% end
                //% for r rows
                {
                    //% if w == 1
                    let word = q{{j}}_{{r}};
                    //% else
                    let word = q{{j}}_{{r}}[{{c}}];
                    //% end
                    //% if kind == 0
                    acc{{r}} += dot(vec4<f32>(nibbles_low(word)) - 8.0, low)
                              + dot(vec4<f32>(nibbles_high(word)) - 8.0, high);
                    //% end
                    //% if kind == 1
                    acc{{r}} += dot(magic_f32(nibbles_low(word)), low)
                              + dot(magic_f32(nibbles_high(word)), high);
                    //% end
                    //% if kind == 2 || kind == 3 || kind == 6
                    let up = word >> 8u;
                    //% end
                    //% if kind == 2
                    let p = fma(pair0(word), bitcast<vec2<f16>>(v.x),
                                fma(pair1(word), bitcast<vec2<f16>>(v.y),
                                    fma(pair0(up), bitcast<vec2<f16>>(v.z),
                                        pair1(up) * bitcast<vec2<f16>>(v.w))));
                    acc{{r}} += f32(p.x) + f32(p.y);
                    //% end
                    //% if kind == 3
                    pairs{{r}} = fma(pair0(word), bitcast<vec2<f16>>(v.x), pairs{{r}});
                    pairs{{r}} = fma(pair1(word), bitcast<vec2<f16>>(v.y), pairs{{r}});
                    pairs{{r}} = fma(pair0(up), bitcast<vec2<f16>>(v.z), pairs{{r}});
                    pairs{{r}} = fma(pair1(up), bitcast<vec2<f16>>(v.w), pairs{{r}});
                    //% end
                    //% if kind == 6
                    acc{{r}} += dot(vec2<f32>(pair0(word)), x0) + dot(vec2<f32>(pair1(word)), x1)
                              + dot(vec2<f32>(pair0(up)), x2) + dot(vec2<f32>(pair1(up)), x3);
                    //% end
                    //% if kind == 4
                    acc{{r}} += dot4I8Packed(word & 0x0f0f0f0fu, v.x)
                              + dot4I8Packed((word >> 4u) & 0x0f0f0f0fu, v.y);
                    //% end
                    //% if kind == 5
                    let even = word & 0x0f0f0f0fu;
                    let odd = (word >> 4u) & 0x0f0f0f0fu;
                    acc{{r}} += ((dot4I8Packed(even, v.x) + dot4I8Packed(odd, v.y)) << 8u)
                              + dot4I8Packed(even, v.z) + dot4I8Packed(odd, v.w);
                    //% end
                }
                //% end
            }
            //% end
            //% for r rows
            //% if kind == 4 || kind == 5
            sum{{r}}_{{m}} += s{{j}}_{{r}} * (f32(acc{{r}}) * factor.x - factor.y);
            //% else
            //% if kind == 3
            sum{{r}}_{{m}} += s{{j}}_{{r}} * (f32(pairs{{r}}.x) + f32(pairs{{r}}.y));
            //% else
            sum{{r}}_{{m}} += s{{j}}_{{r}} * acc{{r}};
            //% end
            //% end
            //% end
        }
        //% end
        //% end
    }

    //% for r rows
    //% for m mb
    for (var far = {{inside / 2}}u; far > 0u; far /= 2u) {
        sum{{r}}_{{m}} += subgroupShuffleXor(sum{{r}}_{{m}}, far);
    }
    //% end
    //% end
    //% if lanes > sg
    if (index % {{inside}}u == 0u) {
        //% for r rows
        //% for m mb
        partial[(index / {{inside}}u) * {{rows * mb}}u + {{r * mb + m}}u] = sum{{r}}_{{m}};
        //% end
        //% end
    }
    workgroupBarrier();
    if (index < {{sets * rows * mb}}u) {
        let mine = index / {{rows * mb}}u;
        let r = index % {{rows * mb}}u;
        var total = 0.0;
        //% for i lanes/inside
        total += partial[(mine * {{lanes / inside}}u + {{i}}u) * {{rows * mb}}u + r];
        //% end
        let row = (group.x * {{sets}}u + mine) * {{rows}}u + r / {{mb}}u;
        if (row < {{N}}u) {
            y[(r % {{mb}}u) * {{N}}u + row] = total;
        }
    }
    //% else
    if (lane == 0u && (group.x * {{sets}}u + team) * {{rows}}u < {{N}}u) {
        //% for r rows
        //% for m mb
        y[{{m * N}}u + first_row + {{r}}u] = sum{{r}}_{{m}};
        //% end
        //% end
    }
    //% end
}
