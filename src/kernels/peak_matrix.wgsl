// out = eight sums c <- c + a b of 16 x 16 matrices, rounds steps each.
//
// Shapes: out f32 [2048 workgroups]; the subgroups of a workgroup write the same values.
// Mapping: 256 lanes a workgroup in one dimension; a subgroup has eight independent chains of
//   products of matrices in registers, and touches memory at the end.
// Needs: f16, subgroup matrices f16 to f32 of 16 x 16 x 16.
// Why this version: the most operations a second that matrix units can do, 65536 a subgroup in a
//   turn of the loop.
// Reference: none: what it gives means nothing.

enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;

alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Result = subgroup_matrix_result<f32, 16, 16>;

struct Params {
    rounds: u32,
}

@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    let a = Left(0.25h);
    let b = Right(0.5h);
    var c0 = Result(0.0);
    var c1 = Result(1.0);
    var c2 = Result(2.0);
    var c3 = Result(3.0);
    var c4 = Result(4.0);
    var c5 = Result(5.0);
    var c6 = Result(6.0);
    var c7 = Result(7.0);
    for (var i = 0u; i < params.rounds; i++) {
        c0 = subgroupMatrixMultiplyAccumulate(a, b, c0);
        c1 = subgroupMatrixMultiplyAccumulate(a, b, c1);
        c2 = subgroupMatrixMultiplyAccumulate(a, b, c2);
        c3 = subgroupMatrixMultiplyAccumulate(a, b, c3);
        c4 = subgroupMatrixMultiplyAccumulate(a, b, c4);
        c5 = subgroupMatrixMultiplyAccumulate(a, b, c5);
        c6 = subgroupMatrixMultiplyAccumulate(a, b, c6);
        c7 = subgroupMatrixMultiplyAccumulate(a, b, c7);
    }
    let at = group.x * 2048u;
    subgroupMatrixStore<row_major>(&out, at, c0, 16u);
    subgroupMatrixStore<row_major>(&out, at + 256u, c1, 16u);
    subgroupMatrixStore<row_major>(&out, at + 512u, c2, 16u);
    subgroupMatrixStore<row_major>(&out, at + 768u, c3, 16u);
    subgroupMatrixStore<row_major>(&out, at + 1024u, c4, 16u);
    subgroupMatrixStore<row_major>(&out, at + 1280u, c5, 16u);
    subgroupMatrixStore<row_major>(&out, at + 1536u, c6, 16u);
    subgroupMatrixStore<row_major>(&out, at + 1792u, c7, 16u);
}
