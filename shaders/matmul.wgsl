// Matrix products.   M rows, N columns, K summed
//
//   out[m,n] = Σₖ lhs[m,k] · rhs[k,n]  (+ bias[n])  (+ out[m,n])
//
// Everything is in blocks of 4 × 4, which are matrices of the language: `lhs_block` has a row of lhs a column, so
// that `rhs_block * lhs_block` has a row of out a column. A block that lies across an edge is read with its indices
// held inside, and what lies outside is zero along K and never stored along M and N. Sums begin with what is
// accumulated to and go up in K.
//
// | entry | a thread makes | for |
// |---|---|---|
// | `tiled` | THREAD_M × THREAD_N of a tile that its workgroup holds in shared memory | GPUs |
// | `direct_8x8`, `direct_16x16` | 8 × 8 or 16 × 16, straight from global memory | processors that run shaders, where a load costs as much as dozens of multiplications and a barrier more |
// | `shuffled` | 32 × 8 of the 32 × 64 of its subgroup of eight, which share rows of lhs in registers, in matmul_shuffled.wgsl | the same, where they have subgroups |
// | `cooperative` | a square with its subgroup, in matmul_cooperative.wgsl | adapters that multiply f16 in hardware |
// | `narrow` | a slice of K of a block | few rows, as in decoding: reads rhs once, limited by bytes |
// | `add_slices` | four elements | sums over K that `tiled` made in slices, where the output has too few tiles |

struct Corner {
    row: u32,
    column: u32,
    k: u32,
    end: u32,
    // First elements of the matrices.
    lhs: u32,
    rhs: u32,
    out: u32,
}

// Workgroups count tiles along N first, then along M, then matrices, then slices of K.
fn corner(group: u32) -> Corner {
    let tiles = params.tiles_m * params.tiles_n;
    let stacked = group / tiles;
    let tile = group - stacked * tiles;
    let down = tile / params.tiles_n;
    let slice = stacked / params.batch;
    let matrix = stacked - slice * params.batch;
    let k = slice * params.slice;
    return Corner(
        down * TILE_M,
        (tile - down * params.tiles_n) * TILE_N,
        k,
        min(k + params.slice, params.k),
        params.lhs_first + matrix * params.lhs_stride,
        params.rhs_first + matrix * params.rhs_stride,
        params.out_first + stacked * params.out_stride,
    );
}

// The corner of what a thread alone makes of a tile.
fn own_part(tile: Corner, thread: u32) -> Corner {
    var part = tile;
    part.row += thread / ACROSS * THREAD_M;
    part.column += thread % ACROSS * THREAD_N;
    return part;
}

// First index of a block, held inside an axis.
fn held(index: u32, extent: u32) -> u32 {
    return min(index, (extent - 1u) & 0xfffffffcu);
}

fn lhs_four(at: u32, inner: u32, extent: u32) -> vec4<f32> {
    if (LHS_FOUR == 1u) {
        return load4_lhs(at + inner);
    }
    let i = min(vec4<u32>(inner) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(extent - 1u)) + at;
    return vec4<f32>(load_lhs(i.x), load_lhs(i.y), load_lhs(i.z), load_lhs(i.w));
}

fn rhs_four(at: u32, inner: u32, extent: u32) -> vec4<f32> {
    if (RHS_FOUR == 1u) {
        return load4_rhs(at + inner);
    }
    let i = min(vec4<u32>(inner) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(extent - 1u)) + at;
    return vec4<f32>(load_rhs(i.x), load_rhs(i.y), load_rhs(i.z), load_rhs(i.w));
}

// Ones where k..k+4 lie inside. Multiplying would keep what isn't finite, so this chooses.
fn inside(k: u32) -> vec4<bool> {
    return vec4<u32>(k) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(params.k);
}

// lhs[row+r, k+i] at column r, row i.
fn lhs_block(first: u32, row: u32, k: u32) -> mat4x4<f32> {
    var block: mat4x4<f32>;
    if (LHS_TRANSPOSED == 1u) {
        let i = min(vec4<u32>(k) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.k - 1u)) * params.lhs_row + first;
        let m = held(row, params.m);
        block = transpose(mat4x4<f32>(
            lhs_four(i.x, m, params.m),
            lhs_four(i.y, m, params.m),
            lhs_four(i.z, m, params.m),
            lhs_four(i.w, m, params.m),
        ));
    } else {
        let i = min(vec4<u32>(row) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.m - 1u)) * params.lhs_row + first;
        block = mat4x4<f32>(
            lhs_four(i.x, k, params.k),
            lhs_four(i.y, k, params.k),
            lhs_four(i.z, k, params.k),
            lhs_four(i.w, k, params.k),
        );
    }
    if (WHOLE_K == 0u) {
        let keep = inside(k);
        let none = vec4<f32>();
        block = mat4x4<f32>(
            select(none, block[0], keep),
            select(none, block[1], keep),
            select(none, block[2], keep),
            select(none, block[3], keep),
        );
    }
    return block;
}

