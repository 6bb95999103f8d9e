// What comes before the gradient of attention by attention_wgmma_grad.cu; comes after attention.cu.
//
// Makes what slopes subtract, as grad_delta does, brings the logs of normalisers next to it, and zeroes the counts by which blocks
// add in order.

#include "attention.cu"

__device__ void begin_ordered(const Args &args) {
    const unsigned blocks = (args.sequences * args.seq_len * HEADS + WORKGROUP - 1) / WORKGROUP;
    const unsigned index = (args.first_group + blockIdx.x) * WORKGROUP + threadIdx.x;
    for (unsigned i = index; i < unsigned(args.counts.elements); i += blocks * WORKGROUP) {
        args.counts.set(i, 0);
    }
    if (index < args.sequences * args.seq_len * HEADS) {
        const unsigned row = index / HEADS;
        const unsigned at = lse_index(args, row / args.seq_len, index % HEADS, row % args.seq_len);
        args.statistics.store(at, args.lse.load(at));
    }
    grad_delta(args);
}
