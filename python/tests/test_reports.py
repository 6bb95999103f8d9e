"""Faults that others reported of training libraries, each in miniature: values and gradients as PyTorch has them.

Where PyTorch is installed, the expected numbers are held against it.
"""

import numpy as np
import pytest

import tightrope as tr
from tightrope import nn

try:
    import torch
except ImportError:
    torch = None

CPU = dict(device="cpu", threads=1)
INF, NAN = float("inf"), float("nan")


class Scalar(tr.Model):
    """A row of weights, through a function of it."""

    def __init__(self, width, function):
        self.w, self.function = nn.Embedding(1, width), function

    def loss(self, i):
        return self.function(self.w(i)).sum()


def gradient(function, *rows):
    """Value and gradient of the sum of `function` at rows of weights."""
    weights = np.array(rows, np.float32).reshape(1, -1)
    width = weights.shape[1]
    keywords = dict(batch=1, optimizer="sgd", lr=0.1, clip=0, weight_decay=0, settings={"train.freeze": []})
    model = Scalar(width, lambda w: function(*(w[:, 0, part] for part in parts(len(rows), width))))
    trainer = tr.Trainer(model, inputs={"i": ("i32", (1,))}, watch=["grad.w.weight"], init={"w.weight": weights}, **keywords, **CPU)
    loss = trainer.step(i=np.zeros((1, 1), np.int32)).loss
    return loss, trainer.gradients["w.weight"].reshape(len(rows), -1)


def parts(count, width):
    each = width // count
    return [slice(at * each, (at + 1) * each) for at in range(count)]


