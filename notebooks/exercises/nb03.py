"""Checks of notebook 3."""

import math
from typing import Any

import numpy as np

import checks
import tightrope as tr

SMALL = tr.Settings(preset="small", context=64, batch=32, recompute="none", device="cpu", threads=2)
BUDGET = 20 << 20


@checks.exercise("03.1")
def largest(answer: Any) -> str | None:
    size = checks.whole(answer)
    if size is None or size < 1 or 32 % size:
        return "the answer is a whole number that divides 32"
    if tr.plan(micro_batch=size, **SMALL).peak_bytes > BUDGET:
        return "a pass of so many sequences takes more than the budget"
    if size < 32 and tr.plan(micro_batch=2 * size, **SMALL).peak_bytes <= BUDGET:
        return "twice as many fit too"
    return None


@checks.program("03.2", "mean_loss")
def mean_loss(answer: Any) -> str | None:
    random = np.random.default_rng(3)
    equal = [random.random(4) for _ in range(3)]
    uneven = [random.random(count) for count in (1, 7, 3)]
    if not math.isclose(answer(equal), np.concatenate(equal).mean(), rel_tol=1e-9):
        return "it is wrong even where all parts have as many tokens: what is a mean?"
    if not math.isclose(answer(uneven), np.concatenate(uneven).mean(), rel_tol=1e-9):
        return "parts with many tokens must count more than parts with few"
    empty = [np.array([]), *uneven]
    if not math.isclose(answer(empty), np.concatenate(uneven).mean(), rel_tol=1e-9):
        return "a part without counted tokens must change nothing"
    return None


checks.choice(
    "03.3",
    "611ee4c87d5c",
    a="only activations halve, and they are small here",
    b="what becomes of the gradients of the first pass?",
    d="the optimizer runs once a step, whatever the passes",
)
