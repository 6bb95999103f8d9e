// One number into its slot of a list, so that a launch binds the list instead of each.

__device__ void collect(const Args &args) { args.numbers.store(args.slot, args.number.load(0)); }
