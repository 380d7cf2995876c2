// out[lane] = the exclusive or of what the lane read, if that is a certain improbable value: every
//   word of x is read once, and next to nothing is written.
//
// Shapes: x u32 [4 quads], quads a multiple of 1024 times the workgroups; out u32 [4].
// Mapping: 256 lanes a workgroup in one dimension; neighbouring lanes read neighbouring quads, and
//   a lane has four of them in flight.
// Needs: nothing but 256 lanes.
// Why this version: the most bytes a second that any kernel can read: the bandwidth of shares.
// Reference: none: what it gives means nothing.

struct Params {
    quads: u32,
}

@group(0) @binding(0) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> out: array<vec4<u32>>;
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    let step = groups.x * 256u;
    var mixed = vec4<u32>(0u);
    for (var i = id.x; i < params.quads; i += 4u * step) {
        mixed ^= x[i] ^ x[i + step] ^ x[i + 2u * step] ^ x[i + 3u * step];
    }
    if (mixed.x == 0x12345678u && mixed.y == 0x9abcdef0u && mixed.z == 0x0fedcba9u) {
        out[0] = mixed;
    }
}
