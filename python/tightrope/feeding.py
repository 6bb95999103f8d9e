"""Arrays of samples, as the engine takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .arrays import array
from .plans import Inputs

#: Dtypes of inputs, as NumPy calls them.
DTYPES = {"f32": np.float32, "i32": np.int32}


def samples(values: Mapping[str, Any], inputs: Inputs) -> tuple[dict[str, np.ndarray], int]:
    """Arrays of samples by the names of inputs, flat and in their dtypes, and how many samples there are.

    An array that has its dtype and order already isn't copied.

    Raises:
        TypeError: an input that the model lacks, or that isn't an array of numbers.
        ValueError: another shape or number of samples, and values that the input can't hold, with their place.
    """
    unknown = sorted(set(values) - set(inputs))
    if unknown:
        raise TypeError(f"the model has no input `{unknown[0]}`; it reads {', '.join(inputs)}")
    found: dict[str, np.ndarray] = {}
    counts: dict[str, int] = {}
    for name, (dtype, shape) in inputs.items():
        if name not in values:
            raise TypeError(f"the batch lacks the input `{name}`")
        own = array(name, values[name])
        if own.ndim != len(shape) + 1 or own.shape[1:] != tuple(shape):
            extents = ", ".join(map(str, shape))
            raise ValueError(f"`{name}` has shape {own.shape}: it must be (batch,{extents and ' ' + extents})")
        counts[name] = len(own)
        found[name] = _whole(name, own) if dtype == "i32" else _real(name, own)
    if len(set(counts.values())) != 1:
        said = ", ".join(f"`{name}` {count}" for name, count in counts.items())
        raise ValueError(f"the inputs have different numbers of samples: {said}")
    return found, next(iter(counts.values()))


def _whole(name: str, own: np.ndarray) -> np.ndarray:
    """Whole numbers as int32, where that holds them."""
    if own.dtype.kind not in "iub":
        raise ValueError(f"`{name}` holds {own.dtype}, and the model reads whole numbers")
    if own.size and own.dtype.kind != "b" and not np.can_cast(own.dtype, np.int32):
        limits = np.iinfo(np.int32)
        wrong = own > limits.max
        if own.dtype.kind == "i":
            wrong |= own < limits.min
        _refuse(name, own, wrong, "which int32 doesn't hold")
    return np.ascontiguousarray(own, np.int32).reshape(-1)


def _real(name: str, own: np.ndarray) -> np.ndarray:
    """Numbers as float32, all finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = np.ascontiguousarray(own, np.float32)
    wrong = ~np.isfinite(numbers)
    if wrong.any():
        # Of the caller's numbers, which float32 may not hold.
        _refuse(name, own, wrong.reshape(own.shape), "which isn't a finite float32")
    return numbers.reshape(-1)


def _refuse(name: str, own: np.ndarray, wrong: np.ndarray, why: str) -> None:
    if wrong.any():
        sample, *rest = place = [int(at) for at in np.argwhere(wrong)[0]]
        within = f" at {rest}" if rest else ""
        raise ValueError(f"`{name}`, sample {sample}{within}, is {own[tuple(place)]}, {why}")


def parts(
    arrays: Mapping[str, np.ndarray], count: int, size: int
) -> Sequence[tuple[dict[str, np.ndarray], int]]:
    """Flat arrays of ``size`` samples each, the last filled up with zeros, with how many samples are real."""
    found = []
    for start in range(0, count, size):
        real = min(size, count - start)
        part = {}
        for name, own in arrays.items():
            each = len(own) // count
            part[name] = np.zeros(size * each, own.dtype)
            part[name][: real * each] = own[start * each : (start + real) * each]
        found.append((part, real))
    return found
