// y[n] = sum over k of x[k] * s[n][k / 32] * (q[n][k] - 8), with W in blocks of 32 along k, for a K so
// short that what counts is how often a lane waits.
//
// The one-row products of small models take 6 us where a dispatch takes 2: matvec_fixed.wgsl first turns
// x into fixed point in workgroup memory, behind three barriers. Here nothing is staged: a lane reads
// its words of W and its part of x at once, both in f32 from then on, and its sum goes to its neighbours by
// exchange. `cn` columns a workgroup, blocks along k shared out over wg / cn lanes, the last round not
// full; `norm` adds up the squares of x on the way, as a norm in front would, and changes nothing else.
//
// Not yet measured; to be compared with gemv.wgsl and gemv_kb.wgsl at the shapes of smollm2.
//% let kb 1
//% let w 4
//% let slices wg / cn
//% let groups K / 32
//% let steps (groups + slices - 1) / slices
//% let warps wg / sg
//% need M == 1 && wg % cn == 0 && wg >= sg && cn <= sg && N % (cn * rows) == 0
//% need N / (cn * rows) <= 65535 && (steps == 1 || slices < groups) && steps * rows <= 8
//% grid N/(cn*rows) 1
//% let limit 100
//% ref q4
//% bind w4 s y x32
enable f16;
enable subgroups;

@group(0) @binding(0) var<storage, read> data: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> scales: array<f16>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> x: array<vec4<f32>>;

var<workgroup> partial: array<f32, {{warps * cn * rows}}>;
//% if norm == 1
var<workgroup> squares: array<f32, {{warps}}>;
//% end

// Four nibbles, the lowest first, less 8: 2^23 + 8 + n is a float whose last bits are n's.
fn low(word: u32) -> vec4<f32> {
    let n = (vec4<u32>(word) >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u);
    return bitcast<vec4<f32>>(n | vec4<u32>(0x4b000000u)) - vec4<f32>(8388616.0);
}

@compute @workgroup_size({{wg}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
    let column = group.x * {{cn * rows}}u + index % {{cn}}u;
    let slice = index / {{cn}}u;
    //% for r rows
    var sum{{r}} = 0.0;
    //% end
    //% if norm == 1
    var square = 0.0;
    //% end

    // All that a lane needs is asked for at once; a round that is not full reads the last block.
    //% for j steps
    let at{{j}} = min({{j * slices}}u + slice, {{groups - 1}}u);
    let full{{j}} = select(0.0, 1.0, {{j * slices}}u + slice < {{groups}}u);
    //% for r rows
    let q{{j}}_{{r}} = data[at{{j}} * {{N}}u + column + {{r * cn}}u];
    let h{{j}}_{{r}} = scales[at{{j}} * {{N}}u + column + {{r * cn}}u];
    //% end
    //% for c 8
    let x{{j}}_{{c}} = x[at{{j}} * 8u + {{c}}u];
    //% end
    //% end
    //% for j steps
    //% if norm == 1
    //% for c 8
    square += full{{j}} * dot(x{{j}}_{{c}}, x{{j}}_{{c}});
    //% end
    //% end
    //% for r rows
    {
        var acc = 0.0;
        //% for c 4
        acc += dot(low(q{{j}}_{{r}}[{{c}}]), x{{j}}_{{2 * c}})
             + dot(low(q{{j}}_{{r}}[{{c}}] >> 16u), x{{j}}_{{2 * c + 1}});
        //% end
        sum{{r}} += full{{j}} * f32(h{{j}}_{{r}}) * acc;
    }
    //% end
    //% end

    for (var far = {{cn}}u; far < {{sg}}u; far *= 2u) {
        //% for r rows
        sum{{r}} += subgroupShuffleXor(sum{{r}}, far);
        //% end
        //% if norm == 1
        square += subgroupShuffleXor(square, far);
        //% end
    }
    //% if warps > 1
    if (index % {{sg}}u < {{cn}}u) {
        //% for r rows
        partial[index / {{sg}}u * {{cn * rows}}u + {{r * cn}}u + index % {{sg}}u] = sum{{r}};
        //% end
        //% if norm == 1
        squares[index / {{sg}}u] = square;
        //% end
    }
    workgroupBarrier();
    if (index < {{cn * rows}}u) {
        var total = 0.0;
        //% for i warps
        total += partial[{{i * cn * rows}}u + index];
        //% end
        //% if norm == 1
        var all = 0.0;
        //% for i warps
        all += squares[{{i}}u];
        //% end
        total *= select(0.0, 1.0, inverseSqrt(all) > 0.0);
        //% end
        y[group.x * {{cn * rows}}u + index] = total;
    }
    //% else
    if (index < {{cn}}u) {
        //% if norm == 1
        let factor = select(0.0, 1.0, inverseSqrt(square) > 0.0);
        //% else
        let factor = 1.0;
        //% end
        //% for r rows
        y[group.x * {{cn * rows}}u + {{r * cn}}u + index] = factor * sum{{r}};
        //% end
    }
    //% end
}
