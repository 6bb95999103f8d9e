# %% [markdown]
# # 8 · The host as memory
#
# A GPU has 8 GiB and its host 64. **When is it free to keep tensors over there, and what does a copy cost when it
# isn't?**
#
# A processor's memory *is* the host's, so there is nothing to offload on a laptop without a GPU. This notebook
# therefore builds a small device of its own in NumPy that counts its bytes, predicts what offload saves there, and
# measures it. Where the machine has a GPU, the last part runs the engine's own offload on it.

# %%
import time

import matplotlib.pyplot as plt
import numpy as np

import checks
import figures
import tightrope as tr

try:
    tr.plan(preset="tiny", offload=["optimizer"], device="cpu")
except (tr.Error, ValueError) as error:
    print(f"{type(error).__name__}: {error}")

# %% [markdown]
# ## A device that counts
#
# `Device` holds arrays by name and knows how many bytes it holds. `store` moves one to the host, `load` brings it
# back.


# %%
class Device:
    """Arrays by name, with their bytes, and a host to move them to."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.host: dict[str, np.ndarray] = {}
        self.peak, self.copied = 0, 0

    def put(self, name: str, array: np.ndarray) -> None:
        """Makes an array on the device."""
        self.arrays[name] = array
        self.peak = max(self.peak, sum(it.nbytes for it in self.arrays.values()))

    def drop(self, name: str) -> np.ndarray:
        """Frees an array."""
        return self.arrays.pop(name)

    def store(self, name: str) -> None:
        """Copies an array to the host, and frees it."""
        self.host[name] = self.drop(name).copy()
        self.copied += self.host[name].nbytes

    def load(self, name: str) -> None:
        """Copies an array back from the host."""
        self.put(name, self.host.pop(name).copy())
        self.copied += self.arrays[name].nbytes


LAYERS, ROWS, WIDTH = 12, 256, 128
random = np.random.default_rng(0)
weights = [
    random.normal(size=(WIDTH, WIDTH)).astype(np.float32) / np.float32(np.sqrt(WIDTH))
    for _ in range(LAYERS)
]
x0 = random.normal(size=(ROWS, WIDTH)).astype(np.float32)


def step(device: Device, offload: bool = False, ahead: int = 0) -> list[np.ndarray]:
    """Forward and backward through layers of tanh(x·W); with `offload`, inputs of layers wait on the host.

    An input is brought back `ahead` layers before the layer that needs it.
    """
    device.put("x0", x0)
    for i, weight in enumerate(weights):
        device.put(f"x{i + 1}", np.tanh(device.arrays[f"x{i}"] @ weight))
        if offload:
            device.store(f"x{i}")
    device.put("g", device.arrays[f"x{LAYERS}"])
    gradients: list[np.ndarray] = []
    due = iter(range(LAYERS - 1, -1, -1))
    if offload:
        for _ in range(ahead):
            device.load(f"x{next(due)}")
    for i in reversed(range(LAYERS)):
        if offload and (following := next(due, None)) is not None:
            device.load(f"x{following}")
        y = device.drop(f"x{i + 1}")
        inner = device.drop("g") * (1 - y * y)
        gradients.insert(0, device.arrays[f"x{i}"].T @ inner)
        device.put("g", inner @ weights[i].T)
    return gradients


# %% [markdown]
# ## Predict
#
# Every layer's input takes $a$ bytes. All kept, $L + 1$ of them and one gradient are there when the forward pass
# turns. Offloaded, a moment of the backward pass needs the layer's input, its output and the gradient: three.
# Bringing each input back one layer early needs room for one more.

# %%
a = ROWS * WIDTH * 4
predicted = {"kept": (LAYERS + 2) * a, "offloaded": 3 * a, "one layer ahead": 4 * a}
devices = {name: Device() for name in predicted}
gradients = {
    "kept": step(devices["kept"]),
    "offloaded": step(devices["offloaded"], offload=True),
    "one layer ahead": step(devices["one layer ahead"], offload=True, ahead=1),
}
for name, device in devices.items():
    print(
        f"{name:<16} predicted {predicted[name]:>10,}, measured {device.peak:>10,}; copied "
        f"{device.copied:>10,}"
    )
    assert device.peak == predicted[name]
    assert all(np.array_equal(own, kept) for own, kept in zip(gradients[name], gradients["kept"]))
checks.report(
    predicted_bytes=predicted["offloaded"],
    measured_bytes=devices["offloaded"].peak,
    copied_bytes=devices["offloaded"].copied,
    gradients_equal_bit_for_bit=True,
)

# %% [markdown]
# A copy changes no number. So the gradients are equal bit for bit, and that is the whole argument for correctness: an
# offloading run must give the losses of one that doesn't.
#
# ## What a copy costs
#
# Device and link work at the same time. Let a layer compute for $c$ seconds, and let one copy take $s$ seconds. In
# turn, a step of $L$ layers takes $3Lc + 2Ls$ (the backward pass works twice as much). Overlapped, a layer waits only
# for what the link isn't ready with.


# %%
def seconds(layers: int, compute: float, copy: float, overlapped: bool) -> float:
    """Seconds of a step where inputs go out in the forward pass and come back in the backward pass."""
    if not overlapped:
        return 3 * layers * compute + 2 * layers * copy
    now = link = 0.0
    for _ in range(layers):  # A store begins when its layer is done and the link is free.
        now += compute
        link = max(link, now) + copy
    for _ in range(
        layers
    ):  # A load begins when the link is free; a layer goes back when its input is there.
        link += copy
        now = max(now, link) + 2 * compute
    return now


ratios = np.linspace(0, 3, 61)
figure, axes = plt.subplots(figsize=(6, 3))
for label, overlapped in (("in turn", False), ("overlapped", True)):
    axes.plot(ratios, [seconds(24, 1, ratio, overlapped) / 72 for ratio in ratios], label=label)
axes.axvline(1, color="#888", linewidth=0.8, linestyle=":")
axes.set(
    xlabel="seconds of a copy / seconds of a layer's forward pass",
    ylabel="step time, 1 = no offload",
    ylim=(0.9, None),
)
axes.legend(frameon=False, fontsize=8)
plt.show()
hidden = seconds(24, 1, 0.9, True) / 72
in_turn = seconds(24, 1, 0.9, False) / 72
assert hidden < 1.05 < in_turn
checks.report(overlapped_at_0_9=hidden, in_turn_at_0_9=in_turn)

# %% [markdown]
# As long as a copy is shorter than a layer's forward pass, overlapped copies are nearly free. That gives a rule. A
# transformer block does about $24\,t\,C^2$ operations on $t$ tokens of $C$ channels, and its input takes $2\,t\,C$
# bytes in 16 bits. So offloading block inputs is free where
#
# $$\text{link} \;\ge\; \frac{\text{operations a second}}{12\,C},$$
#
# and the batch doesn't matter. Here is what that asks of a link:

# %%
for name, speed, channels in (
    ("this kind of laptop, 0.2 TFLOP/s", 0.2e12, 768),
    ("a card of 60 TFLOP/s", 60e12, 2048),
    ("a card of 400 TFLOP/s", 400e12, 4096),
):
    print(f"{name:<33} C = {channels}: {speed / (12 * channels) / 1e9:6.2f} GB/s")

# %% [markdown]
# For comparison, this machine copies within its own memory at:

# %%
source = np.ones(64 << 20, np.uint8)
target = np.empty_like(source)
timed = []
for _ in range(5):
    start = time.perf_counter()
    np.copyto(target, source)
    timed.append(time.perf_counter() - start)
speed = source.nbytes / min(timed)
assert speed > 1e8
print("more than", "10" if speed > 10e9 else "1" if speed > 1e9 else "0.1", "GB/s")

# %% [markdown]
# ## Optimizer state: the other way round
#
# The state of the optimizer is read once a step, however many passes there are. So the copies of a step are fixed:
# gradients out, $4P$ bytes, and weights back, $4P$. The host makes the update itself, and the state never moves. What
# leaves the device, in the plan of a GPT-2 124M step:

# %%
plan = tr.plan(preset="gpt2", batch=8, micro_batch=1, recompute="block", device="cpu", threads=2)
state = plan.by_class["optimizer"]
print(
    f"peak {figures.mib(plan.peak_bytes)}, of which optimizer state {figures.mib(state)}: "
    f"{state / plan.peak_bytes:.0%}"
)
P = 124_439_808
for link in (8e9, 25e9, 64e9):
    print(
        f"a link of {link / 1e9:>2.0f} GB/s moves gradients and weights in "
        f"{8 * P / link:.3f} s a step"
    )
assert state >= 8 * P

# %% [markdown]
# ## Measure: the engine's own offload, where there is a GPU
#
# Through Vulkan, Metal or DX12 (a driver that emulates a GPU on the processor counts too). `offload=["optimizer"]`
# keeps the state on the host and updates there. The model is a small MLP that reads digits (notebook 11 is about
# models of one's own).


# %%
class Digits(tr.Model):
    """One hidden layer."""

    def __init__(self) -> None:
        self.up, self.down = tr.nn.Linear(64, 128), tr.nn.Linear(128, 10)

    def loss(self, x: tr.Tensor, y: tr.Tensor) -> tr.Tensor:
        return tr.nn.cross_entropy(self.down(tr.nn.relu(self.up(x))), y)


images, labels = tr.data.digits()
batch = {"x": images[:64].reshape(-1, 64), "y": labels[:64]}
INPUTS = {"x": ("f32", (64,)), "y": ("i32", ())}
GPU = tr.Settings(batch=64, micro_batch=64, device="wgpu")
on_device: tr.Trainer | None = None
try:
    on_device = tr.Trainer(Digits(), inputs=INPUTS, **GPU)
except tr.Error as error:
    print("no GPU here:", str(error).splitlines()[0])

found: dict[str, float] = {"gpu": on_device is not None}
if on_device is not None:
    offloading = tr.Trainer(Digits(), inputs=INPUTS, offload=["optimizer"], **GPU)
    losses = [[trainer.step(**batch).loss for _ in range(3)] for trainer in (on_device, offloading)]
    assert offloading.measured_peak_bytes == offloading.plan.peak_bytes < on_device.plan.peak_bytes
    assert np.allclose(losses[0], losses[1], rtol=0, atol=1e-5)
    found |= dict(
        predicted_bytes=offloading.plan.peak_bytes,
        measured_bytes=offloading.measured_peak_bytes,
        without_offload_bytes=on_device.measured_peak_bytes,
        largest_difference_of_losses=float(np.ptp(losses, axis=0).max()),
    )
checks.report(**found)

# %% [markdown]
# **What to remember.** Offload moves bytes and changes no number. Copies are free while the device has enough to
# compute meanwhile. A plan states the lifetimes of copies in ops, not in seconds, so a slow link makes a step slow
# and never makes it run out of memory.
#
# The code: [offload in the plan](../core/src/plan/offload.rs), [bytes in flight](../core/src/plan/in_flight.rs),
# [transfers as ops](../core/src/ops/transfer.rs), [the host's side](../core/src/session/offload.rs).
#
# ## Exercises
#
# **8.1** The toy device brings inputs back three layers ahead. How many bytes is its peak? (The sizes are those
# above. Predict it before you run it.)

# %% tags=["exercise"]
answer = ...
checks.check("08.1", answer)

# %% [markdown]
# **8.2** A card does 120 TFLOP/s on a model of 3,072 channels. How many GB/s must its link have for block inputs in
# 16 bits to be free? Answer with a number to two digits after the point.

# %% tags=["exercise"]
answer = ...
checks.check("08.2", answer)

# %% [markdown]
# **8.3** The link is half as fast as the rule asks for. What should be offloaded?
#
# - a: nothing, since the rule isn't met
# - b: every block's input, and the step waits
# - c: about half of the inputs; the other half is kept or recomputed
# - d: the weights instead

# %% tags=["exercise"]
answer = ...
checks.check("08.3", answer)
