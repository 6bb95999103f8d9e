"""Checks of notebook 1."""

from collections.abc import Mapping
from typing import Any

import checks
import tightrope as tr

SMALL = tr.Settings(preset="small", recompute="none", device="cpu", threads=2)
BUDGET = 64 << 20


@checks.number("01.1", otherwise="count the parameters by the formula; each has two moments of 4 bytes")
def moments() -> tuple[int, Mapping[int, str]]:
    plan = tr.plan(preset="tiny", batch=1, device="cpu", threads=2)
    weights = plan.by_class["weight"]
    return 2 * weights, {
        weights: "that is one of the two moments",
        3 * weights: "that counts the weights too",
        weights // 4: "that is the number of parameters",
        weights // 2: "that is a number for each moment, not bytes",
    }


checks.choice(
    "01.2",
    "782d52e6e7be",
    a="this run is in f32, and so are its gradients",
    c="only activations are recomputed",
    d="the update comes after the whole backward pass here",
)


@checks.exercise("01.3")
def largest(answer: Any) -> str | None:
    batch = checks.whole(answer)
    if batch is None or batch < 1:
        return "the answer is a whole number of sequences"
    if batch > 4096:
        return "that is far too large: how many bytes does a sequence take?"
    if tr.plan(batch=batch, micro_batch=batch, **SMALL).peak_bytes > BUDGET:
        return "a step of so many sequences takes more than the budget"
    if tr.plan(batch=batch + 1, micro_batch=batch + 1, **SMALL).peak_bytes <= BUDGET:
        return "one sequence more fits too"
    return None
