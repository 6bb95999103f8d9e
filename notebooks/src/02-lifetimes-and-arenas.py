# %% [markdown]
# # 2 · Lifetimes, arenas and fragmentation
#
# "Out of memory: tried to allocate 12 MiB, 900 MiB are free." **How can memory be free and not be enough?**
#
# This notebook takes the real lifetimes of a training step, serves them with two allocators of twenty lines each, and
# compares both with a plan that knows the future.

# %%
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

import checks
import figures
import tightrope as tr

SETTINGS = tr.Settings(
    preset="small", batch=8, micro_batch=8, recompute="block", device="cpu", threads=2
)
plan = tr.plan(**SETTINGS)

# %% [markdown]
# ## Lifetimes
#
# `plan.tensors()` lists every tensor as columns: bytes, the first op that needs it, the last one, and the offset that
# the plan gave it. Tensors of the phase "kept" are weights and moments: they live forever, and no allocator has
# trouble with them. The others are *transients*. A step with recomputation is a good test, because it makes and drops
# many tensors of different sizes.

# %%
columns = plan.tensors()
transient = columns["phase"] != "kept"
size, first, last = (columns[key][transient].astype(int) for key in ("bytes", "first", "last"))
offset = columns["offset"][transient].astype(int)
offset -= offset.min()
ALIGNMENT = 64
size = -(-size // ALIGNMENT) * ALIGNMENT  # Every tensor begins at a multiple of 64 bytes.


def live_bytes(size: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Bytes that are alive at each op."""
    ops = np.arange(last.max() + 1)
    alive = (first[:, None] <= ops) & (ops <= last[:, None])
    bytes_at_op: np.ndarray = (alive * size[:, None]).sum(0)
    return bytes_at_op


bound = live_bytes(size, first, last).max()
print(f"{len(size)} transients; at most {figures.mib(bound)} of them are alive at once")

# %% [markdown]
# No allocator can need less than what is alive at once. This is the **lower bound**. An allocator's *fragmentation*
# is how far it is above.
#
# ## Predict
#
# Before you go on: how many percent above the bound will an allocator be that serves each request as it comes, in the
# lowest hole that has room?
#
# ## An allocator that doesn't know the future
#
# *First fit* takes the requests in the order of the program.


# %%
def first_fit(size: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Offsets by first fit: each tensor, when it is made, takes the lowest hole that has room."""
    offset: np.ndarray = np.zeros(len(size), int)
    alive: list[int] = []
    for i in np.argsort(first, kind="stable"):
        alive = [j for j in alive if last[j] >= first[i]]
        place = 0
        for j in sorted(alive, key=lambda j: offset[j]):
            if offset[j] - place >= size[i]:
                break
            place = max(place, offset[j] + size[j])
        offset[i] = place
        alive.append(i)
    return offset


def overlap(
    size: np.ndarray, first: np.ndarray, last: np.ndarray, offset: np.ndarray
) -> bool:
    """Whether two tensors that are alive at once have a byte in common."""
    end = offset + size
    for i in range(len(size)):
        both = (first < last[i] + 1) & (first[i] < last + 1) & (offset < end[i]) & (offset[i] < end)
        both[i] = False
        if both.any():
            return True
    return False


by_first_fit = first_fit(size, first, last)
assert not overlap(size, first, last, by_first_fit)
end_first_fit = (by_first_fit + size).max()
print(
    f"first fit needs {figures.mib(end_first_fit)}, {end_first_fit / bound - 1:.1%} above the bound"
)

# %% [markdown]
# ## An allocator that keeps what it got
#
# Asking a GPU for memory is slow. So frameworks keep freed blocks in a *cache* and serve the next request from there.
# A block is reused where it is large enough and not far too large; otherwise the device is asked for a new one.
# (PyTorch's allocator can also split and merge blocks. This one is simpler.)


# %%
def caching(
    size: np.ndarray, first: np.ndarray, last: np.ndarray, waste: float = 2.0
) -> int:
    """Bytes that a cache takes from the device. A request gets the tightest free block, or a new one."""
    free: list[int] = []
    used: list[tuple[int, int]] = []
    reserved = 0
    for i in np.argsort(first, kind="stable"):
        free += [block for block, until in used if until < first[i]]
        used = [(block, until) for block, until in used if until >= first[i]]
        fitting = [block for block in free if size[i] <= block <= waste * size[i]]
        block = min(fitting, default=int(size[i]))
        if fitting:
            free.remove(block)
        else:
            reserved += block
        used.append((block, int(last[i])))
    return reserved


reserved = caching(size, first, last)
print(f"the cache reserves {figures.mib(reserved)}, {reserved / bound - 1:.1%} above the bound")

# %% [markdown]
# ## A plan that knows the future
#
# A training step is the same every time. So all lifetimes are known before the first byte is allocated, and the
# offsets can be chosen for all tensors together. The arena of the plan ends here:

# %%
assert not overlap(size, first, last, offset)
end_plan = (offset + size).max()
assert end_plan <= end_first_fit
assert end_plan <= 1.01 * bound
assert plan.lower_bound_bytes <= plan.peak_bytes <= 1.01 * plan.lower_bound_bytes
checks.report(
    bound_bytes=bound,
    first_fit_bytes=end_first_fit,
    cache_bytes=reserved,
    plan_bytes=end_plan,
    plan_above_bound=plan.peak_bytes / plan.lower_bound_bytes - 1,
)

# %% [markdown]
# ## Swiss cheese
#
# Both arenas, drawn at the same scale. White inside the arena is memory that nobody can use at that moment. In the
# left picture the holes are there, but no single one is large enough for the next tensor, which therefore goes on
# top.


# %%
def draw(axes: Axes, offset: np.ndarray, title: str) -> None:
    """Draws each tensor as a box: ops from left to right, offsets from the bottom up."""
    colours = [figures.COLOURS[name] for name in columns["class"][transient]]
    for i in range(len(size)):
        box = Rectangle(
            (first[i], offset[i] / figures.MIB), last[i] - first[i] + 1, size[i] / figures.MIB
        )
        box.set(facecolor=colours[i], edgecolor="white", linewidth=0.2)
        axes.add_patch(box)
    axes.axhline(bound / figures.MIB, color="black", linestyle="--", linewidth=0.8)
    axes.set(
        xlim=(0, last.max() + 1),
        ylim=(0, 1.05 * end_first_fit / figures.MIB),
        xlabel="op",
        ylabel="offset, MiB",
    )
    axes.set_title(title, fontsize=10)


pair = plt.subplots(1, 2, figsize=(11, 3.8))[1]
draw(pair[0], by_first_fit, "first fit, in program order")
draw(pair[1], offset, "planned; the dashed line is the bound")
plt.show()

# %% [markdown]
# ## Measure
#
# The engine allocates one arena of the planned size, once, and every tensor is a range of it. Training can't fragment
# it, because nothing is allocated afterwards.

# %%
trainer = tr.Trainer(steps=2, **SETTINGS)
before = trainer.measured_peak_bytes
losses = [step.loss for step in trainer]
assert before == trainer.measured_peak_bytes == plan.peak_bytes
checks.report(
    predicted_bytes=plan.peak_bytes,
    measured_bytes=trainer.measured_peak_bytes,
    measured_before_step_1=before,
)

# %% [markdown]
# **What to remember.** Fragmentation is the price of not knowing the future. Finding the best offsets is NP-complete
# in general; for training steps, heuristics reach the bound, because activations and gradients die in the reverse
# order of the forward pass.
#
# The code: [offsets](../core/src/plan/offsets.rs), [lifetimes](../core/src/plan/liveness.rs). The planner's heuristic
# stacks what is alive at the fullest op from the bottom and hangs gradients from the top; [a
# page](../docs/planner.md#offsets-are-decided-at-the-peaks) explains it.
#
# ## Exercises
#
# **2.1** Write `place(size, first, last)`, which knows all lifetimes and gives an array of offsets, all at least 0.
# It must never overlap two tensors that are alive at once, and take less than first fit in program order on the
# check's cases. Hint: first fit, in a better order.

# %% tags=["exercise"]
place = ...
checks.check("02.1", place)

# %% [markdown]
# **2.2** Break first fit: give a list of at most 8 tensors `(bytes, first, last)` for which it takes at least 1.5 ×
# the live bytes.

# %% tags=["exercise"]
tensors = ...
checks.check("02.2", tensors)

# %% [markdown]
# **2.3** A run with the caching allocator fails after an hour: 20 GiB reserved, 12 GiB allocated, and no block of 200
# MiB to be had. What is the likeliest reason?
#
# - a: tensors of the last step leaked
# - b: the driver lost 8 GiB
# - c: the weights have grown
# - d: sequences came in many lengths, and blocks of old sizes lie in the cache, each too small or far too large

# %% tags=["exercise"]
answer = ...
checks.check("02.3", answer)
