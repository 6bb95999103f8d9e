"""Layers, activations and losses for models of one's own.

A model is a class with layers as attributes and a ``loss``::

    class Digits(tr.Model):
        def __init__(self):
            self.up, self.down = tr.nn.Linear(64, 128), tr.nn.Linear(128, 10)

        def loss(self, x, y):
            return tr.nn.cross_entropy(self.down(tr.nn.gelu(self.up(x))), y)

``loss`` is called once, to write the graph of the training step down, and so is ``predict(self, x)`` where the class has one. Weights begin as PyTorch's do. Parameters are named by the
attributes: ``up.weight``, ``down.bias``. Shapes are checked as ``loss`` goes: what doesn't fit is a ValueError on its line.

Tensors have NumPy's operators, indices and reductions, and :mod:`tightrope` its functions: ``tr.exp``, ``tr.where``, ``tr.matmul``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from . import checks
from .functions import concat, dropout, log_softmax, rope, scaled_dot_product_attention, sigmoid, softmax, tanh
from .shapes import Shape, elements
from .trace import Tensor, active

__all__ = [
    "Attention",
    "Conv2d",
    "Dropout",
    "Embedding",
    "Layer",
    "LayerNorm",
    "Linear",
    "Model",
    "RmsNorm",
    "Sequential",
    "Tensor",
    "block",
    "concat",
    "cross_entropy",
    "dropout",
    "gelu",
    "gelu_tanh",
    "linear_cross_entropy",
    "log_softmax",
    "mean_squared_error",
    "relu",
    "rope",
    "scaled_dot_product_attention",
    "sigmoid",
    "silu",
    "softmax",
    "tanh",
]


class Model:
    """A network: layers as attributes, :meth:`loss`, and :meth:`predict` where more than the loss is wanted of it."""

    def loss(self, *args: Any, **inputs: Any) -> Tensor:
        """The mean loss of a batch, made of its inputs by name."""
        raise NotImplementedError(f"{type(self).__name__} has no loss(self, …)")

    def predict(self, *args: Any, **inputs: Any) -> Tensor:
        """What the network says of a batch, such as the scores of classes; its parameters name the inputs that it reads."""
        raise NotImplementedError(f"{type(self).__name__} has no predict(self, …)")


class Layer:
    """Something with parameters that is applied to a tensor."""

    #: Layers that it's made of; None of one that the engine knows.
    parts: Any = None
    #: Dtype of the input.
    reads = "f32"
    #: Description of the accepted inputs, for error messages.
    takes = "a tensor"

    def describe(self) -> dict[str, Any]:
        """What the engine is told of it."""
        raise NotImplementedError

    def output(self, shape: Shape) -> Shape | None:
        """Shape of the output for an input of this shape, None for one that it doesn't take."""
        raise NotImplementedError

    def __call__(self, x: Tensor) -> Tensor:
        trace = active()
        index = trace.layer(self)
        name = trace.layers[index]["name"]
        if trace.read(x).dtype != self.reads:
            raise ValueError(f"`{name}`: {type(self).__name__} reads {self.reads}, and {x} holds {x.dtype}")
        shape = self.output(x.shape)
        if shape is None:
            raise ValueError(f"`{name}`: {type(self).__name__} takes {self.takes}, not {x.shape}")
        return trace.add("layer", name, shape, layer=index, x=x.index)


def _columns(shape: Shape, columns: int) -> bool:
    return bool(shape) and shape[-1] == columns


