# %% [markdown]
# # 9 · Twenty times less
#
# Each notebook so far saved a part. **How far do all of them go together, on one model, measured?**
#
# This is the ladder: one step of 64 sequences of the preset `small`, again and again, with one change more on each
# rung. Every rung is predicted, then allocated and run.

# %%
import matplotlib.pyplot as plt
import numpy as np

import checks
import figures
import tightrope as tr

BASE = tr.Settings(preset="small", batch=64, steps=2, device="cpu", threads=2)
BITS = {"memory.optimizer_bits": 8}

# %% [markdown]
# ## Predict
#
# The floor first. Whatever is saved, a step keeps its weights, gradients that passes add to, and two moments. In f32
# that is $16P$ bytes. With bf16 weights and 8-bit moments about $10P$:

# %%
P = 842_496
print(
    f"floor in f32 {figures.mib(16 * P)}; with bf16 weights and 8-bit moments about "
    f"{figures.mib(10 * P)}"
)

# %% [markdown]
# Above the floor are activations, and these the rungs take away. The first four change no number but rounding; the
# last two do change numbers, and a planner must not make such choices unasked.

# %%
RUNGS = {
    "everything kept": tr.Settings(micro_batch=64, recompute="none", loss_chunk="none"),
    "loss in chunks": tr.Settings(micro_batch=64, recompute="none", loss_chunk=256),
    "recompute blocks": tr.Settings(micro_batch=64, recompute="block", loss_chunk=256),
    "micro-batches of 8": tr.Settings(micro_batch=8, recompute="block", loss_chunk=256),
    "micro-batches of 1": tr.Settings(micro_batch=1, recompute="block", loss_chunk=256),
    "bf16": tr.Settings(micro_batch=1, recompute="block", loss_chunk=256, precision="bf16"),
    "8-bit moments": tr.Settings(
        micro_batch=1, recompute="block", loss_chunk=256, precision="bf16", settings=BITS
    ),
}
plans = {name: tr.plan(**rung, **BASE) for name, rung in RUNGS.items()}
first = plans["everything kept"].peak_bytes
for name, plan in plans.items():
    print(f"{name:<20} {figures.mib(plan.peak_bytes):>12}  1/{first / plan.peak_bytes:.1f}")

# %% [markdown]
# ## Measure
#
# Two steps on each rung: bytes must be the plan's, and losses those of the first rung.

# %%
measured, losses = {}, {}
for name, rung in RUNGS.items():
    trainer = tr.Trainer(**rung, **BASE)
    measured[name] = trainer.measured_peak_bytes
    losses[name] = np.array([step.loss for step in trainer])
    assert measured[name] == plans[name].peak_bytes
    apart = np.abs(losses[name] - losses["everything kept"]).max()
    print(
        f"{name:<20} {measured[name]:>12,} bytes, as planned; losses "
        f"{losses[name].round(5)}, {apart:.1e} from the first rung"
    )

# %%
names = list(RUNGS)
figures.bars(
    [f"{name} (1/{first / measured[name]:.0f})" for name in names],
    [measured[name] / figures.MIB for name in names],
    title="One step of 64 sequences: measured bytes",
    colours=["#4e79a7" if index < 5 else "#76b7b2" for index in range(len(names))],
)
plt.show()

exact = max(float(np.abs(losses[name] - losses["everything kept"]).max()) for name in names[:5])
rounded = max(float(np.abs(losses[name] - losses["everything kept"]).max()) for name in names[5:])
assert exact < 1e-4 and rounded < 0.05
times = first / measured["8-bit moments"]
assert times > 20
assert all(measured[a] >= measured[b] for a, b in zip(names, names[1:]))
checks.report(
    predicted_bytes=plans["8-bit moments"].peak_bytes,
    measured_bytes=measured["8-bit moments"],
    first_rung_bytes=first,
    times_less=times,
    largest_difference_of_exact_rungs=exact,
    largest_difference_of_others=rounded,
)

# %% [markdown]
# ## Two rungs as maps
#
# On one scale: micro-batches of 8, and the last rung. On the left, activations of eight sequences stand on the floor:
# weights, gradients and moments. On the right they are gone but for one block of one sequence, and the moments are
# thin. The small boxes at the end are moments again: each is dequantized for its own update, and lies where
# activations were.

# %%
tr.compare(plans["micro-batches of 8"], plans["8-bit moments"])

# %% [markdown]
# ## Let the planner climb
#
# You don't have to choose rungs. Give a budget, and the planner searches micro-batch, loss chunk and recomputation
# together for the least time. It finds mixtures between whole rungs:

# %%
steps = []
for budget in (200, 100, 50, 25, 18):
    plan = tr.plan(memory=f"{budget}MiB", **BASE)
    assert plan.peak_bytes <= budget << 20
    steps.append((budget, plan.peak_bytes / figures.MIB, plan.predicted_step_s))
    print(
        f"{budget:>4} MiB: takes {figures.mib(plan.peak_bytes)}, "
        f"{plan.predicted_step_s / steps[0][2]:.3f} × the time of the first; "
        f"micro-batch {plan.choices['micro_batch']}"
    )
assert all(a[2] <= b[2] * 1.0001 for a, b in zip(steps, steps[1:]))

# %% [markdown]
# And below the floor it refuses, with what would help:

# %%
needed = budget = 0
try:
    tr.plan(memory="8MiB", **BASE)
except tr.DoesNotFit as error:
    needed, budget = error.needed or 0, error.budget or 0
    print(f"needed {needed:,}, budget {budget:,}: {error.suggestion}")
assert needed > budget == 8 << 20

# %% [markdown]
# **What to remember.** Activations go first, because they are largest and it costs no accuracy. Then the floor
# decides, and only fewer bits, a frozen model (notebook 10) or another memory (notebook 8) lower it.
#
# There is one rung that this ladder can't have: `memory.consume_gradients` updates each weight as soon as its
# gradient is made, so gradients never exist all at once. It needs a step of one pass, and no clipping. Exercise 9.2
# weighs it.
#
# The code: [the budget search](../core/src/plan/search.rs), [the planner](../nn/src/planner.rs),
# [refusals](../engine/src/plan/refusal.rs).
#
# ## Exercises
#
# **9.1** What is the smallest budget, in whole MiB, for which `tr.plan(memory=f"{budget}MiB", **BASE)` finds a plan?

# %% tags=["exercise"]
answer = ...
checks.check("09.1", answer)

# %% [markdown]
# **9.2** Give a dict of keyword arguments for `tr.plan` that describes one step of `batch=1` of the preset `small` on
# the CPU, in f32, with AdamW in 32 bits, and that takes at most 12 MiB. (One pass needs no persistent gradients.
# Which setting makes gradients go early, and what does it forbid? What else fills the peak?)

# %% tags=["exercise"]
settings = ...
checks.check("09.2", settings)

# %% [markdown]
# **9.3** On which rung does the picture change from "activations decide" to "the floor decides"?
#
# - a: loss in chunks
# - b: recompute blocks
# - c: micro-batches of 1
# - d: 8-bit moments

# %% tags=["exercise"]
answer = ...
checks.check("09.3", answer)
