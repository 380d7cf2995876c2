// The cost of a dispatch that waits for the one before it: y[0] += 1.
//% let ops 1
//% let bytes 4
//% let copies 1
//% grid groups 1
//% bind y
//% ref none
@group(0) @binding(0) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    y[id.x] = y[id.x] + 1.0;
}
