// th[n][k] (t 0) or th[k][n] (t 1) = s[n][k / 32] * (q[n][k] - 8) as f16: a weight unpacked once for
// many rows. A thread unpacks one word (8 elements along k); t 1 turns 8 x 8 blocks: a thread reads
// one word of each of 8 rows and writes 8 times 8 elements along n.
//% let unit 0
//% let bytes N * K / 2 + N * K / 16 + N * K * 2
//% let ops N * K
//% let limit 2000
//% let copies 1
//% need K % 2048 == 0 && N % 8 == 0 && t < 2
//% if t == 0
//% grid K/2048 N
//% ref unpack
//% else
//% grid K/2048 N/8
//% ref none
//% end
//% bind w4 s th
enable f16;
@group(0) @binding(0) var<storage, read> w: array<u32>;
@group(0) @binding(1) var<storage, read> scales: array<f16>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<u32>>;

fn unpack(word: u32, scale: f16) -> array<vec2<f16>, 4> {
    let s = vec2<f16>(scale);
    let far = word >> 16u;
    return array<vec2<f16>, 4>(
        s * (bitcast<vec2<f16>>((word & 0xfu) | ((word << 12u) & 0xf0000u) | 0x64006400u) - vec2<f16>(1032.0h)),
        s * (bitcast<vec2<f16>>(((word >> 8u) & 0xfu) | ((word << 4u) & 0xf0000u) | 0x64006400u) - vec2<f16>(1032.0h)),
        s * (bitcast<vec2<f16>>((far & 0xfu) | ((far << 12u) & 0xf0000u) | 0x64006400u) - vec2<f16>(1032.0h)),
        s * (bitcast<vec2<f16>>(((far >> 8u) & 0xfu) | ((far << 4u) & 0xf0000u) | 0x64006400u) - vec2<f16>(1032.0h)));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let word = group.x * 256u + thread;
    //% if t == 0
    let v = unpack(w[group.y * {{K / 8}}u + word], scales[group.y * {{K / 32}}u + word / 4u]);
    out[group.y * {{K / 8}}u + word] = vec4<u32>(bitcast<u32>(v[0]), bitcast<u32>(v[1]), bitcast<u32>(v[2]), bitcast<u32>(v[3]));
    //% else
    //% for r 8
    let v{{r}} = unpack(w[(group.y * 8u + {{r}}u) * {{K / 8}}u + word], scales[(group.y * 8u + {{r}}u) * {{K / 32}}u + word / 4u]);
    //% end
    //% for c 8
    out[(word * 8u + {{c}}u) * {{N / 8}}u + group.y] = vec4<u32>(
        bitcast<u32>(vec2<f16>(v0[{{c / 2}}][{{c % 2}}], v1[{{c / 2}}][{{c % 2}}])),
        bitcast<u32>(vec2<f16>(v2[{{c / 2}}][{{c % 2}}], v3[{{c / 2}}][{{c % 2}}])),
        bitcast<u32>(vec2<f16>(v4[{{c / 2}}][{{c % 2}}], v5[{{c / 2}}][{{c % 2}}])),
        bitcast<u32>(vec2<f16>(v6[{{c / 2}}][{{c % 2}}], v7[{{c / 2}}][{{c % 2}}])));
    //% end
    //% end
}
