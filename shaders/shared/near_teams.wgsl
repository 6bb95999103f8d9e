// Sums and maxima over teams whose threads all meet in registers, or that are one thread: no workgroup memory, no barrier.

fn team_sum(thread: u32, turn: u32, value: f32) -> f32 {
    return near_sum(value);
}

fn team_max(thread: u32, turn: u32, value: f32) -> f32 {
    return near_max(value);
}

fn team_sums(thread: u32, values: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(near_sum(values.x), near_sum(values.y));
}
