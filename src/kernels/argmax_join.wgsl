// ids[first + r] = the id of the largest key of parts[r, :], the lowest among equals; 0xffffffff
// where the largest is NaN, +infinity or -infinity.
//
// Shapes: parts u32 [rows, slices, 2] as argmax_parts writes them; ids u32 [first + rows].
// Mapping: a workgroup of 64 lanes a row, folded into two grid dimensions.
// Needs: nothing. 512 bytes of workgroup memory.
// Why this version: a few hundred pairs.
// Reference: ref_sample at temperature 0 (of the two together).

struct Params {
    rows: u32,
    slices: u32,
    first: u32,
}

@group(0) @binding(0) var<storage, read> parts: array<u32>;
@group(0) @binding(1) var<storage, read_write> chosen: array<u32>;
@group(1) @binding(0) var<uniform> params: Params;

const LANES = 64u;
const NO_TOKEN = 0xffffffffu;
const KEY_PLUS_INFINITY = 0xff800000u;
const KEY_MINUS_INFINITY = 0x007fffffu;

// use best_pair

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let row = group.y * groups.x + group.x;
    if (row >= params.rows) {
        return;
    }
    var key = 0u;
    var id = NO_TOKEN;
    for (var i = lane; i < params.slices; i += LANES) {
        let at = 2u * (row * params.slices + i);
        let k = parts[at];
        if (k > key || (k == key && parts[at + 1u] < id)) {
            key = k;
            id = parts[at + 1u];
        }
    }
    find_best_pair(lane, key, id);
    if (lane == 0u) {
        let none = keys[0] >= KEY_PLUS_INFINITY || keys[0] <= KEY_MINUS_INFINITY;
        chosen[params.first + row] = select(ids[0], NO_TOKEN, none);
    }
}
