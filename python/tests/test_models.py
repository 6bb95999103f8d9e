"""Models that are written in Python."""

import numpy as np
import pytest

import tightrope as tr

INPUTS = {"x": ("f32", (64,)), "y": ("i32", ())}
IMAGES = {"x": ("f32", (1, 8, 8)), "y": ("i32", ())}
CPU = dict(device="cpu", threads=2)


class Mlp(tr.Model):
    def __init__(self, width=128):
        self.up, self.down = tr.nn.Linear(64, width), tr.nn.Linear(width, 10)

    def loss(self, x, y):
        return tr.nn.cross_entropy(self.down(tr.nn.gelu(self.up(x))), y)


class Cnn(tr.Model):
    def __init__(self):
        self.layers = [
            tr.nn.Conv2d(1, 16, 3, padding=1, channels_first=True),
            tr.nn.Conv2d(16, 32, 3, stride=2, padding=1),
            tr.nn.Conv2d(32, 32, 3, padding=1),
        ]
        self.head = tr.nn.Linear(32 * 16, 10)

    def loss(self, x, y):
        for index, layer in enumerate(self.layers):
            with tr.nn.block(index):
                x = tr.nn.relu(layer(x))
        return tr.nn.cross_entropy(self.head(x.reshape(-1, 32 * 16)), y)


class Deep(tr.Model):
    """Blocks whose activations are worth recomputing."""

    def __init__(self, blocks=8):
        self.first = tr.nn.Linear(64, 128)
        self.blocks = [
            {"norm": tr.nn.LayerNorm(128), "up": tr.nn.Linear(128, 512), "down": tr.nn.Linear(512, 128)}
            for _ in range(blocks)
        ]
        self.head = tr.nn.Linear(128, 10)

    def loss(self, x, y):
        x = self.first(x)
        for index, block in enumerate(self.blocks):
            with tr.nn.block(index):
                x = x + block["down"](tr.nn.gelu(block["up"](block["norm"](x))))
        return tr.nn.cross_entropy(self.head(x), y)


@pytest.fixture(scope="module")
def digits():
    """scikit-learn's digits, of which every tenth is held out."""
    images, labels = tr.data.digits()
    held = np.arange(len(labels)) % 10 == 0
    return (images[~held], labels[~held]), (images[held], labels[held])


def trained(trainer, images, labels, steps, batch, shape):
    order = np.random.default_rng(0)
    for _ in range(steps):
        chosen = order.integers(len(labels), size=batch)
        trainer.step(x=images[chosen].reshape(batch, *shape), y=labels[chosen])


@pytest.mark.parametrize(
    ("model", "inputs", "steps"), [(Mlp, INPUTS, 400), (Cnn, IMAGES, 300)], ids=["mlp", "cnn"]
)
def test_digits_are_read_97_times_of_100(digits, model, inputs, steps):
    (images, labels), (held, answers) = digits
    trainer = tr.Trainer(model(), inputs=inputs, batch=64, lr=3e-3, steps=steps, **CPU)
    assert trainer.measured_peak_bytes == trainer.plan.peak_bytes
    shape = inputs["x"][1]
    trained(trainer, images, labels, steps, 64, shape)
    found = trainer.evaluate(x=held.reshape(-1, *shape), y=answers)
    assert found.tokens == len(answers) and found.metrics["accuracy"] >= 0.97, found