#: Name and tracker of a report: the function in `tr`, in PyTorch, rows of weights, gradients.
REPORTS = {
    "maximum of equal numbers (pytorch 56734)": (
        lambda x, y: tr.maximum(x, y),
        lambda x, y: torch.maximum(x, y),
        [[1.0, 2.0, 3.0], [1.0, 3.0, 2.0]],
        [[0.5, 0.0, 1.0], [0.5, 1.0, 0.0]],
    ),
    "minimum of equal numbers": (
        lambda x, y: tr.minimum(x, y),
        lambda x, y: torch.minimum(x, y),
        [[1.0, 2.0, 3.0], [1.0, 3.0, 2.0]],
        [[0.5, 1.0, 0.0], [0.5, 0.0, 1.0]],
    ),
    "the largest of several that are equal (tensorflow 51681)": (
        lambda x: x.max(-1),
        lambda x: x.amax(-1),
        [[0.6, 0.6, 0.3]],
        [[0.5, 0.5, 0.0]],
    ),
    "four of seven": (
        lambda x: x.max(-1),
        lambda x: x.amax(-1),
        [[0.7, 0.1, 0.7, 0.3, -1.0, 0.7, 0.7]],
        [[0.25, 0.0, 0.25, 0.0, 0.0, 0.25, 0.25]],
    ),
    "all of five": (lambda x: x.max(-1), lambda x: x.amax(-1), [[0.0] * 5], [[0.2] * 5]),
    "the smallest over two axes apart": (
        lambda x: x.reshape(-1, 2, 3, 2).min((1, 3)),
        lambda x: x.reshape(2, 3, 2).amin((0, 2)),
        [[1.0, 1.0, 0.0, 2.0, 3.0, 4.0, 1.0, 5.0, 0.0, 0.0, 3.0, 3.0]],
        [[1 / 3, 1 / 3, 1 / 3, 0.0, 1 / 3, 0.0, 1 / 3, 0.0, 1 / 3, 1 / 3, 1 / 3, 1 / 3]],
    ),
    "the largest over two axes": (
        lambda x: x.reshape(-1, 2, 3).max((1, 2)),
        lambda x: x.reshape(2, 3).amax((0, 1)),
        [[3.0, 1.0, 3.0, 2.0, 3.0, 0.0]],
        [[1 / 3, 0.0, 1 / 3, 0.0, 1 / 3, 0.0]],
    ),
    "the smallest of several that are equal (pytorch 155048)": (
        lambda x: x.min(-1),
        lambda x: x.amin(-1),
        [[0.6, 0.3, 0.3]],
        [[0.0, 0.5, 0.5]],
    ),
    "a square of negative numbers and of 0 (tt-metal 54439)": (
        lambda x: x**2,
        lambda x: x**2,
        [[-2.0, 0.0, 3.0]],
        [[-4.0, 0.0, 6.0]],
    ),
    "a cube of negative numbers and of 0": (lambda x: x**3, lambda x: x**3, [[-2.0, 0.0, 3.0]], [[12.0, 0.0, 27.0]]),
    "an inverse of negative numbers": (lambda x: x**-1, lambda x: x**-1, [[-2.0, 4.0]], [[-0.25, -0.0625]]),
    "the power 0 of 0 (tt-metal 5082)": (lambda x: x**0 * x, lambda x: x**0 * x, [[0.0, -1.0, 2.0]], [[1.0, 1.0, 1.0]]),
    "the power 1 of 0": (lambda x: x**1, lambda x: x**1, [[0.0, -1.0, 2.0]], [[1.0, 1.0, 1.0]]),
    "a root as a power": (lambda x: x**0.5, lambda x: x**0.5, [[4.0, 0.25]], [[0.25, 1.0]]),
    "powers of a number (tinygrad 8912)": (
        lambda x: 2.0**x,
        lambda x: 2.0**x,
        [[0.0, -1.0, 3.0]],
        [[np.log(2), np.log(2) / 2, 8 * np.log(2)]],
    ),
    "powers of 0 (tinygrad 9075)": (lambda x: 0.0**x, lambda x: 0.0**x, [[1.0, 2.0]], [[0.0, 0.0]]),
    "powers of tensors (tfjs 346)": (
        lambda x, y: x**y,
        lambda x, y: x**y,
        [[2.0, 0.0, 3.0, 0.0], [3.0, 2.0, 0.0, 0.0]],
        [[12.0, 0.0, 0.0, 0.0], [8 * np.log(2), 0.0, np.log(3), 0.0]],
    ),
    "the absolute value of 0": (lambda x: abs(x), lambda x: abs(x), [[0.0, -2.0, 2.0]], [[0.0, -1.0, 1.0]]),
    "relu of 0": (lambda x: nn.relu(x), lambda x: torch.relu(x), [[0.0, -2.0, 2.0]], [[0.0, 0.0, 1.0]]),
    "a sigmoid of large numbers": (
        lambda x: tr.sigmoid(x),
        lambda x: torch.sigmoid(x),
        [[-200.0, 200.0, 0.0]],
        [[0.0, 0.0, 0.25]],
    ),
    "tanh of large numbers": (lambda x: tr.tanh(x), lambda x: torch.tanh(x), [[-200.0, 200.0, 0.0]], [[0.0, 0.0, 1.0]]),
    "silu of large negative numbers": (
        lambda x: nn.silu(x),
        lambda x: torch.nn.functional.silu(x),
        [[-200.0, 200.0, 0.0]],
        [[0.0, 1.0, 0.5]],
    ),
    "log softmax of large differences": (
        lambda x: tr.log_softmax(x)[:, 1:2],
        lambda x: torch.log_softmax(x, -1)[1:2],
        [[1000.0, 0.0, -1000.0]],
        [[-1.0, 1.0, 0.0]],
    ),
    "softmax with a masked score (tensorflow 11756)": (
        lambda x: tr.softmax(tr.where(np.array([1, 1, 0]), x, -INF))[:, 0:1],
        lambda x: torch.softmax(torch.where(torch.tensor([True, True, False]), x, -INF), -1)[0:1],
        [[1.0, 1.0, 5.0]],
        [[0.25, -0.25, 0.0]],
    ),
    "a comparison carries no gradient": (
        lambda x: x * (x > 0),
        lambda x: x * (x > 0),
        [[-1.0, 2.0]],
        [[0.0, 1.0]],
    ),
    "a tensor used twice": (lambda x: x * x + x, lambda x: x * x + x, [[-1.0, 2.0]], [[-1.0, 5.0]]),
    "a slice with a step and a negative start": (
        lambda x: x[:, -3::2] * 2.0,
        lambda x: x[-3::2] * 2.0,
        [[1.0, 2.0, 3.0, 4.0]],
        [[0.0, 2.0, 0.0, 2.0]],
    ),
    "division by a tensor that is used above it": (
        lambda x: x / x.sum(-1, keepdims=True),
        lambda x: x / x.sum(-1, keepdim=True),
        [[1.0, 3.0]],
        [[0.0, 0.0]],
    ),
}


@pytest.mark.parametrize("name", REPORTS)
def test_gradients_are_pytorchs(name):
    function, theirs, rows, expected = REPORTS[name]
    found = gradient(function, *rows)[1]
    np.testing.assert_allclose(found, np.array(expected, np.float32), atol=1e-6, err_msg=name)
    if torch is not None and theirs is not None:
        leaves = [torch.tensor(row, requires_grad=True) for row in rows]
        theirs(*leaves).sum().backward()
        np.testing.assert_allclose(np.stack([leaf.grad.numpy() for leaf in leaves]), expected, atol=1e-6)


class Words(tr.Model):
    """Scores of a word for each position; labels below 0 don't count."""

    def __init__(self, dropout=0.0):
        self.words, self.head, self.dropout = nn.Embedding(11, 8), nn.Linear(8, 11), nn.Dropout(dropout)

    def predict(self, x):
        return self.head(self.dropout(tr.tanh(self.words(x))))

    def loss(self, x, y):
        return nn.cross_entropy(self.predict(x), y)


