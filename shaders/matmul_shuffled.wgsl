// Matrix products by subgroups that pass rows on; what it shares with the tiles of matmul.wgsl is there.
//
// Software adapters run a subgroup as one vector and load a lane at a time, so that a load costs as much as eight
// shuffles. The eight threads load 32 rows of lhs together, four each, and every thread multiplies all of them.
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
    var c0 = begin(at.out, m, n);
    var c1 = begin(at.out, m + 4u, n);
    var c2 = begin(at.out, m + 8u, n);
    var c3 = begin(at.out, m + 12u, n);
    var c4 = begin(at.out, m + 16u, n);
    var c5 = begin(at.out, m + 20u, n);
    var c6 = begin(at.out, m + 24u, n);
    var c7 = begin(at.out, m + 28u, n);
    for (var k = at.k; k < at.end; k += 4u) {
        let a = lhs_block(at.lhs, own, k);
        let b = rhs_block(at.rhs, k, n);
        c0 += b * block_of_lane(a, 0u);
        c1 += b * block_of_lane(a, 1u);
        c2 += b * block_of_lane(a, 2u);
        c3 += b * block_of_lane(a, 3u);
        c4 += b * block_of_lane(a, 4u);
        c5 += b * block_of_lane(a, 5u);
        c6 += b * block_of_lane(a, 6u);
        c7 += b * block_of_lane(a, 7u);
    }
    finish(at.out, m, n, c0);
    finish(at.out, m + 4u, n, c1);
    finish(at.out, m + 8u, n, c2);
    finish(at.out, m + 12u, n, c3);
    finish(at.out, m + 16u, n, c4);
    finish(at.out, m + 20u, n, c5);
    finish(at.out, m + 24u, n, c6);
    finish(at.out, m + 28u, n, c7);
}
