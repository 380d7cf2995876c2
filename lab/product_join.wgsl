// y[m][n] = sum over s of sums[s][m][n]: what a product split along k leaves to do.
//% let unit 0
//% let bytes M * N * 4 * (parts + 1)
//% let ops M * N * parts
//% need M * N % 1024 == 0
//% grid M*N/1024 1
//% ref none
//% bind dims c1 y
@group(0) @binding(0) var<uniform> dims: vec4<u32>;
@group(0) @binding(1) var<storage, read> sums: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var sum = y[id.x];
    for (var s = 0u; s < {{parts}}u; s++) {
        sum += sums[s * (dims.x * dims.y / 4u) + id.x];
    }
    y[id.x] = sum;
}
