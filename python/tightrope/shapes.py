"""Shapes of tensors while a model is traced, when the number of samples isn't known yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Union


class Batch:
    """Extent of an axis of all samples: their number, times a whole number.

    It can be multiplied and divided by whole numbers, as ``x.reshape(batch * positions, channels)`` needs it, and has no value.
    """

    __slots__ = ("times",)

    def __init__(self, times: int = 1) -> None:
        self.times = times

    def __mul__(self, other: int) -> Batch:
        if isinstance(other, int) and other > 0:
            return Batch(self.times * other)
        return NotImplemented

    __rmul__ = __mul__

    def __floordiv__(self, other: int) -> Batch:
        if isinstance(other, int) and other > 0 and self.times % other == 0:
            return Batch(self.times // other)
        return NotImplemented

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Batch) and other.times == self.times

    def __hash__(self) -> int:
        return hash((Batch, self.times))

    def __repr__(self) -> str:
        return "batch" if self.times == 1 else f"{self.times}·batch"


Extent = Union[int, Batch]
Shape = tuple[Extent, ...]

#: One axis, several, or all of them.
Axes = Union[int, Sequence[int], None]


def elements(shape: Iterable[Extent]) -> tuple[int, int]:
    """How often the batch is a factor of the number of elements, and the rest of it."""
    powers, rest = 0, 1
    for extent in shape:
        if isinstance(extent, Batch):
            powers, rest = powers + 1, rest * extent.times
        else:
            rest *= extent
    return powers, rest


def axis_of(axis: Any, ndim: int, shape: object) -> int:
    """An axis counted from the front."""
    if isinstance(axis, bool) or not hasattr(axis, "__index__"):
        raise TypeError(f"axis={axis!r}: an axis is a whole number")
    found = axis.__index__()
    if not -ndim <= found < ndim:
        allowed = f"it must be from {-ndim} to {ndim - 1}" if ndim else "it has no axis"
        raise ValueError(f"axis={axis!r} of {shape}: {allowed}")
    return int(found % ndim)


def axes_of(axes: Axes, shape: Shape) -> list[int]:
    """Axes counted from the front, in order, each once; all of them for None."""
    if axes is None:
        return list(range(len(shape)))
    listed = list(axes) if isinstance(axes, Sequence) else [axes]
    found = [axis_of(axis, len(shape), shape) for axis in listed]
    if len(set(found)) != len(found):
        raise ValueError(f"axis={axes!r} of {shape} names an axis twice")
    return sorted(found)


def broadcast(*shapes: Shape) -> Shape:
    """The shape that these repeat into, as NumPy has it."""
    ndim = max(len(shape) for shape in shapes)
    found: list[Extent] = [1] * ndim
    for shape in shapes:
        for axis, extent in enumerate(shape, ndim - len(shape)):
            if found[axis] == 1:
                found[axis] = extent
            elif extent not in (1, found[axis]):
                raise ValueError(f"{' and '.join(map(str, shapes))} don't repeat into each other: axis {axis - ndim} differs")
    return tuple(found)


def reshaped(shape: Shape, asked: Sequence[Any]) -> Shape:
    """The shape that is asked for, with what -1 stands for."""
    found: list[Extent | None] = []
    for extent in asked:
        if isinstance(extent, Batch):
            found.append(extent)
        elif isinstance(extent, bool) or not hasattr(extent, "__index__"):
            raise TypeError(f"reshape{tuple(asked)}: an extent is a whole number")
        elif (number := int(extent.__index__())) == -1 and None not in found:
            found.append(None)
        elif number >= 1:
            found.append(number)
        else:
            raise ValueError(f"reshape{tuple(asked)}: extents are at least 1, and one may be -1, which follows from the others")
    (powers, rest), (known_powers, known) = elements(shape), elements(it for it in found if it is not None)
    powers -= known_powers
    if None not in found:
        if powers == 0 and rest == known:
            return tuple(it for it in found if it is not None)
    elif powers in (0, 1) and rest % known == 0:
        free: Extent = Batch(rest // known) if powers else rest // known
        return tuple(free if it is None else it for it in found)
    raise ValueError(f"{shape} has other elements than reshape{tuple(asked)}, in batches of any size")
