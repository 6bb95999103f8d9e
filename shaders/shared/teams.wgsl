// Sums and maxima over teams: the LANES neighbouring threads, a power of two, that own a row. A sum goes in pairs, a
// thread with its neighbour, pairs with pairs and so on, whether parts meet in a subgroup's registers or in workgroup
// memory: its bits are the same. Every thread of a team gets the result, and every thread of the workgroup has to call.
//
// TEAM_STEP neighbours meet in registers first (see subgroups.wgsl), up to FAR parts of those at one barrier: by
// `far_sum`, generated for the numbers of parts that this team has. near_teams.wgsl is for teams that are done by then.

// A kernel's second reduction needs no barrier against readers of its first: `turn` is 0 or 1.
const TURNS: u32 = 2u;

var<workgroup> team_parts: array<f32, TURNS * WORKGROUP>;

fn sum_of_2(first: u32, step: u32) -> f32 {
    return team_parts[first] + team_parts[first + step];
}

fn sum_of_4(first: u32, step: u32) -> f32 {
    return sum_of_2(first, step) + sum_of_2(first + 2u * step, step);
}

fn sum_of_8(first: u32, step: u32) -> f32 {
    return sum_of_4(first, step) + sum_of_4(first + 4u * step, step);
}

fn sum_of_16(first: u32, step: u32) -> f32 {
    return sum_of_8(first, step) + sum_of_8(first + 8u * step, step);
}

fn sum_of_32(first: u32, step: u32) -> f32 {
    return sum_of_16(first, step) + sum_of_16(first + 16u * step, step);
}

fn sum_of_64(first: u32, step: u32) -> f32 {
    return sum_of_32(first, step) + sum_of_32(first + 32u * step, step);
}

fn team_sum(thread: u32, turn: u32, value: f32) -> f32 {
    var sum = near_sum(value);
    let own = turn * WORKGROUP + thread;
    for (var step = TEAM_STEP; step < LANES; step *= FAR) {
        // Readers of the parts before.
        if (step > TEAM_STEP) {
            workgroupBarrier();
        }
        team_parts[own] = sum;
        workgroupBarrier();
        let width = min(FAR * step, LANES);
        sum = far_sum(own / width * width, step, width / step);
    }
    return sum;
}

fn team_max(thread: u32, turn: u32, value: f32) -> f32 {
    var largest = near_max(value);
    let own = turn * WORKGROUP + thread;
    for (var step = TEAM_STEP; step < LANES; step *= FAR) {
        if (step > TEAM_STEP) {
            workgroupBarrier();
        }
        team_parts[own] = largest;
        workgroupBarrier();
        let width = min(FAR * step, LANES);
        let first = own / width * width;
        for (var i = first; i < first + width; i += step) {
            largest = max(largest, team_parts[i]);
        }
    }
    return largest;
}

// Two sums at one barrier, of teams that are not larger than FAR · TEAM_STEP.
fn team_sums(thread: u32, values: vec2<f32>) -> vec2<f32> {
    let near = vec2<f32>(near_sum(values.x), near_sum(values.y));
    team_parts[thread] = near.x;
    team_parts[WORKGROUP + thread] = near.y;
    workgroupBarrier();
    let first = thread / LANES * LANES;
    let count = LANES / TEAM_STEP;
    return vec2<f32>(far_sum(first, TEAM_STEP, count), far_sum(WORKGROUP + first, TEAM_STEP, count));
}
