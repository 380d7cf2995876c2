// parts[r, g] = (key, id) of the largest logit of slice g of row r, the lowest id among equals.
//
// Shapes: logits f32 [rows, vocab]; parts u32 [rows, slices, 2].
// Mapping: a workgroup of 64 lanes a slice, slices of a row next to each other, folded into two
//   grid dimensions; argmax_join finds the largest of the slices.
// Needs: nothing. 512 bytes of workgroup memory.
// Why this version: one workgroup reads a vocabulary of 128256 in 170 us on a card that needs 1;
//   slices spread it over all multiprocessors.
// Reference: ref_sample at temperature 0 (of the two together).

struct Params {
    vocab: u32,
    slices: u32,
    slice: u32,       // tokens a slice
    first_part: u32,  // parts [first_part, part_end) in this dispatch
    part_end: u32,
}

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read_write> parts: array<u32>;
@group(1) @binding(0) var<uniform> params: Params;

const LANES = 64u;
const NO_TOKEN = 0xffffffffu;

// use best_pair

// Order of keys = order of floats; -0 counts as 0, every NaN is above +infinity.
fn key_of(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    if ((bits << 1u) == 0u) {
        return 0x80000000u;
    }
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return 0xffffffffu;
    }
    return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let part = params.first_part + group.y * groups.x + group.x;
    if (part >= params.part_end) {
        return;
    }
    let row = part / params.slices;
    let first = (part % params.slices) * params.slice;
    let end = min(first + params.slice, params.vocab);
    var key = 0u;
    var id = NO_TOKEN;
    for (var i = first + lane; i < end; i += LANES) {
        let k = key_of(logits[row * params.vocab + i]);
        if (k > key) {
            key = k;
            id = i;
        }
    }
    find_best_pair(lane, key, id);
    if (lane == 0u) {
        parts[2u * part] = keys[0];
        parts[2u * part + 1u] = ids[0];
    }
}
