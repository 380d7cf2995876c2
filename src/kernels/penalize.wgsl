// logits[row, t] = weakened(logits[row, t]) - presence - frequency * n for every token t that
// stands n > 0 times in the window; weakened(z) = z / repeat for z > 0, else z * repeat.
//
// Shapes: logits f32 [row + 1, V] or more, of which row `row` in place; history u32, of which
//   [first, first + count) is the window.
// Mapping: one lane a place of the window, 64 lanes a workgroup, folded into two grid dimensions.
//   The lane at a token's first place counts it and writes its logit: no two lanes write one.
// Needs: nothing.
// Why this version: a window is short beside a vocabulary; every lane reads it once. Ids at or
//   above V (a sampler's error mark) are passed over.
// Reference: ref_penalize. Method: Keskar et al., "CTRL", 2019 (repeat); presence and frequency
//   as the well-known HTTP interfaces define them.

struct Params {
    vocab: u32,
    row: u32,
    first: u32,
    count: u32,
    repeat: f32,
    presence: f32,
    frequency: f32,
}

@group(0) @binding(0) var<storage, read> history: array<u32>;
@group(0) @binding(1) var<storage, read_write> logits: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let place = (group.y * groups.x + group.x) * 64u + lane;
    if (place >= params.count) {
        return;
    }
    let token = history[params.first + place];
    if (token >= params.vocab) {
        return;
    }
    var times = 0u;
    for (var i = 0u; i < params.count; i++) {
        if (history[params.first + i] == token) {
            if (i < place) {
                return;
            }
            times++;
        }
    }
    let at = params.row * params.vocab + token;
    let logit = logits[at];
    let weakened = select(logit * params.repeat, logit / params.repeat, logit > 0.0);
    logits[at] = weakened - params.presence - params.frequency * f32(times);
}
