// Cross-entropy of rows of logits, of which a chunk is held at a time.   V real columns of `padded`
//
//   losses[r]   = log Σᵥ exp(logits[r,v]) − logits[r,target[r]],  0 where target[r] < 0
//   logits[r,v] = (exp(logits[r,v]) / Σᵤ exp(logits[r,u]) − [v = target[r]]) · dloss / rows that count
//   where logits are CAPPED: with cap·tanh(logits / cap) for them, and its slope as one more factor
//   loss        = Σᵣ losses[r] / rows that count
//
// A workgroup goes over a row twice, limited by bytes: first the largest logit and the sum of exponentials, kept
// together as in online softmax (Milakov and Gimelshein 2018), then the gradient, which takes the logits' place. All
// threads of a workgroup are one team (see shared/teams.wgsl).

// No literal stands for minus infinity; nothing that is finite lies below this.
const LOWEST: f32 = -3.4e38;

// scale = rows that count, and the gradient of one row's loss. Numbers of rows are exact in f32 up to 2^24.
@compute @workgroup_size(WORKGROUP)
fn count(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    var counted = 0.0;
    for (var row = thread; row < params.rows; row += WORKGROUP) {
        counted += select(0.0, 1.0, index_targets(row) >= 0);
    }
    let rows = max(team_sum(thread, 0u, counted), 1.0);
    if (thread == 0u) {
        store_scale(0u, rows);
        if (GRADIENT == 1u) {
            store_scale(1u, load_dloss(0u) / rows);
        }
    }
}

fn capped(x: vec4<f32>) -> vec4<f32> {
    if (CAPPED == 0u) {
        return x;
    }
    let y = x / params.cap;
    return params.cap * vec4<f32>(tr_tanh(y.x), tr_tanh(y.y), tr_tanh(y.z), tr_tanh(y.w));
}

// What a capped logit grows by with the logit.
fn slope_of(capped: vec4<f32>) -> vec4<f32> {
    if (CAPPED == 0u) {
        return vec4<f32>(1.0);
    }
    let part = capped / params.cap;
    return 1.0 - part * part;
}

// Which of four columns are real.
fn real(column: u32) -> vec4<bool> {
    return vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(params.vocab);
}

@compute @workgroup_size(WORKGROUP)
fn normalise(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    let row = tr_group(id, grid);
    let first = row * params.padded;
    let target_index = index_targets(params.first + row);
    var largest = LOWEST;
    var sum = 0.0;
    for (var column = 4u * thread; column < params.vocab; column += 4u * WORKGROUP) {
        let exists = real(column);
        let four = select(vec4<f32>(LOWEST), capped(load4_logits(first + column)), exists);
        let next = max(max(largest, max(four.x, four.y)), max(four.z, four.w));
        let powers = select(vec4<f32>(), exp(four - vec4<f32>(next)), exists);
        sum = sum * exp(largest - next) + (powers.x + powers.y + powers.z + powers.w);
        largest = next;
    }
    let top = team_max(thread, 0u, largest);
    let total = team_sum(thread, 1u, sum * exp(largest - top));
    let counts = target_index >= 0;
    if (thread == 0u) {
        // A target out of range reads some logit and writes nothing else.
        let logit = capped(vec4<f32>(load_logits(first + min(u32(max(target_index, 0)), params.vocab - 1u)))).x;
        store_losses(params.first + row, select(0.0, log(total) + top - logit, counts));
    }
    if (GRADIENT == 1u) {
        // The target's logit is read before any is overwritten.
        storageBarrier();
        let slope = load_scale(1u);
        for (var column = 4u * thread; column < params.padded; column += 4u * WORKGROUP) {
            let at = vec4<i32>(i32(column)) + vec4<i32>(0, 1, 2, 3);
            let hit = select(vec4<f32>(), vec4<f32>(1.0), at == vec4<i32>(target_index));
            let logits = capped(load4_logits(first + column));
            let powers = exp(logits - vec4<f32>(top)) / total;
            let slopes = slope * slope_of(logits);
            let gradient = select(vec4<f32>(), (powers - hit) * slopes, real(column) & vec4<bool>(counts));
            store4_logits(first + column, gradient, params.padded - column);
        }
    }
}

// Rows are added in an order that depends on their number alone.
@compute @workgroup_size(WORKGROUP)
fn total(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if (tr_outside(id, grid)) {
        return;
    }
    var sum = 0.0;
    for (var row = thread; row < params.rows; row += WORKGROUP) {
        sum += load_losses(row);
    }
    let sum_of_rows = team_sum(thread, 0u, sum);
    if (thread == 0u) {
        store_loss(0u, sum_of_rows / load_scale(0u));
    }
}
