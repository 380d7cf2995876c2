// y[m][n] = sum over k of x[m][k] * s[n][k / 32] * (q[n][k] - 8) for few rows m, by subgroup matrices,
// with all the words that a subgroup needs asked for before the first is unpacked.
//
// x and w lie in blocks of 32 along k, [K / 32][rows][32], the scales as [K / 32][N].
//
// A workgroup makes 16 * across columns for all rows (padded to 16); its `teams` of one subgroup share
// the K / parts that it takes, each its own run of blocks, and their sums are added up in workgroup memory. A
// team goes through its run in steps of `units` blocks, written out, each unpacked to f16 into the team's
// own stage. With `parts` above 1 the sums of a part of k lie one after another in y.
//
// buf: stages a team (2: one barrier a step)
// xe: x is read as matrices from its buffer 0 after a step's barrier, 1 before, 2 all of it at the start
// sep: 1 sums have workgroup memory of their own, 0 they share the stages'
// room: 0 a tile a workgroup, else about so many workgroups, which walk over tiles; a step's words are
//   followed by those of the next tile's as soon as they are unpacked
// mx: 0 plain code instead of matrices, for adapters without
//% need across > 0 && teams > 0 && parts > 0 && units > 0
//% need K % (32 * teams * parts * units) == 0 && N % (16 * across) == 0 && M <= 64
//% let kb 1
//% let order 1
//% let mt (M + 15) / 16
//% let xrows mt * 16
//% let tn 16 * across
//% let blocks K / 32 / teams / parts
//% let steps blocks / units
//% let each tn * units / 32
//% need tn * units % 32 == 0 && each * steps <= 16 && steps <= 16
//% need mt * across <= 8 && (xe < 2 || mt * blocks <= 8)
//% let pitch 4 * units + 1
//% let stage tn * pitch
//% let spitch 4 * across + 1
//% let strip 16 * spitch
//% let stages buf * teams * stage
//% let strips teams * strip
//% let size stages * (sep == 1 || stages > strips) + strips * (sep == 1 || strips >= stages)
//% need size * 16 <= 49152 && (buf == 1 || steps > 1)
//% let tiles N / tn
//% let turns (room == 0) + (room > 0) * ((tiles * parts + room - 1) / (room + (room == 0)))
//% need room == 0 || turns > 1
//% let groups (tiles + turns - 1) / turns
//% let chunks parts
//% let threads teams * 32
//% need threads <= 1024
//% let unit 4
//% let limit 4000
//% grid groups*parts 1
//% ref q4
//% bind xh w4 y s
//% if mx == 1
diagnostic(off, chromium.subgroup_matrix_uniformity);
enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;
//% else
enable f16;
//% end

@group(0) @binding(0) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> scales: array<f16>;

var<workgroup> tile: array<vec4<u32>, {{size}}>;

//% if mx == 1
alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Result = subgroup_matrix_result<f32, 16, 16>;

fn left(at: u32) -> Left {
    return subgroupMatrixLoad<Left, row_major>(&x, at, 4u);
}

fn right(at: u32) -> Right {
    return subgroupMatrixLoad<Right, col_major>(&tile, at, {{pitch}}u);
}

fn multiply(l: Left, r: Right, sum: Result) -> Result {
    return subgroupMatrixMultiplyAccumulate(l, r, sum);
}

fn store(at: u32, sum: Result) {
    subgroupMatrixStore<row_major>(&tile, at, sum, {{spitch}}u);
}
//% else
var<private> own_lane: u32;
var<private> eight: u32;

struct Left { at: u32 }
struct Right { at: u32 }
struct Result { low: vec4<f32>, high: vec4<f32> }

fn left(at: u32) -> Left {
    return Left(at);
}

fn right(at: u32) -> Right {
    return Right(at);
}

fn wide(pair: u32) -> vec2<f32> {
    return vec2<f32>(bitcast<vec2<f16>>(pair));
}

fn eight_products(a: vec4<u32>, b: vec4<u32>) -> f32 {
    return dot(wide(a.x), wide(b.x)) + dot(wide(a.y), wide(b.y)) + dot(wide(a.z), wide(b.z)) +
           dot(wide(a.w), wide(b.w));
}

fn multiply(l: Left, r: Right, sum: Result) -> Result {
    var v = array<f32, 8>();
    let first = x[l.at + own_lane / 2u * 4u];
    let second = x[l.at + own_lane / 2u * 4u + 1u];
    for (var i = 0u; i < eight; i++) {
        let at = r.at + (own_lane % 2u * 8u + i) * {{pitch}}u;
        v[i] = eight_products(first, tile[at]) + eight_products(second, tile[at + 1u]);
    }
    return Result(sum.low + vec4<f32>(v[0], v[1], v[2], v[3]),
                  sum.high + vec4<f32>(v[4], v[5], v[6], v[7]));
}

