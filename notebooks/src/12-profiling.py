# %% [markdown]
# # 12 · Profiling
#
# A run takes twice the memory that you expected. **Where do you look first?**
#
# This notebook reads a step by layer and by op, finds a leak in a model and one in a training loop, and ends with a
# list that can be used on any system.

# %%
import gc
import tracemalloc
from collections import defaultdict

import matplotlib.pyplot as plt
import numpy as np

import checks
import figures
import tightrope as tr
from tightrope import nn

CPU = tr.Settings(device="cpu", threads=2)
SMALL = tr.Settings(preset="small", batch=8, micro_batch=8, recompute="none", **CPU)
plan = tr.plan(**SMALL)
columns, ops = plan.tensors(), plan.ops()

# %% [markdown]
# ## By layer
#
# What does a layer keep from the forward to the backward pass? Everything of it that is made in the forward pass and
# still alive when that pass ends.
#
# **Predict**, for one block of $C$ channels and $t$ tokens in f32. The backward pass reads the input and output of
# both norms ($4\,tC$), queries, keys and values ($3\,tC$), the output of attention ($tC$), and the input and output
# of GELU ($8\,tC$). The input of a block is the output of the block before it.

# %%
C, t = 128, 8 * 128
predicted = 16 * t * C * 4

turn = int(np.flatnonzero(ops["phase"] == "forward").max())
kept = (columns["class"] == "activation") & (columns["first"] <= turn) & (columns["last"] > turn)
by_layer: dict[str, int] = defaultdict(int)
by_kind: dict[str, int] = defaultdict(int)
for name, count in zip(columns["name"][kept], columns["bytes"][kept]):
    words = name.split(".")
    layer = ".".join(words[:2]) if words[0] == "h" else words[0]
    by_layer[layer] += int(count)
    if layer == "h.2":
        by_kind[".".join(words[2:])] += int(count)
small = sum(count for name, count in by_kind.items() if count < t * C)
for layer, count in by_layer.items():
    print(f"{layer:<10} {figures.mib(count)}")
print(
    f"a block by hand {figures.mib(predicted)}; planned {figures.mib(by_layer['h.2'])}, of "
    f"which {small:,} bytes are means, deviations and sums of rows"
)

# %%
figures.bars(
    list(by_kind),
    [count / figures.MIB for count in by_kind.values()],
    title="What block 2 keeps for its backward pass",
    colours=figures.COLOURS["activation"],
)
plt.show()
assert by_layer["h.2"] - small == predicted
checks.report(block_by_hand=predicted, block_planned=by_layer["h.2"] - small)

# %% [markdown]
# ## By op: reading a timeline
#
# `plan.ops()` has the predicted seconds, operations and moved bytes of each op. An op that does few operations for
# each byte it moves is limited by memory, whatever the processor can do. (The seconds are predicted from rates of the
# device. The command `tightrope train --profile` measures them, op by op.)

# %%
seconds: dict[str, float] = defaultdict(float)
flops: dict[str, int] = defaultdict(int)
moved: dict[str, int] = defaultdict(int)
for op, s, f, b in zip(ops["op"], ops["seconds"], ops["flops"], ops["bytes"]):
    seconds[op] += s
    flops[op] += int(f)
    moved[op] += int(b)
total = sum(seconds.values())
print(f"{'op':<28} {'operations':>14} {'bytes':>13} {'ops/byte':>9}")
for op in sorted(flops, key=lambda op: flops[op], reverse=True)[:8]:
    print(f"{op:<28} {flops[op]:>14,} {moved[op]:>13,} {flops[op] / max(moved[op], 1):>9.1f}")

tokens = 8 * 128
parameters_of_matmuls = 4 * 12 * C * C
by_hand = 6 * tokens * parameters_of_matmuls
assert abs(flops["matmul"] / by_hand - 1) < 0.1
checks.report(matmul_operations_by_hand=by_hand, matmul_operations_planned=flops["matmul"])

# %% [markdown]
# Six operations for each token and each weight of a matrix: two in the forward pass (multiply and add), and twice
# that in the backward pass. This rule gives the training time of any transformer from its size, once you know how
# fast your device multiplies.
#
# The timeline itself, bytes over ops, with the ops that take longest marked:

