// Patches of images as rows of a matrix, and the sum of patches back into images; see ops/unfold.rs. Both gather: a thread
// makes four neighbours of the output, and so whole words of it. ALIGNED: they are four channels of one pixel, and
// neighbours in the input too. The compiler knows all extents, and turns divisions into products. Bound by traffic.

const NOWHERE: u32 = 0xffffffffu;
const TAPS: u32 = KERNEL_HEIGHT * KERNEL_WIDTH;
const COLUMNS: u32 = TAPS * CHANNELS;

// Element of the images.
fn pixel(image: u32, y: u32, x: u32, channel: u32) -> u32 {
    if (CHANNELS_FIRST == 1u) {
        return ((image * CHANNELS + channel) * HEIGHT + y) * WIDTH + x;
    }
    return ((image * HEIGHT + y) * WIDTH + x) * CHANNELS + channel;
}

// Element of the images that belongs at `index` of the columns; nowhere in the padding.
fn source(index: u32) -> u32 {
    let which = index / COLUMNS;
    let column = index - which * COLUMNS;
    var tap = column / CHANNELS;
    var channel = column % CHANNELS;
    if (CHANNELS_FIRST == 1u) {
        tap = column % TAPS;
        channel = column / TAPS;
    }
    let across = which % PATCHES_ACROSS;
    let down = which / PATCHES_ACROSS % PATCHES_DOWN;
    // A pixel before the first wraps around and lies past the last.
    let y = down * STRIDE_Y + tap / KERNEL_WIDTH * DILATION_Y - PADDING_Y;
    let x = across * STRIDE_X + tap % KERNEL_WIDTH * DILATION_X - PADDING_X;
    if (y >= HEIGHT || x >= WIDTH) {
        return NOWHERE;
    }
    return pixel(which / (PATCHES_ACROSS * PATCHES_DOWN), y, x, channel);
}

@compute @workgroup_size(WORKGROUP)
fn unfold(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let at = (tr_group(id, grid) * WORKGROUP + thread) * 4u;
    if (tr_outside(id, grid) || at >= params.elements) {
        return;
    }
    var four = vec4<f32>(0.0);
    if (ALIGNED == 1u) {
        let origin = source(at);
        if (origin != NOWHERE) {
            four = load4_x(origin);
        }
    } else {
        for (var i = 0u; i < 4u; i++) {
            let origin = source(at + i);
            if (origin != NOWHERE && at + i < params.elements) {
                four[i] = load_x(origin);
            }
        }
    }
    store4_out(at, four, 4u);
}

// First column of the patch that has pixel `y`, `x` at `tap`; nowhere without one.
fn patch_of(image: u32, y: u32, x: u32, tap: u32) -> u32 {
    let from_top = y + PADDING_Y - tap / KERNEL_WIDTH * DILATION_Y;
    let from_left = x + PADDING_X - tap % KERNEL_WIDTH * DILATION_X;
    let down = from_top / STRIDE_Y;
    let across = from_left / STRIDE_X;
    // What is before the first patch wraps around and lies past the last.
    let between = from_top % STRIDE_Y != 0u || from_left % STRIDE_X != 0u;
    if (between || down >= PATCHES_DOWN || across >= PATCHES_ACROSS) {
        return NOWHERE;
    }
    return ((image * PATCHES_DOWN + down) * PATCHES_ACROSS + across) * COLUMNS;
}

@compute @workgroup_size(WORKGROUP)
fn fold(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let at = (tr_group(id, grid) * WORKGROUP + thread) * 4u;
    if (tr_outside(id, grid) || at >= params.elements) {
        return;
    }
    var sums = vec4<f32>(0.0);
    let steps = select(4u, 1u, ALIGNED == 1u);
    for (var i = 0u; i < steps && at + i < params.elements; i++) {
        // Where the element is: its channel, column and row come in the order of the axes.
        var rest = at + i;
        var channel = 0u;
        if (CHANNELS_FIRST == 0u) {
            channel = rest % CHANNELS;
            rest /= CHANNELS;
        }
        let x = rest % WIDTH;
        let y = rest / WIDTH % HEIGHT;
        rest /= WIDTH * HEIGHT;
        if (CHANNELS_FIRST == 1u) {
            channel = rest % CHANNELS;
            rest /= CHANNELS;
        }
        for (var tap = 0u; tap < TAPS; tap++) {
            let first = patch_of(rest, y, x, tap);
            if (first == NOWHERE) {
                continue;
            }
            if (ALIGNED == 1u) {
                sums += load4_x(first + tap * CHANNELS + channel);
            } else if (CHANNELS_FIRST == 1u) {
                sums[i] += load_x(first + channel * TAPS + tap);
            } else {
                sums[i] += load_x(first + tap * CHANNELS + channel);
            }
        }
    }
    store4_out(at, sums, 4u);
}
