"""Checks of notebook 7."""

from collections.abc import Mapping
from typing import Any

import numpy as np

import checks

GPT2 = 124_439_808


@checks.number("07.1", otherwise="one number of 4 bytes for each parameter")
def lion() -> tuple[int, Mapping[int, str]]:
    return 4 * GPT2, {
        GPT2: "that is one byte for each number; they are f32",
        8 * GPT2: "that is AdamW's state; which of the two does Lion keep?",
        12 * GPT2: "that counts the weights and two moments",
    }


@checks.program("07.2", "adamw")
def adamw(answer: Any) -> str | None:
    random = np.random.default_rng(7)
    w, m, v = random.normal(size=50), np.zeros(50), np.zeros(50)
    own = (w.copy(), m.copy(), v.copy())
    for t in (1, 2, 3):
        g = random.normal(size=50)
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g * g
        w = w - 1e-3 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        own = tuple(answer(own[0], g, own[1], own[2], t))
        if not (np.allclose(own[1], m) and np.allclose(own[2], v)):
            return "a moment is off: m is a running mean of g, v of g², each with its own beta"
        if not np.allclose(own[0], w, rtol=0, atol=1e-9):
            return f"the moments are right and the weight is off at step {t}: are both moments divided by 1 − beta**t?"
    return None


checks.choice(
    "07.3",
    "947f9eec11ae",
    a="that adds bytes, or none at all: remember the master remainder",
    b="that saves 4 of 12 bytes for each weight; is there more to be had?",
    d="nothing that is kept between steps depends on the batch",
)
