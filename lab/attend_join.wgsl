// Flash decoding, second half: o[h] = sum over chunks c of f_c o[h][c] / sum of f_c, with
// f_c = l_c exp(m_c - max m). K = chunks. A workgroup a head: `lanes` lanes along 64 dims times chunks.
//% need K >= wg / 64 && K <= 512 && N == 2048 && wg % 64 == 0
//% let rows wg / 64
//% let copies 1
//% let unit 0
//% let limit 1000
//% let bytes 32 * K * 66 * 4
//% let ops 2 * 32 * 64 * K
//% grid 32 1
//% ref join
//% bind b32 x32 y
@group(0) @binding(0) var<storage, read> o: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

var<workgroup> factor: array<f32, {{K}}>;
var<workgroup> top: array<f32, {{wg}}>;
var<workgroup> sums: array<f32, {{wg}}>;

@compute @workgroup_size({{wg}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
    let h = group.x;
    let d = index % 64u;
    let row = index / 64u;
    var m = -1e30;
    for (var c = index; c < {{K}}u; c += {{wg}}u) {
        m = max(m, weight[h * {{K}}u + c].x);
    }
    top[index] = m;
    workgroupBarrier();
    for (var far = {{wg / 2}}u; far > 0u; far /= 2u) {
        if (index < far) {
            top[index] = max(top[index], top[index + far]);
        }
        workgroupBarrier();
    }
    let highest = top[0];
    for (var c = index; c < {{K}}u; c += {{wg}}u) {
        let ml = weight[h * {{K}}u + c];
        factor[c] = (ml.y + 2.0) * exp(ml.x - highest);
    }
    workgroupBarrier();
    var sum = 0.0;
    var all = 0.0;
    for (var c = row; c < {{K}}u; c += {{rows}}u) {
        sum = fma(factor[c], o[(h * {{K}}u + c) * 64u + d], sum);
        all += factor[c];
    }
    sums[index] = sum;
    top[index] = all;
    workgroupBarrier();
    if (row == 0u) {
        for (var r = 1u; r < {{rows}}u; r++) {
            sum += sums[r * 64u + d];
            all += top[r * 64u];
        }
        y[h * 64u + d] = sum / all;
    }
}
