"""Tensors of a model: what holds of them beyond the table of ops."""

import numpy as np
import pytest

import tightrope as tr
from tightrope import nn

CPU = dict(device="cpu", threads=2)
SGD = dict(optimizer="sgd", lr=0.1, warmup=0, schedule="constant", clip=0, weight_decay=0)


def sequences(count, positions=7, channels=12, seed=0):
    random = np.random.default_rng(seed)
    return random.normal(size=(count, positions, channels)).astype(np.float32), random.integers(5, size=count)


SEQUENCES = {"x": ("f32", (7, 12)), "y": ("i32", ())}

LAYERS = [
    dict(heads=3),
    dict(heads=2, causal=False),
    dict(heads=6, kv_heads=2, rope=1e4),
    dict(heads=4, kv_heads=1, window=3, bias=False),
    dict(heads=3, causal=False, window=2, cap=0.7, rope=100.0) | dict(heads=2),
]


class Layered(tr.Model):
    """A layer of attention."""

    def __init__(self, said):
        self.attention, self.head = nn.Attention(12, **said), nn.Linear(12, 5)

    def attended(self, x):
        return self.attention(x)

    def predict(self, x):
        return self.attended(x)

    def loss(self, x, y):
        return nn.cross_entropy(self.head(self.attended(x).mean(1)), y)


class Composed(Layered):
    """The same of functions, whose weights have the same names."""

    def __init__(self, said):
        self.said = {"causal": True, "kv_heads": said["heads"], "rope": None, "window": None, "cap": None, "bias": True, **said}
        bias, self.channels = self.said["bias"], 12 // said["heads"]
        packed = (said["heads"] + 2 * self.said["kv_heads"]) * self.channels
        self.attention = {"qkv": nn.Linear(12, packed, bias), "proj": nn.Linear(12, 12, bias)}
        self.head = nn.Linear(12, 5)

    def attended(self, x):
        said, batch, positions = self.said, *x.shape[:2]
        heads, kv_heads = said["heads"], said["kv_heads"]
        qkv = self.attention["qkv"](x).reshape(batch, positions, -1, self.channels).swapaxes(1, 2)
        q, k, v = qkv[:, :heads], qkv[:, heads : heads + kv_heads], qkv[:, heads + kv_heads :]
        if said["rope"]:
            q, k = nn.rope(q, said["rope"]), nn.rope(k, said["rope"])
        found = nn.scaled_dot_product_attention(q, k, v, is_causal=said["causal"], window=said["window"], cap=said["cap"])
        return self.attention["proj"](found.swapaxes(1, 2).reshape(batch, positions, 12))


@pytest.mark.parametrize("said", LAYERS, ids=str)
def test_the_layer_of_attention_is_its_functions(said):
    x, y = sequences(4)
    keywords = dict(inputs=SEQUENCES, batch=4, steps=2, watch=["grad.*"], **SGD, **CPU)
    layer, functions = tr.Trainer(Layered(said), **keywords), tr.Trainer(Composed(said), **keywords)
    assert {**layer.weights}.keys() == {**functions.weights}.keys()
    np.testing.assert_allclose(layer.predict(x=x), functions.predict(x=x), rtol=1e-5, atol=1e-6)
    for _ in range(2):
        np.testing.assert_allclose(layer.step(x=x, y=y).loss, functions.step(x=x, y=y).loss, rtol=1e-5)
        for name, gradient in layer.gradients.items():
            np.testing.assert_allclose(gradient, functions.gradients[name], rtol=1e-4, atol=1e-6)


class Dropped(tr.Model):
    def __init__(self, p):
        self.p, self.up = p, nn.Linear(64, 64)

    def loss(self, x):
        return nn.dropout(self.up(x), self.p).sum()


def test_dropout_leaves_its_share_and_nothing_out_of_an_evaluation():
    x = np.ones((32, 64))
    keywords = dict(inputs={"x": ("f32", (64,))}, batch=32, steps=1, watch=["dropout"], **SGD, **CPU)
    dropped, whole = tr.Trainer(Dropped(0.25), **keywords), tr.Trainer(Dropped(0), **{**keywords, "watch": ["up"]})
    assert dropped.evaluate(x=x).loss == whole.evaluate(x=x).loss
    dropped.step(x=x), whole.step(x=x)
    found, all_of_it = dropped.activations["dropout"], whole.activations["up"]
    zeros = found == 0
    assert 0.2 < zeros.mean() < 0.3
    np.testing.assert_allclose(found[~zeros], all_of_it[~zeros] / 0.75, rtol=1e-6)


