// ids[r] = sources[r], or, where that has its top bit set, chosen[sources[r] without it].
//
// Shapes: sources u32 [rows]; chosen u32 [count]; ids u32 [rows].
// Mapping: one lane a row, 64 lanes a workgroup, folded into two grid dimensions.
// Needs: nothing.
// Why this version: a step of several sequences mixes ids that the host knows with ids that the
//   step before chose and nobody has read yet. A place past the end of `chosen` gives 0xffffffff,
//   which is no token.
// Reference: ref_gather_ids.

struct Params {
    rows: u32,
    count: u32,    // of chosen
}

@group(0) @binding(0) var<storage, read> sources: array<u32>;
@group(0) @binding(1) var<storage, read> chosen: array<u32>;
@group(0) @binding(2) var<storage, read_write> ids: array<u32>;
@group(1) @binding(0) var<uniform> params: Params;

const CHOSEN = 0x80000000u;
const NO_TOKEN = 0xffffffffu;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let row = (group.y * groups.x + group.x) * 64u + lane;
    if (row >= params.rows) {
        return;
    }
    let source = sources[row];
    let place = source & ~CHOSEN;
    var id = source;
    if (source >= CHOSEN) {
        id = NO_TOKEN;
        if (place < params.count) {
            id = chosen[place];
        }
    }
    ids[row] = id;
}
