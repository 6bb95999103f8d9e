# %% [markdown]
# # 3 · Micro-batches and accumulation
#
# The recipe says 32 sequences a step. The memory says 4. **Does a step of 8 times 4 sequences learn the same?**
#
# It does, but for rounding. This notebook shows why, predicts what it saves, and measures both.

# %%
import matplotlib.pyplot as plt
import numpy as np

import checks
import figures
import tightrope as tr

SMALL = tr.Settings(preset="small", context=64, batch=32, recompute="none", device="cpu", threads=2)

# %% [markdown]
# ## Why it is the same
#
# The loss of a step is a mean over its tokens, and so is its gradient. The mean over 32 sequences is the mean of the
# means over eight parts of 4. Here is that for a linear model, whose gradient is one line of NumPy:

# %%
random = np.random.default_rng(0)
x, y, w = random.normal(size=(32, 5)), random.normal(size=32), random.normal(size=5)


def gradient(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Gradient of the mean squared error of x·w."""
    slope: np.ndarray = 2 * x.T @ (x @ w - y) / len(y)
    return slope


whole = gradient(x, y)
parts = np.mean([gradient(x[i : i + 4], y[i : i + 4]) for i in range(0, 32, 4)], axis=0)
difference = np.abs(whole - parts).max()
assert difference < 1e-14
checks.report(largest_difference=difference)

# %% [markdown]
# The difference isn't 0, because sums in floating point depend on their order. It is rounding, and nothing else.
#
# ## Predict the memory
#
# One pass over a *micro-batch* needs the activations of that micro-batch. So activations shrink with it. There is a
# price in bytes too: gradients must outlive a pass, in order to be added to. They become persistent, $4P$ bytes, and
# can no longer use the room that activations leave.

# %%
sizes = [32, 16, 8, 4, 2, 1]
plans = {size: tr.plan(micro_batch=size, **SMALL) for size in sizes}
print(f"{'micro-batch':>11} {'passes':>6} {'peak':>12} {'activations':>12} {'gradients':>12}")
for size, plan in plans.items():
    print(
        f"{size:>11} {32 // size:>6} {figures.mib(plan.peak_bytes):>12} "
        f"{figures.mib(plan.by_class['activation']):>12} "
        f"{figures.mib(plan.by_class['gradient']):>12}"
    )

# %% [markdown]
# Two of these plans predict the others. From 8 to 4 sequences a pass, the peak falls by 4 sequences' activations:

# %%
per_sequence = (plans[8].peak_bytes - plans[4].peak_bytes) / 4
fixed = plans[4].peak_bytes - 4 * per_sequence
predicted = fixed + 16 * per_sequence
error = abs(predicted / plans[16].peak_bytes - 1)
assert error < 0.03

figure, axes = plt.subplots(figsize=(6, 3))
axes.plot(
    sizes,
    [plans[size].peak_bytes / figures.MIB for size in sizes],
    "o",
    label="planned",
    color="#4e79a7",
)
axes.plot(
    [0, 32],
    [fixed / figures.MIB, (fixed + 32 * per_sequence) / figures.MIB],
    "--",
    label="line through 4 and 8",
    color="#888",
)
axes.axhline(fixed / figures.MIB, color="#e15759", linewidth=0.8, label="what no micro-batch saves")
axes.set(xlabel="sequences of a pass", ylabel="peak, MiB", xlim=(0, 34), ylim=(0, None))
axes.legend(frameon=False, fontsize=8)
plt.show()
checks.report(
    fixed_bytes=int(fixed),
    bytes_per_sequence=int(per_sequence),
    line_says_for_16=int(predicted),
    plan_says_for_16=plans[16].peak_bytes,
    relative_error=error,
)

# %% [markdown]
# The point at 32 lies *below* the line through the others: there, a step is one pass, its gradients are ordinary
# tensors, and they use the room of dead activations. Here are both kinds of step as maps, on one scale. On the left,
# gradients hang from the top. On the right they lie among what is kept between passes.

# %%
tr.compare(plans[32], plans[8])

# %% [markdown]
# ## Measure: bytes, losses and gradient norms

# %%
runs = {}
for size in (32, 8, 2):
    trainer = tr.Trainer(micro_batch=size, steps=4, **SMALL)
    assert trainer.measured_peak_bytes == plans[size].peak_bytes
    steps = list(trainer)
    runs[size] = (
        [step.loss for step in steps],
        [step.grad_norm for step in steps],
        trainer.measured_peak_bytes,
    )

for size, (losses, norms, count) in runs.items():
    print(
        f"{size:>2} a pass, {count:>11,} bytes:",
        " ".join(f"{loss:.6f}" for loss in losses),
        "| norm",
        f"{norms[0]:.6f}",
    )

spread = np.ptp([losses for losses, _, _ in runs.values()], axis=0).max()
first_norms = [norms[0] for _, norms, _ in runs.values()]
assert spread < 1e-4
assert np.ptp(first_norms) < 1e-4 * first_norms[0]
checks.report(
    predicted_bytes=plans[2].peak_bytes,
    measured_bytes=runs[2][2],
    largest_difference_of_losses=spread,
    times_less_memory=runs[32][2] / runs[2][2],
)

# %% [markdown]
# The same losses, to about five digits, for less memory. Time hardly changes as long as a pass keeps the processor
# busy. On a GPU a small micro-batch is slower, because its matmuls are too small to fill the device.
#
# ## A trap: means of means
#
# The mean of means is the mean only where the parts are *equally large*. A language model with padding doesn't count
# padded tokens. Then parts have different counts, and the mean of means gives tokens of short parts too much weight.
# Several trainers had this bug for years.

# %%
token_losses = [np.array([2.0, 2.0, 2.0, 2.0, 2.0, 2.0]), np.array([5.0, 5.0])]
mean_of_means = np.mean([part.mean() for part in token_losses])
mean = np.concatenate(token_losses).mean()
print(f"mean of means {mean_of_means:.2f}, mean over tokens {mean:.2f}")

# %% [markdown]
# **What to remember.** Accumulation trades nothing but order of summation and, on large devices, speed. It saves
# activations, and costs persistent gradients.
#
# The code: [the programs `micro` and `update`](../nn/src/programs.rs), [the planner's choice of a
# micro-batch](../nn/src/planner.rs). With `micro_batch` left away and a `memory` budget, the planner chooses.
#
# ## Exercises
#
# **3.1** What is the largest `micro_batch` that divides 32 and fits 20 MiB (20,971,520 bytes) with the settings of
# this notebook?

# %% tags=["exercise"]
answer = ...
checks.check("03.1", answer)

# %% [markdown]
# **3.2** Write `mean_loss(parts)`: the mean loss over all tokens of a step, from a list of arrays, one for each
# micro-batch, of the losses of its counted tokens. A micro-batch may have no counted token at all.

# %% tags=["exercise"]
mean_loss = ...
checks.check("03.2", mean_loss)

# %% [markdown]
# **3.3** A step of two sequences of a very large model, whose activations are small against its weights, is cut into
# two passes of one. What happens to its peak, compared with one pass?
#
# - a: it halves
# - b: it stays exactly the same
# - c: it may grow, because gradients have to be kept between the passes
# - d: it grows, because the moments are kept twice

# %% tags=["exercise"]
answer = ...
checks.check("03.3", answer)
