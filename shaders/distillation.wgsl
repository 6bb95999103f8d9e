// Distillation's loss of rows of logits, of which a chunk is held at a time; see ops/distillation.rs.   V real columns, of
// which the teacher has the first `taught`; T the temperature, A the `share` of the soft loss
//
//   losses[r]        = log Σᵥ exp(s[v]) − s[target[r]],  and  losses[rows + r] = Σᵥ q[v]·log(q[v] / p[v]);  0 where target[r] < 0
//                      with p, q the softmax of student's and teacher's logits over T, of what the teacher has
//   logits[r,v]      = ((1 − A)·(softmax(s)[v] − [v = target[r]]) + A·T·(p[v] − q[v])) · dloss / rows that count
//   loss             = (1 − A)·hard + A·T²·soft,  means over rows that count;  parts = hard, soft
//   where logits are CAPPED: with cap·tanh(logits / cap) for them, and its slope as one more factor
//
// A workgroup goes over a row three times, limited by bytes: the largest logits, the sums, and the gradient, which takes the
// student's logits' place. All threads of a workgroup are one team (see shared/teams.wgsl).

// No literal stands for minus infinity; nothing that is finite lies below this.
const LOWEST: f32 = -3.4e38;

fn capped_at(x: vec4<f32>, cap: f32) -> vec4<f32> {
    let y = x / cap;
    return cap * vec4<f32>(tr_tanh(y.x), tr_tanh(y.y), tr_tanh(y.z), tr_tanh(y.w));
}

fn capped(x: vec4<f32>) -> vec4<f32> {
    if (CAPPED == 0u) {
        return x;
    }
    return capped_at(x, params.cap);
}

// What a capped logit grows by with the logit.
fn slope_of(capped: vec4<f32>) -> vec4<f32> {
    if (CAPPED == 0u) {
        return vec4<f32>(1.0);
    }
    let part = capped / params.cap;
    return 1.0 - part * part;
}

// The teacher's four logits of a row from `column` on, of which the first `params.taught` are read.
fn taught(row: u32, column: u32) -> vec4<f32> {
    if (column >= params.taught) {
        return vec4<f32>(LOWEST);
    }
    let x = load4_teacher(row * params.teacher_padded + column);
    if (TEACHER_CAPPED == 0u) {
        return x;
    }
    return capped_at(x, params.teacher_cap);
}

// Which of four columns are among the first `count`.
fn within(column: u32, count: u32) -> vec4<bool> {
    return vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(count);
}

fn max_of(x: vec4<f32>) -> f32 {
    return max(max(x.x, x.y), max(x.z, x.w));
}

fn sum_of(x: vec4<f32>) -> f32 {
    return (x.x + x.y) + (x.z + x.w);
}

@compute @workgroup_size(WORKGROUP)
fn distil(
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
    // Of all logits, of those that the teacher has too, and of the teacher's.
    var tops = vec3<f32>(LOWEST);
    for (var column = 4u * thread; column < params.vocab; column += 4u * WORKGROUP) {
        let own = capped(load4_logits(first + column));
        let known = within(column, params.taught);
        let lowest = vec4<f32>(LOWEST);
        tops.x = max(tops.x, max_of(select(lowest, own, within(column, params.vocab))));
        tops.y = max(tops.y, max_of(select(lowest, own, known)));
        tops.z = max(tops.z, max_of(select(lowest, taught(row, column), known)));
    }
    let top = team_max(thread, 0u, tops.x);
    let soft_top = team_max(thread, 1u, tops.y);
    let teacher_top = team_max(thread, 0u, tops.z);
    // Of exponentials, and of the teacher's times by how much its logit lies further below its largest than the student's.
    var sums = vec4<f32>();
    for (var column = 4u * thread; column < params.vocab; column += 4u * WORKGROUP) {
        let own = capped(load4_logits(first + column));
        let known = within(column, params.taught);
        let hard = exp(own - vec4<f32>(top));
        let below = (own - vec4<f32>(soft_top)) / params.temperature;
        let teacher_below = (taught(row, column) - vec4<f32>(teacher_top)) / params.temperature;
        let weights = select(vec4<f32>(), exp(teacher_below), known);
        let apart = select(vec4<f32>(), weights * (teacher_below - below), known);
        sums += vec4<f32>(
            sum_of(select(vec4<f32>(), hard, within(column, params.vocab))),
            sum_of(select(vec4<f32>(), exp(below), known)),
            sum_of(weights),
            sum_of(apart),
        );
    }
    let hard_sum = team_sum(thread, 1u, sums.x);
    let soft_sum = team_sum(thread, 0u, sums.y);
    let teacher_sum = team_sum(thread, 1u, sums.z);
    let apart_sum = team_sum(thread, 0u, sums.w);
    let counts = target_index >= 0;
    if (thread == 0u) {
        // A target out of range reads some logit and writes nothing else.
        let logit = capped(vec4<f32>(load_logits(first + min(u32(max(target_index, 0)), params.vocab - 1u)))).x;
        store_losses(params.first + row, select(0.0, log(hard_sum) + top - logit, counts));
        let soft = apart_sum / teacher_sum + log(soft_sum) - log(teacher_sum);
        store_losses(params.rows + params.first + row, select(0.0, soft, counts));
    }
    if (GRADIENT == 1u) {
        // The target's logit is read before any is overwritten.
        storageBarrier();
        let slope = load_scale(1u);
        let hard_share = slope * (1.0 - params.share);
        let soft_share = slope * params.share * params.temperature;
        for (var column = 4u * thread; column < params.padded; column += 4u * WORKGROUP) {
            let at = vec4<i32>(i32(column)) + vec4<i32>(0, 1, 2, 3);
            let hit = select(vec4<f32>(), vec4<f32>(1.0), at == vec4<i32>(target_index));
            let own = capped(load4_logits(first + column));
            let hard = exp(own - vec4<f32>(top)) / hard_sum - hit;
            let below = (own - vec4<f32>(soft_top)) / params.temperature;
            let teacher_below = (taught(row, column) - vec4<f32>(teacher_top)) / params.temperature;
            let soft = exp(below) / soft_sum - exp(teacher_below) / teacher_sum;
            let known = within(column, params.taught);
            let both = hard_share * hard + select(vec4<f32>(), soft_share * soft, known);
            let real = within(column, params.vocab) & vec4<bool>(counts);
            store4_logits(first + column, select(vec4<f32>(), both * slope_of(own), real), params.padded - column);
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
    var sums = vec2<f32>();
    for (var row = thread; row < params.rows; row += WORKGROUP) {
        sums += vec2<f32>(load_losses(row), load_losses(params.rows + row));
    }
    let hard = team_sum(thread, 0u, sums.x);
    let soft = team_sum(thread, 1u, sums.y);
    if (thread == 0u) {
        let means = vec2<f32>(hard, soft) / load_scale(0u);
        store_parts(0u, means.x);
        store_parts(1u, means.y);
        let square = params.temperature * params.temperature;
        store_loss(0u, (1.0 - params.share) * means.x + params.share * square * means.y);
    }
}
