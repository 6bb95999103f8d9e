"""Indices and slices of a tensor: ``x[…]``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .shapes import Batch, Extent, Shape


@dataclass(frozen=True)
class Cut:
    """Every ``step``-th index of an axis from ``start`` on, ``count`` of them."""

    axis: int
    start: int
    count: int
    step: int


def parse(shape: Shape, key: Any) -> tuple[list[Cut], Shape]:
    """Which indices of which axes are kept, and the shape that is left: without axes of one number, with those that None adds.

    Raises:
        IndexError: an index that isn't in its axis.
        TypeError: what isn't a whole number, a slice, None or an ellipsis.
        ValueError: samples of the batch, slices that leave nothing or go backwards.
    """
    parts = list(key) if isinstance(key, tuple) else [key]
    named = sum(part is not None and part is not Ellipsis for part in parts)
    if sum(part is Ellipsis for part in parts) > 1:
        raise IndexError("an index has one ellipsis at most")
    if named > len(shape):
        raise IndexError(f"{shape} has {len(shape)} axes, and {named} are indexed")
    if not any(part is Ellipsis for part in parts):
        parts.append(Ellipsis)
    cuts: list[Cut] = []
    left: list[Extent] = []
    axis = 0
    for part in parts:
        if part is None:
            left.append(1)
        elif part is Ellipsis:
            rest = len(shape) - named
            left.extend(shape[axis : axis + rest])
            axis += rest
        else:
            kept = _one(shape, axis, part, cuts)
            if kept is not None:
                left.append(kept)
            axis += 1
    return cuts, tuple(left)


def _one(shape: Shape, axis: int, part: Any, cuts: list[Cut]) -> Extent | None:
    """Extent of an axis after an index or a slice; None if the axis is gone."""
    extent = shape[axis]
    if isinstance(part, slice):
        if isinstance(extent, Batch):
            if part.start in (None, 0) and part.stop is None and part.step in (None, 1):
                return extent
            raise ValueError(f"axis {axis} of {shape} is the batch, whose samples aren't chosen while a model is traced")
        start, stop, step = part.indices(extent)
        if step < 0:
            raise ValueError(f"x[{_text(part)}] goes backwards: steps are at least 1")
        count = len(range(start, stop, step))
        if count == 0:
            raise ValueError(f"x[{_text(part)}] leaves nothing of axis {axis} of {shape}")
        if count < extent:
            cuts.append(Cut(axis, start, count, step if count > 1 else 1))
        return count
    if isinstance(part, bool) or not hasattr(part, "__index__"):
        raise TypeError(f"a tensor is indexed by whole numbers, slices, None and …, not by {type(part).__name__}; Embedding looks rows up")
    if isinstance(extent, Batch):
        raise ValueError(f"axis {axis} of {shape} is the batch, whose samples aren't chosen while a model is traced")
    index = part.__index__()
    if not -extent <= index < extent:
        raise IndexError(f"index {index} of axis {axis} of {shape}: it must be from {-extent} to {extent - 1}")
    cuts.append(Cut(axis, index % extent, 1, 1))
    return None


def _text(part: slice) -> str:
    ends = ["" if end is None else str(end) for end in (part.start, part.stop, part.step)]
    return ":".join(ends if part.step is not None else ends[:2])