def test_attention_drops_probabilities_in_training_alone():
    x, y = sequences(8)
    keywords = dict(inputs=SEQUENCES, batch=8, steps=1, **SGD, **CPU)
    dropped, whole = (tr.Trainer(Layered(dict(heads=3, dropout=p)), **keywords) for p in (0.5, 0.0))
    assert dropped.evaluate(x=x, y=y).loss == whole.evaluate(x=x, y=y).loss
    assert dropped.step(x=x, y=y).loss != whole.step(x=x, y=y).loss


class Mixed(tr.Model):
    """Sums and means over samples of much that tensors do, with arrays."""

    def __init__(self):
        self.attention, self.up = nn.Attention(12, 3, rope=1e4), nn.Linear(12, 8)
        self.mask = np.tril(np.ones((7, 7), bool))

    def scores(self, x):
        hidden = self.up(self.attention(x)).tanh()
        scores = hidden @ hidden.swapaxes(-1, -2) * np.float32(0.3)
        return tr.log_softmax(tr.where(self.mask, scores, float("-inf")), -1)[:, 1:, 0]

    def predict(self, x):
        return self.scores(x)

    def loss(self, x, y):
        scores = self.scores(x)
        weighed = tr.where((y == 3)[:, None], scores, scores * 0.5) * np.linspace(0.5, 1, 6)
        return -weighed.mean() + scores.max(1).mean(0) + 0.01 * (scores**2).sum()


def test_micro_batches_add_up():
    x, y = sequences(12)
    found = []
    for size in (12, 6, 4, 1):
        trainer = tr.Trainer(
            Mixed(), inputs=SEQUENCES, batch=12, micro_batch=size, steps=1, watch=["grad.up.weight"], **SGD, **CPU
        )
        predicted, evaluated = trainer.predict(x=x[:7]), trainer.evaluate(x=x[:7], y=y[:7]).loss
        found.append((predicted, evaluated, trainer.step(x=x, y=y).loss, trainer.evaluate(x=x, y=y).loss, trainer.weights["up.weight"]))
    assert found[0][0].shape == (7, 6)
    for other in found[1:]:
        for a, b in zip(found[0], other):
            np.testing.assert_allclose(b, a, rtol=2e-5, atol=1e-6)


def test_an_extreme_over_samples_is_one_micro_batch():
    class Largest(Mixed):
        def loss(self, x, y):
            return self.scores(x).max()

    x, y = sequences(6)
    keywords = dict(inputs=SEQUENCES, batch=6, **CPU)
    assert tr.Trainer(Largest(), **keywords).micro_batch == 6
    with pytest.raises(tr.SettingError, match="mixes"):
        tr.plan(Largest(), micro_batch=2, **keywords)


def test_sixteen_bits_are_near():
    x, y = sequences(6)
    keywords = dict(inputs=SEQUENCES, batch=6, steps=1, **SGD, **CPU)
    exact, short = tr.Trainer(Mixed(), **keywords), tr.Trainer(Mixed(), precision="bf16", **keywords)
    assert short.evaluate(x=x, y=y).loss == pytest.approx(exact.evaluate(x=x, y=y).loss, rel=0.02)
    assert short.step(x=x, y=y).loss == pytest.approx(exact.step(x=x, y=y).loss, rel=0.02)


class Says(tr.Model):
    """Calls a function with its tensors: x (batch, 4, 6), y (batch) of i32."""

    def __init__(self, function):
        self.function, self.linear, self.table = function, nn.Linear(6, 3), nn.Embedding(5, 6)

    def loss(self, x, y):
        return self.function(self, x, y)


INPUTS = {"x": ("f32", (4, 6)), "y": ("i32", ())}