def test_half_the_memory_gives_the_same_losses(digits):
    (images, labels), _ = digits
    keywords = dict(inputs=INPUTS, batch=1024, lr=1e-3, steps=5, **CPU)
    whole = tr.Trainer(Deep(), recompute="none", micro_batch=1024, **keywords)
    less = tr.Trainer(Deep(), memory=whole.plan.peak_bytes // 2, micro_batch=1024, **keywords)
    assert less.measured_peak_bytes == less.plan.peak_bytes <= whole.plan.peak_bytes // 2
    for _ in range(5):
        batch = dict(x=images[:1024].reshape(-1, 64), y=labels[:1024])
        assert whole.step(**batch).loss == less.step(**batch).loss


def test_an_own_model_is_saved_and_gone_on_from(digits, tmp_path):
    (images, labels), _ = digits
    keywords = dict(inputs=INPUTS, batch=32, lr=1e-3, steps=20, **CPU)
    batches = [dict(x=images[i : i + 32].reshape(-1, 64), y=labels[i : i + 32]) for i in range(0, 320, 32)]
    whole = tr.Trainer(Mlp(), **keywords)
    expected = [whole.step(**batch).loss for batch in batches]
    first = tr.Trainer(Mlp(), **keywords)
    found = [first.step(**batch).loss for batch in batches[:4]]
    first.save(tmp_path / "kept")
    second = tr.Trainer.resume(tmp_path / "kept", Mlp(), inputs=INPUTS)
    assert second.steps_done == 4
    found += [second.step(**batch).loss for batch in batches[4:]]
    assert found == expected
    assert set(second.weights) == {"up.weight", "up.bias", "down.weight", "down.bias"}
    assert second.weights["up.weight"].shape == (128, 64)


def test_without_steps_there_is_no_end(digits):
    (images, labels), _ = digits
    trainer = tr.Trainer(Mlp(width=8), inputs=INPUTS, batch=4, lr=1e-3, **CPU)
    batch = dict(x=images[:4].reshape(-1, 64), y=labels[:4])
    steps = [trainer.step(**batch) for _ in range(2000)]
    assert {step.lr for step in steps} == {1e-3} and steps[-1].loss < steps[0].loss


def test_the_gradient_is_numpys():
    """A step of SGD on a linear model against its formula."""

    class Line(tr.Model):
        def __init__(self):
            self.line = tr.nn.Linear(3, 1)

        def loss(self, x, y):
            return tr.nn.mean_squared_error(self.line(x) * 2.0 - 1.0, y)

    inputs = {"x": ("f32", (3,)), "y": ("f32", (1,))}
    keywords = dict(optimizer="sgd", lr=0.1, warmup=0, schedule="constant", clip=0, weight_decay=0)
    trainer = tr.Trainer(Line(), inputs=inputs, batch=8, steps=2, **keywords, **CPU)
    w, b = trainer.weights["line.weight"], trainer.weights["line.bias"]
    random = np.random.default_rng(1)
    x, y = random.normal(size=(8, 3)).astype(np.float32), random.normal(size=(8, 1)).astype(np.float32)
    off = (x @ w.T + b) * 2 - 1 - y
    step = trainer.step(x=x, y=y)
    np.testing.assert_allclose(step.loss, (off**2).mean(), rtol=1e-5)
    np.testing.assert_allclose(trainer.weights["line.weight"], w - 0.1 * (4 * off * x).mean(0), atol=1e-5)
    np.testing.assert_allclose(trainer.weights["line.bias"], b - 0.1 * (4 * off).mean(0), atol=1e-5)


def test_a_language_model_of_ones_own(digits):
    class Tiny(tr.Model):
        def __init__(self):
            self.embed = tr.nn.Embedding(32, 16)
            self.attention, self.norm = tr.nn.Attention(16, 2), tr.nn.RmsNorm(16)
            self.drop = tr.nn.Dropout(0.1)

        def loss(self, tokens, targets):
            x = self.embed(tokens)
            x = x + self.drop(self.attention(self.norm(x)))
            return tr.nn.linear_cross_entropy(x, self.embed, targets)

    inputs = {"tokens": ("i32", (12,)), "targets": ("i32", (12,))}
    trainer = tr.Trainer(Tiny(), inputs=inputs, batch=8, lr=1e-2, steps=60, **CPU)
    tokens = np.tile(np.arange(13, dtype=np.int32), (8, 1))
    found = [trainer.step(tokens=tokens[:, :-1], targets=tokens[:, 1:]).loss for _ in range(60)]
    assert found[-1] < found[0] / 2


class Two(tr.Model):
    """Two losses over hidden values, of which the second weighs a half."""

    def __init__(self):
        self.up, self.a, self.b = tr.nn.Linear(4, 6), tr.nn.Linear(6, 3), tr.nn.Linear(6, 5)

    def loss(self, x, y, z):
        hidden = tr.nn.gelu_tanh(self.up(x))
        return tr.nn.cross_entropy(self.a(hidden), y) + 0.5 * tr.nn.cross_entropy(self.b(hidden), z)


#: The first loss's labels are listed last, and first.
ORDERS = [("x", "z", "y"), ("y", "x", "z"), ("x", "y", "z")]


def two(count, seed=0):
    """Samples of `Two`, of which a third and two thirds have no label."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, 4)).astype(np.float32)
    y, z = random.integers(3, size=count), random.integers(5, size=count)
    return dict(x=x, y=np.where(random.random(count) < 0.33, -1, y), z=np.where(random.random(count) < 0.66, -1, z))


def numpys(weights, batch):
    """The loss of `Two` and the gradients of its heads' biases, in float64."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    pre = batch["x"] @ w["up.weight"].T + w["up.bias"]
    hidden = 0.5 * pre * (1 + np.tanh(np.sqrt(2 / np.pi) * (pre + 0.044715 * pre**3)))
    loss, biases = 0.0, {}
    for name, labels, share in [("a", batch["y"], 1.0), ("b", batch["z"], 0.5)]:
        logits = hidden @ w[f"{name}.weight"].T + w[f"{name}.bias"]
        p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        rows = np.flatnonzero(labels >= 0)
        loss -= share * np.log(p[rows, labels[rows]]).mean()
        p[rows, labels[rows]] -= 1
        biases[f"{name}.bias"] = share * p[rows].mean(0)
    return loss, biases


@pytest.mark.parametrize("order", ORDERS, ids="".join)
def test_micro_batches_and_evaluation_are_numpys(order):
    """In several micro-batches, each weighed the same whatever counted in it."""
    kinds = {"x": ("f32", (4,)), "y": ("i32", ()), "z": ("i32", ())}
    inputs = {name: kinds[name] for name in order}
    keywords = dict(optimizer="sgd", lr=0.1, warmup=0, schedule="constant", clip=0, weight_decay=0, steps=3)
    for micro_batch in (12, 6, 3, 1):
        trainer = tr.Trainer(
            Two(), inputs=inputs, batch=12, micro_batch=micro_batch, watch=["grad.*.bias"], **keywords, **CPU
        )
        for seed in range(3):
            batch = two(12, seed)
            loss, biases = numpys(trainer.weights, batch)
            assert trainer.step(**batch).loss == pytest.approx(loss, rel=2e-6)
            for name, expected in biases.items():
                np.testing.assert_allclose(trainer.gradients[name], expected, rtol=1e-4, atol=1e-6)
        for count in (1, 2, 5, 12, 13, 31):
            batch = two(count, 7)
            if min((batch["y"] >= 0).sum(), (batch["z"] >= 0).sum()) == 0:
                continue
            found = trainer.evaluate(**batch)
            assert found.loss == pytest.approx(numpys(trainer.weights, batch)[0], rel=2e-6), count
            assert found.tokens == count


def test_a_budget_that_cuts_a_batch_changes_no_number():
    inputs = {"x": ("f32", (64,)), "y": ("i32", ()), "t": ("f32", (64,))}

    class Mixed(tr.Model):
        def __init__(self):
            self.up, self.down, self.back = tr.nn.Linear(64, 256), tr.nn.Linear(256, 10), tr.nn.Linear(256, 64)

        def loss(self, x, y, t):
            hidden = tr.nn.gelu(self.up(x))
            return tr.nn.cross_entropy(self.down(hidden), y) * 0.3 + tr.nn.mean_squared_error(self.back(hidden), t)

    random = np.random.default_rng(3)
    x, t = (random.normal(size=(256, 64)) for _ in range(2))
    y = np.where(np.arange(256) < 60, random.integers(10, size=256), -1)
    keywords = dict(inputs=inputs, batch=256, optimizer="sgd", lr=0.1, steps=2, **CPU)
    whole = tr.Trainer(Mixed(), micro_batch=256, **keywords)
    less = tr.Trainer(Mixed(), memory=int(whole.plan.peak_bytes * 0.6), **keywords)
    assert less.micro_batch < 256
    for _ in range(2):
        expected, found = whole.step(x=x, y=y, t=t), less.step(x=x, y=y, t=t)
        assert found.loss == pytest.approx(expected.loss, rel=2e-6)
        assert found.grad_norm == pytest.approx(expected.grad_norm, rel=2e-6)


class Product(tr.Model):
    """A product of two means, which isn't a sum over samples."""

    def __init__(self):
        self.a, self.b = tr.nn.Linear(64, 10), tr.nn.Linear(64, 10)

    def loss(self, x, y):
        return tr.nn.cross_entropy(self.a(x), y) * tr.nn.cross_entropy(self.b(x), y)


def test_a_loss_that_mixes_samples_is_one_micro_batch():
    keywords = dict(inputs=INPUTS, batch=8, **CPU)
    trainer = tr.Trainer(Product(), **keywords)
    assert trainer.micro_batch == 8 and "`multiply` (map) mixes the samples" in str(trainer.plan)
    batch = dict(x=np.ones((8, 64)), y=np.arange(8))
    assert trainer.evaluate(**batch).loss > 0
    with pytest.raises(tr.Error, match=r"`multiply` \(map\) mixes"):
        trainer.evaluate(x=np.ones((9, 64)), y=np.arange(9))
    with pytest.raises(tr.SettingError, match=r"`multiply` \(map\) mixes"):
        tr.plan(Product(), micro_batch=4, **keywords)
    with pytest.raises(tr.DoesNotFit, match=r"`multiply` \(map\) mixes"):
        tr.plan(Product(), memory=trainer.plan.peak_bytes // 2, **keywords)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (dict(y=np.array([1, 2**32 + 1, 0, 0])), r"`y`, sample 1, is 4294967297"),
        (dict(y=np.array([1, 0, -(2**31) - 1, 0])), r"`y`, sample 2, is -2147483649"),
        (dict(y=np.array([1, 0, 2**31, 0], np.uint32)), r"`y`, sample 2, is 2147483648"),
        (dict(y=np.array([0, 2**63, 0, 0], np.uint64)), r"`y`, sample 1, is 9223372036854775808"),
        (dict(y=np.zeros(4)), r"`y` holds float64"),
        (dict(y=np.zeros((4, 1), int)), r"`y` has shape \(4, 1\)"),
        (dict(y=np.array(1)), r"`y` has shape \(\)"),
        (dict(y=np.zeros(3, int)), r"`x` 4, `y` 3"),
        (dict(x=np.full((4, 64), np.nan)), r"`x`, sample 0 at \[0\], is nan"),
        (dict(x=np.where(np.arange(256).reshape(4, 64) == 130, 1e300, 0)), r"`x`, sample 2 at \[2\], is 1e\+300"),
        (dict(x=np.zeros((4, 64), complex)), r"`x` holds complex128"),
        (dict(x=np.full((4, 64), "1")), r"`x` holds <U1"),
        (dict(x=np.full((4, 64), None)), r"`x` holds object"),
        (dict(x=np.ma.masked_equal(np.eye(4, 64), 1)), r"`x` is a masked array"),
        (dict(x=[[0] * 64, [0]]), r"`x` can't be read as an array"),
    ],
    ids=lambda it: it if isinstance(it, str) else "",
)
def test_values_that_an_input_cannot_hold_are_named(values, named):
    trainer = tr.Trainer(Mlp(width=8), inputs=INPUTS, batch=4, **CPU)
    batch = {"x": np.zeros((4, 64)), "y": np.zeros(4, int), **values}
    for feed in (trainer.step, trainer.evaluate):
        with pytest.raises((TypeError, ValueError), match=named):
            feed(**batch)
    assert trainer.steps_done == 0


