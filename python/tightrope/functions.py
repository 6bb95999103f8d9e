"""Functions of tensors, by the names that NumPy and PyTorch have for them."""

from __future__ import annotations

from collections.abc import Sequence

from . import checks
from .shapes import Axes, axis_of
from .trace import Operand, Tensor, active, concatenated, elementwise, matmul

__all__ = [
    "abs",
    "concat",
    "dropout",
    "exp",
    "log",
    "log_softmax",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "pow",
    "rope",
    "scaled_dot_product_attention",
    "sigmoid",
    "softmax",
    "sqrt",
    "sum",
    "tanh",
    "where",
]


def exp(x: Tensor) -> Tensor:
    """e to the power of each element."""
    return elementwise("exp", "exp", x)


def log(x: Tensor) -> Tensor:
    """Natural logarithm."""
    return elementwise("log", "log", x)


def sqrt(x: Tensor) -> Tensor:
    """Square root."""
    return elementwise("sqrt", "sqrt", x)


def tanh(x: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return elementwise("tanh", "tanh", x)


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + e⁻ˣ)."""
    return elementwise("sigmoid", "sigmoid", x)


def abs(x: Tensor) -> Tensor:
    """Absolute value."""
    return elementwise("abs", "abs", x)


def pow(x: Operand, exponent: Operand) -> Tensor:
    """x to the power of the exponent."""
    return elementwise("power", "power", x, exponent)


def maximum(a: Operand, b: Operand) -> Tensor:
    """The larger of two elements."""
    return elementwise("maximum", "maximum", a, b)


def minimum(a: Operand, b: Operand) -> Tensor:
    """The smaller of two elements."""
    return elementwise("minimum", "minimum", a, b)


def where(condition: Operand, x: Operand, y: Operand) -> Tensor:
    """x where the condition isn't 0, else y."""
    return elementwise("where", "where", condition, x, y)


def sum(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The sum over an axis, several, or all."""
    return x.sum(axis, keepdims)


def mean(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The mean over an axis, several, or all."""
    return x.mean(axis, keepdims)


def max(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The largest element along an axis, several, or all."""
    return x.max(axis, keepdims)


def min(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The smallest element along an axis, several, or all."""
    return x.min(axis, keepdims)


def concat(parts: Sequence[Tensor], axis: int) -> Tensor:
    """Tensors one after the other along an axis that isn't the batch."""
    return concatenated(parts, axis)


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """exp(x) divided by its sum along an axis."""
    at = axis_of(axis, x.ndim, x.shape)
    moved = x.swapaxes(at, -1)
    found = active().add("softmax", "softmax", moved.shape, x=active().read(moved).index)
    return found.swapaxes(at, -1)


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """The logarithm of the softmax along an axis, which stays finite where that is nearly 0."""
    off = x - x.max(axis, keepdims=True)
    return off - off.exp().sum(axis, keepdims=True).log()


def dropout(x: Tensor, p: float = 0.5) -> Tensor:
    """Zeroes elements with probability ``p`` while training, and scales the rest by 1/(1 − p) (Srivastava et al. 2014)."""
    p = checks.probability("p", p)
    return active().add("dropout", "dropout", x.shape, x=active().read(x).index, p=p)


def rope(x: Tensor, theta: float = 10_000.0) -> Tensor:
    """Rotary positions (Su et al. 2021) of queries or keys, (batch, heads, positions, channels), in two halves as Llama has them."""
    theta = checks.above_0("theta", theta)
    _heads("x", x)
    _, heads, positions, channels = x.shape
    if channels % 2:
        raise ValueError(f"x has {channels} channels a head: rope turns pairs of them, so their number is even")
    packed = x.swapaxes(1, 2).reshape(-1, positions, heads * channels)
    found = active().add("rope", "rope", packed.shape, x=active().read(packed).index, head_dim=channels, theta=theta)
    return found.reshape(-1, positions, heads, channels).swapaxes(1, 2)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    *,
    window: int | None = None,
    cap: float | None = None,
) -> Tensor:
    """Attention without its projections, in one op that stores no scores: (batch, heads, positions, channels) to the same.

    ``key`` and ``value`` may have fewer heads, which divide those of ``query`` (GQA). A position attends to those less than
    ``window`` positions away; scores become ``cap``·tanh(score / ``cap``). Probabilities are dropped with probability ``dropout_p``.
    """
    dropout_p = checks.probability("dropout_p", dropout_p)
    window = None if window is None else checks.whole("window", window)
    cap = None if cap is None else checks.above_0("cap", cap)
    for name, x in (("query", query), ("key", key), ("value", value)):
        _heads(name, x)
    batch, heads, positions, channels = query.shape
    kv_heads = key.shape[1]
    if key.shape != (batch, kv_heads, positions, channels) or value.shape != key.shape:
        raise ValueError(f"query {query.shape}, key {key.shape} and value {value.shape} must have the same positions and channels")
    if heads % kv_heads:
        raise ValueError(f"{kv_heads} heads of keys don't divide {heads} heads of queries")
    packed = concatenated(
        [x.swapaxes(1, 2).reshape(-1, positions, x.shape[1] * channels) for x in (query, key, value)], 2
    )
    found = active().add(
        "attention",
        "attention",
        (batch, positions, heads * channels),
        x=packed.index,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=channels,
        causal=bool(is_causal),
        window=window,
        scale=None if scale is None else float(scale),
        cap=cap,
        dropout=dropout_p,
    )
    return found.reshape(-1, positions, heads, channels).swapaxes(1, 2)


def _heads(name: str, x: Tensor) -> None:
    if not isinstance(x, Tensor) or x.ndim != 4:
        shape = x.shape if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"{name} must be (batch, heads, positions, channels), and is {shape}")
