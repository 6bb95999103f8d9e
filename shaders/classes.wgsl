// Softmax cross-entropy over classes, accuracy and gradient; see ops/cross_entropy.rs. LANES neighbouring threads own a row
// of `columns` logits and read it four neighbours at a time; they are one team (see shared/teams.wgsl). Bound by traffic:
// a row is read once, and in the gradient a second time from a cache. Entries that go over all rows are one workgroup.

// No literal stands for minus infinity; nothing that is finite lies below this.
const LOWEST: f32 = -3.4e38;

const LANE: vec4<u32> = vec4<u32>(0u, 1u, 2u, 3u);

// A row's label, −1 where it doesn't count. One out of range reads some logit and writes nothing else.
fn label_of(row: u32) -> i32 {
    if (row >= params.rows) {
        return -1;
    }
    return min(index_labels(params.first + row), i32(params.columns) - 1);
}

// Four logits of a row, LOWEST past its end.
fn logits_of(first: u32, column: u32) -> vec4<f32> {
    return select(vec4<f32>(LOWEST), load4_logits(first + column), column + LANE < vec4<u32>(params.columns));
}

// Of the logits that this thread reads, the largest, and the sum of exponentials from there (online softmax, Milakov and
// Gimelshein 2018).
fn largest_and_sum(first: u32, lane: u32) -> vec2<f32> {
    var largest = LOWEST;
    var sum = 0.0;
    for (var c = 4u * lane; c < params.columns; c += 4u * LANES) {
        let four = logits_of(first, c);
        let next = max(max(largest, max(four.x, four.y)), max(four.z, four.w));
        let powers = select(vec4<f32>(), exp(four - vec4<f32>(next)), c + LANE < vec4<u32>(params.columns));
        sum = sum * exp(largest - next) + (powers.x + powers.y + powers.z + powers.w);
        largest = next;
    }
    return vec2<f32>(largest, sum);
}

// sums[r] = the row's loss, sums[all + r] = 1 where its largest logit is the label's; 0 where it doesn't count.
@compute @workgroup_size(WORKGROUP)
fn score_rows(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    let lane = thread % LANES;
    let row = tr_group(id, grid) * (WORKGROUP / LANES) + thread / LANES;
    let label = label_of(row);
    let counts = label >= 0;
    let first = min(row, params.rows - 1u) * params.columns;
    let logit = load_logits(first + u32(max(label, 0)));
    let own = largest_and_sum(first, lane);
    // Whether some logit comes before the label's: a larger one, or an equal one of an earlier class.
    var before = 0.0;
    for (var c = 4u * lane; c < params.columns; c += 4u * LANES) {
        let four = logits_of(first, c);
        let earlier = vec4<i32>(c + LANE) < vec4<i32>(label);
        let larger = four > vec4<f32>(logit);
        if (any(larger | ((four == vec4<f32>(logit)) & earlier))) {
            before = 1.0;
        }
    }
    let top = team_max(thread, 0u, own.x);
    let total = team_sum(thread, 1u, own.y * exp(own.x - top));
    let beaten = team_max(thread, 0u, before);
    if (lane == 0u && row < params.rows) {
        store_sums(params.sum + row, select(0.0, log(total) + top - logit, counts));
        store_sums(params.all + params.sum + row, select(0.0, 1.0 - beaten, counts));
    }
}

// Rows that count, at least 1. Whole numbers are exact in f32 up to 2^24.
fn counted(thread: u32) -> f32 {
    var own = 0.0;
    for (var row = thread; row < params.rows; row += WORKGROUP) {
        own += select(0.0, 1.0, index_labels(row) >= 0);
    }
    return max(team_sum(thread, 0u, own), 1.0);
}

// Rows are added in an order that depends on their number alone.
@compute @workgroup_size(WORKGROUP)
fn add_scores(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    var own = vec2<f32>();
    for (var row = thread; row < params.rows; row += WORKGROUP) {
        own += vec2<f32>(load_sums(row), load_sums(params.all + row));
    }
    let count = counted(thread);
    let loss = team_sum(thread, 1u, own.x);
    let hits = team_sum(thread, 0u, own.y);
    if (thread == 0u) {
        store_loss(0u, loss / count);
        store_accuracy(0u, hits / count);
    }
}

// sums[0] = the gradient of one row's loss.
@compute @workgroup_size(WORKGROUP)
fn find_slope(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    let count = counted(thread);
    if (thread == 0u) {
        store_sums(0u, load_dloss(0u) / count);
    }
}

// An element is read and written by one thread, so that the gradient may take the logits' place.
@compute @workgroup_size(WORKGROUP)
fn gradients(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    let lane = thread % LANES;
    let row = tr_group(id, grid) * (WORKGROUP / LANES) + thread / LANES;
    let label = label_of(row);
    let first = min(row, params.rows - 1u) * params.columns;
    let own = largest_and_sum(first, lane);
    let top = team_max(thread, 0u, own.x);
    let total = team_sum(thread, 1u, own.y * exp(own.x - top));
    if (row >= params.rows) {
        return;
    }
    let slope = select(0.0, load_sums(0u), label >= 0);
    for (var c = 4u * lane; c < params.columns; c += 4u * LANES) {
        let hit = select(vec4<f32>(), vec4<f32>(1.0), vec4<i32>(c + LANE) == vec4<i32>(label));
        let powers = exp(load4_logits(first + c) - vec4<f32>(top)) / total;
        store4_dlogits(first + c, (powers - hit) * slope, params.columns - c);
    }
}
