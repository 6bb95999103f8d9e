"""Weights that a program sets: to begin with, between steps, frozen and trained again, and in checkpoints that it edits."""

import json
import struct

import numpy as np
import pytest
from curve import CPU, INPUTS, Curve

import tightrope as tr

PLAIN = dict(optimizer="sgd", lr=0.1, warmup=0, schedule="constant", clip=0, weight_decay=0, steps=40)
ADAM = dict(optimizer="adamw", lr=0.01, warmup=0, schedule="constant", clip=0, weight_decay=0, steps=40)
SHAPES = {"up.weight": (5, 3), "up.bias": (5,), "down.weight": (1, 5), "down.bias": (1,)}


class Tanh(Curve):
    def predict(self, x):
        return self.down(tr.tanh(self.up(x)))


class Picture(tr.Model):
    """A convolution, whose weight is a matrix in the engine."""

    def __init__(self, channels_first):
        self.conv = tr.nn.Conv2d(1, 8, 3, padding=1, channels_first=channels_first)
        self.down = tr.nn.Linear(8 * 36, 4)

    def loss(self, x, y):
        return tr.nn.cross_entropy(self.down(tr.nn.relu(self.conv(x)).reshape(-1, 8 * 36)), y)


def batch(seed=2, count=8):
    random = np.random.default_rng(seed)
    return {name: random.normal(size=(count, *shape)).astype(np.float32) for name, (_, shape) in INPUTS.items()}


def state(seed=3):
    random = np.random.default_rng(seed)
    return {name: (0.5 * random.normal(size=shape)).astype(np.float32) for name, shape in SHAPES.items()}


def curve(**keywords):
    return tr.Trainer(Curve(), **{**dict(inputs=INPUTS, batch=8), **CPU, **PLAIN, **keywords})


def gradients(weights, x, y):
    """Gradients of a curve, in NumPy."""
    up = x @ weights["up.weight"].T + weights["up.bias"]
    active = np.maximum(up, 0)
    slope = 2 * (active @ weights["down.weight"].T + weights["down.bias"] - y) / len(x)
    inner = (slope @ weights["down.weight"]) * (up > 0)
    return {"up.weight": inner.T @ x, "up.bias": inner.sum(0), "down.weight": slope.T @ active, "down.bias": slope.sum(0)}


def same(trainer, weights, atol=1e-6):
    assert set(trainer.weights) == set(weights)
    for name, values in weights.items():
        np.testing.assert_allclose(trainer.weights[name], values, atol=atol, err_msg=name)


def write_safetensors(path, tensors):
    """A file of safetensors, by the format's own rules."""
    header, data = {}, b""
    for name, values in tensors.items():
        end = len(data) + values.nbytes
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [len(data), end]}
        data += values.astype("<f4").tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def test_an_own_model_begins_with_given_weights(tmp_path):
    given = state()
    write_safetensors(tmp_path / "model.safetensors", given)
    expected = {name: values - 0.1 * gradients(given, **batch())[name] for name, values in given.items()}
    for init in (given, tmp_path / "model.safetensors", str(tmp_path), {name: it.tolist() for name, it in given.items()}):
        trainer = curve(init=init)
        same(trainer, given, 0)
        assert trainer.step(**batch()).step == 1
        same(trainer, expected)


def test_what_one_trainer_exports_another_begins_with(tmp_path):
    first = curve()
    first.step(**batch())
    second = curve(init=first.export(tmp_path / "exported"), seed=5)
    same(second, dict(first.weights), 0)


