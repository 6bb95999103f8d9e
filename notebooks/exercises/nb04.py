"""Checks of notebook 4."""

from collections.abc import Mapping
from typing import Any

import checks
import tightrope as tr

DEEP = tr.Settings(preset="small", layers=16, context=64, batch=8, micro_batch=8, loss_chunk="none", device="cpu", threads=2)


@checks.number("04.1", otherwise="compute it for N = 1, 2, 3, …")
def segment() -> tuple[int, Mapping[int, str]]:
    units = {length: -(-64 // length) + 15 * length for length in range(1, 65)}
    return min(units, key=lambda length: units[length]), {8: "that is √64, for a block that takes as much as its input"}


@checks.exercise("04.2")
def better(answer: Any) -> str | None:
    if not isinstance(answer, (list, tuple, set)) or not all(isinstance(name, str) for name in answer):
        return 'give a list of names, such as "h.0.attn.qkv"'
    if not answer:
        return 'a policy that keeps nothing is recompute="block"; it fits, and it is slow'
    if not all(f"h.{block}.mlp.residual" in answer for block in range(15)):
        return "keep the outputs of blocks: without them, a recomputation begins at the first block"
    budget = 8 * tr.plan(recompute="none", **DEEP).peak_bytes // 10
    own = tr.plan(recompute=sorted(answer), **DEEP)
    if own.peak_bytes > budget:
        return f"its plan takes {own.peak_bytes:,} bytes of {budget:,}: drop what is large and cheap to make again"
    seconds = tr.plan(memory=budget, **DEEP).predicted_step_s
    if own.predicted_step_s > 1.02 * seconds:
        return f"it takes {own.predicted_step_s / seconds - 1:.1%} more time than the planner's: keep more of what matmuls make"
    return None


checks.choice(
    "04.3",
    "510a901de048",
    b="then the backward pass would see other activations than the forward pass",
    c="what would the mean of one pass be?",
    d="the mean over many steps isn't this step's gradient",
)
