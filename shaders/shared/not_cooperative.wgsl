// What stands in for squares that a subgroup holds together where a subgroup is one thread: it reads the operands' from
// where they are and holds all sums. Tests run matmul_cooperative.wgsl with this on any adapter.

// Where a square begins in lhs_rows, in rhs_rows, and its sums by row, four together.
alias Left = u32;
alias Right = u32;
alias Sum = array<vec4<f32>, EDGE * FOURS_OF_EDGE>;

fn load_left(at: u32) -> Left {
    return at;
}

fn load_right(at: u32) -> Right {
    return at;
}

fn multiply_add(a: Left, b: Right, c: Sum) -> Sum {
    var sums = c;
    for (var i = 0u; i < EDGE * FOURS_OF_EDGE; i++) {
        let row = a + i / FOURS_OF_EDGE * LHS_PITCH;
        let column = b + i % FOURS_OF_EDGE;
        var sum = sums[i];
        for (var k = 0u; k < EDGE; k++) {
            sum += f32(lhs_rows[row + k / 4u][k % 4u]) * vec4<f32>(rhs_rows[column + k * RHS_PITCH]);
        }
        sums[i] = sum;
    }
    return sums;
}

fn store_square(sum: Sum, at: u32) {
    var square = sum;
    for (var i = 0u; i < EDGE * FOURS_OF_EDGE; i++) {
        squares[at + i] = square[i];
    }
}