WORDS = dict(inputs={"x": ("i32", (6,)), "y": ("i32", (6,))}, batch=4, optimizer="adamw", lr=0.01, warmup=0, **CPU)


def words(seed=1, counted=(6, 1, 4, 0)):
    """Four rows of words, of which so many positions of each count."""
    random = np.random.default_rng(seed)
    x, y = (random.integers(0, 11, (4, 6)) for _ in range(2))
    for row, count in zip(y, counted):
        row[count:] = -100
    return dict(x=x, y=y)


def trained(steps=3, model=Words, batches=words, **keywords):
    trainer = tr.Trainer(model(), **{**WORDS, **keywords})
    return [trainer.step(**batches(seed)).loss for seed in range(steps)], dict(trainer.weights)


def test_passes_with_unequal_counts_add_up_to_the_batch():
    """transformers 34191: means of micro-batches were averaged whatever they counted."""
    (losses, weights), (parts, by_one) = (trained(micro_batch=size) for size in (4, 1))
    np.testing.assert_allclose(parts, losses, rtol=1e-6)
    for name, values in weights.items():
        np.testing.assert_allclose(by_one[name], values, atol=1e-6, err_msg=name)


def test_a_batch_of_which_nothing_counts_changes_no_weight():
    """pytorch 70348: the mean of nothing was NaN, and so was every weight after it."""
    trainer = tr.Trainer(Words(), **WORDS, settings={"train.weight_decay": 0})
    before = dict(trainer.weights)
    assert trainer.step(**words(counted=(0, 0, 0, 0))).loss == 0
    assert trainer.evaluate(**words(counted=(0, 0, 0, 0))).loss == 0
    for name, values in before.items():
        np.testing.assert_array_equal(trainer.weights[name], values, name)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_whole_numbers_of_any_dtype_are_ids(dtype):
    plain = trained(2)[0]
    assert trained(2, batches=lambda seed: {name: it.astype(dtype) for name, it in words(seed).items()})[0] == plain


def test_ids_that_are_none_are_refused():
    trainer = tr.Trainer(Words(), **WORDS)
    for x in (np.full((4, 6), 0.5), np.ones((4, 6)), np.full((4, 6), 2**40), np.full((4, 6), NAN)):
        with pytest.raises(ValueError, match="`x`"):
            trainer.step(**{**words(), "x": x})
    with pytest.raises(tr.BatchError):
        trainer.step(**{**words(), "x": np.full((4, 6), 11)})
    with pytest.raises(tr.BatchError):
        trainer.step(**{**words(), "x": np.full((4, 6), -1)})


def test_arrays_of_any_layout_are_read_by_their_indices():
    """pytorch 59786 and others: negative strides and Fortran's order."""

    def turned(seed):
        batch = words(seed)
        return {"x": np.asfortranarray(batch["x"]), "y": batch["y"][::-1, ::-1].copy()[::-1, ::-1]}

    assert trained(2, batches=turned)[0] == trained(2)[0]


def test_a_batch_that_is_written_over_after_its_step_changes_nothing():
    def reused(seed):
        batch = words(seed)
        for name, values in kept.items():
            values[:] = batch[name]
        return kept

    kept = words(0)
    assert trained(3, batches=reused)[0] == trained(3)[0]


@pytest.mark.parametrize("shape", [(), (1,)])
def test_targets_without_the_axis_of_one_element_are_each_rows(shape):
    """pytorch 17084: (N, 1) less (N) was (N, N), with every target for every row."""

    class Line(tr.Model):
        def __init__(self):
            self.line = nn.Linear(3, 1)

        def loss(self, x, y):
            return nn.mean_squared_error(self.line(x), y)

    random = np.random.default_rng(1)
    x, y = random.normal(size=(4, 3)), random.normal(size=4)
    weights = {"line.weight": random.normal(size=(1, 3)), "line.bias": random.normal(size=1)}
    trainer = tr.Trainer(Line(), inputs={"x": ("f32", (3,)), "y": ("f32", shape)}, batch=4, init=weights, **CPU)
    expected = ((x @ weights["line.weight"][0] + weights["line.bias"] - y) ** 2).mean()
    assert trainer.evaluate(x=x, y=y.reshape(4, *shape)).loss == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match="must have one shape"):
        tr.plan(Line(), inputs={"x": ("f32", (3,)), "y": ("f32", (4,))}, batch=4, **CPU)


