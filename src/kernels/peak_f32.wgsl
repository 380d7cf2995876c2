// out[i] = the sum of eight chains v <- v * c + s of 4 rounds steps each.
//
// Shapes: out f32 [256 workgroups].
// Mapping: 256 lanes a workgroup in one dimension; a lane has eight independent chains of fused
//   multiply-adds in registers, and touches memory once.
// Needs: nothing but 256 lanes.
// Why this version: the most f32 operations a second that any kernel can do, 64 in a turn of the
//   loop; and, with a fixed number of rounds, the canary that tells whether a card's clock is up.
// Reference: none: what it gives means nothing.

struct Params {
    rounds: u32,
}

@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let s = vec4<f32>(f32(id.x & 7u) * 0.125);
    let c = vec4<f32>(0.99);
    let d = vec4<f32>(0.98);
    var a = s;
    var b = s + vec4<f32>(1.0);
    for (var i = 0u; i < params.rounds; i++) {
        a = fma(a, c, s);
        b = fma(b, d, s);
        a = fma(a, c, s);
        b = fma(b, d, s);
        a = fma(a, c, s);
        b = fma(b, d, s);
        a = fma(a, c, s);
        b = fma(b, d, s);
    }
    out[id.x] = dot(a, b);
}
