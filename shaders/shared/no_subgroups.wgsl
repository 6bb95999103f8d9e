// Threads that share no registers: TEAM_STEP is 1.

fn near_sum(value: f32) -> f32 {
    return value;
}

fn near_max(value: f32) -> f32 {
    return value;
}

fn of_lane(value: vec4<f32>, lane: u32) -> vec4<f32> {
    return value;
}
