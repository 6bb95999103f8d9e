// Uniform numbers by counter (Philox4x32-10, Salmon et al. 2011): what an element draws depends on the key,
// the stream and its index alone, as in the core's `uniform`.

var<private> tr_element: u32;

fn tr_draw_for(element: u32) {
    tr_element = element;
}

// Upper half of a 64-bit product, from products of 16-bit halves.
fn tr_upper_product(a: u32, b: u32) -> u32 {
    let a0 = a & 0xffffu;
    let a1 = a >> 16u;
    let b0 = b & 0xffffu;
    let b1 = b >> 16u;
    let middle = a1 * b0 + ((a0 * b0) >> 16u);
    let carried = (middle & 0xffffu) + a0 * b1;
    return a1 * b1 + (middle >> 16u) + (carried >> 16u);
}

// The four words at a counter.
fn tr_random_words(element: u32, stream: u32) -> vec4<u32> {
    var key = vec2<u32>(bits_key(0u), bits_key(1u));
    var counter = vec4<u32>(element, stream, bits_key(2u), bits_key(3u));
    for (var round = 0u; round < 10u; round++) {
        counter = vec4<u32>(
            tr_upper_product(counter.z, 0xCD9E8D57u) ^ counter.y ^ key.x,
            counter.z * 0xCD9E8D57u,
            tr_upper_product(counter.x, 0xD2511F53u) ^ counter.w ^ key.y,
            counter.x * 0xD2511F53u,
        );
        key += vec2<u32>(0x9E3779B9u, 0xBB67AE85u);
    }
    return counter;
}

fn tr_random(stream: u32) -> f32 {
    return f32(tr_random_words(tr_element >> 2u, stream)[tr_element & 3u] >> 8u) / 16777216.0;
}