def test_weights_to_begin_with_that_do_not_fit_are_refused(tmp_path):
    given = state()
    wrong = [
        ({**given, "up.wieght": given["up.weight"].copy()}, "has no `up.wieght`"),
        ({name: it for name, it in given.items() if name != "up.bias"}, "it lacks `up.bias`"),
        ({**given, "up.weight": given["up.weight"].T}, r"`up.weight` has shape \(5, 3\), and the array given has shape \(3, 5\)"),
        ({**given, "up.bias": np.full(5, np.nan)}, r"`up.bias` at \[0\] is nan"),
        ({**given, "up.bias": np.full(5, 1e300)}, r"`up.bias` at \[0\] is 1e\+300, which isn't a finite float32"),
    ]
    for init, words in wrong:
        with pytest.raises(tr.WeightError, match=words):
            curve(init=init)
    with pytest.raises(TypeError, match="takes a path, or a dict of arrays by name, not int"):
        curve(init=3)
    with pytest.raises(tr.Error, match="none.safetensors"):
        curve(init=tmp_path / "none.safetensors")


def test_a_shared_tensor_has_each_of_its_names(tmp_path):
    """pytorch 188346: a state dict holds a shared tensor under every name, and a model one of them."""
    given = state()
    both = {**given, "head.weight": given["up.weight"]}
    write_safetensors(tmp_path / "model.safetensors", both)
    for init in (both, tmp_path / "model.safetensors"):
        same(curve(init=init), given, 0)
    with pytest.raises(tr.WeightError, match="has no `head.weight`"):
        curve(init={**given, "head.weight": given["up.weight"].copy()})


def test_a_weight_is_set():
    trainer = curve()
    values = np.arange(15.0).reshape(5, 3)
    trainer.weights["up.weight"] = values
    given = dict(trainer.weights)
    np.testing.assert_array_equal(given["up.weight"], values)
    trainer.step(**batch())
    same(trainer, {name: it - 0.1 * gradients(given, **batch())[name] for name, it in given.items()}, 1e-4)
    with pytest.raises(ValueError, match=r"no weight is called `up.wieght`; did you mean `up.weight`\?"):
        trainer.weights["up.wieght"] = values
    with pytest.raises(ValueError, match=r"`up.weight` has shape \(5, 3\), and the array given has shape \(3, 5\)"):
        trainer.weights["up.weight"] = values.T
    with pytest.raises(TypeError, match="real numbers"):
        trainer.weights["up.bias"] = ["a"] * 5


def test_a_number_that_the_precision_does_not_hold_is_refused():
    trainer = curve(precision="f16")
    before = dict(trainer.weights)
    with pytest.raises(ValueError, match="element 0 of `up.bias` is 1000000, which F16 doesn't hold"):
        trainer.weights["up.bias"] = np.full(5, 1e6)
    same(trainer, before, 0)
    trainer.weights["up.bias"] = np.full(5, 0.1)
    np.testing.assert_array_equal(trainer.weights["up.bias"], np.full(5, 0.1, np.float32))


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_a_weight_that_is_set_is_in_the_checkpoint(precision, tmp_path):
    trainer = curve(**ADAM, precision=precision)
    trainer.step(**batch())
    first = trainer.save(tmp_path)
    trainer.weights["down.bias"] = [0.25]
    # A checkpoint of the same step is written again.
    assert trainer.save(tmp_path) == first
    more = tr.Trainer.resume(tmp_path, Curve(), inputs=INPUTS, **CPU)
    assert more.weights["down.bias"] == 0.25
    assert more.step(**batch(4)).loss == trainer.step(**batch(4)).loss


def test_a_state_dict_is_loaded():
    trainer, given = curve(), state()
    assert trainer.load_state_dict(given) == ([], [])
    same(trainer, given, 0)
    less = {"up.weight": 2 * given["up.weight"], "head.weight": np.zeros(3)}
    with pytest.raises(RuntimeError, match="it lacks `up.bias`, `down.weight`, `down.bias`; the model has no `head.weight`"):
        trainer.load_state_dict(less)
    same(trainer, given, 0)
    found = trainer.load_state_dict(less, strict=False)
    assert found.missing_keys == ["up.bias", "down.weight", "down.bias"] and found.unexpected_keys == ["head.weight"]
    same(trainer, {**given, "up.weight": 2 * given["up.weight"]}, 0)
    # One array that doesn't fit, and none is set.
    with pytest.raises(ValueError, match="`down.bias` has shape"):
        trainer.load_state_dict({**given, "down.bias": np.zeros(2)}, strict=False)
    same(trainer, {**given, "up.weight": 2 * given["up.weight"]}, 0)
    with pytest.raises(TypeError, match="dict of arrays by name"):
        trainer.load_state_dict([given])


