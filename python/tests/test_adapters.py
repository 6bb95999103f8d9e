"""Adapters of a model of one's own, beside weights that it's given."""

import numpy as np
import pytest
from curve import CPU, INPUTS, Curve
from test_weights import ADAM, PLAIN, batch, curve, gradients, state, write_safetensors

import tightrope as tr

RANK = 2
NAME = "base_model.model.{}.lora_{}.weight"


def merged(weights, adapters, scale):
    """Weights with the adapters of every layer added."""
    both = dict(weights)
    for layer in ("up", "down"):
        a, b = (adapters[NAME.format(layer, part)] for part in "AB")
        both[f"{layer}.weight"] = weights[f"{layer}.weight"] + scale * b @ a
    return both


@pytest.mark.parametrize("form", [dict, "file"])
def test_adapters_are_trained_beside_given_weights(form, tmp_path):
    given = state()
    write_safetensors(tmp_path / "model.safetensors", given)
    trainer = curve(init=given if form is dict else tmp_path, lora_rank=RANK, lora_alpha=6, settings={"train.beta1": 0})
    adapters = dict(trainer.weights)
    assert set(adapters) == {NAME.format(layer, part) for layer in ("up", "down") for part in "AB"}
    assert all(not adapters[NAME.format(layer, "B")].any() for layer in ("up", "down"))
    scale = 6 / RANK
    for seed in range(4):
        inputs = batch(seed)
        np.testing.assert_allclose(
            trainer.evaluate(**inputs).loss, loss(merged(given, adapters, scale), **inputs), rtol=1e-5
        )
        slopes = gradients(merged(given, adapters, scale), **inputs)
        trainer.step(**inputs)
        for layer in ("up", "down"):
            a, b, slope = adapters[NAME.format(layer, "A")], adapters[NAME.format(layer, "B")], slopes[f"{layer}.weight"]
            adapters[NAME.format(layer, "A")] = a - 0.1 * scale * b.T @ slope
            adapters[NAME.format(layer, "B")] = b - 0.1 * scale * slope @ a.T
        for name, values in adapters.items():
            np.testing.assert_allclose(trainer.weights[name], values, atol=1e-6, err_msg=name)


def loss(weights, x, y):
    active = np.maximum(x @ weights["up.weight"].T + weights["up.bias"], 0)
    return float(((active @ weights["down.weight"].T + weights["down.bias"] - y) ** 2).mean())


def test_they_go_on_beside_the_same_weights_alone(tmp_path):
    given = state()
    for begins in (dict(init=given), {}):
        keywords = dict(**ADAM, lora_rank=RANK, settings={"lora.dropout": 0.25})
        whole, part = (curve(**begins, **keywords) for _ in range(2))
        for seed in range(6):
            whole.step(**batch(seed))
        for seed in range(3):
            part.step(**batch(seed))
        saved = part.save(tmp_path / str(len(begins)))
        resumed = tr.Trainer.resume(saved, Curve(), inputs=INPUTS, **CPU, **begins)
        for seed in range(3, 6):
            resumed.step(**batch(seed))
        for name, values in whole.weights.items():
            np.testing.assert_array_equal(resumed.weights[name], values, name)
        assert resumed.evaluate(**batch(9)).loss == whole.evaluate(**batch(9)).loss
        if begins:
            with pytest.raises(tr.SettingError, match="are beside weights that the run began with, and none are given"):
                tr.Trainer.resume(saved, Curve(), inputs=INPUTS, **CPU)
            with pytest.raises(tr.SettingError, match="and others are given"):
                tr.Trainer.resume(saved, Curve(), inputs=INPUTS, **CPU, init=state(4))


def test_arrays_for_a_known_model_with_adapters_are_refused():
    weights = dict(tr.Trainer(preset="tiny", device="cpu", threads=1, steps=1).weights)
    with pytest.raises(tr.SettingError, match="give the folder of the model as init="):
        tr.Trainer(preset="tiny", device="cpu", threads=1, steps=1, init=weights, lora_rank=RANK)


@pytest.mark.parametrize("said", [{}, {"lora.rslora": True}, {"lora.dora": True}, {"lora.bias": "all"}, {"lora.targets": ["up"]}])
def test_they_are_pefts(said):
    torch = pytest.importorskip("torch")
    peft = pytest.importorskip("peft")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = torch.nn.Linear(3, 5), torch.nn.Linear(5, 1)

        def forward(self, x):
            return self.down(torch.relu(self.up(x)))

    net = Net()
    net.load_state_dict({name: torch.from_numpy(values) for name, values in state().items()})
    keywords = {**PLAIN, "optimizer": "adamw", "lr": 0.02}
    trainer = curve(init=net.state_dict(), lora_rank=RANK, lora_alpha=3, **keywords, settings=said)
    config = peft.LoraConfig(
        r=RANK,
        lora_alpha=3,
        target_modules=said.get("lora.targets", ["up", "down"]),
        use_rslora=said.get("lora.rslora", False),
        use_dora=said.get("lora.dora", False),
        bias=said.get("lora.bias", "none"),
    )
    model = peft.get_peft_model(net, config)
    theirs = {name.replace(".default", ""): weight for name, weight in model.named_parameters() if weight.requires_grad}
    ours = {own_name(name, theirs): name for name in trainer.weights}
    assert set(ours) == set(theirs)
    with torch.no_grad():
        for name, weight in theirs.items():
            weight.copy_(torch.from_numpy(trainer.weights[ours[name]]).reshape(weight.shape))
    optimizer = torch.optim.AdamW(theirs.values(), lr=0.02, betas=(0.9, 0.99), eps=1e-8, weight_decay=0)
    for seed in range(6):
        inputs = batch(seed)
        found = ((model(torch.from_numpy(inputs["x"])) - torch.from_numpy(inputs["y"])) ** 2).mean()
        optimizer.zero_grad()
        found.backward()
        optimizer.step()
        assert trainer.step(**inputs).loss == pytest.approx(found.item(), rel=1e-5)
    for name, weight in theirs.items():
        values = weight.detach().numpy().reshape(trainer.weights[ours[name]].shape)
        np.testing.assert_allclose(trainer.weights[ours[name]], values, atol=1e-5, err_msg=name)


def own_name(name, theirs):
    """The name in PEFT's model of a tensor in its files."""
    candidates = name, f"{name}.weight", name.replace(".bias", ".base_layer.bias"), name.replace("_vector", "_vector.weight")
    return next((it for it in candidates if it in theirs), name)