class Linear(Layer):
    """x·Wᵀ + b: (…, inputs) to (…, outputs)."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        self.inputs, self.outputs, self.bias = checks.whole("inputs", inputs), checks.whole("outputs", outputs), bool(bias)
        self.takes = f"(…, {inputs})"

    def output(self, shape: Shape) -> Shape | None:
        return (*shape[:-1], self.outputs) if _columns(shape, self.inputs) and len(shape) > 1 else None

    def describe(self) -> dict[str, Any]:
        return {"kind": "linear", "inputs": self.inputs, "outputs": self.outputs, "bias": self.bias}


class Embedding(Layer):
    """Rows of a table by their numbers: (…) of i32 to (…, columns)."""

    reads = "i32"

    def __init__(self, rows: int, columns: int) -> None:
        self.rows, self.columns = checks.whole("rows", rows), checks.whole("columns", columns)

    def output(self, shape: Shape) -> Shape | None:
        return (*shape, self.columns)

    def describe(self) -> dict[str, Any]:
        return {"kind": "embedding", "rows": self.rows, "columns": self.columns}


class LayerNorm(Layer):
    """Layer normalization over the last axis (Ba et al. 2016)."""

    def __init__(self, channels: int) -> None:
        self.channels = checks.whole("channels", channels)
        self.takes = f"(…, {channels})"

    def output(self, shape: Shape) -> Shape | None:
        return shape if _columns(shape, self.channels) else None

    def describe(self) -> dict[str, Any]:
        return {"kind": "layer_norm", "channels": self.channels}


class RmsNorm(Layer):
    """Root-mean-square normalization over the last axis (Zhang and Sennrich 2019)."""

    def __init__(self, channels: int) -> None:
        self.channels = checks.whole("channels", channels)
        self.takes = f"(…, {channels})"

    def output(self, shape: Shape) -> Shape | None:
        return shape if _columns(shape, self.channels) else None

    def describe(self) -> dict[str, Any]:
        return {"kind": "rms_norm", "channels": self.channels}


class Attention(Layer):
    """Self-attention of several heads, with its projections (Vaswani et al. 2017): (batch, positions, channels) to the same.

    Args:
        channels: channels of a position; the heads divide them.
        heads: heads of queries.
        causal: True if a position attends to those before it alone.
        kv_heads: heads of keys and values, which divide ``heads`` (Ainslie et al. 2023); as many where it isn't said.
        rope: base of the angles of rotary positions (Su et al. 2021), such as 10,000; without it there are none.
        window: a position attends to those less than so many positions away.
        cap: scores become cap·tanh(score / cap) (Gemma Team 2024).
        dropout: probability of dropping a probability while training.
        bias: True if projections have one.
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        causal: bool = True,
        *,
        kv_heads: int | None = None,
        rope: float | None = None,
        window: int | None = None,
        cap: float | None = None,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        self.channels, self.heads, self.causal = checks.whole("channels", channels), checks.whole("heads", heads), bool(causal)
        self.kv_heads = self.heads if kv_heads is None else checks.whole("kv_heads", kv_heads)
        self.rope = None if rope is None else checks.above_0("rope", rope)
        self.window = None if window is None else checks.whole("window", window)
        self.cap = None if cap is None else checks.above_0("cap", cap)
        self.dropout, self.bias = checks.probability("dropout", dropout), bool(bias)
        if self.channels % self.heads:
            raise ValueError(f"heads={heads}: it must divide channels={channels}")
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads={kv_heads}: it must divide heads={heads}")
        if self.rope is not None and self.channels // self.heads % 2:
            raise ValueError(f"rope={rope}: it turns pairs of channels, and a head has {self.channels // self.heads}")
        self.takes = f"(batch, positions, {channels})"

    def output(self, shape: Shape) -> Shape | None:
        return shape if len(shape) == 3 and _columns(shape, self.channels) else None

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "attention",
            "channels": self.channels,
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "bias": self.bias,
            "causal": self.causal,
            "window": self.window,
            "rope": self.rope,
            "cap": self.cap,
            "dropout": self.dropout,
        }


class Conv2d(Layer):
    """A convolution: (batch, height, width, channels) to (batch, height, width, outputs).

    ``channels_first`` is for images as PyTorch has them, (batch, channels, height, width); the output has channels last. The weight is
    laid out as the image: (outputs, channels, height, width) with ``channels_first``, as PyTorch's, else (outputs, height, width,
    channels).
    """

    def __init__(
        self,
        channels: int,
        outputs: int,
        kernel: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        channels_first: bool = False,
    ) -> None:
        self.channels, self.outputs = checks.whole("channels", channels), checks.whole("outputs", outputs)
        self.channels_first = bool(channels_first)
        self.kernel, self.stride = _pair("kernel", kernel, 1), _pair("stride", stride, 1)
        self.padding = _pair("padding", padding, 0)
        extents = f"{channels}, height, width" if channels_first else f"height, width, {channels}"
        self.takes = f"(batch, {extents}) of at least the kernel's extents"

    def output(self, shape: Shape) -> Shape | None:
        if len(shape) != 4:
            return None
        batch, height, width, channels = (shape[at] for at in ((0, 2, 3, 1) if self.channels_first else (0, 1, 2, 3)))
        found = []
        for axis, extent in enumerate((height, width)):
            if not isinstance(extent, int) or (free := extent + 2 * self.padding[axis] - self.kernel[axis]) < 0:
                return None
            found.append(free // self.stride[axis] + 1)
        return (batch, *found, self.outputs) if channels == self.channels else None

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "conv2d",
            "channels": self.channels,
            "outputs": self.outputs,
            "kernel": self.kernel,
            "stride": self.stride,
            "padding": self.padding,
            "channels_first": self.channels_first,
        }