def test_a_gradient_that_is_none_of_the_selected_branch_is_refused_by_name():
    """pytorch 68425, 187297: `where` multiplies the other branch's slope, which isn't finite, by 0. PyTorch trains on NaN."""
    for function in (lambda x: tr.where(x <= 0, tr.exp(x), 1 + x), lambda x: tr.where(x > 200, tr.sqrt(-x), x)):
        with pytest.raises(tr.Error, match="gradient norm NaN, and wasn't made: the first output that isn't finite is"):
            gradient(function, [100.0, 1.0])
    safe = lambda x: tr.where(x <= 0, tr.exp(tr.where(x <= 0, x, 0.0)), 1 + x)  # noqa: E731
    np.testing.assert_allclose(gradient(safe, [100.0, -1.0])[1], [[1.0, np.exp(-1.0)]], rtol=1e-6)


def test_a_mask_is_not_the_first_output_that_is_not_finite():
    """pytorch 31829, 41508: negative infinity of a mask is meant; the root of a negative number behind it isn't."""
    mask = np.array([0, -INF], np.float32)

    def by_mask(x):
        return tr.where(np.array([True, False]), x, -INF)

    for masked in (by_mask, lambda x: x + mask):
        function = lambda x: tr.sqrt(tr.softmax(masked(x)) - 1)  # noqa: E731, B023
        with pytest.raises(tr.Error, match="the first output that isn't finite is `sqrt"):
            gradient(function, [1.0, 2.0])


def test_the_extreme_is_one_of_the_elements():
    """Also of equal ones and of infinities."""
    rows = np.array([[0.1, 0.1, 0.1], [-INF, -INF, -INF], [INF, 1.0, INF], [0.7, -0.3, 0.2]], np.float32)

    class Extremes(tr.Model):
        def __init__(self):
            self.w = nn.Linear(3, 1)

        def predict(self, x):
            x = tr.where(x > 9, INF, tr.where(x < -9, -INF, x))
            return tr.concat([x.max(-1, keepdims=True), x.min(-1, keepdims=True)], -1)

        def loss(self, x):
            return self.w(x).mean()

    trainer = tr.Trainer(Extremes(), inputs={"x": ("f32", (3,))}, batch=4, **CPU)
    finite = np.clip(rows, -10, 10)
    np.testing.assert_array_equal(trainer.predict(x=finite), np.stack([rows.max(1), rows.min(1)], 1))


def test_evaluation_and_prediction_draw_nothing_and_move_nothing():
    """Dropout in evaluation, and evaluations that moved the random numbers of training."""

    def run(looks):
        trainer, losses = tr.Trainer(Words(0.5), **WORDS), []
        for seed in range(3):
            if looks:
                found = [trainer.evaluate(**words(9)).loss for _ in range(2)]
                assert found[0] == found[1]
                np.testing.assert_array_equal(trainer.predict(x=words(9)["x"]), trainer.predict(x=words(9)["x"]))
            losses.append(trainer.step(**words(seed)).loss)
        return losses

    assert run(True) == run(False)


def test_what_is_frozen_neither_decays_nor_moves_by_momentum():
    """pytorch 2471: weights that had no gradient any more moved by weight decay and by their momentum."""
    trainer = tr.Trainer(Words(), **WORDS, weight_decay=0.5)
    trainer.step(**words())
    trainer.freeze("head.*")
    before = trainer.weights["head.weight"]
    for seed in range(3):
        trainer.step(**words(seed))
    np.testing.assert_array_equal(trainer.weights["head.weight"], before)


def test_rates_go_on_where_they_were(tmp_path):
    """transformers 20731: the schedule began one step off after a resume."""
    keywords = dict(WORDS, steps=6, warmup=2, schedule="linear", min_lr=1e-4)
    whole, part = (tr.Trainer(Words(), **keywords) for _ in range(2))
    rates = [whole.step(**words(seed)).lr for seed in range(6)]
    for seed in range(3):
        part.step(**words(seed))
    resumed = tr.Trainer.resume(part.save(tmp_path), Words(), inputs=WORDS["inputs"], **CPU)
    assert [resumed.step(**words(seed)).lr for seed in range(3, 6)] == rates[3:]


def test_the_norm_is_that_before_clipping():
    found = [tr.Trainer(Words(), **WORDS, clip=clip).step(**words()).grad_norm for clip in (0, 1e-3)]
    assert found[0] == pytest.approx(found[1], rel=1e-6) and found[0] > 0.01


def test_inputs_of_whole_numbers_are_divided_as_numbers():
    """tinygrad 1390 and others: integers that were divided as such."""

    class Half(tr.Model):
        def __init__(self):
            self.w = nn.Linear(1, 1, bias=False)

        def predict(self, x, n):
            return self.w(x) * 0.0 + n / 2 + n**2 - 2 * n

        def loss(self, x, n):
            return self.predict(x, n).mean()

    trainer = tr.Trainer(Half(), inputs={"x": ("f32", (1,)), "n": ("f32", (1,))}, batch=2, **CPU)
    n = np.array([[3], [-5]])
    np.testing.assert_allclose(trainer.predict(x=np.zeros((2, 1)), n=n), n / 2 + n**2 - 2 * n)
