// TEAM_STEP neighbouring threads of a subgroup reduce in its registers. A device uses this where it was seen when it was
// opened that SUBGROUP neighbouring threads form a subgroup, in their order.

fn near_sum(value: f32) -> f32 {
    var sum = value;
    for (var mask = 1u; mask < TEAM_STEP; mask *= 2u) {
        sum += subgroupShuffleXor(sum, mask);
    }
    return sum;
}

fn near_max(value: f32) -> f32 {
    var largest = value;
    for (var mask = 1u; mask < TEAM_STEP; mask *= 2u) {
        largest = max(largest, subgroupShuffleXor(largest, mask));
    }
    return largest;
}

// What thread `lane` of the subgroup has; every thread of the subgroup has to call.
fn of_lane(value: vec4<f32>, lane: u32) -> vec4<f32> {
    return subgroupShuffle(value, lane);
}