fn store(at: u32, sum: Result) {
    let to = at + own_lane / 2u * {{spitch}}u + own_lane % 2u * 2u;
    tile[to] = bitcast<vec4<u32>>(sum.low);
    tile[to + 1u] = bitcast<vec4<u32>>(sum.high);
}
//% end

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
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) num: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
    let team = thread / 32u;
    let lane = thread % 32u;
    //% if mx == 0
    own_lane = lane;
    eight = select(8u, 7u, num.x == 0u);
    //% end
    let part = group.x / {{groups}}u;
    var at_tile = group.x % {{groups}}u;
    let block = (part * {{teams}}u + team) * {{blocks}}u;
    let from_x = block * {{xrows * 4}}u;
    let own = team * {{buf * stage}}u;

    //% for e each
    let to{{e}} = own + (lane + {{32 * e}}u) % {{tn}}u * {{pitch}}u + (lane + {{32 * e}}u) / {{tn}}u * 4u;
    let from{{e}} = (block + (lane + {{32 * e}}u) / {{tn}}u) * {{N}}u + (lane + {{32 * e}}u) % {{tn}}u;
    //% end
    //% for s steps
    //% for e each
    var q{{s}}_{{e}} = w[from{{e}} + at_tile * {{tn}}u + {{s * units * N}}u];
    var h{{s}}_{{e}} = scales[from{{e}} + at_tile * {{tn}}u + {{s * units * N}}u];
    //% end
    //% end
    //% if xe == 2
    //% for kk blocks*2
    //% for i mt
    let l{{kk}}_{{i}} = left(from_x + {{kk / 2 * xrows * 4 + 64 * i + kk % 2 * 2}}u);
    //% end
    //% end
    //% end

    //% if turns > 1
    for (var turn = 0u; turn < {{turns}}u; turn++) {
    if (at_tile >= {{tiles}}u) {
        break;
    }
    let next = at_tile + {{groups}}u;
    //% end
    //% for i mt
    //% for j across
    var c{{i}}_{{j}} = Result();
    //% end
    //% end
    //% for s steps
    //% let base (s % buf) * stage
    {
        //% if xe == 1
        //% for kk units*2
        //% for i mt
        let l{{kk}}_{{i}} = left(from_x + {{(s * units + kk / 2) * xrows * 4 + 64 * i + kk % 2 * 2}}u);
        //% end
        //% end
        //% end
        //% for e each
        //% for p 4
        tile[to{{e}} + {{base + p}}u] = unpack(q{{s}}_{{e}}[{{p}}], h{{s}}_{{e}});
        //% end
        //% end
        //% if turns > 1
        if (next < {{tiles}}u) {
            //% for e each
            q{{s}}_{{e}} = w[from{{e}} + next * {{tn}}u + {{s * units * N}}u];
            h{{s}}_{{e}} = scales[from{{e}} + next * {{tn}}u + {{s * units * N}}u];
            //% end
        }
        //% end
        workgroupBarrier();
        //% for kk units*2
        //% for i mt
        //% if xe == 0
        let l{{kk}}_{{i}} = left(from_x + {{(s * units + kk / 2) * xrows * 4 + 64 * i + kk % 2 * 2}}u);
        //% end
        //% end
        //% for j across
        {
            let r = right(own + {{base + 16 * j * pitch + 2 * kk}}u);
            //% for i mt
            //% if xe == 2
            c{{i}}_{{j}} = multiply(l{{s * units * 2 + kk}}_{{i}}, r, c{{i}}_{{j}});
            //% else
            c{{i}}_{{j}} = multiply(l{{kk}}_{{i}}, r, c{{i}}_{{j}});
            //% end
            //% end
        }
        //% end
        //% end
        //% if (buf == 1 && s + 1 < steps) || (sep == 0 && s + 1 == steps)
        workgroupBarrier();
        //% end
    }
    //% end

    //% let sums sep * stages
    //% for i mt
    //% if i > 0
    workgroupBarrier();
    //% end
    //% for j across
    store({{sums + 4 * j}}u + team * {{strip}}u, c{{i}}_{{j}});
    //% end
    workgroupBarrier();
    for (var e = thread; e < {{64 * across}}u; e += {{threads}}u) {
        let m = {{16 * i}}u + e / {{4 * across}}u;
        let c = e % {{4 * across}}u;
        let at = {{sums}}u + e / {{4 * across}}u * {{spitch}}u + c;
        var sum = bitcast<vec4<f32>>(tile[at]);
        //% for t teams-1
        sum += bitcast<vec4<f32>>(tile[at + {{(t + 1) * strip}}u]);
        //% end
        if (m < {{M}}u) {
            y[((part * {{M}}u + m) * {{N}}u + at_tile * {{tn}}u) / 4u + c] = sum;
        }
    }
    //% end
    //% if turns > 1
    //% if sep == 0
    workgroupBarrier();
    //% end
    at_tile = next;
    }
    //% end
}