def test_weights_of_a_preset_are_set_by_their_names(tiny):
    trainer = tr.Trainer(**tiny, steps=4)
    weights = trainer.weights
    assert len(weights) == len(dict(weights)) > 10
    # Stored transposed and padded by the engine.
    for name in ("transformer.h.1.attn.c_attn.weight", "transformer.wte.weight", "transformer.ln_f.bias"):
        values = np.random.default_rng(1).normal(size=weights[name].shape).astype(np.float32)
        weights[name] = values
        np.testing.assert_array_equal(weights[name], values)
    other = tr.Trainer(**tiny, steps=4, seed=9)
    bare = {name.removeprefix("transformer."): it for name, it in weights.items()}
    # Names of other versions of the class, and a head that is tied.
    assert other.load_state_dict({**bare, "lm_head.weight": bare["wte.weight"]}) == ([], [])
    with pytest.raises(tr.WeightError, match="`lm_head.weight` differs from `wte.weight`, and the model ties them"):
        other.load_state_dict({**bare, "lm_head.weight": bare["wte.weight"] + 1})
    same(other, dict(weights), 0)
    assert tr.Trainer(**tiny, steps=4, init=dict(weights)).step().loss == pytest.approx(trainer.step().loss, abs=1e-6)


def momentum_by_hand(weights, steps, frozen_at):
    """SGD with a momentum of 0.9, where ``frozen_at`` gives the weights that a step leaves as they are."""
    weights, moments = dict(weights), {}
    for step in range(steps):
        frozen = frozen_at(step)
        for name, gradient in gradients(weights, **batch(step)).items():
            if name in frozen:
                moments.pop(name, None)
                continue
            moments[name] = 0.9 * moments.get(name, 0) + gradient
            weights = {**weights, name: weights[name] - 0.1 * moments[name]}
    return weights


def test_weights_are_frozen_and_trained_again_in_the_middle_of_a_run():
    keywords = dict(settings={"train.beta1": 0.9})
    trainer = curve(init=state(), **keywords)
    plain = tr.plan(Curve(), inputs=INPUTS, batch=8, **CPU, **PLAIN, **keywords)
    assert trainer.plan.peak_bytes == plain.peak_bytes
    for step in range(9):
        if step == 3:
            trainer.freeze("up.*")
            assert trainer.steps_done == 3 and trainer.plan.by_class.get("frozen", 0) > 0
            trainer.freeze("up.weight")
        if step == 6:
            trainer.unfreeze("up.weight", "*.bias")
            assert trainer.plan.by_class.get("frozen", 0) == 0
        assert trainer.step(**batch(step)).step == step + 1
    frozen = {"up.weight", "up.bias"}
    expected = momentum_by_hand(state(), 9, lambda step: frozen if 3 <= step < 6 else ())
    same(trainer, expected, 1e-5)
    assert np.abs(expected["up.weight"] - momentum_by_hand(state(), 9, lambda _: ())["up.weight"]).max() > 1e-3


def test_freezing_keeps_all_other_state_bit_for_bit(tmp_path):
    trainer = curve(**ADAM)
    for step in range(3):
        trainer.step(**batch(step))
    trainer.save(tmp_path)
    trainer.freeze("up.*")
    losses = [trainer.step(**batch(step)).loss for step in (3, 4)]
    words = r"`train.freeze`.* was \[\] when the run began, and is \[\"up.\*\"\](.|\n)*strict=False"
    more = dict(inputs=INPUTS, settings={"train.freeze": ["up.*"]}, **CPU)
    with pytest.raises(tr.SettingError, match=words):
        tr.Trainer.resume(tmp_path, Curve(), **more)
    resumed = tr.Trainer.resume(tmp_path, Curve(), strict=False, **more)
    assert resumed.steps_done == 3
    assert [resumed.step(**batch(step)).loss for step in (3, 4)] == losses
    same(resumed, dict(trainer.weights), 0)


