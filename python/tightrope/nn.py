"""Layers, activations and losses for models of one's own.

A model is a class with layers as attributes and a ``loss``::

    class Digits(tr.Model):
        def __init__(self):
            self.up, self.down = tr.nn.Linear(64, 128), tr.nn.Linear(128, 10)

        def loss(self, x, y):
            return tr.nn.cross_entropy(self.down(tr.nn.gelu(self.up(x))), y)

``loss`` is called once, to write the graph of the training step down, and so is ``predict(self, x)`` where the class has one. Weights begin as PyTorch's do. Parameters are named by the
attributes: ``up.weight``, ``down.bias``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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
    "block",
    "concat",
    "cross_entropy",
    "gelu",
    "gelu_tanh",
    "linear_cross_entropy",
    "mean_squared_error",
    "relu",
    "silu",
]


class Model:
    """A network: layers as attributes, :meth:`loss`, and :meth:`predict` where more than the loss is wanted of it."""

    def loss(self, **inputs: Tensor) -> Tensor:
        """The mean loss of a batch, made of its inputs by name."""
        raise NotImplementedError(f"{type(self).__name__} has no loss(self, …)")

    def predict(self, **inputs: Tensor) -> Tensor:
        """What the network says of a batch, such as the scores of classes; its parameters name the inputs that it reads."""
        raise NotImplementedError(f"{type(self).__name__} has no predict(self, …)")


class Layer:
    """Something with parameters that is applied to a tensor."""

    #: Layers that it's made of; None of one that the engine knows.
    parts: Any = None

    def describe(self) -> dict[str, Any]:
        """What the engine is told of it."""
        raise NotImplementedError

    def __call__(self, x: Tensor) -> Tensor:
        trace = active()
        index = trace.layer(self)
        return trace.add("layer", trace.layers[index]["name"], layer=index, x=x.index)


class Linear(Layer):
    """x·Wᵀ + b: (…, inputs) to (…, outputs)."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        self.inputs, self.outputs, self.bias = inputs, outputs, bias

    def describe(self) -> dict[str, Any]:
        return {"kind": "linear", "inputs": self.inputs, "outputs": self.outputs, "bias": self.bias}


class Embedding(Layer):
    """Rows of a table by their numbers: (…) of i32 to (…, columns)."""

    def __init__(self, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns

    def describe(self) -> dict[str, Any]:
        return {"kind": "embedding", "rows": self.rows, "columns": self.columns}


class LayerNorm(Layer):
    """Layer normalization over the last axis (Ba et al. 2016)."""

    def __init__(self, channels: int) -> None:
        self.channels = channels

    def describe(self) -> dict[str, Any]:
        return {"kind": "layer_norm", "channels": self.channels}


class RmsNorm(Layer):
    """Root-mean-square normalization over the last axis (Zhang and Sennrich 2019)."""

    def __init__(self, channels: int) -> None:
        self.channels = channels

    def describe(self) -> dict[str, Any]:
        return {"kind": "rms_norm", "channels": self.channels}


class Attention(Layer):
    """Self-attention of several heads, with its projections (Vaswani et al. 2017): (batch, positions, channels) to the same."""

    def __init__(self, channels: int, heads: int, causal: bool = True) -> None:
        self.channels, self.heads, self.causal = channels, heads, causal

    def describe(self) -> dict[str, Any]:
        return {"kind": "attention", "channels": self.channels, "heads": self.heads, "causal": self.causal}


class Conv2d(Layer):
    """A convolution: (batch, height, width, channels) to (batch, height, width, outputs).

    ``channels_first`` is for images as PyTorch has them, (batch, channels, height, width); the output has channels last.
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
        self.channels, self.outputs, self.channels_first = channels, outputs, channels_first
        self.kernel, self.stride, self.padding = (_pair(it) for it in (kernel, stride, padding))

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
        self.p = p

    def describe(self) -> dict[str, Any]:
        return {"kind": "dropout", "p": self.p}


class Sequential(Layer):
    """Layers and functions, one after the other."""

    def __init__(self, *parts: Any) -> None:
        self.parts = list(parts)

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x


def _pair(value: int | tuple[int, int]) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)


@contextmanager
def block(index: int) -> Iterator[None]:
    """Marks ops as repeated block ``index``: the planner decides for whole blocks what to recompute."""
    trace = active()
    before, trace.block = trace.block, index
    try:
        yield
    finally:
        trace.block = before


def relu(x: Tensor) -> Tensor:
    """max(x, 0)."""
    return active().add("activation", "relu", kind="relu", x=x.index)


def gelu(x: Tensor) -> Tensor:
    """x·Φ(x) (Hendrycks and Gimpel 2016)."""
    return active().add("activation", "gelu", kind="gelu", x=x.index)


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU in its tanh form, as GPT-2's."""
    return active().add("activation", "gelu", kind="gelu_tanh", x=x.index)


def silu(x: Tensor) -> Tensor:
    """x·sigmoid(x)."""
    return active().add("activation", "silu", kind="silu", x=x.index)


def concat(parts: list[Tensor], axis: int) -> Tensor:
    """Tensors one after the other along an axis that isn't the batch."""
    if axis < 1:
        raise ValueError("axis 0 is the batch, and axes are counted from the front")
    return active().add("concat", "concat", parts=[part.index for part in parts], axis=axis)


def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy in nats, with the metric ``accuracy``. Negative labels don't count."""
    return active().add("cross_entropy", "loss", scores=scores.index, labels=labels.index)


def linear_cross_entropy(x: Tensor, head: Linear | Embedding, targets: Tensor) -> Tensor:
    """Mean cross-entropy under the scores x·Wᵀ, of which never all are held at once. Negative targets don't count."""
    trace = active()
    if isinstance(head, Linear) and head.bias:
        raise ValueError("the head of linear_cross_entropy has no bias: Linear(…, bias=False)")
    return trace.add("linear_cross_entropy", "loss", x=x.index, layer=trace.layer(head), targets=targets.index)


def mean_squared_error(found: Tensor, expected: Tensor) -> Tensor:
    """Mean of (found − expected)²."""
    return active().add("mean_squared_error", "loss", found=found.index, expected=expected.index)


