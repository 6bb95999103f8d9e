// Matrix products by subgroups that pass rows on; what it shares with the tiles of matmul.wgsl is there.
//
// Software adapters run a subgroup as one vector and load a lane at a time, so that a load costs as much as eight
// shuffles. The eight threads load 32 rows of lhs together, four each, and every thread multiplies all of them by
// eight columns.
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
    // Blocks of the left four columns of out and of the right four, down its rows.
    var l0 = begin(at.out, m, n);
    var r0 = begin(at.out, m, n + 4u);
    var l1 = begin(at.out, m + 4u, n);
    var r1 = begin(at.out, m + 4u, n + 4u);
    var l2 = begin(at.out, m + 8u, n);
    var r2 = begin(at.out, m + 8u, n + 4u);
    var l3 = begin(at.out, m + 12u, n);
    var r3 = begin(at.out, m + 12u, n + 4u);
    var l4 = begin(at.out, m + 16u, n);
    var r4 = begin(at.out, m + 16u, n + 4u);
    var l5 = begin(at.out, m + 20u, n);
    var r5 = begin(at.out, m + 20u, n + 4u);
    var l6 = begin(at.out, m + 24u, n);
    var r6 = begin(at.out, m + 24u, n + 4u);
    var l7 = begin(at.out, m + 28u, n);
    var r7 = begin(at.out, m + 28u, n + 4u);
    for (var k = at.k; k < at.end; k += 4u) {
        let a = lhs_block(at.lhs, own, k);
        let left = rhs_block(at.rhs, k, n);
        let right = rhs_block(at.rhs, k, n + 4u);
        let a0 = block_of_lane(a, 0u);
        l0 += left * a0;
        r0 += right * a0;
        let a1 = block_of_lane(a, 1u);
        l1 += left * a1;
        r1 += right * a1;
        let a2 = block_of_lane(a, 2u);
        l2 += left * a2;
        r2 += right * a2;
        let a3 = block_of_lane(a, 3u);
        l3 += left * a3;
        r3 += right * a3;
        let a4 = block_of_lane(a, 4u);
        l4 += left * a4;
        r4 += right * a4;
        let a5 = block_of_lane(a, 5u);
        l5 += left * a5;
        r5 += right * a5;
        let a6 = block_of_lane(a, 6u);
        l6 += left * a6;
        r6 += right * a6;
        let a7 = block_of_lane(a, 7u);
        l7 += left * a7;
        r7 += right * a7;
    }
    finish(at.out, m, n, l0);
    finish(at.out, m, n + 4u, r0);
    finish(at.out, m + 4u, n, l1);
    finish(at.out, m + 4u, n + 4u, r1);
    finish(at.out, m + 8u, n, l2);
    finish(at.out, m + 8u, n + 4u, r2);
    finish(at.out, m + 12u, n, l3);
    finish(at.out, m + 12u, n + 4u, r3);
    finish(at.out, m + 16u, n, l4);
    finish(at.out, m + 16u, n + 4u, r4);
    finish(at.out, m + 20u, n, l5);
    finish(at.out, m + 20u, n + 4u, r5);
    finish(at.out, m + 24u, n, l6);
    finish(at.out, m + 24u, n + 4u, r6);
    finish(at.out, m + 28u, n, l7);
    finish(at.out, m + 28u, n + 4u, r7);
}