// rhs[k+i, column+c] at column i, row c.
fn rhs_block(first: u32, k: u32, column: u32) -> mat4x4<f32> {
    var block: mat4x4<f32>;
    if (RHS_TRANSPOSED == 1u) {
        let i = min(vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.n - 1u)) * params.rhs_row + first;
        block = transpose(mat4x4<f32>(
            rhs_four(i.x, k, params.k),
            rhs_four(i.y, k, params.k),
            rhs_four(i.z, k, params.k),
            rhs_four(i.w, k, params.k),
        ));
    } else {
        let i = min(vec4<u32>(k) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.k - 1u)) * params.rhs_row + first;
        let n = held(column, params.n);
        block = mat4x4<f32>(
            rhs_four(i.x, n, params.n),
            rhs_four(i.y, n, params.n),
            rhs_four(i.z, n, params.n),
            rhs_four(i.w, n, params.n),
        );
    }
    if (WHOLE_K == 0u) {
        let keep = inside(k);
        let none = vec4<f32>();
        block = mat4x4<f32>(
            select(none, block[0], keep.x),
            select(none, block[1], keep.y),
            select(none, block[2], keep.z),
            select(none, block[3], keep.w),
        );
    }
    return block;
}

// What a block of sums begins with.
fn begin(first: u32, row: u32, column: u32) -> mat4x4<f32> {
    if (ACCUMULATE == 1u) {
        let i = min(vec4<u32>(row) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.m - 1u)) * params.out_row + first
            + held(column, params.n);
        return mat4x4<f32>(load4_out(i.x), load4_out(i.y), load4_out(i.z), load4_out(i.w));
    }
    return mat4x4<f32>();
}

fn bias_four(column: u32) -> vec4<f32> {
    if (BIAS == 1u) {
        return load4_bias(params.bias_first + held(column, params.n));
    }
    return vec4<f32>();
}

// Stores the rows of a block that exist.
fn finish(first: u32, row: u32, column: u32, block: mat4x4<f32>) {
    if (row >= params.m || column >= params.n) {
        return;
    }
    let bias = bias_four(column);
    let count = params.n - column;
    let at = first + row * params.out_row + column;
    store4_out(at, block[0] + bias, count);
    if (row + 1u < params.m) {
        store4_out(at + params.out_row, block[1] + bias, count);
    }
    if (row + 2u < params.m) {
        store4_out(at + 2u * params.out_row, block[2] + bias, count);
    }
    if (row + 3u < params.m) {
        store4_out(at + 3u * params.out_row, block[3] + bias, count);
    }
}

const ACROSS: u32 = TILE_N / THREAD_N;
const DOWN: u32 = TILE_M / THREAD_M;
const BLOCKS_M: u32 = TILE_M / 4u;
const BLOCKS_N: u32 = TILE_N / 4u;
const BLOCKS_K: u32 = TILE_K / 4u;
const OWN_M: u32 = THREAD_M / 4u;
const OWN_N: u32 = THREAD_N / 4u;

// (K, M) and (K, N), four neighbours along M or N together.
var<workgroup> lhs_tile: array<vec4<held_lhs>, TILE_K * BLOCKS_M>;
var<workgroup> rhs_tile: array<vec4<held_rhs>, TILE_K * BLOCKS_N>;

