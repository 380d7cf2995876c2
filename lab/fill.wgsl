// word[i] = f(hash(i)): the inputs of every candidate, a function of the position alone.
struct Params {
    words: u32,
    kind: u32,     // 0 hash, 1 two f16 scales, 2 two f16 values, 3 one f32 value, 4 f16 pairs, 5 poison, 6 ones
    seed: u32,
    groups_x: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> word: array<u32>;

fn hash(index: u32) -> u32 {
    var h = index * 747796405u + params.seed * 2891336453u + 1u;
    h = (h ^ (h >> 16u)) * 0x7feb352du;
    h = (h ^ (h >> 15u)) * 0x846ca68bu;
    return h ^ (h >> 16u);
}

fn value(index: u32) -> f32 {
    return (f32(hash(index) & 2047u) - 1024.0) / 1024.0;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = (group.y * params.groups_x + group.x) * 256u + lane;
    if (i >= params.words) {
        return;
    }
    switch params.kind {
        case 0u: {
            word[i] = hash(i);
        }
        case 1u: {
            let h = hash(i);
            word[i] = 0x20002000u | (h & 0x3ffu) | (((h >> 10u) & 0x3ffu) << 16u);
        }
        case 2u: {
            word[i] = pack2x16float(vec2<f32>(value(2u * i), value(2u * i + 1u)));
        }
        case 3u: {
            word[i] = bitcast<u32>(value(i));
        }
        case 4u: {
            let first = i / 4u * 8u + i % 4u;
            word[i] = pack2x16float(vec2<f32>(value(first), value(first + 4u)));
        }
        case 6u: {
            word[i] = bitcast<u32>(1.0);
        }
        default: {
            word[i] = 0xffffffffu;
        }
    }
}
