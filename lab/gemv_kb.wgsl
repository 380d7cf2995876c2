// y[n] = sum over k of x[k] * s[n][k / 32] * (q[n][k] - 8), with W in blocks of 32 along k.
//
// W lies as [K / 32][N][32], the scales as [K / 32][N]: neighbouring lanes take neighbouring columns n, so
// a subgroup reads one run of memory, its lanes share their words of x, and a lane's sum needs no other
// lane. `cn` columns a workgroup (times `rows`, cn apart), the groups along k shared out over wg / cn
// slices, `un` of them in flight a lane; then the slices' sums are added up, by exchange within a
// subgroup and through workgroup memory beyond it. Kinds as in gemv.wgsl.
//
// One H200, N 16384, K 2048 (rung 4 of the ladder), with a dispatch's own 2.1 us: kind 5 7.5 us (2541 GB/s), kind 4 7.4 us,
// kind 2 9.1 us; the head, N 128256: kind 5 37.9 us (3917 GB/s).
//% let kb 1
//% let w 4
//% let mb 1
//% let slices wg / cn
//% let groups K / 32
//% let steps groups / slices
//% let warps wg / sg
//% need M == 1 && wg % cn == 0 && wg >= sg && groups % slices == 0 && steps % un == 0 && cn <= sg
//% need N % (cn * rows) == 0 && N / (cn * rows) <= 65535 && rows * un <= 8
//% need kind == 2 || kind == 4 || kind == 5
//% grid N/(cn*rows) 1
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
var<workgroup> partial: array<f32, {{warps * cn * rows}}>;

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
    let column = group.x * {{cn * rows}}u + index % {{cn}}u;
    let slice = index / {{cn}}u;
    //% for r rows
    //% for m mb
    var sum{{r}}_{{m}} = 0.0;
    //% end
    //% end

    for (var step = 0u; step < {{steps / un}}u; step++) {
        //% for j un
        let at{{j}} = (step * {{un}}u + {{j}}u) * {{slices}}u + slice;
        //% for r rows
        let q{{j}}_{{r}} = data[at{{j}} * {{N}}u + column + {{r * cn}}u];
        let h{{j}}_{{r}} = scales[at{{j}} * {{N}}u + column + {{r * cn}}u];
        //% end
        //% end
        //% for j un
        //% for r rows
        let s{{j}}_{{r}} = f32(h{{j}}_{{r}});
        //% end
        //% for m mb
        {
            //% if kind == 4 || kind == 5
            let factor = meta_[at{{j}}];
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
                let low = x[(at{{j}}) * {{2 * w}}u + {{2 * c}}u];
                let high = x[(at{{j}}) * {{2 * w}}u + {{2 * c + 1}}u];
                //% end
                //% if kind == 2 || kind == 3 || kind == 5 || kind == 6
                let v = x[(at{{j}}) * {{w}}u + {{c}}u];
                //% end
                //% if kind == 6
                let x0 = vec2<f32>(bitcast<vec2<f16>>(v.x));
                let x1 = vec2<f32>(bitcast<vec2<f16>>(v.y));
                let x2 = vec2<f32>(bitcast<vec2<f16>>(v.z));
                let x3 = vec2<f32>(bitcast<vec2<f16>>(v.w));
                //% end
                //% if kind == 4
                let v4 = x[(at{{j}}) * {{w / 2}}u + {{c / 2}}u];
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
    for (var far = {{cn}}u; far < {{sg}}u; far *= 2u) {
        sum{{r}}_0 += subgroupShuffleXor(sum{{r}}_0, far);
    }
    if (index % {{sg}}u < {{cn}}u) {
        partial[index / {{sg}}u * {{cn * rows}}u + {{r * cn}}u + index % {{sg}}u] = sum{{r}}_0;
    }
    //% end
    workgroupBarrier();
    if (index < {{cn * rows}}u) {
        var total = 0.0;
        //% for i warps
        total += partial[{{i * cn * rows}}u + index];
        //% end
        y[group.x * {{cn * rows}}u + index] = total;
    }
}
