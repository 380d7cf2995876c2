// Rates without memory: independent chains of one instruction in registers.
// unit 1: f32 fma; 2: f16 pair fma; 3: dot4I8Packed; 4: matrices f16 x f16 + f32 of 16 x 16 x 16;
// 5: integer and-or (the unpacking of nibbles); 6: f16 to f32 conversion;
// 7: matrices i8 x i8 + i32 of 16 x 16 x 32.
//% let rounds 2048
//% let chains 8
//% let waves 132 * 8
//% let per_turn (unit == 1) * 2 + (unit == 2) * 4 + (unit == 3) * 8 + (unit == 4) * 256 + (unit == 5) * 1 + (unit == 6) * 2 + (unit == 7) * 512
//% let ops rounds * chains * waves * 256 * per_turn
//% let bytes 0
//% let copies 1
//% grid waves 1
//% bind c2
//% ref none
//% if unit == 2 || unit == 4 || unit == 6
enable f16;
//% end
//% if unit == 4 || unit == 7
enable subgroups;
enable chromium_experimental_subgroup_matrix;
//% end
//% if unit == 7
@group(0) @binding(0) var<storage, read_write> out: array<i32>;
//% else
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
//% end

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    //% if unit == 4 || unit == 7
    //% if unit == 4
    var left = subgroup_matrix_left<f16, 16, 16>(0.25h);
    var right = subgroup_matrix_right<f16, 16, 16>(0.5h);
    //% for c chains
    var m{{c}} = subgroup_matrix_result<f32, 16, 16>({{c}}.0);
    //% end
    //% else
    var left = subgroup_matrix_left<i8, 32, 16>(3);
    var right = subgroup_matrix_right<i8, 16, 32>(5);
    //% for c chains
    var m{{c}} = subgroup_matrix_result<i32, 16, 16>({{c}});
    //% end
    //% end
    for (var i = 0u; i < {{rounds}}u; i++) {
        //% for c chains
        m{{c}} = subgroupMatrixMultiplyAccumulate(left, right, m{{c}});
        //% end
    }
    //% for c chains
    subgroupMatrixStore<row_major>(&out, {{c * 256}}u, m{{c}}, 16u);
    //% end
    //% else
    let seed = f32(id.x & 7u) * 0.125;
    //% for c chains
    //% if unit == 1
    var v{{c}} = seed + {{c}}.0;
    //% end
    //% if unit == 2
    var v{{c}} = vec2<f16>(f16(seed), f16({{c}}.0));
    //% end
    //% if unit == 3 || unit == 5 || unit == 6
    var v{{c}} = id.x + {{c}}u;
    //% end
    //% end
    for (var i = 0u; i < {{rounds}}u; i++) {
        //% for c chains
        //% if unit == 1
        v{{c}} = fma(v{{c}}, 0.99, seed);
        //% end
        //% if unit == 2
        v{{c}} = fma(v{{c}}, vec2<f16>(0.99h), vec2<f16>(0.5h));
        //% end
        //% if unit == 3
        v{{c}} = u32(dot4I8Packed(v{{c}}, id.x) + i32(v{{c}}));
        //% end
        //% if unit == 5
        v{{c}} = ((v{{c}} & 0x000f000fu) | id.x) ^ i;
        //% end
        //% if unit == 6
        let h{{c}} = bitcast<vec2<f16>>(v{{c}});
        v{{c}} = bitcast<u32>(f32(h{{c}}.x)) ^ bitcast<u32>(f32(h{{c}}.y));
        //% end
        //% end
    }
    var sum = 0.0;
    //% for c chains
    //% if unit == 2
    sum += f32(v{{c}}.x) + f32(v{{c}}.y);
    //% else
    sum += f32(v{{c}});
    //% end
    //% end
    out[id.x] = sum;
    //% end
}
