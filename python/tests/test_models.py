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
    with pytest.raises(tr.Error):
        trainer.step(x=np.zeros((3, 64)), y=np.zeros(3, int))

    class Wrong(Mlp):
        def loss(self, x, y):
            return tr.nn.cross_entropy(tr.nn.Linear(64, 10)(x), y)

    with pytest.raises(ValueError, match="isn't an attribute"):
        tr.plan(Wrong(), inputs=INPUTS)

    class Shapes(Mlp):
        def __init__(self):
            self.up, self.down = tr.nn.Linear(64, 128), tr.nn.Linear(100, 10)

    with pytest.raises(tr.Error, match="`down`: summed extents differ: 128 on the left, 100 on the right"):
        tr.plan(Shapes(), inputs=INPUTS, **CPU)
    with pytest.raises(tr.SettingError, match="model.layers"):
        tr.plan(Mlp(), inputs=INPUTS, layers=3)
