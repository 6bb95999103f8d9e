// Matrix products by subgroups that pass rows on; what it shares with the tiles of matmul.wgsl is there.
//
// Software adapters run a subgroup as one vector and load a lane at a time, so that a load costs as much as eight
// shuffles. The eight threads load 32 rows of lhs together, four each, and every thread multiplies all of them by
// eight columns.

// Stores two blocks that stand side by side.
fn finish_both(first: u32, row: u32, column: u32, left: mat4x4<f32>, right: mat4x4<f32>) {
    finish(first, row, column, left);
    finish(first, row, column + 4u, right);
}

@compute @workgroup_size(WORKGROUP)
fn shuffled(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let at = own_part(corner(tr_group(id, grid)), thread);
    let m = at.row;
    let n = at.column;
    // Whole subgroups: threads whose columns lie outside load rows for the others.
    if (tr_outside(id, grid) || m >= params.m) {
        return;
    }
    let own = m + 4u * (thread % SUBGROUP);
    // A block's row and column are its name's digits.
    var c00 = begin(at.out, m, n);
    var c01 = begin(at.out, m, n + 4u);
    var c10 = begin(at.out, m + 4u, n);
    var c11 = begin(at.out, m + 4u, n + 4u);
    var c20 = begin(at.out, m + 8u, n);
    var c21 = begin(at.out, m + 8u, n + 4u);
    var c30 = begin(at.out, m + 12u, n);
    var c31 = begin(at.out, m + 12u, n + 4u);
    var c40 = begin(at.out, m + 16u, n);
    var c41 = begin(at.out, m + 16u, n + 4u);
    var c50 = begin(at.out, m + 20u, n);
    var c51 = begin(at.out, m + 20u, n + 4u);
    var c60 = begin(at.out, m + 24u, n);
    var c61 = begin(at.out, m + 24u, n + 4u);
    var c70 = begin(at.out, m + 28u, n);
    var c71 = begin(at.out, m + 28u, n + 4u);
    for (var k = at.k; k < at.end; k += 4u) {
        let a = lhs_block(at.lhs, own, k);
        let b0 = rhs_block(at.rhs, k, n);
        let b1 = rhs_block(at.rhs, k, n + 4u);
        let a0 = block_of_lane(a, 0u);
        c00 += b0 * a0;
        c01 += b1 * a0;
        let a1 = block_of_lane(a, 1u);
        c10 += b0 * a1;
        c11 += b1 * a1;
        let a2 = block_of_lane(a, 2u);
        c20 += b0 * a2;
        c21 += b1 * a2;
        let a3 = block_of_lane(a, 3u);
        c30 += b0 * a3;
        c31 += b1 * a3;
        let a4 = block_of_lane(a, 4u);
        c40 += b0 * a4;
        c41 += b1 * a4;
        let a5 = block_of_lane(a, 5u);
        c50 += b0 * a5;
        c51 += b1 * a5;
        let a6 = block_of_lane(a, 6u);
        c60 += b0 * a6;
        c61 += b1 * a6;
        let a7 = block_of_lane(a, 7u);
        c70 += b0 * a7;
        c71 += b1 * a7;
    }
    finish_both(at.out, m, n, c00, c01);
    finish_both(at.out, m + 4u, n, c10, c11);
    finish_both(at.out, m + 8u, n, c20, c21);
    finish_both(at.out, m + 12u, n, c30, c31);
    finish_both(at.out, m + 16u, n, c40, c41);
    finish_both(at.out, m + 20u, n, c50, c51);
    finish_both(at.out, m + 24u, n, c60, c61);
    finish_both(at.out, m + 28u, n, c70, c71);
}
