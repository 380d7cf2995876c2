// A fixed amount of f32 arithmetic: eight chains of 2048 fused multiply-adds a lane.
@group(0) @binding(0) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let seed = f32(id.x & 7u) * 0.125;
    var a = vec4<f32>(seed);
    var b = vec4<f32>(seed + 1.0);
    for (var i = 0u; i < 2048u; i++) {
        a = fma(a, vec4<f32>(0.99), vec4<f32>(seed));
        b = fma(b, vec4<f32>(0.98), vec4<f32>(seed));
    }
    out[id.x] = dot(a, b);
}
