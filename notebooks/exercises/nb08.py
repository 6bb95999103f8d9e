"""Checks of notebook 8."""

from collections.abc import Mapping
from typing import Any

import checks

LAYERS, INPUT = 12, 256 * 128 * 4


@checks.number("08.1", otherwise="input, output and gradient of the layer at work, and one input for each layer ahead")
def ahead() -> tuple[int, Mapping[int, str]]:
    return 6 * INPUT, {
        3 * INPUT: "that is without room for what comes early",
        4 * INPUT: "that is one layer ahead",
        7 * INPUT: "each input that is ahead needs room once",
        (LAYERS + 2) * INPUT: "that is everything kept",
    }


@checks.exercise("08.2")
def link(answer: Any) -> str | None:
    try:
        number = float(answer)
    except (TypeError, ValueError):
        return "the answer is a number of GB/s"
    exact = 120e12 / (12 * 3072) / 1e9
    if abs(number - exact) <= 0.006:
        return None
    if abs(number * 1e9 - exact) < 1 or abs(number / 1e9 - exact) < 0.1:
        return "right but for the unit: GB/s are 10⁹ bytes a second"
    return "operations a second, divided by 12 times the channels"


checks.choice(
    "08.3",
    "54534bf45abc",
    a="the link would be idle",
    b="then the step waits for the link half of the time",
    d="weights go back and forth as well, and are no smaller",
)
