"""Ops with what PyTorch has for them: a table that tests and ``record_ops.py`` read."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

#: Samples of a batch.
BATCH = 3


@dataclass(frozen=True)
class Case:
    """An op of tensors of these shapes, the batch apart; ``theirs`` where PyTorch's code is another. ``m`` is the library."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    ours: Callable[..., Any]
    theirs: Callable[..., Any] | None = None
    low: float = -2.0
    high: float = 2.0
    #: False where the output has no axis of samples.
    batched: bool = True

    def values(self):
        """The inputs, (batch, …) each, in float64 that float32 holds."""
        random = np.random.RandomState(zlib.crc32(self.name.encode()))
        drawn = [random.uniform(self.low, self.high, (BATCH, *shape)) for shape in self.shapes]
        return [it.astype(np.float32).astype(np.float64) for it in drawn]

    def weights(self, shape):
        """Factors of the outputs in the loss."""
        random = np.random.RandomState(zlib.crc32(self.name.encode()) ^ 1)
        return random.uniform(-1, 1, shape).astype(np.float32).astype(np.float64)

    def expected(self):
        """PyTorch's output, and the gradient of its weighted sum in each input, in float64."""
        import torch

        xs = [torch.tensor(it, requires_grad=True) for it in self.values()]
        out = (self.theirs or self.ours)(torch, *xs)
        (out * torch.tensor(self.weights(tuple(out.shape)))).sum().backward()
        gradients = [np.zeros(x.shape) if x.grad is None else x.grad.numpy() for x in xs]
        return out.detach().numpy(), np.concatenate([it.reshape(BATCH, -1) for it in gradients], 1)


CASES = []


def add(name, *shapes, ours, theirs=None, **more):
    CASES.append(Case(name, shapes, ours, theirs, **more))


def tensor(m, values):
    """An array: PyTorch doesn't mix with NumPy's."""
    return values if m.__name__ == "tightrope" else m.tensor(values, dtype=m.float64)


for name, low, high in [
    ("exp", -5, 5),
    ("log", 0.1, 9),
    ("sqrt", 0.1, 9),
    ("tanh", -4, 4),
    ("sigmoid", -9, 9),
    ("abs", -2, 2),
]:
    for shape in [(), (7,), (3, 33), (131,)]:
        add(f"{name} {shape}", shape, ours=lambda m, x, of=name: getattr(m, of)(x), low=low, high=high)
add("negative", (3, 5), ours=lambda m, x: -x)
for name in ("relu", "gelu", "silu"):
    add(
        name,
        (33,),
        ours=lambda m, x, of=name: getattr(m.nn, of)(x),
        theirs=lambda m, x, of=name: getattr(m.nn.functional, of)(x),
    )

BINARY = {
    "add": lambda m, x, y: x + y,
    "subtract": lambda m, x, y: x - y,
    "multiply": lambda m, x, y: x * y,
    "divide": lambda m, x, y: x / (y + 3.0),
    "maximum": lambda m, x, y: m.maximum(x, y),
    "minimum": lambda m, x, y: m.minimum(x, y),
    "where": lambda m, x, y: m.where(x > y, x * 2.0, y),
    "power of a tensor": lambda m, x, y: (x + 2.5) ** y,
}
REPEATED = [
    ((), ()),
    ((7,), ()),
    ((5, 7), (7,)),
    ((5, 1), (1, 7)),
    ((5, 1), (7,)),
    ((2, 1, 3), (2, 5, 1)),
    ((1, 1), (5, 3)),
    ((67,), (67,)),
]


def aligned(of):
    """A batch's samples repeat into each other, where PyTorch would repeat the batch."""

    def apply(m, x, y):
        ndim = max(x.ndim, y.ndim)
        grown = [it.reshape(it.shape[0], *(1,) * (ndim - it.ndim), *it.shape[1:]) for it in (x, y)]
        return of(m, *grown)

    return apply


for name, of in BINARY.items():
    for left, right in REPEATED:
        add(f"{name} {left} {right}", left, right, ours=aligned(of))

