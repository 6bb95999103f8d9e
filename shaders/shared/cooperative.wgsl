// Squares that a subgroup holds together (VK_KHR_cooperative_matrix; Metal's simdgroup_matrix), of EDGE by EDGE, loaded
// from rows of f16 in workgroup memory. The names that end in T are those for rows.

fn load_left(at: u32) -> Left {
    return coopLoadT<Left>(&lhs_rows[at], LHS_PITCH);
}

fn load_right(at: u32) -> Right {
    return coopLoadT<Right>(&rhs_rows[at], RHS_PITCH);
}

fn no_sum(number: u32) -> Sum {
    return Sum();
}

fn multiply_add(a: Left, b: Right, c: Sum) -> Sum {
    return coopMultiplyAdd(a, b, c);
}

fn store_square(sum: Sum, at: u32) {
    coopStoreT(sum, &squares[at], FOURS_OF_EDGE);
}
