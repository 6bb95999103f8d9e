"""Checks of notebook 6."""

import tracemalloc
from collections.abc import Mapping
from typing import Any

import numpy as np

import checks


@checks.number("06.1", otherwise="layers × heads × tokens × tokens × bytes of a number")
def matrices() -> tuple[int, Mapping[int, str]]:
    scores = 32 * 32 * 8192**2
    return 2 * scores, {
        scores: "that is a number of scores, not of bytes",
        4 * scores: "that is in f32",
        2 * scores // 32: "that is one layer, or one head of each",
        2 * 32 * 32 * 8192: "each token has a score for every other token",
    }


@checks.program("06.2", "cross_entropy")
def chunked(answer: Any) -> str | None:
    random = np.random.default_rng(6)
    tokens, words, channels, rows = 512, 4096, 16, 32
    x, head = (random.normal(size=(count, channels)).astype(np.float32) for count in (tokens, words))
    targets = random.integers(0, words, tokens)
    scores = x.astype(np.float64) @ head.T.astype(np.float64)
    scores -= scores.max(1, keepdims=True)
    expected = float(np.mean(np.log(np.exp(scores).sum(1)) - scores[np.arange(tokens), targets]))
    del scores
    tracemalloc.start()
    try:
        found = float(answer(x, head, targets, rows))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if abs(found / tokens - expected) < 1e-3:
        return "that is the sum over tokens, and the loss is their mean"
    if abs(found - expected) > 1e-3 * abs(expected):
        return f"for the check's case it gives {found:.4f}, and the mean cross-entropy is another number"
    if peak > tokens * words * 4 / 4:
        return "right, and too large: it allocates as if all rows of scores existed at once"
    return None


checks.choice(
    "06.3",
    "b3ad9cc01e2f",
    a="sums in parts are the same sums, but for rounding",
    c="every token is in some chunk",
    d="the next chunk writes over them",
)
