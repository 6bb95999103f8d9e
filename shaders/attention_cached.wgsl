// Attention of new positions over a cache; what it shares with whole sequences is in attention_heads.wgsl.

const CACHE_COLUMNS: u32 = KV_HEADS * HEAD_DIM;
const CACHE_FOURS: u32 = (CACHE_COLUMNS + 3u) / 4u;

fn cache_index(batch: u32, row: u32) -> u32 {
    return (batch * params.capacity + row) * CACHE_COLUMNS;
}

// Copies the new positions' keys and values to the caches, four of a row a thread.
@compute @workgroup_size(WORKGROUP)
fn append(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let index = tr_group(id, grid) * WORKGROUP + thread;
    if (tr_outside(id, grid) || index >= params.sequences * params.seq_len * CACHE_FOURS) {
        return;
    }
    let row = index / CACHE_FOURS;
    let column = 4u * (index % CACHE_FOURS);
    let to = cache_index(row / params.seq_len, u32(load_position(0u)) + row % params.seq_len) + column;
    let key = row * PACKED + key_column(0u) + column;
    let count = min(4u, CACHE_COLUMNS - column);
    store4_keys(to, load4_qkv(key), count);
    store4_values(to, load4_qkv(key + CACHE_COLUMNS), count);
}

// Threads of a workgroup that share the channels of a sum, and how many keys they take at a time.
const PARTS: u32 = WORKGROUP / FOURS;

var<workgroup> cached_begin: u32;
var<workgroup> cached_end: u32;
var<workgroup> query_fours: array<vec4<f32>, FOURS>;
var<workgroup> scores: array<f32, WORKGROUP>;
var<workgroup> part_sums: array<vec4<f32>, WORKGROUP>;

// A workgroup makes one head of one new position. It goes over the cached positions WORKGROUP at a time: a thread
// makes the score of one, then four channels of the sum over every PARTS-th. Bound by reading the cache once.
@compute @workgroup_size(WORKGROUP)
fn cached(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    let group = tr_group(id, grid);
    let head = group % HEADS;
    let batch = group / HEADS / params.seq_len;
    let row = (group / HEADS) % params.seq_len;
    let column = (head / GROUP) * HEAD_DIM;
    if (thread == 0u) {
        cached_end = u32(load_position(0u)) + row + 1u;
        cached_begin = select(cached_end - min(cached_end, WINDOW), 0u, WINDOW == 0u);
    }
    if (thread < FOURS) {
        query_fours[thread] = packed_four(batch, row, query_column(head), thread) * params.prescale;
    }
    // The barriers below need a bound that is known to be the same for all threads.
    let end = workgroupUniformLoad(&cached_end);
    let begin = workgroupUniformLoad(&cached_begin);
    let four = thread % FOURS;
    var highest = LOWEST;
    var total = 0.0;
    var sum = vec4<f32>();
    for (var first = begin; first < end; first += WORKGROUP) {
        let count = min(WORKGROUP, end - first);
        var score = LOWEST;
        if (thread < count) {
            let at = cache_index(batch, first + thread) + column;
            score = 0.0;
            for (var c = 0u; c < FOURS; c++) {
                score += dot(query_fours[c], within_head(load4_keys(at + 4u * c), c));
            }
            score = capped(vec4<f32>(score)).x;
        }
        workgroupBarrier();
        scores[thread] = score;
        workgroupBarrier();
        var raised = highest;
        for (var k = 0u; k < WORKGROUP; k++) {
            raised = max(raised, scores[k]);
        }
        let factor = exp2(highest - raised);
        let weight = exp2(score - raised);
        highest = raised;
        workgroupBarrier();
        scores[thread] = weight;
        workgroupBarrier();
        total = total * factor + weight;
        sum *= factor;
        for (var k = thread / FOURS; k < count && thread < PARTS * FOURS; k += PARTS) {
            sum += scores[k] * within_head(load4_values(cache_index(batch, first + k) + column + 4u * four), four);
        }
    }
    workgroupBarrier();
    scores[thread] = total;
    part_sums[thread] = sum;
    workgroupBarrier();
    if (thread >= FOURS) {
        return;
    }
    total = 0.0;
    for (var k = 0u; k < WORKGROUP; k++) {
        total += scores[k];
    }
    for (var part = 1u; part < PARTS; part++) {
        sum += part_sums[part * FOURS + thread];
    }
    store4_out(out_index(batch, row, head) + 4u * thread, sum / total, min(4u, HEAD_DIM - 4u * thread));
}
