// Four neighbouring elements, which move through memory together.

struct alignas(16) Four {
    float x, y, z, w;
};

struct Two {
    float x, y;
};

__device__ Four four(float v) { return Four{v, v, v, v}; }

__device__ Four operator+(Four a, Four b) { return Four{a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }
__device__ Four operator-(Four a, Four b) { return Four{a.x - b.x, a.y - b.y, a.z - b.z, a.w - b.w}; }
__device__ Four operator*(Four a, Four b) { return Four{a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w}; }
__device__ Four operator/(Four a, Four b) { return Four{a.x / b.x, a.y / b.y, a.z / b.z, a.w / b.w}; }
__device__ Four operator+(Four a, float b) { return a + four(b); }
__device__ Four operator-(Four a, float b) { return a - four(b); }
__device__ Four operator*(Four a, float b) { return a * four(b); }
__device__ Four operator/(Four a, float b) { return a / four(b); }
__device__ Four &operator+=(Four &a, Four b) { return a = a + b; }
__device__ Four &operator*=(Four &a, Four b) { return a = a * b; }
__device__ Four &operator*=(Four &a, float b) { return a = a * b; }

__device__ Four max(Four a, Four b) {
    return Four{fmaxf(a.x, b.x), fmaxf(a.y, b.y), fmaxf(a.z, b.z), fmaxf(a.w, b.w)};
}

__device__ Four exp(Four a) { return Four{expf(a.x), expf(a.y), expf(a.z), expf(a.w)}; }
__device__ Four exp2(Four a) { return Four{exp2f(a.x), exp2f(a.y), exp2f(a.z), exp2f(a.w)}; }

__device__ float sum_of(Four a) { return (a.x + a.y) + (a.z + a.w); }
__device__ float max_of(Four a) { return fmaxf(fmaxf(a.x, a.y), fmaxf(a.z, a.w)); }
__device__ float dot(Four a, Four b) { return sum_of(a * b); }

// The first `count` of the four, and `otherwise` for the rest.
__device__ Four first_of(Four a, unsigned count, float otherwise) {
    return Four{
        count > 0 ? a.x : otherwise,
        count > 1 ? a.y : otherwise,
        count > 2 ? a.z : otherwise,
        count > 3 ? a.w : otherwise,
    };
}

__device__ unsigned smaller(unsigned a, unsigned b) { return a < b ? a : b; }
