// out[first + r] = log(sum_v exp(logits[r, v] - m)) - (logits[r, targets[first + r]] - m),
// m = max_v logits[r, v].
//
// Shapes: logits f32 [rows, vocab]; targets u32 and out f32 [first + rows]. A target >= vocab gives
//   NaN, and so do NaN or +infinity among the logits and a row of nothing but -infinity.
// Mapping: a workgroup of 256 lanes a row, folded into two grid dimensions; lanes stride the
//   vocabulary.
// Needs: nothing. 1 KiB of workgroup memory.
// Why this version: the sum is 256 short sums, then 16, then one: its error does not grow with the
//   vocabulary. NaN is known by its bits: the exp of a driver may make infinity of it, and its log
//   of 0 a number.
// Reference: ref_nll.

struct Params {
    row0: u32,
    row_end: u32,
    vocab: u32,
    first: u32,
}

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> targets: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

const LANES = 256u;
var<workgroup> partial: array<f32, 256>;
var<workgroup> partial16: array<f32, 16>;

fn is_nan(v: f32) -> bool {
    return (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let row = params.row0 + group.y * groups.x + group.x;
    if (row >= params.row_end) {
        return;
    }
    let start = row * params.vocab;

    var m = -3.4e38;
    for (var i = lane; i < params.vocab; i += LANES) {
        m = max(m, logits[start + i]);
    }
    partial[lane] = m;
    workgroupBarrier();
    if (lane < 16u) {
        for (var i = 0u; i < 16u; i++) {
            m = max(m, partial[lane * 16u + i]);
        }
        partial16[lane] = m;
    }
    workgroupBarrier();
    for (var i = 0u; i < 16u; i++) {
        m = max(m, partial16[i]);
    }
    workgroupBarrier();

    var quiet_nan = 0x7fc00000u;
    var sum = 0.0;
    for (var i = lane; i < params.vocab; i += LANES) {
        let v = logits[start + i] - m;
        sum += select(exp(v), bitcast<f32>(quiet_nan), is_nan(v));
    }
    partial[lane] = sum;
    workgroupBarrier();
    if (lane < 16u) {
        sum = 0.0;
        for (var i = 0u; i < 16u; i++) {
            sum += partial[lane * 16u + i];
        }
        partial16[lane] = sum;
    }
    workgroupBarrier();
    if (lane == 0u) {
        sum = 0.0;
        for (var i = 0u; i < 16u; i++) {
            sum += partial16[i];
        }
        let target_id = targets[params.first + row];
        if (target_id < params.vocab && sum > 0.0 && !is_nan(sum)) {
            out[params.first + row] = log(sum) - (logits[start + target_id] - m);
        } else {
            out[params.first + row] = bitcast<f32>(quiet_nan);
        }
    }
}
