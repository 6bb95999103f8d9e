"""Checks of notebook 10."""

from collections.abc import Mapping
from typing import Any

import numpy as np

import checks


@checks.number("10.1", otherwise="a block has four linear layers: C→3C, C→C, C→4C, 4C→C")
def numbers() -> tuple[int, Mapping[int, str]]:
    rank, channels, layers = 16, 768, 12
    shapes = [(1, 3), (1, 1), (1, 4), (4, 1)]
    right = layers * rank * channels * sum(i + o for i, o in shapes)
    return right, {
        right // layers: "that is one layer",
        right // 2: "that is rank 8, or one of the two matrices",
        4 * right: "that is bytes",
        layers * rank * channels**2 * 12: "an adapter has rank × (in + out) numbers, not in × out",
    }


@checks.program("10.2", "merged")
def merged(answer: Any) -> str | None:
    random = np.random.default_rng(10)
    w, a, b = random.normal(size=(6, 5)), random.normal(size=(2, 5)), random.normal(size=(6, 2))
    x, alpha = random.normal(size=5), 3.0
    found = np.asarray(answer(w, a, b, alpha))
    if found.shape != w.shape:
        return f"the merged weight has the shape of w, {w.shape}, not {found.shape}"
    if np.allclose(found, w + alpha * b @ a):
        return "the factor is alpha / rank"
    if np.allclose(found, w + b @ a):
        return "what becomes of alpha and the rank?"
    if not np.allclose(found @ x, w @ x + alpha / 2 * (b @ (a @ x))):
        return "merged(…) @ x isn't W·x + alpha/r · B·A·x"
    return None


checks.choice(
    "10.3",
    "a9e5d7da281c",
    a="that changes what the model sees, and there is a change that changes nothing",
    c="that needs far more",
    b="that needs more",
)