@compute @workgroup_size(WORKGROUP)
fn tiled(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    let at = corner(tr_group(id, grid));
    let across = thread % ACROSS;
    let down = thread / ACROSS;
    var sums: array<array<mat4x4<f32>, OWN_N>, OWN_M>;
    for (var i = 0u; i < OWN_M; i++) {
        for (var j = 0u; j < OWN_N; j++) {
            sums[i][j] = begin(at.out, at.row + 4u * (down + i * DOWN), at.column + 4u * (across + j * ACROSS));
        }
    }
    for (var k = at.k; k < at.end; k += TILE_K) {
        for (var block = thread; block < BLOCKS_M * BLOCKS_K; block += WORKGROUP) {
            let m = select(block / BLOCKS_K, block % BLOCKS_M, LHS_TRANSPOSED == 1u);
            let l = 4u * select(block % BLOCKS_K, block / BLOCKS_M, LHS_TRANSPOSED == 1u);
            var values = mat4x4<f32>();
            if (k + l < at.end) {
                values = transpose(lhs_block(at.lhs, at.row + 4u * m, k + l));
            }
            lhs_tile[l * BLOCKS_M + m] = vec4<held_lhs>(values[0]);
            lhs_tile[(l + 1u) * BLOCKS_M + m] = vec4<held_lhs>(values[1]);
            lhs_tile[(l + 2u) * BLOCKS_M + m] = vec4<held_lhs>(values[2]);
            lhs_tile[(l + 3u) * BLOCKS_M + m] = vec4<held_lhs>(values[3]);
        }
        for (var block = thread; block < BLOCKS_N * BLOCKS_K; block += WORKGROUP) {
            let n = select(block % BLOCKS_N, block / BLOCKS_K, RHS_TRANSPOSED == 1u);
            let l = 4u * select(block / BLOCKS_N, block % BLOCKS_K, RHS_TRANSPOSED == 1u);
            var values = mat4x4<f32>();
            if (k + l < at.end) {
                values = rhs_block(at.rhs, k + l, at.column + 4u * n);
            }
            rhs_tile[l * BLOCKS_N + n] = vec4<held_rhs>(values[0]);
            rhs_tile[(l + 1u) * BLOCKS_N + n] = vec4<held_rhs>(values[1]);
            rhs_tile[(l + 2u) * BLOCKS_N + n] = vec4<held_rhs>(values[2]);
            rhs_tile[(l + 3u) * BLOCKS_N + n] = vec4<held_rhs>(values[3]);
        }
        workgroupBarrier();
        for (var l = 0u; l < TILE_K; l++) {
            var columns: array<vec4<f32>, OWN_N>;
            for (var j = 0u; j < OWN_N; j++) {
                columns[j] = vec4<f32>(rhs_tile[l * BLOCKS_N + across + j * ACROSS]);
            }
            for (var i = 0u; i < OWN_M; i++) {
                let rows = vec4<f32>(lhs_tile[l * BLOCKS_M + down + i * DOWN]);
                for (var j = 0u; j < OWN_N; j++) {
                    let c = columns[j];
                    sums[i][j] += mat4x4<f32>(c * rows.x, c * rows.y, c * rows.z, c * rows.w);
                }
            }
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < OWN_M; i++) {
        for (var j = 0u; j < OWN_N; j++) {
            finish(at.out, at.row + 4u * (down + i * DOWN), at.column + 4u * (across + j * ACROSS), sums[i][j]);
        }
    }
}

@compute @workgroup_size(WORKGROUP)
fn direct_8x8(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let at = own_part(corner(tr_group(id, grid)), thread);
    let m = at.row;
    let n = at.column;
    if (tr_outside(id, grid) || m >= params.m || n >= params.n) {
        return;
    }
    var c00 = begin(at.out, m, n);
    var c01 = begin(at.out, m, n + 4u);
    var c10 = begin(at.out, m + 4u, n);
    var c11 = begin(at.out, m + 4u, n + 4u);
    for (var k = at.k; k < at.end; k += 4u) {
        let a0 = lhs_block(at.lhs, m, k);
        let a1 = lhs_block(at.lhs, m + 4u, k);
        let b0 = rhs_block(at.rhs, k, n);
        c00 += b0 * a0;
        c10 += b0 * a1;
        let b1 = rhs_block(at.rhs, k, n + 4u);
        c01 += b1 * a0;
        c11 += b1 * a1;
    }
    finish(at.out, m, n, c00);
    finish(at.out, m, n + 4u, c01);
    finish(at.out, m + 4u, n, c10);
    finish(at.out, m + 4u, n + 4u, c11);
}

// Named variables, because those software adapters keep an array that a loop indexes in memory, a lane at a time.
// Outside the sum over K that costs less than compiling 16 copies of the edges' conditions.
@compute @workgroup_size(WORKGROUP)
fn direct_16x16(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let at = own_part(corner(tr_group(id, grid)), thread);
    let m = at.row;
    let n = at.column;
    if (tr_outside(id, grid) || m >= params.m || n >= params.n) {
        return;
    }
    var sums: array<mat4x4<f32>, 16>;
    for (var i = 0u; i < 16u; i++) {
        sums[i] = begin(at.out, m + i / 4u * 4u, n + i % 4u * 4u);
    }
    var c00 = sums[0];
    var c01 = sums[1];
    var c02 = sums[2];
    var c03 = sums[3];
    var c10 = sums[4];
    var c11 = sums[5];
    var c12 = sums[6];
    var c13 = sums[7];
    var c20 = sums[8];
    var c21 = sums[9];
    var c22 = sums[10];
    var c23 = sums[11];
    var c30 = sums[12];
    var c31 = sums[13];
    var c32 = sums[14];
    var c33 = sums[15];
    for (var k = at.k; k < at.end; k += 4u) {
        let a0 = lhs_block(at.lhs, m, k);
        let a1 = lhs_block(at.lhs, m + 4u, k);
        let a2 = lhs_block(at.lhs, m + 8u, k);
        let a3 = lhs_block(at.lhs, m + 12u, k);
        let b0 = rhs_block(at.rhs, k, n);
        c00 += b0 * a0;
        c10 += b0 * a1;
        c20 += b0 * a2;
        c30 += b0 * a3;
        let b1 = rhs_block(at.rhs, k, n + 4u);
        c01 += b1 * a0;
        c11 += b1 * a1;
        c21 += b1 * a2;
        c31 += b1 * a3;
        let b2 = rhs_block(at.rhs, k, n + 8u);
        c02 += b2 * a0;
        c12 += b2 * a1;
        c22 += b2 * a2;
        c32 += b2 * a3;
        let b3 = rhs_block(at.rhs, k, n + 12u);
        c03 += b3 * a0;
        c13 += b3 * a1;
        c23 += b3 * a2;
        c33 += b3 * a3;
    }
    sums = array<mat4x4<f32>, 16>(
        c00, c01, c02, c03,
        c10, c11, c12, c13,
        c20, c21, c22, c23,
        c30, c31, c32, c33,
    );
    for (var i = 0u; i < 16u; i++) {
        finish(at.out, m + i / 4u * 4u, n + i % 4u * 4u, sums[i]);
    }
}

// Slices of K that the threads of a workgroup take of one block.
const LANES: u32 = WORKGROUP / BLOCKS_N;

var<workgroup> parts: array<mat4x4<f32>, WORKGROUP>;

// A tile has four rows. Neighbouring threads read neighbouring elements of rhs, so they go along K where it is
// stored (N, K), and along N where it is stored (K, N).
@compute @workgroup_size(WORKGROUP)
fn narrow(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    let at = corner(tr_group(id, grid));
    let lane = select(thread / BLOCKS_N, thread % LANES, RHS_TRANSPOSED == 1u);
    let block = select(thread % BLOCKS_N, thread / LANES, RHS_TRANSPOSED == 1u);
    let column = at.column + 4u * block;
    var sum = mat4x4<f32>();
    if (column < params.n) {
        for (var k = at.k + 4u * lane; k < at.end; k += 4u * LANES) {
            sum += rhs_block(at.rhs, k, column) * lhs_block(at.lhs, at.row, k);
        }
    }
    parts[block * LANES + lane] = sum;
    workgroupBarrier();
    if (lane == 0u && column < params.n) {
        var total = begin(at.out, at.row, column);
        for (var l = 0u; l < LANES; l++) {
            total += parts[block * LANES + l];
        }
        finish(at.out, at.row, column, total);
    }
}

// Adds slices of K in their order: lhs holds them one after the other, each with all matrices (M, N).
@compute @workgroup_size(WORKGROUP)
fn add_slices(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let blocks = (params.n + 3u) / 4u;
    let block = tr_group(id, grid) * WORKGROUP + thread;
    let line = block / blocks;
    let matrix = line / params.m;
    if (tr_outside(id, grid) || matrix >= params.batch) {
        return;
    }
    let column = 4u * (block - line * blocks);
    let at = params.out_first + matrix * params.out_stride + (line - matrix * params.m) * params.out_row + column;
    var sum = vec4<f32>();
    if (ACCUMULATE == 1u) {
        sum = load4_out(at);
    }
    for (var slice = 0u; slice < params.slice; slice++) {
        sum += load4_lhs((slice * params.batch * params.m + line) * params.n + column);
    }
    store4_out(at, sum + bias_four(column), params.n - column);
}
