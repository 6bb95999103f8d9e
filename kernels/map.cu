// Elementwise formulas. The generated part defines `tr_four(args, at, count)`: the formulas of the four elements from
// `at` on, of which `count` exist. Bound by traffic.

__device__ void elements(const Args &args) {
    const unsigned at = (args.first_group + blockIdx.x) * (4 * WORKGROUP) + 4 * threadIdx.x;
    if (at < args.elements) {
        tr_four(args, at, smaller(args.elements - at, 4));
    }
}