for name, of in {
    "power 2": lambda m, x: x**2,
    "power 3": lambda m, x: x**3,
    "power -2": lambda m, x: (x + 4.0) ** -2,
    "power 0.5": lambda m, x: (x + 4.0) ** 0.5,
    "power 2.5": lambda m, x: m.pow(x + 4.0, 2.5),
    "power of 2": lambda m, x: 2.0**x,
    "power 0": lambda m, x: x**0 + x * 0.0 + x,
    "numbers": lambda m, x: 3 - x / 2 + 1 / (x + 5) + (-x) * np.pi,
    "maximum of a number": lambda m, x: m.maximum(x, m.where(x > 1.0, x, 0.5 + 0.0 * x)),
    "less": lambda m, x: (x < 0.5) * x,
    "greater_equal": lambda m, x: (x >= 0.5) * x,
    "between": lambda m, x: m.where((x <= 1.0) * (x > -1.0), x * x, -x),
    "not_equal": lambda m, x: (x != x) * 1.0 + (x == x) * x,
}.items():
    add(name, (3, 5), ours=of)

for axis in [-1, 1, 2, (1, 2), (-1, 1), (1, 2, 3), 3]:
    for keepdims in (False, True):
        for name in ("sum", "mean"):
            add(
                f"{name} {axis} {keepdims}",
                (5, 3, 7),
                ours=lambda m, x, of=name, a=axis, k=keepdims: getattr(x, of)(axis=a, keepdims=k),
            )
        for name, other in (("max", "amax"), ("min", "amin")):
            add(
                f"{name} {axis} {keepdims}",
                (5, 3, 7),
                ours=lambda m, x, of=name, a=axis, k=keepdims: getattr(m, of)(x, axis=a, keepdims=k),
                theirs=lambda m, x, of=other, a=axis, k=keepdims: getattr(x, of)(dim=a, keepdim=k),
            )
for extent in (1, 2, 65, 131):
    add(f"max of {extent}", (extent,), ours=lambda m, x: x.max(-1), theirs=lambda m, x: x.amax(-1))
    add(f"sum of {extent}", (extent,), ours=lambda m, x: x.sum(-1))
for name in ("sum", "mean"):
    for axis in (None, 0, (0, 1), (0, 2), (0, 1, 2)):
        add(
            f"{name} {axis}",
            (5, 7),
            ours=lambda m, x, of=name, a=axis: getattr(x, of)() if a is None else getattr(x, of)(a),
            batched=False,
        )
add("max of all", (5, 7), ours=lambda m, x: x.max(), batched=False)
add("min over the batch", (5,), ours=lambda m, x: x.min(0), theirs=lambda m, x: x.amin(0), batched=False)

for left, right in [
    ((3, 5), (5, 7)),
    ((1, 1), (1, 1)),
    ((17, 33), (33, 19)),
    ((2, 3, 5), (2, 5, 7)),
    ((1, 3, 5), (4, 5, 2)),
    ((4, 3, 5), (1, 5, 1)),
]:
    add(f"matmul {left} {right}", left, right, ours=lambda m, x, y: x @ y)
add("matmul function", (3, 5), (5, 7), ours=lambda m, x, y: m.matmul(x, y))
add("matmul of the transposed", (3, 5), (3, 5), ours=lambda m, x, y: x @ y.swapaxes(-1, -2))
add("matmul of vectors", (5,), (5,), ours=lambda m, x, y: (x[:, None] @ y[:, :, None])[:, 0, 0])
MATRIX = np.linspace(-1, 1, 35).reshape(5, 7)
add("matmul of an array", (3, 5), ours=lambda m, x: x @ tensor(m, MATRIX))
add("matmul of rows", (5,), ours=lambda m, x: x @ tensor(m, MATRIX))
add("matmul from the left", (7, 2), ours=lambda m, x: tensor(m, MATRIX) @ x)
add("matmul by a vector", (3, 7), ours=lambda m, x: x @ tensor(m, MATRIX[0]))
add("array", (5, 7), ours=lambda m, x: tensor(m, MATRIX) * x + tensor(m, MATRIX[:, :1]) - x / tensor(m, MATRIX + 2))
add("array from the left", (5, 7), ours=lambda m, x: tensor(m, MATRIX) - x + (tensor(m, MATRIX) > x) * x)
add("NumPy's numbers", (5,), ours=lambda m, x: np.float32(2) * x + x * np.float64(0.5) - np.int64(3) / (x + np.float32(9)))

