"""Arguments that are checked where they are said."""

from __future__ import annotations

import math
from typing import Any


def whole(name: str, value: Any, least: int = 1) -> int:
    """A whole number that is at least ``least``.

    Raises:
        TypeError: no whole number.
        ValueError: a smaller one.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}={value!r}: it must be a whole number, at least {least}")
    found = int(value.__index__())
    if found < least:
        raise ValueError(f"{name}={value!r}: it must be at least {least}")
    return found


def probability(name: str, value: Any) -> float:
    """A probability below 1, as dropout has it."""
    found = _real(name, value, "at least 0 and below 1")
    if not 0 <= found < 1:
        raise ValueError(f"{name}={value!r}: it must be at least 0 and below 1")
    return found


def at_least_0(name: str, value: Any) -> float:
    """A finite number that isn't negative."""
    found = _real(name, value, "finite and at least 0")
    if not (math.isfinite(found) and found >= 0):
        raise ValueError(f"{name}={value!r}: it must be finite and at least 0")
    return found


def above_0(name: str, value: Any, most: float = math.inf) -> float:
    """A finite number above 0, and at most ``most``."""
    allowed = "finite and above 0" if most == math.inf else f"above 0 and at most {most:g}"
    found = _real(name, value, allowed)
    if not (math.isfinite(found) and 0 < found <= most):
        raise ValueError(f"{name}={value!r}: it must be {allowed}")
    return found


def _real(name: str, value: Any, allowed: str) -> float:
    if isinstance(value, (bool, str)) or not hasattr(value, "__float__"):
        raise TypeError(f"{name}={value!r}: it must be a number, {allowed}")
    return float(value)
