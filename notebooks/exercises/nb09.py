"""Checks of notebook 9."""

from typing import Any

import checks
import tightrope as tr

BASE = tr.Settings(preset="small", batch=64, device="cpu", threads=2)


def fits(budget: int) -> bool:
    """Whether a plan takes at most so many MiB."""
    try:
        return tr.plan(memory=f"{budget}MiB", **BASE).peak_bytes <= budget << 20
    except tr.DoesNotFit:
        return False


@checks.exercise("09.1")
def smallest(answer: Any) -> str | None:
    budget = checks.whole(answer)
    if budget is None or not 1 <= budget <= 4096:
        return "the answer is a whole number of MiB"
    if not fits(budget):
        return "no plan is as small as that; what does the exception say is needed?"
    if budget > 1 and fits(budget - 1):
        return "one MiB less is enough"
    return None


@checks.exercise("09.2")
def early(answer: Any) -> str | None:
    if not isinstance(answer, dict):
        return 'give a dict, such as dict(preset="small", batch=1, device="cpu")'
    if answer.get("preset") != "small" or answer.get("batch") != 1 or answer.get("device") != "cpu":
        return 'keep preset="small", batch=1 and device="cpu"'
    said = {**answer, **answer.get("settings", {})}
    free = {
        "preset",
        "batch",
        "device",
        "threads",
        "micro_batch",
        "recompute",
        "loss_chunk",
        "memory",
        "clip",
        "settings",
        "memory.consume_gradients",
        "consume_gradients",
        "memory.recompute",
        "memory.loss_chunk",
        "train.clip",
        "train.micro_batch",
    }
    if not set(said) <= free:
        return f"leave `{sorted(set(said) - free)[0]}` as it is: f32, AdamW in 32 bits, the same model"
    plan = tr.plan(**answer)
    if plan.peak_bytes > 12 << 20:
        return f"it takes {plan.peak_bytes / (1 << 20):.2f} MiB: weights and moments are 9.64 of them, so neither gradients nor activations may all be there at once"
    return None


checks.choice(
    "09.3",
    "ff67481bc452",
    a="that took hardly anything away",
    b="look at the rung after it: it still saved most of what was left",
    d="by then the floor had decided already: this rung lowers the floor itself",
)