def test_what_can_not_be_frozen_leaves_the_trainer_as_it_is():
    trainer = curve(**ADAM)
    trainer.step(**batch())
    before = dict(trainer.weights)
    with pytest.raises(tr.SettingError, match="did you mean `up.weight`"):
        trainer.freeze("up.wieght")
    with pytest.raises(tr.SettingError, match="leaves none to train"):
        trainer.freeze("*")
    with pytest.raises(TypeError, match="named by texts"):
        trainer.freeze(3)
    same(trainer, before, 0)
    adapted = curve(lora_rank=2)
    with pytest.raises(tr.Error, match="adapters are trained here"):
        adapted.freeze("up.*")


def test_a_plan_that_does_not_fit_leaves_the_trainer_as_it_was(tiny):
    smallest = tr.plan(**{**tiny, "data": None}, settings={"train.freeze": ["h.*"]}).peak_bytes
    trainer = tr.Trainer(**tiny, steps=4, memory=smallest, settings={"train.freeze": ["h.*"]})
    twin = tr.Trainer(**tiny, steps=4, memory=smallest, settings={"train.freeze": ["h.*"]})
    assert trainer.step().loss == twin.step().loss
    with pytest.raises(tr.DoesNotFit):
        trainer.unfreeze("h.*")
    assert trainer.plan.peak_bytes <= smallest and trainer.step().loss == twin.step().loss


def test_a_preset_is_frozen_by_names_of_its_weights(tiny):
    trainer = tr.Trainer(**tiny, steps=6)
    trainer.step()
    trainer.freeze("transformer.h.*")
    before = dict(trainer.weights)
    trainer.step()
    changed = {name for name in before if not np.array_equal(before[name], trainer.weights[name])}
    assert changed and not any(name.startswith("transformer.h.") for name in changed)
    trainer.unfreeze("h.*")
    assert trainer.step().step == 3
    assert not np.array_equal(before["transformer.h.0.mlp.c_fc.weight"], trainer.weights["transformer.h.0.mlp.c_fc.weight"])


def edited(path):
    """Halves a weight in a checkpoint, with the file's order of tensors, and its name."""
    file = path / "model.safetensors"
    size = struct.unpack("<Q", file.read_bytes()[:8])[0]
    header = json.loads(file.read_bytes()[8 : 8 + size])
    data = file.read_bytes()[8 + size :]
    tensors = {}
    for name, it in header.items():
        if name != "__metadata__":
            start, end = it["data_offsets"]
            tensors[name] = np.frombuffer(data[start:end], "<f4").reshape(it["shape"]).copy()
    name = next(iter(tensors))
    tensors[name] *= 0.5
    write_safetensors(file, tensors)
    return name


def test_a_checkpoint_whose_weights_were_edited(tmp_path, tiny):
    own, preset = curve(**ADAM), tr.Trainer(**tiny, steps=4)
    own.step(**batch())
    preset.step()
    for trainer, again in (
        (own, lambda path, **keywords: tr.Trainer.resume(path, Curve(), inputs=INPUTS, **CPU, **keywords)),
        (preset, lambda path, **keywords: tr.Trainer.resume(path, data=tiny["data"], **CPU, **keywords)),
    ):
        folder = tmp_path / type(trainer.plan).__name__ / str(id(trainer))
        path = trainer.save(folder)
        name = edited(path)
        for place in (path, folder):
            with pytest.raises(tr.Error, match=r"do not match the checksum(.|\n)*strict=False"):
                again(place)
            resumed = again(place, strict=False)
            np.testing.assert_array_equal(resumed.weights[name], 0.5 * trainer.weights[name])
            assert resumed.steps_done == 1
        # Optimizer state is still checked.
        (path / "optimizer.safetensors").write_bytes((path / "optimizer.safetensors").read_bytes()[:-1])
        with pytest.raises(tr.Error):
            again(path, strict=False)


