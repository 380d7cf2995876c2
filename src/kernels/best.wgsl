// out[first + r, 0] = (c, logits[r, c]) of the chosen token c; out[first + r, 1 + i] =
// (t, logits[r, t]) of the i-th largest logit, the lowest id first among equals.
//
// Shapes: logits f32 [rows, V]; chosen u32 [first + rows]; out u32 [first + rows, 2 (1 + count)]:
//   ids and the bits of their logits.
// Mapping: a workgroup of 256 lanes a row, folded into two grid dimensions; a pass over the
//   vocabulary for each place, looking for the largest pair (logit, -id) below the one before.
// Needs: nothing. 2 KiB of workgroup memory.
// Why this version: count is small, and no sort is needed for it. A chosen id at or above V gives
//   NaN; a place past the vocabulary the id 0xffffffff and NaN; NaNs are never among the best.
// Reference: ref_best.

struct Params {
    rows: u32,
    vocab: u32,
    first: u32,
    count: u32,
}

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> chosen: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<u32>;
@group(1) @binding(0) var<uniform> params: Params;

const LANES = 256u;
const QUIET_NAN = 0x7fc00000u;
const NO_TOKEN = 0xffffffffu;

// use best_pair

// Unsigned numbers in the order of the floats; 0 for NaN, below all others.
fn key_of(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return 0u;
    }
    if ((bits << 1u) == 0u) {
        return 0x80000000u;
    }
    return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let row = group.y * groups.x + group.x;
    if (row >= params.rows) {
        return;
    }
    let start = row * params.vocab;
    let to = 2u * (params.first + row) * (params.count + 1u);
    if (lane == 0u) {
        let token = chosen[params.first + row];
        out[to] = token;
        out[to + 1u] = QUIET_NAN;
        if (token < params.vocab) {
            out[to + 1u] = bitcast<u32>(logits[start + token]);
        }
    }
    var last_key = 0xffffffffu;
    var last_id = 0u;
    for (var place = 1u; place <= params.count; place++) {
        var key = 0u;
        var id = NO_TOKEN;
        for (var i = lane; i < params.vocab; i += LANES) {
            let k = key_of(logits[start + i]);
            let below = k < last_key || (k == last_key && i > last_id);
            if (below && k > key) {
                key = k;
                id = i;
            }
        }
        find_best_pair(lane, key, id);
        last_key = keys[0];
        last_id = ids[0];
        if (lane == 0u) {
            out[to + 2u * place] = last_id;
            out[to + 2u * place + 1u] = QUIET_NAN;
            if (last_id < params.vocab) {
                out[to + 2u * place + 1u] = bitcast<u32>(logits[start + last_id]);
            }
        }
        workgroupBarrier();
    }
}