def test_arrays_of_every_kind_are_the_same_numbers():
    random = np.random.default_rng(5)
    x, y = random.integers(0, 2, size=(4, 64)), random.integers(10, size=4)
    kinds = [
        (x.astype(np.float32), y.astype(np.int32)),
        (x.astype(">f8"), y.astype(">i8")),
        (x.astype(np.float16), y.astype(np.uint8)),
        (x.astype(bool), y.astype(np.int64)),
        (np.asfortranarray(x.astype(np.float32)), np.repeat(y, 2)[::2]),
        (x[::-1][::-1], y[::-1].astype(np.int16)[::-1]),
        (x.tolist(), y.tolist()),
    ]
    found = [tr.Trainer(Mlp(width=8), inputs=INPUTS, batch=4, **CPU).step(x=x, y=y).loss for x, y in kinds]
    assert len(set(found)) == 1


def test_what_is_wrong_is_named(digits):
    with pytest.raises(TypeError, match="inputs="):
        tr.Trainer(Mlp(), batch=4)
    with pytest.raises(TypeError, match="tightrope.Model"):
        tr.plan("gpt2")
    trainer = tr.Trainer(Mlp(), inputs=INPUTS, batch=4, **CPU)
    with pytest.raises(TypeError, match="lacks the input `y`"):
        trainer.step(x=np.zeros((4, 64)))
    with pytest.raises(TypeError, match="no input `z`"):
        trainer.step(x=np.zeros((4, 64)), y=np.zeros(4, int), z=0)
    with pytest.raises(ValueError, match=r"must be \(batch, 64\)"):
        trainer.step(x=np.zeros((4, 8, 8)), y=np.zeros(4, int))
    with pytest.raises(ValueError, match="whole numbers"):
        trainer.step(x=np.zeros((4, 64)), y=np.zeros(4))
    with pytest.raises(tr.BatchError, match="3 samples"):
        trainer.step(x=np.zeros((3, 64)), y=np.zeros(3, int))
    with pytest.raises(tr.BatchError, match="`y`"):
        trainer.step(x=np.zeros((4, 64)), y=np.array([0, 10, 0, 0]))

    class Wrong(Mlp):
        def loss(self, x, y):
            return tr.nn.cross_entropy(tr.nn.Linear(64, 10)(x), y)

    with pytest.raises(ValueError, match="isn't an attribute"):
        tr.plan(Wrong(), inputs=INPUTS)

    class Shapes(Mlp):
        def __init__(self):
            self.up, self.down = tr.nn.Linear(64, 128), tr.nn.Linear(100, 10)

    with pytest.raises(ValueError, match=r"`down`: Linear takes \(…, 100\), not \(batch, 128\)"):
        tr.plan(Shapes(), inputs=INPUTS, **CPU)
    with pytest.raises(tr.SettingError, match="`layers=`"):
        tr.plan(Mlp(), inputs=INPUTS, layers=3)
