# %% [markdown]
# # 11 · A model of your own
#
# The planner knows every byte of GPT-2. **Does it know the bytes of a model that you wrote a minute ago?**
#
# This notebook writes three models that read handwritten digits: an MLP, a convolutional network and a vision
# transformer. For each it predicts the peak, trains, and measures bytes and accuracy.

# %%
from collections.abc import Callable
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np

import checks
import figures  # Also sets how plots look.
import tightrope as tr
from tightrope import nn

CPU = tr.Settings(device="cpu", threads=2)
images, labels = tr.data.digits()
held = np.arange(len(labels)) % 10 == 0
print(f"{len(labels)} images of 8 × 8 pixels, of which {held.sum()} are held out")

figure, axes = plt.subplots(1, 10, figsize=(9, 1.2))
for index, ax in enumerate(axes):
    ax.imshow(images[index], cmap="gray_r")
    ax.set_axis_off()
    ax.set_title(labels[index], fontsize=8)
plt.show()

# %% [markdown]
# ## An MLP
#
# A model is a class with layers as attributes and a `loss`. The loss is called once, with tensors that write down
# what is done with them. That makes the graph; from there on, it is planned as any other.


# %%
class Mlp(tr.Model):
    """64 pixels, one hidden layer, 10 scores."""

    def __init__(self, width: int = 128) -> None:
        self.up, self.down = nn.Linear(64, width), nn.Linear(width, 10)

    def predict(self, x: tr.Tensor) -> tr.Tensor:
        return self.down(nn.gelu(self.up(x)))

    def loss(self, x: tr.Tensor, y: tr.Tensor) -> tr.Tensor:
        return nn.cross_entropy(self.predict(x), y)


PIXELS = {"x": ("f32", (64,)), "y": ("i32", ())}
BATCH = tr.Settings(batch=64, micro_batch=64, **CPU)

# %% [markdown]
# **Predict**, by hand. Weights, $64 \cdot 128 + 128 + 128 \cdot 10 + 10$ numbers, and twice that of moments. Of each
# image the forward pass keeps GELU's input and its output for the backward pass, $128 + 128$ numbers. (The pixels are
# there anyway, as an input. The scores are gone with the forward pass: the loss makes their gradient at once.)

# %%
parameters = 64 * 128 + 128 + 128 * 10 + 10
kept_by_hand = 4 * 64 * (128 + 128)
plan = tr.plan(Mlp(), inputs=PIXELS, **BATCH)
assert plan.by_class["weight"] == 4 * parameters
assert 0 <= plan.by_class["optimizer"] - 8 * parameters < 64
columns = plan.tensors()
print("tensor            class       bytes  first–last")
for index in np.argsort(columns["first"], kind="stable"):
    if columns["phase"][index] == "forward":
        print(
            f"{columns['name'][index]:<17} {columns['class'][index]:<10} "
            f"{columns['bytes'][index]:>6}  {columns['first'][index]}–{columns['last'][index]}"
        )
turn = int(np.flatnonzero(plan.ops()["phase"] == "forward").max())
kept = (columns["class"] == "activation") & (columns["first"] <= turn) & (columns["last"] > turn)
kept &= columns["bytes"] > 4  # Without the loss itself, and the like.
kept_planned = int(columns["bytes"][kept].sum())
assert kept_planned == kept_by_hand
checks.report(
    weights_by_hand=4 * parameters,
    weights_planned=plan.by_class["weight"],
    kept_by_hand=kept_by_hand,
    kept_planned=kept_planned,
    peak_bytes=plan.peak_bytes,
)

# %% [markdown]
# Are its gradients right? `watch=` keeps tensors of a step by name. The gradient of the last layer's weight is the
# error of the softmax, times the activations: one line of NumPy.

# %%
watching = tr.Trainer(Mlp(), inputs=PIXELS, watch=["gelu", "down", "grad.down.weight"], **BATCH)
first = np.arange(64)
watching.step(x=images[first].reshape(-1, 64), y=labels[first])
error = np.exp(watching.activations["down"])
error /= error.sum(1, keepdims=True)
error[first, labels[first]] -= 1
by_hand = error.T @ watching.activations["gelu"] / 64
difference = float(np.abs(by_hand - watching.gradients["down.weight"]).max())
assert difference < 1e-6
checks.report(largest_gradient=float(np.abs(by_hand).max()), largest_difference=difference)

