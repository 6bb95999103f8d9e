# %% [markdown]
# # 4 · Activation checkpointing
#
# The forward pass keeps activations for the backward pass. It could also drop them and compute them again. **Which
# ones should it drop?**
#
# There is a famous answer, $\sqrt n$. This notebook derives it, finds where it doesn't hold, lets you write a policy
# of your own over the real tensors of a step, and compares it with the planner's, and with a bound that no policy
# beats.

# %%
import math

import matplotlib.pyplot as plt
import numpy as np

import checks
import figures
import tightrope as tr

LAYERS = 16
DEEP = tr.Settings(
    preset="small",
    layers=LAYERS,
    context=64,
    batch=8,
    micro_batch=8,
    loss_chunk="none",
    device="cpu",
    threads=2,
)

# %% [markdown]
# ## √n, in units
#
# Take a chain of $n$ layers whose activations are one unit each. Keep every $N$-th one. In the backward pass, compute
# a segment of $N$ activations again from its checkpoint, use them, and drop them. Then at most
#
# $$\frac{n}{N} + N$$
#
# units are alive: the checkpoints and one segment. That is smallest at $N = \sqrt n$, and the price is one more
# forward pass (Chen et al. 2016).

# %%
n = 64
segments = np.arange(1, n + 1)
units = np.ceil(n / segments) + segments
best = int(segments[units.argmin()])
assert best == math.isqrt(n)
print(f"{n} layers: keep every {best}th, and {int(units.min())} units are alive instead of {n}")

# %% [markdown]
# ## Predict: blocks aren't units
#
# A transformer's segment is made of blocks. A checkpoint is a block's *input*: $C$ numbers for each token. Inside, a
# block makes many times that. So let a checkpoint take $a$ bytes and a block's inside $b$ bytes:
#
# $$a\,\frac{n}{N} + b\,N \quad\text{is smallest at}\quad N = \sqrt{n\,a/b}.$$
#
# The plan that keeps everything says what $a$ and $b$ are:

# %%
whole = tr.plan(recompute="none", **DEEP)
columns = whole.tensors()
in_forward = (columns["class"] == "activation") & (columns["phase"] == "forward")
# What still lives when the forward pass ends was kept for the backward pass.
turn = int(np.flatnonzero(whole.ops()["phase"] == "forward").max())
kept = in_forward & (columns["last"] > turn)
inside = sum(
    int(count)
    for name, count in zip(columns["name"][kept], columns["bytes"][kept])
    if name.startswith("h.7.")
)
checkpoint = 8 * 64 * 128 * 4
print(
    f"a block's input takes {checkpoint:,} bytes, what it keeps in all {inside:,}: "
    f"{inside / checkpoint:.1f} ×"
)
print(
    f"so the best segment would be {math.sqrt(LAYERS * checkpoint / inside):.2f} blocks, not "
    f"{math.sqrt(LAYERS):.0f}"
)

# %% [markdown]
# A segment of one block is as good as it gets: **for a transformer of this depth, √n is the wrong answer.** The plans
# agree. They lie above the formula, because it leaves out the gradients of weights, which take the room of activations
# that are gone.

# %%
lengths = [1, 2, 4, 8, 16]
plans = {length: tr.plan(recompute=f"every:{length}", **DEEP) for length in lengths}
fixed = whole.peak_bytes - LAYERS * inside
formula = {
    length: fixed + checkpoint * math.ceil(LAYERS / length) + inside * length for length in lengths
}

figure, axes = plt.subplots(figsize=(6, 3))
axes.plot(
    lengths, [formula[it] / figures.MIB for it in lengths], "--", color="#888", label="formula"
)
axes.plot(
    lengths,
    [plans[it].peak_bytes / figures.MIB for it in lengths],
    "o",
    color="#4e79a7",
    label="planned",
)
axes.axhline(
    whole.peak_bytes / figures.MIB, color="#e15759", linewidth=0.8, label="nothing recomputed"
)
axes.set(xlabel="blocks of a segment", ylabel="peak, MiB", xscale="log", ylim=(0, None))
axes.set_xticks(lengths, map(str, lengths))
axes.minorticks_off()
axes.legend(frameon=False, fontsize=8)
plt.show()

smallest = min(plans, key=lambda it: plans[it].peak_bytes)
assert plans[smallest].peak_bytes < plans[4].peak_bytes < plans[16].peak_bytes
checks.report(
    best_segment=smallest,
    its_peak=plans[smallest].peak_bytes,
    sqrt_n_peak=tr.plan(recompute="sqrt", **DEEP).peak_bytes,
    everything_kept=whole.peak_bytes,
)

# %% [markdown]
# As maps: everything kept, and each block recomputed. The mountain is gone. What decides the right peak are gradients, at
# the end of the backward pass, and recomputing more wouldn't change that.

# %%
tr.compare(whole, plans[1])

# %% [markdown]
# ## Your own policy
#
# Dropping whole blocks is coarse. Inside a block, some activations are cheap to make again (an activation function
# reads and writes memory once) and some are dear (a matmul). `recompute=[names]` keeps exactly these tensors and
# recomputes the rest of every block. So a policy is a function that chooses names.
#
# This one is the textbook's knapsack: keep what takes the most seconds to make *for each byte*, until a budget of
# kept bytes is spent. The output of each block, `mlp.residual`, is kept in any case. It is the checkpoint: without
# it, a recomputation would have to begin at the first block.


