// Rotary position embedding; see ops/rope.rs. A thread turns four neighbouring pairs of one head, or copies four channels
// of the heads that don't turn. It reads both halves before it writes them, so that y may be x. Bound by traffic.

constexpr unsigned HALF = HEAD_DIM / 2;
constexpr unsigned FOURS_OF_HALF = (HALF + 3) / 4;

// What a stretch makes of the frequency of a pair.
__device__ float stretched(const Args &args, float frequency, float pair) {
    if (!STRETCHED) {
        return frequency;
    }
    const float kept = args.kept_base + args.kept_frequency * frequency + args.kept_pair * pair;
    const float share = fminf(fmaxf(kept, 0.0f), 1.0f);
    return frequency * (share + (1.0f - share) * args.rest);
}

__device__ void rotate(const Args &args) {
    constexpr unsigned TURNING = ROTATED * FOURS_OF_HALF;
    const unsigned per_row = TURNING + (args.columns - ROTATED * HEAD_DIM + 3) / 4;
    const unsigned index = (args.first_group + blockIdx.x) * WORKGROUP + threadIdx.x;
    if (index >= args.rows * per_row) {
        return;
    }
    const unsigned row = index / per_row;
    const unsigned quad = index - row * per_row;
    if (quad >= TURNING) {
        const unsigned column = ROTATED * HEAD_DIM + 4 * (quad - TURNING);
        const unsigned at = row * args.columns + column;
        args.y.store4(at, args.x.load4(at), args.columns - column);
        return;
    }
    const unsigned d = 4 * (quad % FOURS_OF_HALF);
    const unsigned at = row * args.columns + quad / FOURS_OF_HALF * HEAD_DIM + d;
    const unsigned number = args.first_row + row;
    const int place = EACH ? args.start.raw(number) : args.start.raw(0) + int(number % args.time);
    const float position = float(place) * args.direction;
    const auto angle = [&](unsigned lane) {
        const float pair = float(d + lane);
        return position * stretched(args, exp2f(pair * args.log2_step), pair);
    };
    const float amplitude = STRETCHED ? args.amplitude : 1.0f;
    const Four turn{angle(0), angle(1), angle(2), angle(3)};
    const Four cosine = Four{cosf(turn.x), cosf(turn.y), cosf(turn.z), cosf(turn.w)} * amplitude;
    const Four sine = Four{sinf(turn.x), sinf(turn.y), sinf(turn.z), sinf(turn.w)} * amplitude;
    const Four a = args.x.load4(at);
    const Four b = args.x.load4(at + HALF);
    args.y.store4(at, a * cosine - b * sine, HALF - d);
    args.y.store4(at + HALF, b * cosine + a * sine, HALF - d);
}