def test_a_checkpoint_that_is_passed_over_is_in_the_notes(tmp_path):
    trainer = curve()
    trainer.step(**batch())
    trainer.save(tmp_path)
    trainer.step(**batch())
    edited(trainer.save(tmp_path))
    resumed = tr.Trainer.resume(tmp_path, Curve(), inputs=INPUTS, **CPU)
    assert resumed.steps_done == 1 and any("step-2 was passed over" in note for note in resumed.notes)
    assert tr.Trainer.resume(tmp_path, Curve(), inputs=INPUTS, strict=False, **CPU).steps_done == 2


def test_a_changed_model_is_refused_on_resume(tmp_path):
    class Masked(Curve):
        scale = 1.0

        def predict(self, x):
            return self.down(tr.nn.relu(self.up(x * (np.array([1, 1, 0.5]) * self.scale))))

    class Halved(Masked):
        scale = 0.5

    class Other(Curve):
        """The same loss, and another prediction."""

        def loss(self, x, y):
            return tr.nn.mean_squared_error(super().predict(x), y)

        def predict(self, x):
            return self.up(x)

    def resume(model, name, **keywords):
        return tr.Trainer.resume(tmp_path / name, model, inputs=INPUTS, **CPU, **keywords)

    for model in (Curve, Masked):
        trainer = tr.Trainer(model(), inputs=INPUTS, batch=8, **CPU, **PLAIN)
        trainer.step(**batch())
        trainer.save(tmp_path / model.__name__)
    with pytest.raises(tr.SettingError, match=r"has `tanh = map\((.|\n)*where the checkpoint's has `relu = (.|\n)*strict=False"):
        resume(Tanh(), "Curve")
    with pytest.raises(tr.SettingError, match=r"`constant.1 = input f32 \(3,\) of .*` where"):
        resume(Halved(), "Masked")
    assert resume(Tanh(), "Curve", strict=False).steps_done == 1
    for model, name in ((Curve(), "Curve"), (Masked(), "Masked"), (Other(), "Curve")):
        assert resume(model, name).steps_done == 1


def test_weights_and_gradients_have_one_name_and_one_shape(tiny):
    random = np.random.default_rng(1)
    for shape, kernel in (((1, 6, 6), (8, 1, 3, 3)), ((6, 6, 1), (8, 3, 3, 1))):
        pictures = dict(inputs={"x": ("f32", shape), "y": ("i32", ())}, batch=4)
        trainer = tr.Trainer(Picture(shape[0] == 1), **pictures, watch=["grad.*"], **PLAIN, **CPU)
        before = dict(trainer.weights)
        trainer.step(x=random.normal(size=(4, *shape)), y=random.integers(0, 4, 4))
        assert set(trainer.gradients) == set(before) and trainer.gradients["conv.weight"].shape == kernel
        for name, gradient in trainer.gradients.items():
            np.testing.assert_allclose(trainer.weights[name], before[name] - 0.1 * gradient, atol=1e-6)

    plain = {**PLAIN, "steps": 4}
    for keywords in (dict(preset="tiny"), dict(preset="llama-tiny"), dict(preset="tiny", lora_rank=2)):
        trainer = tr.Trainer(**{**tiny, **keywords}, **plain, watch=["grad.*"])
        before = dict(trainer.weights)
        trainer.step()
        assert set(trainer.gradients) == set(before)
        for name, gradient in trainer.gradients.items():
            np.testing.assert_allclose(trainer.weights[name], before[name] - 0.1 * gradient, atol=1e-6, err_msg=name)