# %%
axes = figures.draw_live(plan, title="Live bytes; marks are the ten dearest ops")
for at in np.argsort(ops["seconds"])[-10:]:
    axes.axvline(at, color="black", linewidth=0.5, alpha=0.6)
plt.show()

# %% [markdown]
# ## A leak in a model
#
# Two models that compute nearly the same, with blocks that are recomputed. The second gives its head one more thing
# to read: what is inside of the first block. What does that cost? The plan knows, because a lifetime is all there is
# to it.


# %%
class Plain(tr.Model):
    """Eight blocks, one after the other."""

    probe = False

    def __init__(self) -> None:
        self.first = nn.Linear(64, 128)
        self.blocks = [
            {"norm": nn.LayerNorm(128), "up": nn.Linear(128, 512), "down": nn.Linear(512, 128)}
            for _ in range(8)
        ]
        self.head = nn.Linear(640 if self.probe else 128, 10)

    def loss(self, x: tr.Tensor, y: tr.Tensor) -> tr.Tensor:
        x, inside = self.first(x), []
        for index, block in enumerate(self.blocks):
            with nn.block(index):
                inside.append(nn.gelu(block["up"](block["norm"](x))))
                x = x + block["down"](inside[-1])
        return nn.cross_entropy(self.head(nn.concat([x, inside[0]], 1) if self.probe else x), y)


class Probing(Plain):
    """The same, with a head that reads the first block's inside too."""

    probe = True


INPUTS = {"x": ("f32", (64,)), "y": ("i32", ())}
OWN = tr.Settings(batch=512, micro_batch=512, recompute="block", **CPU)
pair = {"plain": tr.plan(Plain(), inputs=INPUTS, **OWN), "probing": tr.plan(Probing(), inputs=INPUTS, **OWN)}
for name, own in pair.items():
    table = own.tensors()
    life = table["last"].astype(int) - table["first"].astype(int)
    cost = np.where(table["class"] == "activation", life * table["bytes"].astype(float), 0)
    print(f"{name}: peak {own.peak_bytes:,}; most bytes × ops:")
    for i in np.argsort(-cost, kind="stable")[:3]:
        print(
            f"    {table['name'][i]:<10} {table['bytes'][i]:>9,} bytes for {life[i]:>2} of "
            f"{len(own.live_bytes())} ops"
        )

# %% [markdown]
# The list names the leak: a wide tensor of the first block that lives through most of the step. Below it is its
# gradient, which the head makes at the start of the backward pass and the first block reads at the end. **Predict**
# what the two cost: 512 images, 512 numbers each, 4 bytes, twice. The plan says a little less, because the peak is
# now at another op; the measurement is the plan's:

# %%
by_hand = 2 * 512 * 512 * 4
extra = pair["probing"].peak_bytes - pair["plain"].peak_bytes
for name, model in (("plain", Plain), ("probing", Probing)):
    trainer = tr.Trainer(model(), inputs=INPUTS, **OWN)
    assert trainer.measured_peak_bytes == pair[name].peak_bytes
assert 0.8 < extra / by_hand < 1.2
checks.report(
    by_hand=by_hand,
    planned_difference=extra,
    predicted_bytes=pair["probing"].peak_bytes,
    measured_bytes=trainer.measured_peak_bytes,
)

# %% [markdown]
# ## A leak in a loop
#
# The engine allocates its arena once, so no step can leak there. The Python around it can. This loop keeps a weight
# of every step, for a plot that nobody draws:

# %%
trainer = tr.Trainer(steps=12, preset="tiny", batch=1, micro_batch=1, **CPU)
name = max(trainer.weights, key=lambda it: trainer.weights[it].nbytes)
each = trainer.weights[name].nbytes
history, seen = [], []
gc.collect()
tracemalloc.start()
for step in trainer:
    history.append(trainer.weights[name].copy())
    seen.append((tracemalloc.get_traced_memory()[0], trainer.measured_peak_bytes))
