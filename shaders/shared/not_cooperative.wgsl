// What stands in for squares that a subgroup holds together where a subgroup is one thread: it reads the operands' from
// where they are and holds the sums of all its squares by number. Tests run matmul_cooperative.wgsl with this on any adapter.

alias Left = u32;
alias Right = u32;
alias Sum = u32;

const FOURS_OF_SQUARE: u32 = EDGE * FOURS_OF_EDGE;

var<private> held_sums: array<vec4<f32>, SQUARES * FOURS_OF_SQUARE>;

fn load_left(at: u32) -> Left {
    return at;
}

fn load_right(at: u32) -> Right {
    return at;
}

fn no_sum(number: u32) -> Sum {
    for (var i = 0u; i < FOURS_OF_SQUARE; i++) {
        held_sums[number * FOURS_OF_SQUARE + i] = vec4<f32>();
    }
    return number;
}

fn multiply_add(a: Left, b: Right, c: Sum) -> Sum {
    for (var i = 0u; i < FOURS_OF_SQUARE; i++) {
        let row = a + i / FOURS_OF_EDGE * LHS_PITCH;
        let column = b + i % FOURS_OF_EDGE;
        var sum = held_sums[c * FOURS_OF_SQUARE + i];
        for (var k = 0u; k < EDGE; k++) {
            sum += f32(lhs_rows[row + k / 4u][k % 4u]) * vec4<f32>(rhs_rows[column + k * RHS_PITCH]);
        }
        held_sums[c * FOURS_OF_SQUARE + i] = sum;
    }
    return c;
}

fn store_square(sum: Sum, at: u32) {
    for (var i = 0u; i < FOURS_OF_SQUARE; i++) {
        squares[at + i] = held_sums[sum * FOURS_OF_SQUARE + i];
    }
}
