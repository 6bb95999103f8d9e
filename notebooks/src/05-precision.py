# %% [markdown]
# # 5 · f32, bf16, f16, 8 bits and 4
#
# Halving every number should halve the memory. **Why does training in bf16 keep as many bytes for each weight as f32
# does?**
#
# This notebook shows what breaks in fewer bits, what is kept to mend it, and what each choice stores: first by hand,
# then in the plan, then measured.

# %%
import matplotlib.pyplot as plt
import numpy as np

import checks
import figures  # Also sets how plots look.
import tightrope as tr

TINY = tr.Settings(preset="tiny", batch=8, micro_batch=8, recompute="none", device="cpu", threads=2)

# %% [markdown]
# ## What the bits are
#
# | type | exponent bits | fraction bits | largest | step at 1 |
# |---|---|---|---|---|
# | f32 | 8 | 23 | 3.4e38 | 1.2e-7 |
# | bf16 | 8 | 7 | 3.4e38 | 0.0078 |
# | f16 | 5 | 10 | 65504 | 0.00098 |
#
# A bf16 number is the upper half of an f32 number. NumPy has no bf16, but rounding to it takes two lines:


# %%
def bf16(x: np.ndarray | np.float32) -> np.ndarray:
    """Rounds f32 numbers to the nearest bf16, ties to even."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


for x in (1.0, 1.004, 0.1, 1e-8, 70000.0):
    with np.errstate(over="ignore"):
        print(f"{x:>8g}   bf16 {float(bf16(np.float32(x))):<14.8g} f16 {float(np.float16(x)):.8g}")

# %% [markdown]
# bf16 keeps every magnitude and loses digits. f16 keeps more digits, and loses what is small (1e-8 becomes 0) and
# what is large (70000 becomes infinite).
#
# ## What breaks in bf16: small updates
#
# An update moves a weight by about the learning rate. From 1.0, the next bf16 number is 1.0078. An update of 0.001 is
# rounded away, each time:

# %%
steps, update = 1000, np.float32(1e-3)
plain, master = np.float32(1.0), np.float32(1.0)
for _ in range(steps):
    plain = bf16(plain + update)
    master = np.float32(master + update)
assert plain == 1.0
checks.report(after_1000_updates_in_bf16=float(plain), with_an_f32_master=float(master))

# %% [markdown]
# So training keeps an f32 *master* of each weight. In bf16 that is the weight's 16 bits and, apart, the 16 bits that
# were cut off: the *master remainder*. Together they are the f32 number, 4 bytes and not 6. An f16 weight isn't half
# of an f32 number, so its master is another 4 bytes.
#
# ## What breaks in f16: small gradients
#
# Gradients are small. Multiply the loss by a *scale*, and all gradients are scaled with it (the chain rule is
# linear). The update divides by it. Where the scaled gradient overflows, the step is skipped and the scale halved.

# %%
random = np.random.default_rng(0)
gradients = (10.0 ** random.normal(-7, 1.2, 100_000)).astype(np.float32)
lost = {
    scale: float(((gradients * scale).astype(np.float16) == 0).mean()) for scale in (1, 256, 65536)
}
for scale, part in lost.items():
    print(f"loss scale {scale:>6}: {part:.1%} of the gradients become 0")
assert lost[1] > 0.3 and lost[65536] < 0.001

# %% [markdown]
# ## Predict: bytes for each weight
#
# Persistent bytes of one weight, with AdamW's two moments:
#
# | precision | weight | master | moments | together |
# |---|---|---|---|---|
# | f32 | 4 | it is one | 8 | 12 |
# | bf16 | 2 | 2 | 8 | 12 |
# | f16 | 2 | 4 | 8 | 14 |
#
# What 16 bits save, then, is *activations*. Compare with the plans. The f16 run has two more numbers: the scale, and
# the steps since it changed.

# %%
by_hand = {"f32": 12, "bf16": 12, "f16": 14}
plans = {name: tr.plan(precision=name, **TINY) for name in by_hand}


def persistent(plan: tr.Plan) -> int:
    """Bytes of weights, masters and moments that stay between steps."""
    columns = plan.tensors()
    stays = (columns["phase"] == "kept") & np.isin(columns["class"], ["weight", "optimizer"])
    return int(columns["bytes"][stays].sum())


P = plans["f32"].by_class["weight"] // 4
for name, plan in plans.items():
    extra = persistent(plan) - by_hand[name] * P
    print(
        f"{name:<5}{persistent(plan):>10,} bytes kept = {by_hand[name]} × {P:,} + {extra}; "
        f"activations at the peak "
        f"{plan.by_class['activation']:>9,}"
    )
    assert 0 <= extra < 64
halved = plans["bf16"].by_class["activation"] / plans["f32"].by_class["activation"]
checks.report(
    parameters=P,
    f32_kept=persistent(plans["f32"]),
    bf16_kept=persistent(plans["bf16"]),
    f16_kept=persistent(plans["f16"]),
    bf16_activations_over_f32=halved,
)

# %% [markdown]
# ## Fewer bits for the moments
#
# The moments are the larger part. They can be stored in 8 bits: blocks of 256 numbers share one f32 scale, so each
# number takes $1 + 4/256$ bytes. Tables of embeddings and tensors below 4,096 elements stay in f32, where there is
# little to save or much to lose. By hand, for `tiny`:

# %%
C, L, V, T = 64, 2, 256, 64
matrices = L * 12 * C * C
others = P - matrices
by_hand_8 = 2 * (matrices + 4 * matrices // 256) + 2 * 4 * others
eight = tr.plan(settings={"memory.optimizer_bits": 8}, **TINY)
scalars = persistent(plans["f32"]) - 12 * P
planned_8 = persistent(eight) - 4 * P - scalars
assert planned_8 == by_hand_8
checks.report(moments_by_hand=by_hand_8, moments_planned=planned_8, in_f32=8 * P)

# %% [markdown]
# ## 8 bits and 4, for weights that don't move
#
# Frozen weights (notebook 10) need no master, because nothing is added to them. They bear coarse rounding. Here is
# rounding to $b$ bits with a scale for each block, and its error:


# %%
def quantized(x: np.ndarray, bits: int, block: int) -> np.ndarray:
    """Rounds each block to 2^bits − 1 evenly spaced values, and gives the numbers that are meant."""
    levels = 2 ** (bits - 1) - 1
    blocks = x.reshape(-1, block)
    scale = np.abs(blocks).max(1, keepdims=True) / levels
    rounded: np.ndarray = np.round(blocks / scale) * scale
    return rounded.reshape(x.shape)


weights = random.normal(size=1 << 16).astype(np.float32)
errors = {}
for bits, block in ((8, 256), (4, 256), (4, 64)):
    errors[bits, block] = float(np.sqrt(np.mean((quantized(weights, bits, block) - weights) ** 2)))
    print(
        f"{bits} bits in blocks of {block:>3}: {bits / 8 + 4 / block:.3f} bytes a weight, "
        f"error {errors[bits, block]:.4f} of a deviation"
    )
assert errors[8, 256] < errors[4, 64] < errors[4, 256]

# %% [markdown]
# Each bit that is taken away doubles the error. With 16 values to choose, it pays to choose them well. Weights of a
# trained network are about normally distributed: most are small against the largest of their block. So *NormalFloat*
# (NF4, Dettmers et al. 2023) puts its 16 values at quantiles of that distribution, close together near 0:

# %%
LEVELS = np.array(
    [-1, -0.6962, -0.5251, -0.3949, -0.2844, -0.1848, -0.0911, 0]
    + [0.0796, 0.1609, 0.2461, 0.3379, 0.4407, 0.5626, 0.7230, 1]
)


def normal_float(x: np.ndarray, block: int) -> np.ndarray:
    """Rounds each block to the nearest of the 16 levels times its largest magnitude."""
    blocks = x.reshape(-1, block)
    scale = np.abs(blocks).max(1, keepdims=True)
    between = (LEVELS[1:] + LEVELS[:-1]) / 2
    rounded: np.ndarray = LEVELS[np.searchsorted(between, blocks / scale)] * scale
    return rounded.reshape(x.shape)


nf4 = float(np.sqrt(np.mean((normal_float(weights, 64) - weights) ** 2)))
print(f"NF4 in blocks of 64: error {nf4:.4f} of a deviation, {errors[4, 64]:.4f} with even steps")
assert nf4 < 0.9 * errors[4, 64]

# %% [markdown]
# A scale of 32 bits for 64 weights is half a bit for each. QLoRA stores the scales in 8 bits as well (*double
# quantization*), in blocks of 256 with a scale of their own. That makes $1/2 + 1/64$ bytes a weight, and 4 more for
# 16,384 of them. The engine stores frozen weights of linear layers so (`lora.base_bits`), and optimizer state in 32, 16
# or 8 bits. **Predict** the frozen bytes of `tiny` with adapters beside it, and ask the planner:

# %%
by_hand_frozen = {
    "f32": 4 * P,
    "8 bits": 4 * others + matrices + 4 * matrices // 256,
    "4 bits": 4 * others + matrices // 2 + matrices // 64,
}
stored = {"f32": {}, "8 bits": {"lora.base_bits": 8}, "4 bits": {"lora.base_bits": 4}}
for name, said in stored.items():
    columns = tr.plan(lora_rank=4, settings=said, **TINY).tensors()
    # The scales of scales are left away, a few numbers for each matrix, and their means.
    counted = (columns["class"] == "frozen") & (columns["bytes"] > 16)
    counted &= columns["phase"] == "kept"
    frozen = int(columns["bytes"][counted].sum())
    print(f"{name:<7} by hand {by_hand_frozen[name]:>8,} bytes, planned {frozen:>8,}")
    assert frozen == by_hand_frozen[name]

# %% [markdown]
# ## Measure
#
# The same 30 steps in each precision:

# %%
runs, plans, measured = {}, {}, {}
for name, settings in {
    "f32": {},
    "bf16": tr.Settings(precision="bf16"),
    "f16": tr.Settings(precision="f16"),
    "f32, 8-bit moments": tr.Settings(settings={"memory.optimizer_bits": 8}),
}.items():
    trainer = tr.Trainer(steps=30, **settings, **TINY)
    plans[name], measured[name] = trainer.plan, trainer.measured_peak_bytes
    assert measured[name] == plans[name].peak_bytes
    done = list(trainer)
    runs[name] = np.array([step.loss for step in done])
    skipped = sum(not step.updated for step in done)
    print(
        f"{name:<19}{measured[name]:>10,} bytes, as planned; last loss "
        f"{runs[name][-1]:.4f}; steps skipped: {skipped}"
    )

pair = plt.subplots(1, 2, figsize=(11, 3))[1]
for index, (name, losses) in enumerate(runs.items()):
    pair[0].plot(losses, label=name, linewidth=1, linestyle=("-", "--", "-.", ":")[index])
    pair[1].plot(np.abs(losses - runs["f32"]), label=name, linewidth=1)
pair[0].set(xlabel="step", ylabel="loss, nats a byte")
pair[1].set(xlabel="step", ylabel="difference from f32")
pair[0].legend(frameon=False, fontsize=8)
pair[1].legend(frameon=False, fontsize=8)
plt.show()

worst = {
    name: float(np.abs(losses - runs["f32"]).max())
    for name, losses in runs.items()
    if name != "f32"
}
assert max(worst.values()) < 0.25
checks.report(
    predicted_bytes=plans["f32, 8-bit moments"].peak_bytes,
    measured_bytes=measured["f32, 8-bit moments"],
    largest_difference_bf16=worst["bf16"],
    largest_difference_f16=worst["f16"],
)

# %% [markdown]
# A run in f16 begins with a loss scale of 65,536. Where that is too large for the first gradients, its first step is
# skipped.
#
# **What to remember.** 16 bits halve activations and what is read for matmuls. What updates add to needs 32 bits,
# wherever they are kept. Fewer bits for moments save more of the persistent bytes than 16-bit weights do.
#
# The code: [precisions](../nn/src/precision.rs), [state in fewer bits](../nn/src/optim/state.rs), [quantization in
# blocks](../core/src/ops/quant.rs), [the loss scale](../nn/src/optim.rs).
#
# ## Exercises
#
# **5.1** How many bytes for each weight does a bf16 run keep whose two moments are in 8 bits? (Leave out the scales
# of blocks, and what stays in f32.)

# %% tags=["exercise"]
answer = ...
checks.check("05.1", answer)

# %% [markdown]
# **5.2** Which is the largest loss scale, a power of two, at which a largest gradient of 0.37 doesn't overflow in
# f16?

# %% tags=["exercise"]
answer = ...
checks.check("05.2", answer)

# %% [markdown]
# **5.3** Write `split(x)`: from f32 numbers, an array of uint16 with the upper halves and one of uint16 with the
# lower halves, so that `(upper.astype(np.uint32) << 16 | lower).view(np.float32)` gives `x` again, bit for bit. (This
# is how a weight and its master remainder store 32 bits in two tensors.)

# %% tags=["exercise"]
split = ...
checks.check("05.3", split)