def test_watch_and_freeze_take_names_of_weights(tiny):
    llama = {**tiny, "preset": "llama-tiny"}
    key, module = "model.layers.1.self_attn.k_proj.weight", "model.layers.0.mlp.down_proj"
    trainer = tr.Trainer(**llama, steps=2, watch=[f"grad.{key}", module, "h.0.mlp.down"])
    trainer.step()
    assert list(trainer.gradients) == [key] and trainer.gradients[key].shape == trainer.weights[key].shape
    np.testing.assert_array_equal(trainer.activations[module], trainer.activations["h.0.mlp.down"])
    with pytest.raises(tr.SettingError, match="`model.layers.0.self_attn.k_proj.weight` is one parameter with"):
        tr.plan(**{**llama, "data": None}, settings={"train.freeze": ["model.layers.0.self_attn.k_proj.weight"]})
    with pytest.raises(tr.SettingError, match="no activation and no gradient is called `model.layers.0.self_attn.k_proj`"):
        tr.plan(**{**llama, "data": None}, watch=["model.layers.0.self_attn.k_proj"])
    frozen = tr.Trainer(**llama, steps=2, settings={"train.freeze": ["model.layers.*"]})
    before = dict(frozen.weights)
    frozen.step()
    assert {name for name in before if not np.array_equal(before[name], frozen.weights[name])} == {
        name for name in before if "layers" not in name
    }


def test_a_run_says_that_it_stopped_early(tiny, tmp_path):
    assert not tr.Trainer(**tiny, steps=1).stopped_early
    # Nothing changes without a rate, so that no evaluation is lower than the first.
    result = tr.train(**tiny, steps=20, lr=0, patience=2, eval_every=1, out=tmp_path / "stopped", on_step=lambda step: None)
    assert result["stopped_early"] is True and result["steps"] == 3
    assert tr.train(**tiny, steps=1, out=tmp_path / "complete", on_step=lambda step: None)["stopped_early"] is False


class TestWithPyTorch:
    """The same by PyTorch."""

    @pytest.fixture
    def torch(self):
        return pytest.importorskip("torch")

    @pytest.fixture
    def module(self, torch):
        torch.manual_seed(1)

        class Module(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.up, self.down = torch.nn.Linear(3, 5), torch.nn.Linear(5, 1)

            def forward(self, x):
                return self.down(self.up(x).relu())

        return Module()

    @staticmethod
    def train(torch, module, optimizer, seed):
        given = {name: torch.from_numpy(it) for name, it in batch(seed).items()}
        optimizer.zero_grad()
        loss = ((module(given["x"]) - given["y"]) ** 2).mean()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    def test_a_state_dict_begins_a_run(self, torch, module):
        trainer = curve(init=module.state_dict())
        optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
        for seed in range(5):
            assert trainer.step(**batch(seed)).loss == pytest.approx(self.train(torch, module, optimizer, seed), abs=1e-6)
        same(trainer, {name: it.numpy() for name, it in module.state_dict().items()}, 1e-5)
        halved = {name: it.bfloat16() for name, it in module.state_dict(keep_vars=True).items()}
        trainer.load_state_dict(halved)
        same(trainer, {name: it.detach().float().numpy() for name, it in halved.items()}, 0)

    def test_names_are_reported_as_there(self, torch, module):
        given = {**module.state_dict(), "head.weight": torch.zeros(3)}
        del given["up.bias"]
        theirs = module.load_state_dict(given, strict=False)
        ours = curve().load_state_dict(given, strict=False)
        assert (ours.missing_keys, ours.unexpected_keys) == (theirs.missing_keys, theirs.unexpected_keys)
        for load in (module.load_state_dict, curve().load_state_dict):
            with pytest.raises(RuntimeError, match="up.bias"):
                load(given)

    def test_freezing_is_as_there(self, torch, module):
        trainer = curve(init=module.state_dict())
        layers = module.up.parameters
        optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
        for step in range(9):
            if step == 3:
                trainer.freeze("up.*")
                for weight in layers():
                    weight.requires_grad_(False).grad = None
                    optimizer.state.pop(weight)
            if step == 6:
                trainer.unfreeze("up.*")
                for weight in layers():
                    weight.requires_grad_(True)
            self.train(torch, module, optimizer, step)
            trainer.step(**batch(step))
        same(trainer, {name: it.numpy() for name, it in module.state_dict().items()}, 1e-5)