WRONG = {
    "`linear`: Linear takes (…, 6), not (batch, 6, 4)": lambda m, x, y: m.linear(x.swapaxes(1, 2)),
    "`linear`: Linear reads f32": lambda m, x, y: m.linear(y),
    "`table`: Embedding reads i32": lambda m, x, y: m.table(x),
    "(batch, 4, 6) and (batch, 3) don't repeat": lambda m, x, y: x + m.linear(x[:, 0]),
    "(batch, 4, 6) has other elements than reshape(-1, 5)": lambda m, x, y: x.reshape(-1, 5),
    "reshape(0, 6): extents": lambda m, x, y: x.reshape(0, 6),
    "axis=3 of (batch, 4, 6): it must be from -3 to 2": lambda m, x, y: x.sum(3),
    "names an axis twice": lambda m, x, y: x.sum((1, -2)),
    "permute(0, 1, 1)": lambda m, x, y: x.permute(0, 1, 1),
    "axis 0 of (batch, 4, 6) is the batch": lambda m, x, y: x[0],
    "whose samples aren't chosen": lambda m, x, y: x[1:],
    "x[::-1] goes backwards": lambda m, x, y: x[:, ::-1],
    "x[4:] leaves nothing of axis 1": lambda m, x, y: x[:, 4:],
    "6 columns on the left, 4 rows on the right": lambda m, x, y: x @ x,
    "concat of (batch, 4, 6) and (batch, 6)": lambda m, x, y: nn.concat([x, x[:, 0]], 1),
    "is the batch, whose samples stay": lambda m, x, y: nn.concat([x, x], 0),
    "this is nan": lambda m, x, y: x * float("nan"),
    "labels must hold i32": lambda m, x, y: nn.cross_entropy(x[:, 0], x[:, 0, 0]),
    "labels must be (batch, 4), one for each row of scores": lambda m, x, y: nn.cross_entropy(x, y),
    "found (batch, 4) and expected (batch, 6)": lambda m, x, y: nn.mean_squared_error(x[..., 0], x[:, 0]),
    "must return one number, such as x.mean(), and it returns (batch, 4, 6)": lambda m, x, y: x * 2,
    "p=1: it must be at least 0 and below 1": lambda m, x, y: nn.dropout(x, 1),
    "query must be (batch, heads, positions, channels)": lambda m, x, y: nn.scaled_dot_product_attention(x, x, x),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_does_not_fit_is_a_value_error_on_its_line(message):
    with pytest.raises(ValueError) as caught:
        tr.plan(Says(WRONG[message]), inputs=INPUTS, batch=2, **CPU)
    assert message in str(caught.value)
    assert "return self.function(self, x, y)" in str(caught.getrepr(style="short")) or "must return" in message


def test_an_index_that_is_not_there():
    with pytest.raises(IndexError, match="from -4 to 3"):
        tr.plan(Says(lambda m, x, y: x[:, 4]), inputs=INPUTS, **CPU)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda m, x, y: x + "1", "not with str"),
        (lambda m, x, y: np.exp(x), "ufunc"),
        (lambda m, x, y: np.asarray(x), "no values"),
        (lambda m, x, y: float(x), "no values"),
        (lambda m, x, y: x.sum() / x.shape[0], "not with Batch"),
        (lambda m, x, y: x.mean() * range(x.shape[0]), "Batch"),
        (lambda m, x, y: [it for it in x], "iterated"),
        (lambda m, x, y: x[:, [1, 2]], "not by list"),
        (lambda m, x, y: x if x else y, "`if`"),
        (lambda m, x, y: tr.maximum(1, 2), "takes a tensor"),
        (lambda m, x, y: x * 1j, "complex"),
    ],
)
def test_what_a_tensor_is_not_combined_with(wrong, named):
    with pytest.raises(TypeError, match=named):
        tr.plan(Says(wrong), inputs=INPUTS, **CPU)


def test_shapes_are_known():
    seen = []

    def look(m, x, y):
        batch, positions, channels = x.shape
        assert (positions, channels, x.ndim, y.ndim, x.dtype, y.dtype) == (4, 6, 3, 1, "f32", "i32")
        assert x.shape == (batch, 4, 6) and repr(x.shape) == "(batch, 4, 6)"
        rows = x.reshape(batch * positions, channels)
        assert rows.shape == (batch * 4, 6) and repr(rows.shape) == "(4·batch, 6)"
        assert rows.reshape(-1, 4, 6).shape == x.shape and x.mean().shape == () and (x @ np.ones((6, 2))).shape == (batch, 4, 2)
        seen.append(repr(x))
        return m.linear(rows).mean()

    assert tr.plan(Says(look), inputs=INPUTS, batch=2, **CPU).peak_bytes > 0
    assert seen == ["<Tensor x (batch, 4, 6)>"]


def test_tensors_of_one_function_are_not_for_another():
    class Kept(Says):
        def predict(self, x):
            return self.linear(x) + self.kept

        def loss(self, x, y):
            self.kept = self.linear(x)
            return self.kept.mean()

    with pytest.raises(ValueError, match="traced apart"):
        tr.plan(Kept(None), inputs=INPUTS, **CPU)