class Dropout(Layer):
    """Zeros elements with probability ``p`` while training (Srivastava et al. 2014)."""

    def __init__(self, p: float) -> None:
        self.p = checks.probability("p", p)

    def output(self, shape: Shape) -> Shape | None:
        return shape

    def describe(self) -> dict[str, Any]:
        return {"kind": "dropout", "p": self.p}


class Sequential(Layer):
    """Layers and functions, one after the other."""

    def __init__(self, *parts: Callable[[Tensor], Tensor]) -> None:
        self.parts = list(parts)

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x


def _pair(name: str, value: int | tuple[int, int], least: int) -> list[int]:
    """Two extents, of which one number is both."""
    pair = list(value) if isinstance(value, (tuple, list)) else [value, value]
    if len(pair) != 2:
        raise ValueError(f"{name}={value!r}: it must be a whole number, or two")
    return [checks.whole(name, it, least) for it in pair]


@contextmanager
def block(index: int) -> Iterator[None]:
    """Marks ops as repeated block ``index``: the planner decides for whole blocks what to recompute."""
    trace = active()
    before, trace.block = trace.block, checks.whole("index", index, 0)
    try:
        yield
    finally:
        trace.block = before


def _activation(kind: str, name: str, x: Tensor) -> Tensor:
    return active().add("activation", name, x.shape, kind=kind, x=active().read(x).index)


def relu(x: Tensor) -> Tensor:
    """max(x, 0)."""
    return _activation("relu", "relu", x)


def gelu(x: Tensor) -> Tensor:
    """x·Φ(x) (Hendrycks and Gimpel 2016)."""
    return _activation("gelu", "gelu", x)


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU in its tanh form, as GPT-2's."""
    return _activation("gelu_tanh", "gelu", x)


def silu(x: Tensor) -> Tensor:
    """x·sigmoid(x)."""
    return _activation("silu", "silu", x)


def _labels(name: str, labels: Tensor, of: str, shape: Shape) -> None:
    """Holds that there's a label for each row."""
    if labels.dtype != "i32":
        raise ValueError(f'{name} must hold i32, as of an input ("i32", …), and holds {labels.dtype}')
    if elements(labels.shape) != elements(shape[:-1]) or not shape:
        raise ValueError(f"{name} must be {shape[:-1]}, one for each row of {of} {shape}, and is {labels.shape}")


def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy in nats, with the metric ``accuracy``. Negative labels don't count."""
    trace = active()
    _labels("labels", trace.read(labels), "scores", trace.read(scores).shape)
    return trace.add("cross_entropy", "loss", (), scores=scores.index, labels=labels.index)


def linear_cross_entropy(x: Tensor, head: Linear | Embedding, targets: Tensor) -> Tensor:
    """Mean cross-entropy under the scores x·Wᵀ, of which never all are held at once. Negative targets don't count."""
    trace = active()
    if isinstance(head, Linear) and head.bias:
        raise ValueError("the head of linear_cross_entropy has no bias: Linear(…, bias=False)")
    columns = head.inputs if isinstance(head, Linear) else head.columns
    if not _columns(trace.read(x).shape, columns):
        raise ValueError(f"x must be (…, {columns}), as the head takes it, and is {x.shape}")
    _labels("targets", trace.read(targets), "x", x.shape)
    return trace.add("linear_cross_entropy", "loss", (), x=x.index, layer=trace.layer(head), targets=targets.index)


def mean_squared_error(found: Tensor, expected: Tensor) -> Tensor:
    """Mean of (found − expected)²."""
    trace = active()
    if _rows(trace.read(found).shape) != _rows(trace.read(expected).shape):
        raise ValueError(f"found {found.shape} and expected {expected.shape} must have one shape")
    return trace.add("mean_squared_error", "loss", (), found=found.index, expected=expected.index)


def _rows(shape: Shape) -> Shape:
    """A shape without the axes of one element at its end."""
    while shape and shape[-1] == 1:
        shape = shape[:-1]
    return shape
