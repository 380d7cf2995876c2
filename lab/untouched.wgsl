// count += words of y that still hold the poison.
@group(0) @binding(0) var<uniform> words: vec4<u32>;
@group(0) @binding(1) var<storage, read> y: array<u32>;
@group(0) @binding(2) var<storage, read_write> count: atomic<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    var found = 0u;
    for (var i = group.x * 256u + lane; i < words.x; i += groups.x * 256u) {
        found += u32(y[i] == 0xffffffffu);
    }
    if (found > 0u) {
        atomicAdd(&count, found);
    }
}
