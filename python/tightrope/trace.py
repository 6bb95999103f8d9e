"""A model's functions are called once, with tensors that write down what is done with them."""

from __future__ import annotations

from typing import Any, Union

Number = Union[int, float]


class Trace:
    """The ops of a function of a model, in the order in which it asked for them, and the model's layers."""

    current: Trace | None = None

    def __init__(self, before: Trace | None = None) -> None:
        """``before`` is the trace of another function of the model, whose layers it shares."""
        self.ops: list[dict[str, Any]] = []
        self.layers: list[dict[str, Any]] = before.layers if before else []
        self.layer_index: dict[int, int] = before.layer_index if before else {}
        self.block: int | None = None
        self.names: set[str] = set()

    def add(self, op: str, name: str, **fields: Any) -> Tensor:
        """Appends an op and gives its output. A name that is there already gets a number."""
        unique, count = name, 1
        while unique in self.names:
            count += 1
            unique = f"{name}.{count}"
        self.names.add(unique)
        self.ops.append({"op": op, "name": unique, "block": self.block, **fields})
        return Tensor(self, len(self.ops) - 1)

    def register(self, layer: Any, described: dict[str, Any]) -> None:
        """Adds a layer of the model."""
        self.layer_index[id(layer)] = len(self.layers)
        self.layers.append(described)

    def layer(self, layer: Any) -> int:
        """The number of a layer of the model."""
        try:
            return self.layer_index[id(layer)]
        except KeyError:
            raise ValueError(
                f"{type(layer).__name__} isn't an attribute of the model: make layers in __init__ and keep "
                "them as attributes, or in a list or dict that is one"
            ) from None


def active() -> Trace:
    """The trace that is being written."""
    if Trace.current is None:
        raise RuntimeError(
            "layers are applied inside a model's loss() or predict(), which Trainer and plan call once; outside there is no graph"
        )
    return Trace.current


class Tensor:
    """A tensor of the step that is being traced. Its first axis is the batch."""

    __slots__ = ("_trace", "index")

    def __init__(self, trace: Trace, index: int) -> None:
        self._trace = trace
        self.index = index

    def __add__(self, other: Tensor | Number) -> Tensor:
        return _binary("add", self, other)

    def __radd__(self, other: Number) -> Tensor:
        return _binary("add", other, self)

    def __sub__(self, other: Tensor | Number) -> Tensor:
        return _binary("subtract", self, other)

    def __rsub__(self, other: Number) -> Tensor:
        return _binary("subtract", other, self)

    def __mul__(self, other: Tensor | Number) -> Tensor:
        return _binary("multiply", self, other)

    def __rmul__(self, other: Number) -> Tensor:
        return _binary("multiply", other, self)

    def __truediv__(self, other: Tensor | Number) -> Tensor:
        return _binary("divide", self, other)

    def __rtruediv__(self, other: Number) -> Tensor:
        return _binary("divide", other, self)

    def __bool__(self) -> bool:
        raise TypeError("a tensor has no values while a model is traced: `if` can't depend on it")

    def reshape(self, *shape: int) -> Tensor:
        """The same elements in another shape. The first extent is the batch, and is written as -1."""
        if not shape or shape[0] != -1:
            raise ValueError("the first extent is the batch: write reshape(-1, …)")
        if any(extent < 1 for extent in shape[1:]):
            raise ValueError("all extents but the first are written out")
        return self._trace.add("reshape", "reshape", x=self.index, shape=list(shape[1:]))

    def permute(self, *axes: int) -> Tensor:
        """The axes in another order, of which the batch stays the first."""
        if not axes or axes[0] != 0:
            raise ValueError("the batch stays the first axis: write permute(0, …)")
        return self._trace.add("permute", "permute", x=self.index, axes=list(axes))

    def mean(self, axis: int) -> Tensor:
        """The mean along an axis, which is then gone. Axis 0 is the batch."""
        if axis < 1:
            raise ValueError("axis 0 is the batch, and axes are counted from the front")
        return self._trace.add("mean", "mean", x=self.index, axis=axis)


def _operand(value: Tensor | Number) -> Any:
    if isinstance(value, Tensor):
        return {"tensor": value.index}
    if isinstance(value, (int, float)):
        return float(value)
    raise TypeError(f"a tensor is combined with tensors and numbers, not with {type(value).__name__}")


def _binary(kind: str, a: Tensor | Number, b: Tensor | Number) -> Tensor:
    trace = (a if isinstance(a, Tensor) else b)._trace  # type: ignore[union-attr]
    return trace.add("binary", kind, kind=kind, a=_operand(a), b=_operand(b))