# %% [markdown]
# ## A convolutional network, and a vision transformer
#
# `tr.nn.block(i)` marks repeated blocks, so that the planner can decide for each what to recompute. The transformer
# cuts an image into 16 patches of 2 × 2 pixels. Its positions are an embedding of the numbers 0 to 15, which the
# batch carries.


# %%
class Cnn(tr.Model):
    """Three convolutions and a linear layer."""

    def __init__(self) -> None:
        self.layers = [
            nn.Conv2d(1, 16, 3, padding=1, channels_first=True),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.Conv2d(32, 32, 3, padding=1),
        ]
        self.head = nn.Linear(32 * 16, 10)

    def loss(self, x: tr.Tensor, y: tr.Tensor) -> tr.Tensor:
        for index, layer in enumerate(self.layers):
            with nn.block(index):
                x = nn.relu(layer(x))
        return nn.cross_entropy(self.head(x.reshape(-1, 32 * 16)), y)


class Vit(tr.Model):
    """Patches, blocks of attention and an MLP, and the mean over patches."""

    def __init__(self, channels: int = 32, blocks: int = 2) -> None:
        self.patches, self.positions = nn.Linear(4, channels), nn.Embedding(16, channels)
        self.blocks = [
            {
                "norm_1": nn.LayerNorm(channels),
                "attention": nn.Attention(channels, 4, causal=False),
                "norm_2": nn.LayerNorm(channels),
                "up": nn.Linear(channels, 4 * channels),
                "down": nn.Linear(4 * channels, channels),
            }
            for _ in range(blocks)
        ]
        self.norm, self.head = nn.LayerNorm(channels), nn.Linear(channels, 10)

    def loss(self, x: tr.Tensor, p: tr.Tensor, y: tr.Tensor) -> tr.Tensor:
        x = self.patches(x) + self.positions(p)
        for index, block in enumerate(self.blocks):
            with nn.block(index):
                x = x + block["attention"](block["norm_1"](x))
                x = x + block["down"](nn.gelu(block["up"](block["norm_2"](x))))
        return nn.cross_entropy(self.head(self.norm(x).mean(1)), y)


Batch = dict[str, np.ndarray]


def flat(chosen: np.ndarray) -> Batch:
    """A batch for the MLP."""
    return {"x": images[chosen].reshape(-1, 64), "y": labels[chosen]}


def pictures(chosen: np.ndarray) -> Batch:
    """A batch for the convolutional network: one channel, first."""
    return {"x": images[chosen][:, None], "y": labels[chosen]}


def patches(chosen: np.ndarray) -> Batch:
    """A batch for the transformer: 16 patches of 4 pixels, and their places."""
    cut = images[chosen].reshape(-1, 4, 2, 4, 2).transpose(0, 1, 3, 2, 4).reshape(-1, 16, 4)
    places = np.tile(np.arange(16, dtype=np.int32), (len(cut), 1))
    return {"x": cut, "p": places, "y": labels[chosen]}


class Task(NamedTuple):
    """A model, its inputs, a batch of chosen images, and the steps that it is trained for."""

    model: type[tr.Model]
    inputs: dict[str, tuple[str, tuple[int, ...]]]
    batch_of: Callable[[np.ndarray], Batch]
    steps: int


MODELS = {
    "MLP": Task(Mlp, PIXELS, flat, 400),
    "CNN": Task(Cnn, {"x": ("f32", (1, 8, 8)), "y": ("i32", ())}, pictures, 300),
    "ViT": Task(Vit, {"x": ("f32", (16, 4)), "p": ("i32", (16,)), "y": ("i32", ())}, patches, 400),
}

# %% [markdown]
# ## Measure: bytes and accuracy


# %%
def trained(task: Task) -> tuple[tr.Trainer, list[float]]:
    """A trained trainer, and its losses."""
    trainer = tr.Trainer(task.model(), inputs=task.inputs, steps=task.steps, lr=3e-3, **BATCH)
    order, training = np.random.default_rng(0), np.flatnonzero(~held)
    batches = (task.batch_of(order.choice(training, 64)) for _ in range(task.steps))
    return trainer, [trainer.step(**batch).loss for batch in batches]


predicted, measured, accuracy, curves, trainers = {}, {}, {}, {}, {}
for name, task in MODELS.items():
    predicted[name] = tr.plan(task.model(), inputs=task.inputs, **BATCH).peak_bytes
    trainer, curves[name] = trained(task)
    trainers[name] = trainer
    measured[name] = trainer.measured_peak_bytes
    found = trainer.evaluate(**task.batch_of(held))
    assert found is not None
    accuracy[name] = found.metrics["accuracy"]
    assert measured[name] == predicted[name]
    print(
        f"{name}: predicted {predicted[name]:>9,}, measured {measured[name]:>9,} bytes; "
        f"{accuracy[name]:.1%} of held-out digits right"
    )

