"""Checks of notebook 5."""

from collections.abc import Mapping
from typing import Any

import numpy as np

import checks


@checks.number("05.1", otherwise="add the weight, its master and two moments")
def kept() -> tuple[int, Mapping[int, str]]:
    weight, remainder, moments = 2, 2, 2
    return weight + remainder + moments, {
        weight + moments: "small updates would be rounded away: what else is kept?",
        weight + 4 + moments: "that is f16, whose master is a whole f32",
        12: "that is with moments in f32",
        weight + remainder + 1: "AdamW has two moments",
    }


@checks.exercise("05.2")
def scale(answer: Any) -> str | None:
    number = checks.whole(answer)
    if number is None or number < 1 or number & (number - 1):
        return "the answer is a power of two"
    largest = np.float32(0.37) * number
    if largest > np.finfo(np.float16).max:
        return "the scaled gradient is above the largest f16 number"
    if 2 * largest <= np.finfo(np.float16).max:
        return "twice that scale still fits"
    return None


@checks.program("05.3", "split")
def split(answer: Any) -> str | None:
    x = np.random.default_rng(5).normal(size=1000).astype(np.float32) * np.float32(1e-3)
    upper, lower = answer(x)
    if upper.dtype != np.uint16 or lower.dtype != np.uint16:
        return "both halves are arrays of uint16; look at x.view(np.uint32)"
    again = (upper.astype(np.uint32) << 16 | lower).view(np.float32)
    if not np.array_equal(again.view(np.uint32), x.view(np.uint32)):
        return "the halves don't give the number again: which bits are cut off by a shift of 16?"
    return None
