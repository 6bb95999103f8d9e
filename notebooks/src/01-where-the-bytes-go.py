# %% [markdown]
# # 1 · Where the bytes go
#
# A GPT with 842,496 parameters is a file of 3.2 MiB. **Why does a training step of it take more than ten times
# that?**
#
# This notebook counts by hand what follows from the parameters, asks the planner for every byte of the step, and then
# trains and measures. Each agrees with the one before, to the byte.

# %%
import matplotlib.pyplot as plt
import numpy as np

import checks
import figures
import tightrope as tr

# Some kernels take scratch memory for each thread, so the number of threads is part of a prediction.
CPU = tr.Settings(device="cpu", threads=2)

# %% [markdown]
# ## Predict: what depends on the parameters alone
#
# A GPT-2 with $L$ blocks of $C$ channels, a context of $T$ tokens and a vocabulary of $V$ has
#
# $$P = VC + TC + L\,(12C^2 + 13C) + 2C$$
#
# parameters: two embeddings; in each block four matrices of attention ($4C^2$) and two of the MLP ($8C^2$) with their
# biases and norms; and one last norm. In f32 a weight takes 4 bytes. AdamW keeps two moments for each weight, 8 bytes
# more.


# %%
def parameters(layers: int, channels: int, context: int, vocab: int) -> int:
    """Parameters of a GPT-2 whose head is its embedding."""
    block = 12 * channels**2 + 13 * channels
    return vocab * channels + context * channels + layers * block + 2 * channels


P = parameters(layers=4, channels=128, context=128, vocab=256)
print(f"{P:,} parameters: {figures.mib(4 * P)} of weights, {figures.mib(8 * P)} of AdamW's moments")

# %% [markdown]
# ## Ask the planner
#
# `tr.plan` builds the graph of the whole step (forward, backward, update), gives every tensor a place, and runs
# nothing. `recompute="none"` keeps every activation; notebook 4 is about the other choices.

# %%
SMALL = tr.Settings(preset="small", recompute="none", **CPU)
plan = tr.plan(batch=8, micro_batch=8, **SMALL)
for name, count in plan.by_class.items():
    print(f"{name:<11}{count:>12,} bytes")
print(f"{'peak':<11}{plan.peak_bytes:>12,} bytes")
assert sum(plan.by_class.values()) == plan.peak_bytes

# %% [markdown]
# The classes add up to the peak. (Gaps are what alignment and holes between tensors take.) The weights must be $4P$
# bytes, exactly. The optimizer has a few bytes more than $8P$: the learning rate and the
# step's other scalars. They are tensors too, so the plan counts them.

# %%
scalars = plan.by_class["optimizer"] - 8 * P
assert plan.by_class["weight"] == 4 * P
assert 0 <= scalars < 64
checks.report(
    weights_by_hand=4 * P, weights_planned=plan.by_class["weight"], bytes_of_scalars=scalars
)

# %% [markdown]
# ## The picture: when is what alive?
#
# An op of the step reads tensors and makes tensors. A tensor is *alive* from the op that makes it to the last op that
# reads it. This is what is alive at each op:

# %%
figures.draw_live(plan, title="Live bytes of one training step")
plt.show()

# %% [markdown]
# Weights and moments are always there: they are *persistent*. Activations pile up through the forward pass, because
# the backward pass will read them: the gradient of a matmul's weight is made of the matmul's input. Then the backward
# pass goes through the blocks in reverse order, and each block's activations die as its gradients are made.
#
# So the peak lies **where the forward pass turns around**, or shortly after, while few activations are gone and the
# first gradients are there. The plan knows the op:

# %%
peak = plan.to_dict()["peak"]
at = int(plan.live_bytes().argmax())
ops = plan.ops()
last_forward = int(np.flatnonzero(ops["phase"] == "forward").max())
print(f"the peak is at op {at} of {len(ops['op'])}: {peak['op']}")
print(f"the forward pass ends with op {last_forward}")
checks.report(peak_op=at, last_forward_op=last_forward, distance_in_ops=at - last_forward)

