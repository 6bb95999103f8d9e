"""Ops of models against PyTorch's, values and gradients."""

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from ops_cases import BATCH, BY_NAME, CASES

import tightrope as tr

CPU = dict(device="cpu", threads=1, optimizer="sgd", lr=0.1)



def recorded():
    """Outputs and gradients by the names of cases, as ``record_ops.py`` wrote them."""
    with np.load(Path(__file__).with_name("ops.npz")) as file:
        shapes, numbers = json.loads(str(file["shapes"])), file["numbers"]
    found, end = {}, 0

    def take(shape):
        nonlocal end
        end += (size := int(np.prod(shape)))
        return numbers[end - size : end].reshape(shape)

    for name, shape in shapes.items():
        inputs = sum(int(np.prod(it)) for it in BY_NAME[name].shapes)
        found[name] = take(shape), take((BATCH, inputs))
    assert end == len(numbers)
    return found


RECORDED = recorded()


class Applied(tr.Model):
    """The weighted sum of an op's outputs. Each sample has a row of a table, whose gradient is that of its inputs."""

    def __init__(self, case, weights):
        self.case, self.weights = case, weights
        self.sizes = [int(np.prod(shape)) for shape in case.shapes]
        self.table = tr.nn.Embedding(BATCH, sum(self.sizes))

    def applied(self, ids, x):
        x = self.table(ids) + x
        ends = np.cumsum(self.sizes)
        parts = [x[:, end - size : end] for size, end in zip(self.sizes, ends)]
        return self.case.ours(tr, *(part.reshape(-1, *shape) for part, shape in zip(parts, self.case.shapes)))

    def loss(self, ids, x, w):
        return (self.applied(ids, x) * (w if self.case.batched else self.weights)).sum()


class Predicted(Applied):
    def predict(self, ids, x):
        return self.applied(ids, x)


def close(found, expected):
    """Within 1e-5 of the largest number."""
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 1e-5 * max(np.abs(expected).max(), 1e-30), (found, expected)


@pytest.mark.parametrize("name", BY_NAME)
def test_values_and_gradients_are_pytorchs(name):
    case = BY_NAME[name]
    if find_spec("torch"):
        out, gradient = case.expected()
        close(RECORDED[name][0], out)
        close(RECORDED[name][1], gradient)
    out, gradient = RECORDED[name]
    weights = case.weights(out.shape)
    model = (Predicted if case.batched else Applied)(case, weights)
    inputs = {"ids": ("i32", ()), "x": ("f32", (sum(model.sizes),)), "w": ("f32", out.shape[1:] if case.batched else ())}
    trainer = tr.Trainer(model, inputs=inputs, batch=BATCH, micro_batch=BATCH, steps=1, watch=["grad.table.weight"], **CPU)
    x = np.concatenate([it.reshape(BATCH, -1) for it in case.values()], 1) - trainer.weights["table.weight"]
    batch = dict(ids=np.arange(BATCH), x=x, w=weights if case.batched else np.zeros(BATCH))
    if case.batched:
        close(trainer.predict(ids=batch["ids"], x=x), out)
    elif out.size == 1:
        close(np.float32(trainer.evaluate(**batch).loss), (out * weights).sum())
    loss = trainer.step(**batch).loss
    terms = out.astype(np.float64) * weights
    assert abs(loss - terms.sum()) <= 1e-5 * np.abs(terms).sum()
    close(trainer.gradients["table.weight"], gradient)


def test_the_record_is_of_the_table():
    assert list(RECORDED) == [case.name for case in CASES]