tracemalloc.stop()
grown = np.diff([bytes_now for bytes_now, _ in seen])
print(
    f"`{name}` takes {each:,} bytes; Python grew by {int(np.median(grown)):,} bytes a step, "
    f"the engine by {seen[-1][1] - seen[0][1]}"
)
assert abs(np.median(grown) / each - 1) < 0.05
assert seen[-1][1] == seen[0][1] == trainer.plan.peak_bytes
checks.report(
    predicted_growth=each,
    measured_growth=int(np.median(grown)),
    engine_grew_by=seen[-1][1] - seen[0][1],
)

# %% [markdown]
# ## Looking at values has a price
#
# A profile says where bytes are, not what is in them. `watch=[names]` keeps tensors until the end of the step, so that
# they can be read. Then they live longer, and the plan counts that. **Predict** the price of watching what GELU makes
# in all four blocks of a run that recomputes its blocks: $4 \cdot t \cdot 4C$ numbers that would have been dropped.

# %%
WATCHED = tr.Settings(preset="small", batch=8, micro_batch=8, recompute="block", **CPU)
names = ["h.*.mlp.gelu"]
by_hand = 4 * t * 4 * C * 4
price = tr.plan(watch=names, **WATCHED).peak_bytes - tr.plan(**WATCHED).peak_bytes

small_outputs: dict[str, list[float]] = defaultdict(list)


def look(name: str, values: np.ndarray) -> None:
    """Notes which part of the outputs is next to nothing."""
    small_outputs[name].append(float((np.abs(values) < 0.01).mean()))


watching = tr.Trainer(on=("h.*.mlp.gelu", look), steps=20, **WATCHED)
for step in watching:
    pass
assert abs(price / by_hand - 1) < 0.1
assert (
    watching.measured_peak_bytes
    == watching.plan.peak_bytes
    == tr.plan(**WATCHED).peak_bytes + price
)

figure, axes = plt.subplots(figsize=(6, 2.8))
for name, parts in small_outputs.items():
    axes.plot(parts, label=name, linewidth=1.2)
axes.set(xlabel="step", ylabel="outputs below 0.01", ylim=(0, None))
axes.legend(frameon=False, fontsize=8)
plt.show()
checks.report(price_by_hand=by_hand, price_planned=price)

# %% [markdown]
# The price is a little below the sum, because the peak is now at another op, where less of the rest is alive.
#
# **A list to go through**, on any system:
#
# 1. Does memory grow from step to step? Then something outside of the step keeps references: losses with their
#    graphs, histories, caches.
# 2. Is the peak in the forward or backward pass, or in the update? Activations in the first case, optimizer state and
#    gradients in the second.
# 3. What is alive at the peak, largest first? One wide tensor (logits, a mask, a concatenation) is worth more than
#    ten narrow ones.
# 4. How long do these live? A long life of a large tensor is a skip connection, a residual in f32, or something kept
#    for a plot.
# 5. Is reserved memory far above allocated memory? That is fragmentation (notebook 2).
#
# The code: [what is alive at the peak](../engine/src/view/alive.rs), [by layer](../engine/src/view/layers.rs), [cost
# of an op](../nn/src/cost.rs), [profiles of a run](../engine/src/profile.rs).
#
# ## Exercises
#
# **12.1** How many bytes does block 2 of the preset `small` keep for its backward pass per *token*, without the
# means, deviations and sums of rows?

# %% tags=["exercise"]
answer = ...
checks.check("12.1", answer)

# %% [markdown]
# **12.2** Write `kept_by(plan, prefix)`: the bytes of activations whose names begin with `prefix` and that are alive
# when the forward pass ends, small ones included. The check tries it on several plans and prefixes.

# %% tags=["exercise"]
kept_by = ...
checks.check("12.2", kept_by)

# %% [markdown]
# **12.3** A plan's peak is in the update. Which of these makes it smaller?
#
# - a: recomputing more activations
# - b: a smaller micro-batch
# - c: optimizer state in fewer bits
# - d: a smaller loss chunk

# %% tags=["exercise"]
answer = ...
checks.check("12.3", answer)

# %% [markdown]
# **12.4** How many seconds does an optimizer step of 100,000 tokens take for a model with $10^9$ weights in matrices,
# on a device that does $2 \cdot 10^{13}$ operations a second, if nothing but matmuls counts?

# %% tags=["exercise"]
answer = ...
checks.check("12.4", answer)
