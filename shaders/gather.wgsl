// Rows of a table by index, and the sum of gradients into them.   V rows, C columns (COLUMNS), R ids
//
// Every name is bound in every launch, so that entries share this file.

const QUADS_OF_ROW: u32 = (COLUMNS + 3u) / 4u;

// out[r, :] = table[ids[r], :]. The table's bound rows are `rows` from `first_row` on; rows of out whose ids are
// elsewhere become 0 where CLEAR (so that an id outside the table gives zeros), else stay. A thread makes four neighbours
// of out, and so whole words. Traffic: C elements read and written an id.
@compute @workgroup_size(WORKGROUP)
fn embedding(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let at = (tr_group(id, grid) * WORKGROUP + thread) * 4u;
    if (tr_outside(id, grid) || at >= params.elements) {
        return;
    }
    var r = at / COLUMNS;
    var c = at - r * COLUMNS;
    if (COLUMNS % 4u == 0u) {
        let row = u32(index_ids(params.first_id + r)) - params.first_row;
        if (row < params.rows) {
            store4_out(at, load4_table(row * COLUMNS + c), 4u);
        } else if (CLEAR == 1u) {
            store4_out(at, vec4<f32>(0.0), 4u);
        }
        return;
    }
    var four = vec4<f32>(0.0);
    if (CLEAR == 0u) {
        four = load4_out(at);
    }
    for (var i = 0u; i < 4u && at + i < params.elements; i++) {
        let row = u32(index_ids(params.first_id + r)) - params.first_row;
        if (row < params.rows) {
            four[i] = load_table(row * COLUMNS + c);
        }
        c++;
        if (c == COLUMNS) {
            c = 0u;
            r++;
        }
    }
    store4_out(at, four, 4u);
}

// The gradient sorts (id, r) pairs, so that each table row finds its own r next to each other and in order: blocks of
// WORKGROUP pairs by counting smaller ones, then two runs at a time into one by binary search of each pair in the other run.
// An id outside the table becomes the table's number of rows, and is summed nowhere. About R·(WORKGROUP + log₂² R)
// comparisons, no atomics.

var<workgroup> block: array<u32, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn sort_block(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    let first = tr_group(id, grid) * WORKGROUP;
    let count = min(params.count - first, WORKGROUP);
    var key = 0u;
    if (thread < count) {
        key = min(u32(index_ids(params.first_id + first + thread)), params.table_rows);
    }
    block[thread] = key;
    workgroupBarrier();
    if (thread < count) {
        var place = first;
        for (var i = 0u; i < count; i++) {
            let other = block[i];
            place += select(0u, 1u, other < key || (other == key && i < thread));
        }
        store_blocks(2u * place, f32(key));
        store_blocks(2u * place + 1u, f32(first + thread));
    }
}

// Pairs of the run from `first` on whose id is less than `key`, or no more where `equal`.
fn before(first: u32, key: u32, equal: bool) -> u32 {
    var low = first;
    var high = min(first + params.run, params.count);
    while (low < high) {
        let middle = (low + high) / 2u;
        let other = u32(index_blocks(2u * middle));
        if (other < key || (equal && other == key)) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    return low - first;
}

// Sorted runs of `run` pairs in `blocks` become runs of twice as many in `sorted`.
@compute @workgroup_size(WORKGROUP)
fn merge_runs(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let at = tr_group(id, grid) * WORKGROUP + thread;
    if (tr_outside(id, grid) || at >= params.count) {
        return;
    }
    let key = u32(index_blocks(2u * at));
    let number = at / params.run;
    let other = (number ^ 1u) * params.run;
    var place = at;
    if (number % 2u == 1u) {
        place += before(other, key, true) - params.run;
    } else if (other < params.count) {
        place += before(other, key, false);
    }
    store_sorted(2u * place, f32(key));
    store_sorted(2u * place + 1u, f32(index_blocks(2u * at + 1u)));
}

fn sorted_id(at: u32) -> u32 {
    return u32(index_sorted(2u * at));
}

fn sorted_row(at: u32) -> u32 {
    return u32(index_sorted(2u * at + 1u));
}

// Sorted pairs are summed in chunks of CHUNK, so that a frequent id keeps many threads busy. A thread owns four columns of
// a chunk: its pairs are begin..end, and c is the first of the columns.
struct Chunk {
    index: u32,
    begin: u32,
    end: u32,
    c: u32,
}

fn chunk_of(thread: u32) -> Chunk {
    let index = thread / QUADS_OF_ROW;
    let begin = index * CHUNK;
    return Chunk(index, begin, min(begin + CHUNK, params.count), (thread - index * QUADS_OF_ROW) * 4u);
}

// `heads` first: the sum of the pairs that continue the id before the chunk, where there are any.
@compute @workgroup_size(WORKGROUP)
fn sum_heads(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let chunk = chunk_of(tr_group(id, grid) * WORKGROUP + thread);
    if (tr_outside(id, grid) || chunk.begin >= params.count) {
        return;
    }
    let key = sorted_id(max(chunk.begin, 1u) - 1u);
    var sum = vec4<f32>(0.0);
    if (chunk.index > 0u) {
        for (var at = chunk.begin; at < chunk.end && sorted_id(at) == key; at++) {
            sum += load4_dy(sorted_row(at) * COLUMNS + chunk.c);
        }
    }
    store4_heads(chunk.index * COLUMNS + chunk.c, sum, COLUMNS - chunk.c);
}

// table[id, :] += Σ dy[r, :] over the pairs of every id that begins in the chunk, and the heads of the chunks it goes on in.
// The table's bound rows are `rows` from `first_row` on. Traffic: dy once, and the table's rows that occur.
@compute @workgroup_size(WORKGROUP)
fn sum_runs(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let chunk = chunk_of(tr_group(id, grid) * WORKGROUP + thread);
    if (tr_outside(id, grid) || chunk.begin >= params.count) {
        return;
    }
    var at = chunk.begin;
    if (chunk.index > 0u) {
        let key = sorted_id(chunk.begin - 1u);
        while (at < chunk.end && sorted_id(at) == key) {
            at++;
        }
    }
    while (at < chunk.end) {
        let key = sorted_id(at);
        let row = key - params.first_row;
        var sum = vec4<f32>(0.0);
        while (at < chunk.end && sorted_id(at) == key) {
            if (row < params.rows) {
                sum += load4_dy(sorted_row(at) * COLUMNS + chunk.c);
            }
            at++;
        }
        if (row < params.rows) {
            if (at == chunk.end) {
                for (var next = chunk.end; next < params.count && sorted_id(next) == key; next += CHUNK) {
                    sum += load4_heads(next / CHUNK * COLUMNS + chunk.c);
                }
            }
            let element = row * COLUMNS + chunk.c;
            store4_table(element, load4_table(element) + sum, COLUMNS - chunk.c);
        }
    }
}