# %%
def candidates(plan: tr.Plan) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Names, bytes and seconds of what blocks make in the forward pass."""
    columns, ops = plan.tensors(), plan.ops()
    chosen = (
        (columns["class"] == "activation")
        & (columns["phase"] == "forward")
        & np.char.startswith(columns["name"], "h.")
    )
    made_by = columns["first"][chosen].astype(int)
    return columns["name"][chosen], columns["bytes"][chosen].astype(int), ops["seconds"][made_by]


def by_ratio(
    names: np.ndarray, size: np.ndarray, seconds: np.ndarray, budget: float
) -> list[str]:
    """Keeps checkpoints, and what is dearest to make again for its bytes, within a budget of bytes."""
    chosen, spent = [str(name) for name in names if name.endswith("mlp.residual")], 0
    for i in np.argsort(-seconds / size):
        if names[i] not in chosen and spent + size[i] <= budget:
            chosen.append(str(names[i]))
            spent += size[i]
    return chosen


names, size, seconds = candidates(whole)
mine = []
for part in (0.0, 0.2, 0.35, 0.5, 0.65):
    keep = by_ratio(names, size, seconds, part * size.sum())
    mine.append(tr.plan(recompute=keep, **DEEP))
    print(
        f"{part:.0%} of the bytes kept: {figures.mib(mine[-1].peak_bytes)}, "
        f"{mine[-1].predicted_step_s / whole.predicted_step_s - 1:.1%} more time"
    )

# %% [markdown]
# ## The planner's policy, and a bound
#
# Give the planner each of these peaks as a budget. It answers with the fastest plan it finds, and with a *bound*: no
# choice of recomputed activations that fits takes less time.

# %%
theirs = [tr.plan(memory=plan.peak_bytes, **DEEP) for plan in mine]
bounds = [plan.to_dict()["step_bound_s"] for plan in theirs]


def percent(seconds: float) -> float:
    """Seconds as percent more than those of the plan that keeps everything."""
    return 100 * (seconds / whole.predicted_step_s - 1)


figure, axes = plt.subplots(figsize=(6, 3.2))
at = [plan.peak_bytes / figures.MIB for plan in mine]
axes.plot(
    at, [percent(plan.predicted_step_s) for plan in mine], "o-", color="#e15759", label="by ratio"
)
axes.plot(
    at, [percent(plan.predicted_step_s) for plan in theirs], "s-", color="#4e79a7", label="planner"
)
axes.plot(at, [percent(bound) for bound in bounds], "k:", label="bound")
axes.set(xlabel="budget, MiB", ylabel="more time, %")
axes.legend(frameon=False, fontsize=8)
plt.show()

for own, plan, bound in zip(mine, theirs, bounds):
    assert plan.peak_bytes <= own.peak_bytes
    assert bound <= plan.predicted_step_s * (1 + 1e-9)
    assert bound <= own.predicted_step_s * (1 + 1e-9)
    assert plan.predicted_step_s <= 1.01 * bound
checks.report(
    mine_over_bound=[own.predicted_step_s / bound for own, bound in zip(mine, bounds)],
    planner_over_bound=[plan.predicted_step_s / bound for plan, bound in zip(theirs, bounds)],
)

# %% [markdown]
# The ratio policy counts *saved bytes*. That isn't what a budget limits. A tensor near the end of the forward pass is
# alive at the peak anyway, so dropping it saves nothing there. The planner scores a choice by the live bytes at each
# op, and drops less for the same peak.
#
# ## Measure
#
# Recomputation runs the same ops on the same inputs. So the losses must be equal, bit for bit, and each run takes
# what its plan says:

# %%
losses, measured = {}, {}
for label, settings in {
    "none": tr.Settings(recompute="none"),
    "block": tr.Settings(recompute="block"),
    "by ratio": tr.Settings(recompute=keep),
    "planner": tr.Settings(memory=mine[0].peak_bytes),
}.items():
    trainer = tr.Trainer(steps=3, **settings, **DEEP)
    measured[label] = trainer.measured_peak_bytes
    assert measured[label] == trainer.plan.peak_bytes
    losses[label] = [step.loss for step in trainer]
    shown = " ".join(f"{loss:.6f}" for loss in losses[label])
    print(f"{label:<9}{measured[label]:>12,} bytes, as planned; losses {shown}")
assert losses["none"] == losses["block"] == losses["by ratio"] == losses["planner"]
checks.report(
    predicted_bytes=theirs[0].peak_bytes,
    measured_bytes=measured["planner"],
    same_losses=len(set(map(tuple, losses.values()))) == 1,
)

# %% [markdown]
# **What to remember.** Recomputation trades time for activations, and changes no number. What to drop is a question
# about live bytes at the peak, not about the sum of what is saved.
#
# The code: [what is recomputed](../core/src/plan/remat.rs), [choices of a block](../core/src/plan/blocks.rs), [the
# Pareto front](../core/src/plan/pareto.rs), [the bound](../core/src/plan/bound.rs).
#
# ## Exercises
#
# **4.1** A model has 64 blocks. A block's input takes 1 unit and its inside 15. Which whole number $N$ makes
# $\lceil 64/N \rceil + 15 N$ smallest?

# %% tags=["exercise"]
answer = ...
checks.check("04.1", answer)

# %% [markdown]
# **4.2** Do it better than the ratio: give a list of names to keep, for the settings `DEEP`, whose plan takes at most
# 80 % of `whole.peak_bytes` and at most 2 % more predicted time than the planner's plan for that budget. (Names are
# those of `candidates(whole)`. What is cheap to make again? Which tensors of a block does its backward pass never
# read?)

# %% tags=["exercise"]
policy = ...
checks.check("04.2", policy)

# %% [markdown]
# **4.3** A model has dropout. Its activations are recomputed in the backward pass. What must hold for the gradients
# to be right?
#
# - a: the recomputed pass draws the same mask again
# - b: the recomputed pass uses no dropout
# - c: the dropout probability is halved
# - d: the mask is drawn anew, and the mean is the same

# %% tags=["exercise"]
answer = ...
checks.check("04.3", answer)
