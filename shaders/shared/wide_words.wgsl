// Words of 64 bits as two of 32, the lower one first.

fn tr_halves(word: u64) -> vec2<u32> {
    return vec2<u32>(u32(word), u32(word >> 32u));
}

fn tr_word(halves: vec2<u32>) -> u64 {
    return u64(halves.x) | (u64(halves.y) << 32u);
}