for shape, axis in [((5,), -1), ((3, 33), -1), ((3, 33), 1), ((2, 3, 5), 2), ((1,), -1), ((67,), 1)]:
    for name in ("softmax", "log_softmax"):
        add(f"{name} {shape} {axis}", shape, ours=lambda m, x, of=name, a=axis: getattr(m, of)(x, a), low=-9, high=9)
add("log_softmax of large numbers", (7,), ours=lambda m, x: m.log_softmax(x * 100.0, -1))
MASK = np.tril(np.ones((5, 5)))
add("softmax of what is masked", (5, 5), ours=lambda m, x: m.softmax(m.where(tensor(m, MASK) > 0, x, float("-inf")), -1))

for text, of in {
    "x[:, 1]": lambda x: x[:, 1],
    "x[:, -1, 2]": lambda x: x[:, -1, 2],
    "x[..., 0]": lambda x: x[..., 0],
    "x[:, 1:4]": lambda x: x[:, 1:4],
    "x[:, :, -3:]": lambda x: x[:, :, -3:],
    "x[:, ::2]": lambda x: x[:, ::2],
    "x[..., 1::3]": lambda x: x[..., 1::3],
    "x[..., ::6]": lambda x: x[..., ::6],
    "x[:, 1:5:2, 1:]": lambda x: x[:, 1:5:2, 1:],
    "x[:, None, ..., 2:3]": lambda x: x[:, None, ..., 2:3],
    "x[:]": lambda x: x[:] * 1.0,
    "x[:, :, None]": lambda x: x[:, :, None],
    "reshape": lambda x: x.reshape(-1, 7, 5),
    "reshape by shape": lambda x: x.reshape(x.shape[0], -1),
    "reshape to rows": lambda x: (x.reshape(x.shape[0] * 5, 7) * x.reshape(-1, 7)).reshape(-1, 5, 7),
    "permute": lambda x: x.permute(0, 2, 1),
    "swapaxes": lambda x: x.swapaxes(1, -1),
    "permute and back": lambda x: (x.permute(2, 0, 1) * 2.0).permute(1, 0, 2),
}.items():
    add(text, (5, 7), ours=lambda m, x, of=of: of(x))
add("concat", (5, 7), (5, 2), ours=lambda m, x, y: m.concat([x, y, x], -1))


def masked(m, positions, causal, window):
    i, j = m.arange(positions)[:, None], m.arange(positions)[None, :]
    seen = m.ones(positions, positions, dtype=m.bool)
    seen = seen & (j <= i) if causal else seen
    return seen & ((i - j).abs() < window) if window else seen


def attended(causal=False, window=None, cap=None, scale=None):
    """PyTorch's operations for attention."""

    def apply(m, q, k, v):
        repeats = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        scores = q @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
        scores = cap * (scores / cap).tanh() if cap else scores
        scores = scores.masked_fill(~masked(m, q.shape[2], causal, window), float("-inf"))
        return scores.softmax(-1) @ v

    return apply


for heads, kv_heads, positions, channels, said in [
    (2, 2, 5, 4, {}),
    (1, 1, 1, 1, {}),
    (3, 3, 33, 5, {"causal": True}),
    (4, 2, 17, 8, {"causal": True}),
    (6, 1, 9, 3, {"causal": True, "window": 4}),
    (2, 2, 13, 4, {"window": 3}),
    (2, 1, 7, 4, {"causal": True, "cap": 0.9}),
    (2, 2, 7, 4, {"scale": 0.3}),
]:

    def ours(m, q, k, v, said=said):
        more = {name: value for name, value in said.items() if name != "causal"}
        return m.nn.scaled_dot_product_attention(q, k, v, is_causal="causal" in said, **more)

    shapes = [(count, positions, channels) for count in (heads, kv_heads, kv_heads)]
    add(f"attention {heads} {kv_heads} {positions} {channels} {said}", *shapes, ours=ours, theirs=attended(**said))


def turned(m, x):
    """Rotary positions as transformers has them."""
    half = x.shape[-1] // 2
    angles = m.arange(x.shape[2])[:, None] * 10_000.0 ** (-m.arange(half, dtype=m.float64) / half)
    a, b = x[..., :half], x[..., half:]
    return m.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


add("rope", (3, 7, 6), ours=lambda m, x: m.nn.rope(x), theirs=turned)

BY_NAME = {case.name: case for case in CASES}
assert len(BY_NAME) == len(CASES)
