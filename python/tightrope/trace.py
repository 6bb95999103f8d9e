"""A model's functions are called once, with tensors that write down what is done with them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Union

import numpy as np

from .arrays import array
from .indexing import Cut, parse
from .shapes import Axes, Batch, Extent, Shape, axes_of, axis_of, broadcast, reshaped

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Number = Union[int, float]

#: Operands of ops: tensors, numbers, and arrays that are the same for all samples.
Operand = Union["Tensor", "ArrayLike"]


class Trace:
    """The ops of a function of a model, in the order in which it asked for them, and the model's layers."""

    current: Trace | None = None

    def __init__(self, before: Trace | None = None) -> None:
        """``before`` is the trace of another function of the model, whose layers and constants it shares."""
        self.ops: list[dict[str, Any]] = []
        self.tensors: list[Tensor] = []
        self.layers: list[dict[str, Any]] = before.layers if before else []
        self.layer_index: dict[int, int] = before.layer_index if before else {}
        self.constants: dict[tuple[Any, ...], tuple[str, np.ndarray[Any, Any]]] = before.constants if before else {}
        self.block: int | None = None
        self.names: set[str] = set()

    def add(self, op: str, name: str, shape: Shape, dtype: str = "f32", **fields: Any) -> Tensor:
        """Appends an op and gives its output. A name that is there already gets a number."""
        unique, count = name, 1
        while unique in self.names:
            count += 1
            unique = f"{name}.{count}"
        self.names.add(unique)
        self.ops.append({"op": op, "name": unique, "block": self.block, **fields})
        self.tensors.append(Tensor(self, len(self.ops) - 1, shape, dtype))
        return self.tensors[-1]

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

    def read(self, tensor: Tensor) -> Tensor:
        """The tensor, which is one of this trace."""
        if not isinstance(tensor, Tensor):
            raise TypeError(f"this takes a tensor, not {type(tensor).__name__}")
        if tensor._trace is not self:
            raise ValueError("loss() and predict() are traced apart: a tensor of one can't be used in the other")
        return tensor

    def operand(self, value: Any) -> Tensor | float:
        """A tensor of this trace or a number; an array becomes a tensor that all samples share."""
        if isinstance(value, Tensor):
            return self.read(value)
        if not isinstance(value, (bool, int, float)):
            if isinstance(value, (str, bytes)) or not (hasattr(value, "__array__") or isinstance(value, (list, tuple))):
                raise TypeError(f"a tensor is combined with tensors, numbers and arrays, not with {type(value).__name__}")
            values = array("an operand", value)
            if values.ndim:
                return self.constant(values)
            value = values[()]
        if math.isnan(value):
            raise ValueError("a tensor is combined with numbers, and this is nan")
        return float(value)

    def constant(self, values: np.ndarray[Any, Any]) -> Tensor:
        """An array as a tensor."""
        if values.size == 0:
            raise ValueError(f"an array of shape {values.shape} has no elements")
        numbers = np.array(values, np.float32, order="C")
        key = (numbers.shape, numbers.tobytes())
        name, _ = self.constants.setdefault(key, (f"constant.{len(self.constants) + 1}", numbers))
        for tensor, op in zip(self.tensors, self.ops):
            if op["op"] == "input" and op["name"] == name:
                return tensor
        return self.add("input", name, numbers.shape)

    def with_extent(self, extent: Batch) -> dict[str, int]:
        """A tensor and an axis of it that has this extent."""
        for tensor in self.tensors:
            if extent in tensor.shape:
                return {"of": tensor.index, "axis": tensor.shape.index(extent)}
        raise ValueError(f"no tensor has the extent {extent}")


def active() -> Trace:
    """The trace that is being written."""
    if Trace.current is None:
        raise RuntimeError(
            "layers are applied inside a model's loss() or predict(), which Trainer and plan call once; outside there is no graph"
        )
    return Trace.current


