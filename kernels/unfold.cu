// Patches of images as rows of a matrix, and the sum of patches back into images; see ops/unfold.rs. Both gather: a thread
// makes four neighbours of the output. ALIGNED: they are four channels of one pixel, and neighbours in the input too. The
// compiler knows all extents, and turns divisions into products. Bound by traffic.

constexpr unsigned NOWHERE = 0xffffffffu;
constexpr unsigned TAPS = KERNEL_HEIGHT * KERNEL_WIDTH;
constexpr unsigned COLUMNS = TAPS * CHANNELS;

// Element of the images.
__device__ unsigned pixel(unsigned image, unsigned y, unsigned x, unsigned channel) {
    return CHANNELS_FIRST ? ((image * CHANNELS + channel) * HEIGHT + y) * WIDTH + x
                          : ((image * HEIGHT + y) * WIDTH + x) * CHANNELS + channel;
}

// Element of the images that belongs at `index` of the columns; nowhere in the padding.
__device__ unsigned source(unsigned index) {
    const unsigned patch = index / COLUMNS;
    const unsigned column = index - patch * COLUMNS;
    const unsigned tap = CHANNELS_FIRST ? column % TAPS : column / CHANNELS;
    const unsigned channel = CHANNELS_FIRST ? column / TAPS : column % CHANNELS;
    const unsigned across = patch % PATCHES_ACROSS;
    const unsigned down = patch / PATCHES_ACROSS % PATCHES_DOWN;
    // A pixel before the first wraps around and lies past the last.
    const unsigned y = down * STRIDE_Y + tap / KERNEL_WIDTH * DILATION_Y - PADDING_Y;
    const unsigned x = across * STRIDE_X + tap % KERNEL_WIDTH * DILATION_X - PADDING_X;
    if (y >= HEIGHT || x >= WIDTH) {
        return NOWHERE;
    }
    return pixel(patch / (PATCHES_ACROSS * PATCHES_DOWN), y, x, channel);
}

__device__ void unfold(const Args &args) {
    const unsigned at = (args.first_group + blockIdx.x) * (4 * WORKGROUP) + 4 * threadIdx.x;
    if (at >= args.elements) {
        return;
    }
    const unsigned count = smaller(args.elements - at, 4);
    if (ALIGNED) {
        const unsigned origin = source(at);
        args.out.store4(at, origin == NOWHERE ? four(0.0f) : args.x.load4(origin), count);
        return;
    }
    const auto one = [&](unsigned i) {
        const unsigned origin = i < count ? source(at + i) : NOWHERE;
        return origin == NOWHERE ? 0.0f : args.x.load(origin);
    };
    args.out.store4(at, Four{one(0), one(1), one(2), one(3)}, count);
}

// First column of the patch that has pixel `y`, `x` at `tap`; nowhere without one.
__device__ unsigned patch_of(unsigned image, unsigned y, unsigned x, unsigned tap) {
    const unsigned from_top = y + PADDING_Y - tap / KERNEL_WIDTH * DILATION_Y;
    const unsigned from_left = x + PADDING_X - tap % KERNEL_WIDTH * DILATION_X;
    const unsigned down = from_top / STRIDE_Y;
    const unsigned across = from_left / STRIDE_X;
    // What is before the first patch wraps around and lies past the last.
    const bool between = from_top % STRIDE_Y != 0 || from_left % STRIDE_X != 0;
    if (between || down >= PATCHES_DOWN || across >= PATCHES_ACROSS) {
        return NOWHERE;
    }
    return ((image * PATCHES_DOWN + down) * PATCHES_ACROSS + across) * COLUMNS;
}

// What the element at `index` of the images gets; four where ALIGNED.
__device__ Four folded(const Args &args, unsigned index) {
    const unsigned channel = CHANNELS_FIRST ? index / (WIDTH * HEIGHT) % CHANNELS : index % CHANNELS;
    const unsigned place = CHANNELS_FIRST ? index : index / CHANNELS;
    const unsigned x = place % WIDTH;
    const unsigned y = place / WIDTH % HEIGHT;
    const unsigned image = index / (CHANNELS * WIDTH * HEIGHT);
    Four sum = four(0.0f);
    for (unsigned tap = 0; tap < TAPS; tap++) {
        const unsigned first = patch_of(image, y, x, tap);
        if (first == NOWHERE) {
            continue;
        }
        if (ALIGNED) {
            sum += args.x.load4(first + tap * CHANNELS + channel);
        } else {
            sum.x += args.x.load(first + (CHANNELS_FIRST ? channel * TAPS + tap : tap * CHANNELS + channel));
        }
    }
    return sum;
}

__device__ void fold(const Args &args) {
    const unsigned at = (args.first_group + blockIdx.x) * (4 * WORKGROUP) + 4 * threadIdx.x;
    if (at >= args.elements) {
        return;
    }
    const unsigned count = smaller(args.elements - at, 4);
    if (ALIGNED) {
        args.out.store4(at, folded(args, at), count);
        return;
    }
    const auto one = [&](unsigned i) { return i < count ? folded(args, at + i).x : 0.0f; };
    args.out.store4(at, Four{one(0), one(1), one(2), one(3)}, count);
}
