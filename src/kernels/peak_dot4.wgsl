// out[i] = the sum of eight chains v <- v + dot4(v, w), of 2 rounds steps each.
//
// Shapes: out u32 [256 workgroups].
// Mapping: 256 lanes a workgroup in one dimension; a lane has eight independent chains of
//   dot4I8Packed with its addition in registers, and touches memory once.
// Needs: nothing but 256 lanes.
// Why this version: the most products of bytes a second that any kernel can do, each with its
//   addition: 128 operations in a turn of the loop.
// Reference: none: what it gives means nothing.

struct Params {
    rounds: u32,
}

@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(1) @binding(0) var<uniform> params: Params;

fn step(v: u32, w: u32) -> u32 {
    return bitcast<u32>(dot4I8Packed(v, w) + bitcast<i32>(v));
}

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let w = id.x | 0x01010101u;
    var a = vec4<u32>(id.x, id.x + 1u, id.x + 2u, id.x + 3u);
    var b = a + vec4<u32>(4u);
    for (var i = 0u; i < params.rounds; i++) {
        a = vec4<u32>(step(a.x, w), step(a.y, w), step(a.z, w), step(a.w, w));
        b = vec4<u32>(step(b.x, w), step(b.y, w), step(b.z, w), step(b.w, w));
        a = vec4<u32>(step(a.x, w), step(a.y, w), step(a.z, w), step(a.w, w));
        b = vec4<u32>(step(b.x, w), step(b.y, w), step(b.z, w), step(b.w, w));
    }
    let sum = a + b;
    out[id.x] = sum.x + sum.y + sum.z + sum.w;
}
