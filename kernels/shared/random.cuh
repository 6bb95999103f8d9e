// Uniform numbers by counter (Philox4x32-10, Salmon et al. 2011): what an element draws depends on the key, the stream
// and its index alone, as in the core's `uniform`.

// Word `lane` at a counter.
template <class Key>
__device__ float tr_uniform_at(const Key &key, unsigned stream, unsigned counter, unsigned lane) {
    unsigned k0 = key.raw(0), k1 = key.raw(1);
    unsigned c0 = counter, c1 = stream, c2 = key.raw(2), c3 = key.raw(3);
    for (unsigned round = 0; round < 10; round++) {
        const unsigned long long a = c0 * 0xD2511F53ull, b = c2 * 0xCD9E8D57ull;
        c0 = unsigned(b >> 32) ^ c1 ^ k0;
        c1 = unsigned(b);
        c2 = unsigned(a >> 32) ^ c3 ^ k1;
        c3 = unsigned(a);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    const unsigned word = lane == 0 ? c0 : lane == 1 ? c1 : lane == 2 ? c2 : c3;
    return float(word >> 8) / 16777216.0f;
}

template <class Key> __device__ float tr_uniform(const Key &key, unsigned stream, unsigned element) {
    return tr_uniform_at(key, stream, element >> 2, element & 3u);
}
