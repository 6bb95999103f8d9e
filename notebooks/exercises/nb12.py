"""Checks of notebook 12."""

from collections.abc import Mapping
from typing import Any

import numpy as np

import checks
import tightrope as tr

CPU = tr.Settings(device="cpu", threads=2)


@checks.number("12.1", otherwise="divide what the block keeps by its tokens")
def bytes_of_a_token() -> tuple[int, Mapping[int, str]]:
    right = 16 * 128 * 4
    return right, {
        right // 4: "that is numbers, not bytes",
        right * 1024: "that is the whole block, for 1,024 tokens",
        right // 128: "that is a channel of a token",
        12 * 128 * 4: "are both sides of GELU in it?",
    }


def expected(plan: tr.Plan, prefix: str) -> int:
    """Bytes of what begins with `prefix` and lives past the forward pass."""
    columns = plan.tensors()
    turn = int(np.flatnonzero(plan.ops()["phase"] == "forward").max())
    chosen = (columns["class"] == "activation") & np.char.startswith(columns["name"], prefix)
    chosen &= (columns["first"] <= turn) & (columns["last"] > turn)
    return int(columns["bytes"][chosen].sum())


@checks.program("12.2", "kept_by")
def kept_by(answer: Any) -> str | None:
    tiny = tr.Settings(preset="tiny", **CPU)
    for recompute, batch in (("none", 4), ("block", 4), ("none", 2)):
        plan = tr.plan(recompute=recompute, batch=batch, micro_batch=batch, **tiny)
        for prefix in ("h.0.", "h.1.mlp.", "norm_f"):
            found, right = checks.whole(answer(plan, prefix)), expected(plan, prefix)
            if found is None:
                return "it gives a number of bytes"
            if found != right:
                return f"for `{prefix}` with recompute={recompute} and batch={batch} it gives {found:,}: count activations that begin by the last op of the forward pass and live longer"
    return None


checks.choice(
    "12.3",
    "0e4895c01879",
    a="activations are gone by then",
    b="that has no effect after the last pass",
    d="the loss is long done",
)


@checks.exercise("12.4")
def seconds(answer: Any) -> str | None:
    right = 6 * 100_000 * 10**9 / 2e13
    try:
        number = float(answer)
    except (TypeError, ValueError):
        return "the answer is a number of seconds"
    if abs(number - right) < 1e-6 * right:
        return None
    if abs(number - right / 3) < 1e-3:
        return "that is the forward pass; the backward pass takes twice as much"
    return "six operations for each token and each weight"
