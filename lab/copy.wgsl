// The card's bandwidth: c2 = c1 (mode 0), or every word read and almost none written (mode 1).
//% need mode < 2
//% let words (1073741824 / 16)
//% let bytes 1073741824 * (2 - mode)
//% let ops 1
//% let copies 1
//% grid groups 1
//% bind c1 c2
//% ref none
@group(0) @binding(0) var<storage, read> from_: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> to: array<vec4<u32>>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let step = {{groups * 256}}u;
    var sum = vec4<u32>(0u);
    for (var i = id.x; i < min({{words}}u, arrayLength(&from_)); i += step * {{each}}u) {
        //% for j each
        let v{{j}} = from_[i + {{j}}u * step];
        //% end
        //% for j each
        //% if mode == 0
        to[i + {{j}}u * step] = v{{j}};
        //% else
        sum ^= v{{j}};
        //% end
        //% end
    }
    //% if mode == 1
    if (sum.x == 0x12345678u && sum.y == 0x9abcdef0u) {
        to[id.x] = sum;
    }
    //% end
}
