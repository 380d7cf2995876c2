// y[c] = sum_k x[k] * W[c, k], or that added to y[c] with ACCUMULATE = 1: the product of one row.
//
// Shapes: x f32 [K], read as vec4, K = 8 * EIGHTHS; y f32, columns from col0 on; W is one part of
//   a weight (piece weight).
// Mapping: a workgroup computes COLS columns; its lanes are COLS by SLICES of K. Neighbouring lanes
//   take neighbouring columns, whose entries of a block are one run of memory; a slice takes every
//   SLICES-th block, and its lanes read the same words of x. The slices' sums meet in workgroup
//   memory. Workgroups fold into two dimensions.
// Needs: COLS * SLICES invocations, four bytes of workgroup memory each.
// Why this version: a decode step reads every weight once, so it is bound by memory if the lines
//   that are read are whole. Exact: weights are decoded to f32, sums are f32.
// Reference: ref_matmul.

// use weight

override ACCUMULATE: u32 = 0;
override COLS: u32 = 32;
override SLICES: u32 = 8;
override LANES: u32 = 256;      // COLS * SLICES
override EIGHTHS: u32 = 64;

struct Params {
    k: u32,
    stride: u32,       // of the part's tables
    cols: u32,         // rows of this part of the weight
    col0: u32,         // where the part's columns start in y
    first_group: u32,  // workgroups [first_group, group_end) in this dispatch
    group_end: u32,
}

@group(0) @binding(3) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

var<workgroup> partial: array<f32, LANES>;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let index = params.first_group + group.y * groups.x + group.x;
    if (index >= params.group_end) {
        return;
    }
    let col = index * COLS + lane % COLS;
    let slice = lane / COLS;
    // Past the edge the last column is computed again and not stored.
    let n = min(col, params.cols - 1u);
    var sum = 0.0;
    for (var first = 4u * slice; first < EIGHTHS; first += 4u * SLICES) {
        for (var e = first; e < min(first + 4u, EIGHTHS); e++) {
            let kb = e / 4u;
            let w = weight_eight(n, kb, e % 4u, weight_scale(n, kb, e % 4u));
            sum += dot(x[2u * e], w.low) + dot(x[2u * e + 1u], w.high);
        }
    }
    partial[lane] = sum;
    workgroupBarrier();
    if (lane < COLS && col < params.cols) {
        var total = 0.0;
        for (var i = lane; i < LANES; i += COLS) {
            total += partial[i];
        }
        let at = params.col0 + col;
        if (ACCUMULATE == 1u) {
            total += y[at];
        }
        y[at] = total;
    }
}