figure, axes = plt.subplots(figsize=(6, 3))
for name, losses in curves.items():
    axes.plot(np.convolve(losses, np.ones(10) / 10, "valid"), label=name, linewidth=1.2)
axes.set(xlabel="step", ylabel="loss, mean of 10 steps", yscale="log")
axes.legend(frameon=False, fontsize=8)
plt.show()

assert accuracy["MLP"] >= 0.97 and accuracy["CNN"] >= 0.97 and accuracy["ViT"] >= 0.93
checks.report(
    predicted_bytes=predicted["ViT"],
    measured_bytes=measured["ViT"],
    mlp=accuracy["MLP"],
    cnn=accuracy["CNN"],
    vit=accuracy["ViT"],
)

# %% [markdown]
# `predict`, where a model has one, gives the scores themselves. These digits the MLP reads wrongly; you may find some
# of them hard as well.

# %%
scores = trainers["MLP"].predict(x=images[held].reshape(-1, 64))
read = scores.argmax(1)
assert np.isclose((read == labels[held]).mean(), accuracy["MLP"])
wrong = np.flatnonzero(read != labels[held])[:8]
figure, axes = plt.subplots(1, max(len(wrong), 2), figsize=(max(len(wrong), 2), 1.4))
for ax in axes:
    ax.set_axis_off()
for index, ax in zip(wrong, axes):
    ax.imshow(images[held][index], cmap="gray_r")
    ax.set_title(f"{labels[held][index]}, read {read[index]}", fontsize=8)
plt.show()

# %% [markdown]
# Which model needs most memory has little to do with how many weights it has:

# %%
plans = {
    name: tr.plan(task.model(), inputs=task.inputs, **BATCH) for name, task in MODELS.items()
}
for name, plan in plans.items():
    print(
        f"{name}: {plan.by_class['weight'] // 4:>7,} weights, "
        f"{plan.by_class['activation']:>9,} bytes of activations at the peak"
    )
plans["ViT"]

# %% [markdown]
# ## Half the memory, the same losses
#
# A budget works for your model as for any other. With more images in a pass, activations are most of the peak; the
# planner then recomputes what it must.

# %%
task = MODELS["ViT"]
LARGE = tr.Settings(batch=256, micro_batch=256, lr=3e-3, **CPU)
whole = tr.Trainer(Vit(blocks=6), inputs=task.inputs, recompute="none", **LARGE)
budget = whole.plan.peak_bytes // 2
half = tr.Trainer(Vit(blocks=6), inputs=task.inputs, memory=budget, **LARGE)
batch = task.batch_of(np.arange(256))
same = [whole.step(**batch).loss == half.step(**batch).loss for _ in range(3)]
assert all(same)
assert half.measured_peak_bytes == half.plan.peak_bytes <= whole.measured_peak_bytes // 2
checks.report(
    everything_kept_bytes=whole.measured_peak_bytes,
    predicted_bytes=half.plan.peak_bytes,
    measured_bytes=half.measured_peak_bytes,
    same_losses=all(same),
)

# %% [markdown]
# **What to remember.** A model is what its loss does with tensors. Everything else (gradients, lifetimes, places,
# recomputation) follows from the graph, whoever wrote it.
#
# The code: [layers in Python](../python/tightrope/nn.py), [the trace](../python/tightrope/trace.py), [a traced
# model](../python/src/traced.rs), [gradients](../core/src/grad.rs).
#
# ## Exercises
#
# **11.1** How many weights has `Cnn`? Count by hand: a convolution has kernel × kernel × channels in × channels out,
# and a bias for each channel out.

# %% tags=["exercise"]
answer = ...
checks.check("11.1", answer)

# %% [markdown]
# **11.2** Write a model for flat pixels, `PIXELS`, with at most 3,000 weights that reads at least 90 % of held-out
# digits after 300 steps of 64 images at a learning rate of 0.01. Give the class. (The check trains it; that takes a
# second or two.)

# %% tags=["exercise"]
Small = ...
checks.check("11.2", Small)

# %% [markdown]
# **11.3** You double the hidden width of `Mlp`. What happens to the activations at the peak, about?
#
# - a: nothing, as the batch is the same
# - b: they grow by four times
# - c: they nearly double, because the hidden layer is most of them
# - d: they halve

# %% tags=["exercise"]
answer = ...
checks.check("11.3", answer)