class Tensor:
    """A tensor of the step that is being traced, with NumPy's and PyTorch's operators. Axis 0 is the batch, unless an op moved it."""

    __slots__ = ("_trace", "dtype", "index", "_shape")

    #: NumPy leaves operators to the tensor.
    __array_ufunc__ = None
    __array_priority__ = 1000

    def __init__(self, trace: Trace, index: int, shape: Shape, dtype: str) -> None:
        self._trace = trace
        self.index = index
        self._shape = shape
        #: "f32" of what is stored as activations are, or "i32" of ids and labels.
        self.dtype = dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        """Extents of the axes. That of the batch has no number yet: it's given to ``reshape``, times other extents or alone."""
        return self._shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._shape)

    def __repr__(self) -> str:
        return f"<Tensor {self._trace.ops[self.index]['name']} {self._shape}>"

    def __bool__(self) -> NoReturn:
        raise TypeError("a tensor has no values while a model is traced: `if` can't depend on it")

    def __float__(self) -> NoReturn:
        raise TypeError("a tensor has no values while a model is traced")

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a tensor has no values while a model is traced, so NumPy can't take it: tightrope has exp, where, matmul, …")

    def __add__(self, other: Operand) -> Tensor:
        return elementwise("add", "add", self, other)

    def __radd__(self, other: Operand) -> Tensor:
        return elementwise("add", "add", other, self)

    def __sub__(self, other: Operand) -> Tensor:
        return elementwise("subtract", "subtract", self, other)

    def __rsub__(self, other: Operand) -> Tensor:
        return elementwise("subtract", "subtract", other, self)

    def __mul__(self, other: Operand) -> Tensor:
        return elementwise("multiply", "multiply", self, other)

    def __rmul__(self, other: Operand) -> Tensor:
        return elementwise("multiply", "multiply", other, self)

    def __truediv__(self, other: Operand) -> Tensor:
        return elementwise("divide", "divide", self, other)

    def __rtruediv__(self, other: Operand) -> Tensor:
        return elementwise("divide", "divide", other, self)

    def __pow__(self, other: Operand) -> Tensor:
        return elementwise("power", "power", self, other)

    def __rpow__(self, other: Operand) -> Tensor:
        return elementwise("power", "power", other, self)

    def __matmul__(self, other: Operand) -> Tensor:
        return matmul(self, other)

    def __rmatmul__(self, other: Operand) -> Tensor:
        return matmul(other, self)

    def __neg__(self) -> Tensor:
        return elementwise("negative", "negative", self)

    def __pos__(self) -> Tensor:
        return self

    def __abs__(self) -> Tensor:
        return elementwise("abs", "abs", self)

    def __lt__(self, other: Operand) -> Tensor:
        return elementwise("less", "less", self, other)

    def __gt__(self, other: Operand) -> Tensor:
        return elementwise("less", "greater", other, self)

    def __le__(self, other: Operand) -> Tensor:
        return elementwise("less_equal", "less_equal", self, other)

    def __ge__(self, other: Operand) -> Tensor:
        return elementwise("less_equal", "greater_equal", other, self)

    def __eq__(self, other: Operand) -> Tensor:  # type: ignore[override]
        return elementwise("equal", "equal", self, other)

    def __ne__(self, other: Operand) -> Tensor:  # type: ignore[override]
        return elementwise("not_equal", "not_equal", self, other)

    __hash__ = object.__hash__

    def __iter__(self) -> Iterator[Tensor]:
        if not self._shape or isinstance(self._shape[0], Batch):
            raise TypeError(f"a tensor of shape {self._shape} can't be iterated over while a model is traced")
        return (self[index] for index in range(self._shape[0]))

    def __getitem__(self, key: Any) -> Tensor:
        cuts, shape = parse(self._shape, key)
        found = self
        for cut in cuts:
            found = _cut(found, cut)
        return _reshape(found, shape)

    def exp(self) -> Tensor:
        """e to the power of each element."""
        return elementwise("exp", "exp", self)

    def log(self) -> Tensor:
        """Natural logarithm."""
        return elementwise("log", "log", self)

    def sqrt(self) -> Tensor:
        """Square root."""
        return elementwise("sqrt", "sqrt", self)

    def tanh(self) -> Tensor:
        """Hyperbolic tangent."""
        return elementwise("tanh", "tanh", self)

    def sigmoid(self) -> Tensor:
        """1 / (1 + e⁻ˣ)."""
        return elementwise("sigmoid", "sigmoid", self)

    def abs(self) -> Tensor:
        """Absolute value."""
        return elementwise("abs", "abs", self)

    def reshape(self, *shape: Any) -> Tensor:
        """The same elements in another shape. One extent may be -1, which follows from the others: the batch's, often."""
        asked = shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        return _reshape(self, reshaped(self._shape, asked))

    def permute(self, *axes: Any) -> Tensor:
        """The axes in another order."""
        asked = axes[0] if len(axes) == 1 and isinstance(axes[0], Sequence) else axes
        order = [axis_of(axis, self.ndim, self._shape) for axis in asked]
        if sorted(order) != list(range(self.ndim)):
            raise ValueError(f"permute{tuple(asked)} doesn't name each axis of {self._shape} once")
        if order == list(range(self.ndim)):
            return self
        shape = tuple(self._shape[axis] for axis in order)
        return self._trace.add("permute", "permute", shape, self.dtype, x=self.index, axes=order)

    def swapaxes(self, first: int, second: int) -> Tensor:
        """Two axes in each other's place."""
        first, second = (axis_of(axis, self.ndim, self._shape) for axis in (first, second))
        order = list(range(self.ndim))
        order[first], order[second] = second, first
        return self.permute(*order)

    def sum(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The sum over an axis, several, or all. Over axis 0 it's that of the whole batch, also where it's cut into micro-batches."""
        return _reduced(self, axis, keepdims, False)

    def mean(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The mean over an axis, several, or all. Over axis 0 it's that of the whole batch, also where it's cut into micro-batches."""
        return _reduced(self, axis, keepdims, True)

    def max(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The largest element along an axis, several, or all."""
        return _extreme(self, axis, keepdims, True)

    def min(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The smallest element along an axis, several, or all."""
        return _extreme(self, axis, keepdims, False)


def elementwise(formula: str, name: str, *values: Operand) -> Tensor:
    """A formula over the elements of tensors, arrays and numbers, which repeat as NumPy's do."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    if not tensors:
        raise TypeError(f"{name} takes a tensor of the model; numbers alone are NumPy's")
    trace = active()
    operands = [trace.operand(value) for value in values]
    shape = broadcast(*(it._shape for it in operands if isinstance(it, Tensor)))
    fitted = [_fitted(it, shape) if isinstance(it, Tensor) else it for it in operands]
    parts = [at for at, it in enumerate(fitted) if isinstance(it, Tensor)]
    if shape and not any(_is(fitted[at], shape) for at in parts):
        # The formula's output has the shape of its largest operand.
        fitted[parts[0]] = expanded(trace.read(tensors[0]), shape)
    return trace.add("map", name, shape, formula=formula, operands=[_said(it) for it in fitted], figure=not shape)


def matmul(left: Operand, right: Operand) -> Tensor:
    """Matrices of the last two axes, multiplied, with the axes before them repeated as NumPy repeats them."""
    trace = active()
    a, b = trace.operand(left), trace.operand(right)
    if not isinstance(a, Tensor) or not isinstance(b, Tensor) or not a.ndim or not b.ndim:
        raise ValueError("matmul takes tensors of an axis or more; numbers are multiplied by *")
    first, second = a.ndim == 1, b.ndim == 1
    a = _reshape(a, (1, *a._shape)) if first else a
    b = _reshape(b, (*b._shape, 1)) if second else b
    if a._shape[-1] != b._shape[-2]:
        raise ValueError(f"matmul of {a._shape} and {b._shape}: {a._shape[-1]} columns on the left, {b._shape[-2]} rows on the right")
    outer = broadcast(a._shape[:-2], b._shape[:-2])
    stacked = b.ndim > 2
    if stacked:
        a, b = expanded(a, outer + a._shape[-2:]), expanded(b, outer + b._shape[-2:])
    shape = (*outer, a._shape[-2], b._shape[-1])
    found = trace.add("matmul", "matmul", shape, a=a.index, b=b.index, stacked=stacked)
    rows = () if first else shape[-2:-1]
    columns = () if second else shape[-1:]
    return _reshape(found, (*outer, *rows, *columns))


def concatenated(parts: Sequence[Tensor], axis: int) -> Tensor:
    """Tensors one after the other along an axis."""
    trace = active()
    tensors = [trace.read(part) for part in parts]
    if not tensors:
        raise ValueError("concat takes at least one tensor")
    first = tensors[0]._shape
    at = axis_of(axis, len(first), first)
    total = 0
    for shape in (it._shape for it in tensors):
        extent = shape[at] if len(shape) == len(first) else None
        if extent is None or (*shape[:at], *shape[at + 1 :]) != (*first[:at], *first[at + 1 :]):
            raise ValueError(f"concat of {first} and {shape} along axis {axis}: other axes differ")
        if isinstance(extent, Batch):
            raise ValueError(f"axis {axis} of {shape} is the batch, whose samples stay as they are")
        total += extent
    shape = (*first[:at], total, *first[at + 1 :])
    return trace.add("concat", "concat", shape, parts=[part.index for part in tensors], axis=at)


def expanded(x: Tensor, shape: Shape) -> Tensor:
    """A tensor that repeats into a shape, repeated."""
    if x._shape == shape:
        return x
    padded = (1,) * (len(shape) - x.ndim) + x._shape
    repeats = [axis for axis in range(len(shape)) if padded[axis] != shape[axis]]
    kept = tuple(extent for axis, extent in enumerate(padded) if axis not in repeats)
    # Without an axis of its own it keeps one of one element, the last.
    found = _reshape(x, kept or (1,))
    for axis in repeats:
        extent = shape[axis]
        said: Any = x._trace.with_extent(extent) if isinstance(extent, Batch) else extent
        grown = (*found._shape[:axis], extent, *found._shape[axis:])
        found = x._trace.add("expand", "expand", grown, x.dtype, x=found.index, axis=axis, extent=said)
    return _reshape(found, shape)


def _is(value: Tensor | float, shape: Shape) -> bool:
    return isinstance(value, Tensor) and value._shape == shape


def _fitted(x: Tensor, shape: Shape) -> Tensor:
    """An operand of a formula with an output of this shape: it has it, one element, or its last axes."""
    own = x._shape
    if own == shape or all(extent == 1 for extent in own):
        return x
    lead = next(axis for axis, extent in enumerate(own) if extent != 1)
    rest = own[lead:]
    return _reshape(x, rest) if rest == shape[len(shape) - len(rest) :] else expanded(x, shape)


def _said(value: Tensor | float) -> Any:
    """An operand as JSON has it, which lacks infinity."""
    if isinstance(value, Tensor):
        return {"tensor": value.index}
    return value if math.isfinite(value) else {"number": "inf" if value > 0 else "-inf"}


def _reshape(x: Tensor, shape: Shape) -> Tensor:
    if x._shape == shape:
        return x
    # The engine has no tensor without an axis, and at most one extent follows from the others.
    said = [None if isinstance(extent, Batch) else extent for extent in shape] or [1]
    if said.count(None) > 1:
        raise ValueError(f"reshape to {shape}: at most one axis may be the batch")
    return x._trace.add("reshape", "reshape", shape, x.dtype, x=x.index, extents=said)


def _cut(x: Tensor, cut: Cut) -> Tensor:
    """Some indices of an axis."""

    def part(of: Tensor, axis: int, start: int, count: int) -> Tensor:
        shape = (*of._shape[:axis], count, *of._shape[axis + 1 :])
        if shape == of._shape:
            return of
        return of._trace.add("slice", "slice", shape, of.dtype, x=of.index, axis=axis, start=start, len=count)

    axis, start, count, step = cut.axis, cut.start, cut.count, cut.step
    if step == 1:
        return part(x, axis, start, count)
    before, extent, after = x._shape[:axis], x._shape[axis], x._shape[axis + 1 :]
    if isinstance(extent, int) and start + count * step > extent:
        # The axis ends before a whole step after the last index, which is taken by itself.
        first = _cut(x, Cut(axis, start, count - 1, step if count > 2 else 1))
        return concatenated([first, part(x, axis, start + (count - 1) * step, 1)], axis)
    whole = _reshape(part(x, axis, start, count * step), (*before, count, step, *after))
    return _reshape(part(whole, axis + 1, 0, 1), (*before, count, *after))


def _real(x: Tensor) -> Tensor:
    """A tensor of real numbers: of whole ones, their values."""
    return x if x.dtype == "f32" else elementwise("add", "cast", x, 0.0)


def _kept(x: Tensor, found: Tensor, axes: list[int], keepdims: bool) -> Tensor:
    """Reduced elements of ``x``, with axes of one element in place of those that are gone if ``keepdims`` is true."""
    if not keepdims:
        return found
    return _reshape(found, tuple(1 if axis in axes else extent for axis, extent in enumerate(x._shape)))


def _without(shape: Shape, axes: list[int]) -> Shape:
    left: list[Extent] = [extent for axis, extent in enumerate(shape) if axis not in axes]
    return tuple(left)


def _reduced(x: Tensor, axis: Axes, keepdims: bool, mean: bool) -> Tensor:
    axes = axes_of(axis, x._shape)
    if not axes:
        return x
    real = _real(active().read(x))
    shape, name = _without(x._shape, axes), "mean" if mean else "sum"
    found = x._trace.add("reduce", name, shape, x=real.index, axes=axes, mean=mean)
    return _kept(x, found, axes, keepdims)


def _extreme(x: Tensor, axis: Axes, keepdims: bool, largest: bool) -> Tensor:
    axes = axes_of(axis, x._shape)
    if not axes:
        return x
    found, name = _real(active().read(x)), "max" if largest else "min"
    shape, at = _without(x._shape, axes), axes[0]
    if len(axes) > 1:
        # As one axis, so that all that are equal are counted together.
        rest, at = [axis for axis in range(x.ndim) if axis not in axes], len(shape)
        found = found.permute(*rest, *axes).reshape(*shape, -1)
    found = x._trace.add("extreme", name, shape, x=found.index, axis=at, largest=largest)
    return _kept(x, found, axes, keepdims)
