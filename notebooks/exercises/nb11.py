"""Checks of notebook 11."""

from collections.abc import Mapping
from typing import Any

import numpy as np

import checks
import tightrope as tr

PIXELS = {"x": ("f32", (64,)), "y": ("i32", ())}
BATCH = tr.Settings(batch=64, micro_batch=64, device="cpu", threads=2)


@checks.number("11.1", otherwise="three convolutions of 3 × 3 and a linear layer from 512 to 10")
def weights() -> tuple[int, Mapping[int, str]]:
    convolutions = [(1, 16), (16, 32), (32, 32)]
    right = sum(9 * i * o + o for i, o in convolutions) + 512 * 10 + 10
    return right, {
        sum(9 * i * o for i, o in convolutions) + 512 * 10: "biases are weights too",
        right - 5130: "that is without the head",
        4 * right: "that is bytes",
    }


@checks.exercise("11.2")
def small(answer: Any) -> str | None:
    if not isinstance(answer, type) or not issubclass(answer, tr.Model):
        return "give the class itself, a tr.Model that can be made without arguments"
    count = tr.plan(answer(), inputs=PIXELS, **BATCH).by_class["weight"] // 4
    if count > 3000:
        return f"it has {count:,} weights"
    images, labels = tr.data.digits()
    images = images.reshape(-1, 64)
    held = np.arange(len(labels)) % 10 == 0
    training, order = np.flatnonzero(~held), np.random.default_rng(11)
    trainer = tr.Trainer(answer(), inputs=PIXELS, lr=1e-2, steps=300, **BATCH)
    for _ in range(300):
        chosen = order.choice(training, 64)
        trainer.step(x=images[chosen], y=labels[chosen])
    found = trainer.evaluate(x=images[held], y=labels[held])
    assert found is not None
    accuracy = found.metrics["accuracy"]
    return None if accuracy >= 0.9 else f"it reads {accuracy:.1%} of the held-out digits"


checks.choice(
    "11.3",
    "04fa25c82edb",
    a="an activation has an element for each image and each hidden unit",
    b="that would be a matrix of hidden × hidden",
    d="there are more of them, not fewer",
)
