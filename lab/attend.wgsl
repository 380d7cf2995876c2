// Flash decoding, first half: o[h][c] = softmax over the positions p of chunk c of (q[h] . k[p]) / 8
// times v[p], with the chunk's running maximum and sum, for all `share` query heads of a KV head at
// once, so that K and V are read once. 32 query heads on 8 KV heads of 64, K = positions.
//
// A team of `team` lanes holds a position's row of 64 (64 / team dims a lane); a workgroup's teams
// take `deep` positions each, all of them asked for before the first is used; there is no running
// rescale. Then the teams' sums are merged, within a subgroup by exchange and across through memory.
// wgheads: query heads a workgroup does (4: K and V read once; 1: four times, from the L2).
//
// One H200, 4096 positions: team=8 deep=8 wg=256 wgheads=4 (16 chunks) 6.6 us, and attend_join.wgsl 3.2 us.
//% let dims 64 / team
//% let words dims / 8
//% let teams wg / team
//% let chunk teams * deep
//% let chunks K / chunk
//% let warps wg / 32
//% need sg == 32 && K % chunk == 0 && (team == 8 || team == 4 || team == 2) && warps >= 1 && N == 2048
//% need wgheads * dims <= 64
//% let copies 16
//% let unit 0
//% let limit 4000
//% let bytes 2 * 8 * K * 64 * 2
//% let ops 4 * 32 * 64 * K
//% grid chunks 32/wgheads
//% ref attend
//% bind xh kv y th
enable f16;
enable subgroups;

@group(0) @binding(0) var<storage, read> q: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> kv: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> o: array<f32>;
@group(0) @binding(3) var<storage, read_write> weight: array<vec2<f32>>;

//% if warps > 1
var<workgroup> far_o: array<f32, {{warps * wgheads * 64}}>;
var<workgroup> far_ml: array<vec2<f32>, {{warps * wgheads}}>;
//% end

fn dot8(a: vec4<u32>, b: vec4<u32>) -> f32 {
    var sum = 0.0;
    //% for p 4
    let a{{p}} = vec2<f32>(bitcast<vec2<f16>>(a[{{p}}]));
    let b{{p}} = vec2<f32>(bitcast<vec2<f16>>(b[{{p}}]));
    sum = fma(a{{p}}.x, b{{p}}.x, fma(a{{p}}.y, b{{p}}.y, sum));
    //% end
    return sum;
}

@compute @workgroup_size({{wg}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
    let lane = index % {{team}}u;
    let team = index / {{team}}u;
    let head0 = group.y * {{wgheads}}u;
    let kv_head = head0 / 4u;
    let first = (kv_head * {{K}}u + group.x * {{chunk}}u + team) * 8u + lane * {{words}}u;
    let v_first = first + {{8 * K * 8}}u;

    //% for d deep
    //% for w words
    let k{{d}}_{{w}} = kv[first + {{d * teams * 8 + w}}u];
    let v{{d}}_{{w}} = kv[v_first + {{d * teams * 8 + w}}u];
    //% end
    //% end

    //% for h wgheads
    //% for w words
    let q{{h}}_{{w}} = q[(head0 + {{h}}u) * 8u + lane * {{words}}u + {{w}}u];
    //% end
    //% for d deep
    var s{{h}}_{{d}} = 0.0;
    //% for w words
    s{{h}}_{{d}} += dot8(q{{h}}_{{w}}, k{{d}}_{{w}});
    //% end
    //% end
    //% end
    for (var far = {{team / 2}}u; far > 0u; far /= 2u) {
        //% for h wgheads
        //% for d deep
        s{{h}}_{{d}} += subgroupShuffleXor(s{{h}}_{{d}}, far);
        //% end
        //% end
    }

    //% for h wgheads
    var m{{h}} = s{{h}}_0;
    //% for d deep
    m{{h}} = max(m{{h}}, s{{h}}_{{d}});
    //% end
    for (var far = {{team}}u; far < 32u; far *= 2u) {
        m{{h}} = max(m{{h}}, subgroupShuffleXor(m{{h}}, far));
    }
    var l{{h}} = 0.0;
    //% for i dims
    var o{{h}}_{{i}} = 0.0;
    //% end
    //% for d deep
    {
        let p = exp((s{{h}}_{{d}} - m{{h}}) * 0.125);
        l{{h}} += p;
        //% for w words
        //% for c 4
        {
            let v = vec2<f32>(bitcast<vec2<f16>>(v{{d}}_{{w}}[{{c}}]));
            o{{h}}_{{w * 8 + c * 2}} = fma(p, v.x, o{{h}}_{{w * 8 + c * 2}});
            o{{h}}_{{w * 8 + c * 2 + 1}} = fma(p, v.y, o{{h}}_{{w * 8 + c * 2 + 1}});
        }
        //% end
        //% end
    }
    //% end
    for (var far = {{team}}u; far < 32u; far *= 2u) {
        l{{h}} += subgroupShuffleXor(l{{h}}, far);
        //% for i dims
        o{{h}}_{{i}} += subgroupShuffleXor(o{{h}}_{{i}}, far);
        //% end
    }
    //% end

    //% if warps > 1
    if (index % 32u < {{team}}u) {
        let warp = index / 32u;
        //% for h wgheads
        far_ml[warp * {{wgheads}}u + {{h}}u] = vec2<f32>(m{{h}}, l{{h}});
        //% for i dims
        far_o[(warp * {{wgheads}}u + {{h}}u) * 64u + lane * {{dims}}u + {{i}}u] = o{{h}}_{{i}};
        //% end
        //% end
    }
    workgroupBarrier();
    for (var e = index; e < {{wgheads * 64}}u; e += {{wg}}u) {
        let h = e / 64u;
        var m = far_ml[h].x;
        //% for i warps
        m = max(m, far_ml[{{i * wgheads}}u + h].x);
        //% end
        var l = 0.0;
        var sum = 0.0;
        //% for i warps
        {
            let ml = far_ml[{{i * wgheads}}u + h];
            let p = exp((ml.x - m) * 0.125);
            l = fma(p, ml.y, l);
            sum = fma(p, far_o[({{i * wgheads}}u + h) * 64u + e % 64u], sum);
        }
        //% end
        o[((head0 + h) * {{chunks}}u + group.x) * 64u + e % 64u] = sum / l;
        if (e % 64u == 0u) {
            weight[(head0 + h) * {{chunks}}u + group.x] = vec2<f32>(m * 0.125, l);
        }
    }
    //% else
    if (index < {{team}}u) {
        //% for h wgheads
        //% for i dims
        o[((head0 + {{h}}u) * {{chunks}}u + group.x) * 64u + lane * {{dims}}u + {{i}}u] = o{{h}}_{{i}} / l{{h}};
        //% end
        if (lane == 0u) {
            weight[(head0 + {{h}}u) * {{chunks}}u + group.x] = vec2<f32>(m{{h}} * 0.125, l{{h}});
        }
        //% end
    }
    //% end
}
