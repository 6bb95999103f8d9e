"""Tensors of a step by name, what a model predicts, and columns for other libraries."""

import io

import nanoarrow
import numpy as np
import pytest
from curve import CPU, INPUTS, Curve

import tightrope as tr
from tightrope.progress import Progress, clock

PLAIN = dict(optimizer="sgd", lr=0.1, warmup=0, schedule="constant", clip=0, weight_decay=0, steps=4)


def batch(count=8):
    random = np.random.default_rng(2)
    return {
        "x": random.normal(size=(count, 3)).astype(np.float32),
        "y": random.normal(size=(count, 1)).astype(np.float32),
    }


def by_hand(weights, x, y):
    """Activations and gradients of a curve, in NumPy."""
    up = x @ weights["up.weight"].T + weights["up.bias"]
    active = np.maximum(up, 0)
    slope = 2 * (active @ weights["down.weight"].T + weights["down.bias"] - y) / len(x)
    inner = (slope @ weights["down.weight"]) * (up > 0)
    return {"up": up, "relu": active, "down.weight": slope.T @ active, "up.weight": inner.T @ x}


@pytest.mark.parametrize("micro_batch", [8, 2])
def test_activations_and_gradients_are_numpys(micro_batch):
    keywords = dict(inputs=INPUTS, batch=8, micro_batch=micro_batch, watch=["up", "relu", "grad.*weight"])
    trainer = tr.Trainer(Curve(), **keywords, **PLAIN, **CPU)
    assert trainer.measured_peak_bytes == trainer.plan.peak_bytes
    given = batch()
    expected = by_hand(dict(trainer.weights), **given)
    trainer.step(**given)
    assert set(trainer.activations) == {"up", "relu"} and set(trainer.gradients) == {"up.weight", "down.weight"}
    for name in ("up", "relu"):
        # Of several passes, the last one's.
        np.testing.assert_allclose(trainer.activations[name], expected[name][-micro_batch:], atol=1e-6)
    for name, gradient in trainer.gradients.items():
        np.testing.assert_allclose(gradient, expected[name], atol=1e-6)


def test_hooks_are_called_after_each_step(tiny):
    seen = []
    trainer = tr.Trainer(**tiny, steps=3, on=("h.1.mlp", lambda name, values: seen.append((name, values.shape))))
    losses = [step.loss for step in trainer]
    assert seen == [("h.1.mlp", (4, 16, 64))] * 3
    assert losses == [step.loss for step in tr.Trainer(**tiny, steps=3)]
    pairs = [("up", lambda *_: seen.append("up")), ("grad.*", lambda name, _: seen.append(name))]
    own = tr.Trainer(Curve(), inputs=INPUTS, batch=8, on=pairs, **PLAIN, **CPU)
    own.step(**batch())
    assert seen[3:] == ["up", "grad.up.weight", "grad.up.bias", "grad.down.weight", "grad.down.bias"]


def test_what_is_watched_is_planned():
    keywords = dict(inputs=INPUTS, batch=4096, **PLAIN, **CPU)
    plain, watched = tr.plan(Curve(), **keywords), tr.plan(Curve(), watch=["*", "grad.*"], **keywords)
    assert watched.peak_bytes > plain.peak_bytes
    trainer = tr.Trainer(Curve(), watch=["*", "grad.*"], **keywords)
    assert trainer.measured_peak_bytes == watched.peak_bytes


def test_what_is_not_watched_is_said():
    trainer = tr.Trainer(Curve(), inputs=INPUTS, batch=8, watch=["up"], **PLAIN, **CPU)
    with pytest.raises(KeyError, match="no step was made"):
        trainer.activations["up"]
    trainer.step(**batch())
    with pytest.raises(KeyError, match=r'watch=\["grad.up.weight"\]'):
        trainer.gradients["up.weight"]
    with pytest.raises(tr.SettingError, match="did you mean `down`"):
        tr.plan(Curve(), inputs=INPUTS, watch=["dwon"])
    with pytest.raises(TypeError, match="takes a list"):
        tr.Trainer(Curve(), inputs=INPUTS, watch="up")
    with pytest.raises(TypeError, match="takes a function"):
        tr.Trainer(Curve(), inputs=INPUTS, on=("up", 3))


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_any_number_of_samples_is_predicted(precision):
    trainer = tr.Trainer(Curve(), inputs=INPUTS, batch=8, precision=precision, **PLAIN, **CPU)
    given = batch(21)
    weights = dict(trainer.weights)
    hidden = np.maximum(given["x"] @ weights["up.weight"].T + weights["up.bias"], 0)
    expected = hidden @ weights["down.weight"].T + weights["down.bias"]
    found = trainer.predict(x=given["x"])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-6 if precision == "f32" else 0.02)


def test_predict_reads_inputs_that_there_are():
    class Wrong(Curve):
        def predict(self, z):
            return self.up(z)

        def loss(self, x, y):
            return tr.nn.mean_squared_error(self.down(self.up(x)), y)

    with pytest.raises(TypeError, match="Wrong.predict reads `z`, and the inputs are x, y"):
        tr.plan(Wrong(), inputs=INPUTS)
    plain = tr.Trainer(Wrong.__base__(), inputs=INPUTS, batch=4, **PLAIN, **CPU)
    with pytest.raises(ValueError, match="different numbers"):
        plain.predict(x=np.zeros((4, 3)), y=np.zeros((3, 1)))


def test_columns_are_read_by_other_libraries():
    plan = tr.plan(preset="tiny", batch=2, device="cpu")
    for columns in (plan.tensors(), plan.ops()):
        rows = nanoarrow.ArrayStream(columns).read_all().to_pylist()
        assert rows == [dict(zip(columns, row)) for row in zip(*(values.tolist() for values in columns.values()))]
        assert rows[0]["name"] and rows[0]["bytes"] > 0


def test_arrays_are_given_by_dlpack():
    trainer = tr.Trainer(Curve(), inputs=INPUTS, batch=8, **PLAIN, **CPU)
    weight = trainer.weights["up.weight"]
    # Memory of its own, which other libraries take as it is.
    assert np.from_dlpack(weight).ctypes.data == weight.ctypes.data

    class Other:
        """An array of another library."""

        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **keywords):
            return self.array.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    given = batch()
    same = tr.Trainer(Curve(), inputs=INPUTS, batch=8, **PLAIN, **CPU).step(**given).loss
    assert trainer.step(**{name: Other(array) for name, array in given.items()}).loss == same


def test_progress_is_one_line():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    shown = Terminal()
    progress = Progress(2, shown)
    for number in (1, 2):
        progress(tr.Step(number, 1.5, 1e-3, 1.0, 0.5, 64, 128.0, True, {}, None, None, []))
    progress.end()
    last = shown.getvalue().split("\r")[-1]
    assert last == "100% |████████████████████| 2/2 · loss 1.5000 · 128 tokens/s · 00:00 left\n"
    assert "\n" not in shown.getvalue()[:-1]
    plain = io.StringIO()
    progress = Progress(2, plain)
    progress(tr.Step(2, 1.5, 1e-3, 1.0, 0.5, 64, 128.0, True, {}, None, None, []))
    progress.end()
    assert plain.getvalue() == ""
    assert [clock(61), clock(3_723)] == ["01:01", "1:02:03"]