# %% [markdown]
# These are the largest tensors alive at that op, those of the same kind together:

# %%
for group in peak["groups"][:8]:
    print(
        f"{group['bytes']:>12,}  {group['class']:<11} {group['count']} × {group['name']} "
        f"{group['type']}"
    )

# %% [markdown]
# `mlp.up` and `mlp.gelu` are the widest activations: four times the channels, for each token of each block.
#
# A plan at the end of a cell shows its map: ops from left to right, offsets in the arena from the bottom up, one box
# for each tensor.

# %%
plan

# %% [markdown]
# ## Measure
#
# A `Trainer` allocates what its plan says. `measured_peak_bytes` isn't the plan's number: it is what the device's
# allocator gave.

# %%
trainer = tr.Trainer(batch=8, micro_batch=8, steps=3, **SMALL)
losses = [step.loss for step in trainer]
assert trainer.measured_peak_bytes == plan.peak_bytes
checks.report(
    predicted_bytes=plan.peak_bytes,
    measured_bytes=trainer.measured_peak_bytes,
    first_loss=losses[0],
)

# %% [markdown]
# The first loss is near $\ln 256 = 5.55$: the model knows nothing yet, and 256 bytes are equally likely.
#
# ## What grows?
#
# Weights and moments don't depend on the batch. Activations are proportional to it. So two plans are enough to
# predict a third:

# %%
batches = [1, 2, 4, 8, 16, 32]
plans = {batch: tr.plan(batch=batch, micro_batch=batch, **SMALL) for batch in batches}
peaks = np.array([plans[batch].peak_bytes for batch in batches])

slope = (plans[16].peak_bytes - plans[8].peak_bytes) / 8
predicted = plans[16].peak_bytes + 16 * slope
error = abs(predicted / plans[32].peak_bytes - 1)
assert len({plans[batch].by_class["weight"] for batch in batches}) == 1
assert error < 0.02

figure, axes = plt.subplots(figsize=(6, 3))
for name in ("weight", "optimizer", "gradient", "activation", "workspace"):
    values = [plans[batch].by_class[name] / figures.MIB for batch in batches]
    axes.plot(batches, values, "o-", label=name, color=figures.COLOURS[name])
axes.set(xlabel="sequences of 128 tokens", ylabel="MiB at the peak")
axes.legend(frameon=False, fontsize=8)
plt.show()
checks.report(
    bytes_per_sequence=slope,
    line_says_for_32=int(predicted),
    plan_says_for_32=plans[32].peak_bytes,
    relative_error=error,
)

# %% [markdown]
# **What to remember.** Of a training step's bytes, weights, gradients and moments follow the parameters; activations
# follow the tokens. Which of the two is larger decides what helps. The rest of this course takes them one by one.
#
# The code: [the report of a plan](../core/src/plan/report.rs), [lifetimes](../core/src/plan/liveness.rs), [the
# programs of a step](../nn/src/programs.rs).
#
# ## Exercises
#
# **1.1** How many bytes do AdamW's two moments take for the preset `tiny` (2 layers, 64 channels, context 64,
# vocabulary 256), in f32 and without the scalars?

# %% tags=["exercise"]
answer = ...
checks.check("01.1", answer)

# %% [markdown]
# **1.2** Every weight gets a gradient, $4P$ bytes in all. At the peak above there are far fewer bytes of gradients.
# Why?
#
# - a: gradients are stored in 16 bits
# - b: most gradients are made later, in the room that activations leave
# - c: the planner recomputes gradients
# - d: the optimizer has already used most of them

# %% tags=["exercise"]
answer = ...
checks.check("01.2", answer)

# %% [markdown]
# **1.3** You have 64 MiB (67,108,864 bytes). What is the largest `batch` for which `tr.plan(batch=batch,
# micro_batch=batch, **SMALL)` fits? The line above gives a first guess; a few plans give the answer.

# %% tags=["exercise"]
answer = ...
checks.check("01.3", answer)
