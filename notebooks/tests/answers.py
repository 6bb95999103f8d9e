"""For each exercise: the right answer, and three that look right and aren't."""

import numpy as np

import tightrope as tr
from exercises.nb02 import first_fit
from tightrope import nn


def pack(order):
    """Offsets by first fit, in an order of all tensors."""
    return lambda size, first, last: first_fit(size, first, last, order(size, first, last))


by_size = pack(lambda size, first, last: np.argsort(-size, kind="stable"))
by_birth = pack(lambda size, first, last: np.argsort(first, kind="stable"))


def stacked(size, first, last):
    return np.cumsum(size) - size


def exclusive(size, first, last):
    """Forgets that a tensor is still read by its last op."""
    return by_size(size, first, np.maximum(first, last - 1))


def mean_loss(parts):
    return np.concatenate(parts).mean()


def mean_of_means(parts):
    return np.mean([part.mean() for part in parts])


def mean_of_filled(parts):
    return np.mean([part.mean() for part in parts if len(part)])


def mean_over_parts(parts):
    return sum(part.sum() for part in parts) / len(parts)


def owner(element, elements, ranks):
    blocks = -(-(-(-elements // ranks)) // 4096)
    return element // min(elements, 4096 * blocks)


def owner_of_even_parts(element, elements, ranks):
    """Forgets that parts are whole blocks."""
    return element // -(-elements // ranks)


def owner_of_padded_parts(element, elements, ranks):
    """Rounds the number of blocks down."""
    return element // max(4096 * (elements // ranks // 4096), 1)


def owner_of_blocks_in_turn(element, elements, ranks):
    """Deals blocks out one by one."""
    return element // 4096 % ranks


DEEP = dict(preset="small", layers=16, context=64, batch=8, micro_batch=8, loss_chunk="none", device="cpu", threads=2)


def activations(of):
    """Names of the activations of blocks of which `of` is true."""
    plan = tr.plan(recompute="none", **DEEP)
    columns = plan.tensors()
    chosen = (
        (columns["class"] == "activation") & (columns["phase"] == "forward") & np.char.startswith(columns["name"], "h.")
    )
    return [str(name) for name in columns["name"][chosen] if of(str(name))]


def kept_without_cheap():
    """Everything but activation functions and norms."""
    return activations(lambda name: "gelu" not in name and "norm" not in name)


def split(x):
    bits = x.view(np.uint32)
    return (bits >> 16).astype(np.uint16), (bits & 0xFFFF).astype(np.uint16)


def split_halves_swapped(x):
    return split(x)[::-1]


def split_as_f16(x):
    upper = x.astype(np.float16)
    return upper.view(np.uint16), (x - upper).astype(np.float16).view(np.uint16)


def split_without_types(x):
    bits = x.view(np.uint32)
    return bits >> 16, bits & 0xFFFF


def cross_entropy(x, head, targets, rows):
    total = 0.0
    for i in range(0, len(x), rows):
        scores = x[i : i + rows] @ head.T
        most = scores.max(1, keepdims=True)
        total += float(
            (
                np.log(np.exp(scores - most).sum(1))
                + most[:, 0]
                - scores[np.arange(len(scores)), targets[i : i + rows]]
            ).sum()
        )
    return total / len(x)


def cross_entropy_sum(x, head, targets, rows):
    return cross_entropy(x, head, targets, rows) * len(x)


def cross_entropy_whole(x, head, targets, rows):
    return cross_entropy(x, head, targets, len(x))


def cross_entropy_without_targets(x, head, targets, rows):
    return cross_entropy(x, head, np.zeros_like(targets), rows)


def adamw(w, g, m, v, t, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8):
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    return w - lr * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + eps), m, v


def adamw_uncorrected(w, g, m, v, t):
    _, m, v = adamw(w, g, m, v, t)
    return w - 1e-3 * m / (np.sqrt(v) + 1e-8), m, v


def adamw_one_beta(w, g, m, v, t):
    return adamw(w, g, m, v, t, beta2=0.9)


def adamw_square_of_mean(w, g, m, v, t):
    m = 0.9 * m + 0.1 * g
    return w - 1e-3 * np.sign(m), m, m**2


def merged(w, a, b, alpha):
    return w + alpha / len(a) * b @ a


def merged_without_rank(w, a, b, alpha):
    return w + alpha * b @ a


def merged_plain(w, a, b, alpha):
    return w + b @ a


def merged_transposed(w, a, b, alpha):
    return w.T + alpha / len(a) * (b @ a).T


class Small(tr.Model):
    def __init__(self, width=32):
        self.up, self.down = nn.Linear(64, width), nn.Linear(width, 10)

    def loss(self, x, y):
        return nn.cross_entropy(self.down(nn.relu(self.up(x))), y)


class TooWide(Small):
    def __init__(self):
        super().__init__(128)


class TooNarrow(Small):
    def __init__(self):
        super().__init__(1)


def kept_by(plan, prefix):
    columns = plan.tensors()
    turn = np.flatnonzero(plan.ops()["phase"] == "forward").max()
    chosen = (columns["class"] == "activation") & np.char.startswith(columns["name"], prefix)
    return int(columns["bytes"][chosen & (columns["first"] <= turn) & (columns["last"] > turn)].sum())


def kept_by_ever(plan, prefix):
    columns = plan.tensors()
    return int(columns["bytes"][np.char.startswith(columns["name"], prefix) & (columns["class"] == "activation")].sum())


def kept_by_layer_alone(plan, prefix):
    return kept_by(plan, prefix.split(".")[0])


def kept_by_of_gradients(plan, prefix):
    return kept_by(plan, f"grad.{prefix}")


def largest(fits, at):
    """The largest number from `at` on that fits."""
    while fits(at + 1):
        at += 1
    return at


def batch_in_64_mib():
    small = dict(preset="small", recompute="none", device="cpu", threads=2)
    return largest(lambda batch: tr.plan(batch=batch, micro_batch=batch, **small).peak_bytes <= 64 << 20, 1)


def micro_batch_in_20_mib():
    small = dict(preset="small", context=64, batch=32, recompute="none", device="cpu", threads=2)
    return max(size for size in (1, 2, 4, 8, 16, 32) if tr.plan(micro_batch=size, **small).peak_bytes <= 20 << 20)


def smallest_budget():
    try:
        tr.plan(preset="small", batch=64, device="cpu", threads=2, memory="1MiB")
    except tr.DoesNotFit as error:
        return -(-error.needed // (1 << 20))


EARLY = dict(
    preset="small", batch=1, device="cpu", clip=0, recompute="block", settings={"memory.consume_gradients": True}
)

#: By exercise: the right answer, and wrong ones. Functions of no argument that begin with `later` are called for theirs.
ANSWERS = {
    "01.1": (964_608, [482_304, 120_576, 1_446_912]),
    "01.2": ("b", ["a", "c", "d"]),
    "01.3": (("later", batch_in_64_mib), [1, 1000, 64]),
    "02.1": (by_size, [by_birth, stacked, exclusive]),
    "02.2": (
        [(10, 0, 1), (1, 0, 9), (11, 2, 9)],
        [[(10, 0, 9), (1, 0, 9)], [(1, 0, 1), (1, 0, 9), (2, 2, 9)], [(5, 3, 1)]],
    ),
    "02.3": ("d", ["a", "b", "c"]),
    "03.1": (("later", micro_batch_in_20_mib), [1, 32, 3]),
    "03.2": (mean_loss, [mean_of_means, mean_of_filled, mean_over_parts]),
    "03.3": ("c", ["a", "b", "d"]),
    "04.1": (2, [8, 1, 4]),
    "04.2": (("later", kept_without_cheap), [[], ["h.0.attn.qkv"], ("later", lambda: activations(lambda name: True))]),
    "04.3": ("a", ["b", "c", "d"]),
    "05.1": (6, [4, 8, 12]),
    "05.2": (131_072, [65_536, 262_144, 177_000]),
    "05.3": (split, [split_halves_swapped, split_as_f16, split_without_types]),
    "06.1": (2 * 32 * 32 * 8192**2, [32 * 32 * 8192**2, 4 * 32 * 32 * 8192**2, 2 * 32 * 8192**2]),
    "06.2": (cross_entropy, [cross_entropy_sum, cross_entropy_whole, cross_entropy_without_targets]),
    "06.3": ("b", ["a", "c", "d"]),
    "07.1": (497_759_232, [124_439_808, 995_518_464, 1_493_277_696]),
    "07.2": (adamw, [adamw_uncorrected, adamw_one_beta, adamw_square_of_mean]),
    "07.3": ("c", ["a", "b", "d"]),
    "08.1": (6 * 131_072, [4 * 131_072, 3 * 131_072, 14 * 131_072]),
    "08.2": (3.26, [3_255_208_333, 39.06, 6.51]),
    "08.3": ("c", ["a", "b", "d"]),
    "09.1": (("later", smallest_budget), [8, 64, 300]),
    "09.2": (EARLY, [dict(EARLY, settings={}), dict(EARLY, recompute="none"), dict(EARLY, precision="bf16")]),
    "09.3": ("c", ["a", "b", "d"]),
    "10.1": (2_359_296, [196_608, 1_179_648, 9_437_184]),
    "10.2": (merged, [merged_without_rank, merged_plain, merged_transposed]),
    "10.3": ("d", ["a", "b", "c"]),
    "11.1": (160 + 4640 + 9248 + 5130, [14_048, 19_178 - 90, 4 * 19_178]),
    "11.2": (Small, [TooWide, TooNarrow, Small()]),
    "11.3": ("c", ["a", "b", "d"]),
    "12.1": (8192, [2048, 6144, 8_388_608]),
    "12.2": (kept_by, [kept_by_ever, kept_by_layer_alone, kept_by_of_gradients]),
    "12.3": ("c", ["a", "b", "d"]),
    "12.4": (30.0, [10.0, 5.0, 3e15]),
    "13.1": (28, [14, 27, 32]),
    "13.2": (owner, [owner_of_even_parts, owner_of_padded_parts, owner_of_blocks_in_turn]),
    "13.3": ("b", ["a", "c", "d"]),
}


def answer(value):
    """An answer, worked out where it is to be."""
    return value[1]() if isinstance(value, tuple) and value and value[0] == "later" else value
