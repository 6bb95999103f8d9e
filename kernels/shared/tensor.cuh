// Tensors as kernels see them: elements are stored as T and computed with as float. WIDTH 4 promises that fours are
// read and written at multiples of four, so that they move as one vector; the memory of such a tensor goes on to the
// next multiple of four.

struct Bf16 {
    unsigned short bits;
};

struct F16 {
    unsigned short bits;
};

__device__ float tr_value(float x) { return x; }
__device__ float tr_value(int x) { return float(x); }
__device__ float tr_value(unsigned x) { return float(x); }
__device__ float tr_value(short x) { return float(x); }
__device__ float tr_value(signed char x) { return float(x); }
__device__ float tr_value(unsigned char x) { return float(x); }
__device__ float tr_value(Bf16 x) { return __uint_as_float(unsigned(x.bits) << 16); }
__device__ float tr_value(F16 x) { return tr_half_to_float(x.bits); }

__device__ void tr_round(float x, float &to) { to = x; }
__device__ void tr_round(float x, int &to) { to = int(x); }
__device__ void tr_round(float x, unsigned &to) { to = (unsigned)x; }
__device__ void tr_round(float x, short &to) { to = short(int(x)); }
__device__ void tr_round(float x, signed char &to) { to = (signed char)int(x); }
__device__ void tr_round(float x, unsigned char &to) { to = (unsigned char)int(x); }
__device__ void tr_round(float x, Bf16 &to) { to.bits = tr_round_bf16(x); }
__device__ void tr_round(float x, F16 &to) { to.bits = tr_float_to_half(x); }

template <class T, unsigned WIDTH> struct Tensor {
    using Element = T;
    // Whether there are no fours that go beyond the end.
    static constexpr bool VECTORS = WIDTH == 4;

    T *data;
    unsigned long long elements;

    struct alignas(4 * sizeof(T)) Vector {
        T lane[4];
    };

    struct alignas(2 * sizeof(T)) Pair {
        T lane[2];
    };

    // One element as it is stored.
    __device__ T raw(unsigned i TR_HERE) const {
        TR_HOLDS(i, 1, "reads");
        return data[i];
    }

    __device__ void set(unsigned i, T x TR_HERE) const {
        TR_HOLDS(i, 1, "writes");
        data[i] = x;
    }

    // One element.
    __device__ float load(unsigned i TR_HERE) const {
        TR_HOLDS(i, 1, "reads");
        return tr_value(data[i]);
    }

    __device__ void store(unsigned i, float x TR_HERE) const {
        TR_HOLDS(i, 1, "writes");
        tr_round(x, data[i]);
    }

    // A number as it is once it was stored.
    static __device__ float rounded(float x) {
        T stored;
        tr_round(x, stored);
        return tr_value(stored);
    }

    // The first `count` of two, from an even `i` on, and 0 for the rest.
    __device__ Two load2(unsigned i, unsigned count TR_HERE) const {
        TR_HOLDS(i, count < 2 ? count : 2, "reads");
        if (WIDTH == 4 && count >= 2) {
            const Pair pair = *reinterpret_cast<const Pair *>(data + i);
            return Two{tr_value(pair.lane[0]), tr_value(pair.lane[1])};
        }
        return Two{tr_value(data[i]), count > 1 ? tr_value(data[i + 1]) : 0.0f};
    }

    // The four from `i` on; 0 for those past the tensor's end, where they're read one by one.
    __device__ Four load4(unsigned i TR_HERE) const {
        TR_HOLDS(i, 1, "reads");
        if (WIDTH == 4) {
            TR_ALIGNED(i);
            const Vector v = *reinterpret_cast<const Vector *>(data + i);
            return Four{tr_value(v.lane[0]), tr_value(v.lane[1]), tr_value(v.lane[2]), tr_value(v.lane[3])};
        }
        const auto one = [&](unsigned lane) {
            return (unsigned long long)i + lane < elements ? tr_value(data[i + lane]) : 0.0f;
        };
        return Four{one(0), one(1), one(2), one(3)};
    }

    // The first `count` of four, from `i` on.
    __device__ void store4(unsigned i, Four v, unsigned count TR_HERE) const {
        TR_HOLDS(i, count < 4 ? count : 4, "writes");
        if (WIDTH == 4 && count >= 4) {
            TR_ALIGNED(i);
            Vector rounded;
            tr_round(v.x, rounded.lane[0]);
            tr_round(v.y, rounded.lane[1]);
            tr_round(v.z, rounded.lane[2]);
            tr_round(v.w, rounded.lane[3]);
            *reinterpret_cast<Vector *>(data + i) = rounded;
            return;
        }
        if (count > 0) tr_round(v.x, data[i]);
        if (count > 1) tr_round(v.y, data[i + 1]);
        if (count > 2) tr_round(v.z, data[i + 2]);
        if (count > 3) tr_round(v.w, data[i + 3]);
    }

    // The first `count` of two, from an even `i` on.
    __device__ void store2(unsigned i, float x, float y, unsigned count TR_HERE) const {
        TR_HOLDS(i, count < 2 ? count : 2, "writes");
        if (WIDTH == 4 && count >= 2) {
            Pair rounded;
            tr_round(x, rounded.lane[0]);
            tr_round(y, rounded.lane[1]);
            *reinterpret_cast<Pair *>(data + i) = rounded;
            return;
        }
        tr_round(x, data[i]);
        if (count > 1) tr_round(y, data[i + 1]);
    }
};
