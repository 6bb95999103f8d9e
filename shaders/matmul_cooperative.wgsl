// Products of f16 by matrices that a subgroup holds together, with sums in f32; what it shares with other products is
// in matmul.wgsl.
//
// A workgroup stages TILE_K of a TILE_M × TILE_N tile at a time, as rows of f16, and each of its subgroups makes THREAD_M ×
// THREAD_N of it, in 2 × 2 squares, so that two squares of lhs and two of rhs are read for four products.
// Rows are padded by 16 bytes, which keeps them aligned and apart in memory's banks. Sums are put through workgroup
// memory, a square a subgroup at a time, because only that says which thread has which element.

// Of the squares, of which a subgroup makes two along each axis.
const EDGE: u32 = THREAD_M / 2u;
const FOURS_OF_EDGE: u32 = EDGE / 4u;
// Squares of sums that a subgroup makes.
const SQUARES: u32 = 4u;
const LHS_PITCH: u32 = TILE_K / 4u + 2u;
const RHS_PITCH: u32 = TILE_N / 4u + 2u;

// (M, K) and (K, N), four neighbours along K or N together.
var<workgroup> lhs_rows: array<vec4<f16>, TILE_M * LHS_PITCH>;
var<workgroup> rhs_rows: array<vec4<f16>, TILE_K * RHS_PITCH>;
// A square of sums of each subgroup.
var<workgroup> squares: array<vec4<f32>, WORKGROUP / SUBGROUP * EDGE * FOURS_OF_EDGE>;

fn stage_lhs(at: Corner, thread: u32, k: u32) {
    for (var block = thread; block < BLOCKS_M * BLOCKS_K; block += WORKGROUP) {
        let m = select(block / BLOCKS_K, block % BLOCKS_M, LHS_TRANSPOSED == 1u);
        let l = select(block % BLOCKS_K, block / BLOCKS_M, LHS_TRANSPOSED == 1u);
        var values = mat4x4<f32>();
        if (k + 4u * l < at.end) {
            values = lhs_block(at.lhs, at.row + 4u * m, k + 4u * l);
        }
        let first = 4u * m * LHS_PITCH + l;
        lhs_rows[first] = vec4<f16>(values[0]);
        lhs_rows[first + LHS_PITCH] = vec4<f16>(values[1]);
        lhs_rows[first + 2u * LHS_PITCH] = vec4<f16>(values[2]);
        lhs_rows[first + 3u * LHS_PITCH] = vec4<f16>(values[3]);
    }
}

fn stage_rhs(at: Corner, thread: u32, k: u32) {
    for (var block = thread; block < BLOCKS_N * BLOCKS_K; block += WORKGROUP) {
        let n = select(block % BLOCKS_N, block / BLOCKS_K, RHS_TRANSPOSED == 1u);
        let l = select(block / BLOCKS_N, block % BLOCKS_K, RHS_TRANSPOSED == 1u);
        var values = mat4x4<f32>();
        if (k + 4u * l < at.end) {
            values = rhs_block(at.rhs, k + 4u * l, at.column + 4u * n);
        }
        let first = 4u * l * RHS_PITCH + n;
        rhs_rows[first] = vec4<f16>(values[0]);
        rhs_rows[first + RHS_PITCH] = vec4<f16>(values[1]);
        rhs_rows[first + 2u * RHS_PITCH] = vec4<f16>(values[2]);
        rhs_rows[first + 3u * RHS_PITCH] = vec4<f16>(values[3]);
    }
}

// Stores a square of sums whose first element is at `row` and `column` of the output.
fn put(at: Corner, thread: u32, row: u32, column: u32, sum: Sum) {
    let own = thread / SUBGROUP * EDGE * FOURS_OF_EDGE;
    store_square(sum, own);
    workgroupBarrier();
    for (var block = thread % SUBGROUP; block < FOURS_OF_EDGE * FOURS_OF_EDGE; block += SUBGROUP) {
        let r = 4u * (block / FOURS_OF_EDGE);
        let c = block % FOURS_OF_EDGE;
        let first = own + r * FOURS_OF_EDGE + c;
        let sums = mat4x4<f32>(
            squares[first],
            squares[first + FOURS_OF_EDGE],
            squares[first + 2u * FOURS_OF_EDGE],
            squares[first + 3u * FOURS_OF_EDGE],
        );
        let m = row + r;
        let n = column + 4u * c;
        finish(at.out, m, n, begin(at.out, m, n) + sums);
    }
    workgroupBarrier();
}

@compute @workgroup_size(WORKGROUP)
fn cooperative(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    let at = corner(tr_group(id, grid));
    let own_m = thread / SUBGROUP / ACROSS * THREAD_M;
    let own_n = thread / SUBGROUP % ACROSS * THREAD_N;
    var c00 = no_sum(0u);
    var c01 = no_sum(1u);
    var c10 = no_sum(2u);
    var c11 = no_sum(3u);
    for (var k = at.k; k < at.end; k += TILE_K) {
        stage_lhs(at, thread, k);
        stage_rhs(at, thread, k);
        workgroupBarrier();
        for (var l = 0u; l < TILE_K; l += EDGE) {
            let a0 = load_left(own_m * LHS_PITCH + l / 4u);
            let a1 = load_left((own_m + EDGE) * LHS_PITCH + l / 4u);
            let b0 = load_right(l * RHS_PITCH + own_n / 4u);
            let b1 = load_right(l * RHS_PITCH + (own_n + EDGE) / 4u);
            c00 = multiply_add(a0, b0, c00);
            c01 = multiply_add(a0, b1, c01);
            c10 = multiply_add(a1, b0, c10);
            c11 = multiply_add(a1, b1, c11);
        }
        workgroupBarrier();
    }
    let row = at.row + own_m;
    let column = at.column + own_n;
    put(at, thread, row, column, c00);
    put(at, thread, row, column + EDGE, c01);
    put(at, thread, row + EDGE, column, c10);
    put(at, thread, row + EDGE, column + EDGE, c11);
}
