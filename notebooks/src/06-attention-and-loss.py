# %% [markdown]
# # 6 · Attention without the matrix, the loss without the logits
#
# A context of 8,192 tokens has $8192^2$ attention scores in each head of each layer. A vocabulary of 50,257 has as
# many logits for each token. **How does a training step get by without storing either?**
#
# By the same trick twice: what is only summed up needn't exist all at once. This notebook computes both sizes by
# hand, writes the trick in NumPy, and looks for the two tensors in the plan. They aren't there.

# %%
import tracemalloc
from collections.abc import Callable

import matplotlib.pyplot as plt
import numpy as np

import checks
import figures
import tightrope as tr

CPU = tr.Settings(device="cpu", threads=2)

# %% [markdown]
# ## Predict: the attention matrix
#
# Scores take $B \cdot H \cdot T^2$ numbers for each layer, and the backward pass would want them again. For GPT-2 (12
# layers, 12 heads) with four sequences of 1,024 tokens:

# %%
B, H, T, LAYERS = 4, 12, 1024, 12
matrix = B * H * T * T * 4
print(f"one layer {figures.mib(matrix)}, {LAYERS} layers {figures.mib(LAYERS * matrix)}")

plan = tr.plan(preset="gpt2", batch=B, micro_batch=B, context=T, recompute="none", **CPU)
columns = plan.tensors()
of_attention = np.array([".attn." in name for name in columns["name"]]) & (
    columns["class"] != "weight"
)
largest = int(columns["bytes"][of_attention].max())
print(
    f"the whole step takes {figures.mib(plan.peak_bytes)}; its largest tensor of attention "
    f"{figures.mib(largest)}"
)
print(f"stored, the matrices would add {LAYERS * matrix / plan.peak_bytes:.0%} to the step")
assert largest < matrix

# %% [markdown]
# What the plan keeps instead is one number for each row: the logarithm of the sum of the row's exponentials. From it,
# the backward pass can make any score again.

# %%
rows = [
    (name, int(count))
    for name, count in zip(columns["name"], columns["bytes"])
    if name == "h.0.attn.out.1"
]
assert rows[0][1] == B * H * T * 4
checks.report(
    matrix_bytes=matrix, kept_instead_bytes=rows[0][1], times_smaller=matrix // rows[0][1]
)

# %% [markdown]
# ## The trick: softmax over tiles
#
# The softmax of a row needs the row's maximum and its sum. Both can be updated tile by tile. When a new tile has a
# larger maximum, what was summed so far is scaled down (Milakov and Gimelshein 2018; Rabe and Staats 2021;
# FlashAttention, Dao et al. 2022).


# %%
def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Attention with all scores at once."""
    scores = q @ k.T / np.float32(np.sqrt(q.shape[1]))
    scores -= scores.max(1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(1, keepdims=True)
    mixed: np.ndarray = scores @ v
    return mixed


def tiled_attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, tile: int = 128
) -> np.ndarray:
    """Attention with one tile of scores at a time."""
    scale = np.float32(1 / np.sqrt(q.shape[1]))
    out = np.empty_like(q)
    for i in range(0, len(q), tile):
        rows = q[i : i + tile]
        most = np.full((len(rows), 1), -np.inf, np.float32)
        total = np.zeros((len(rows), 1), np.float32)
        mixed = np.zeros_like(rows)
        for j in range(0, len(k), tile):
            scores = rows @ k[j : j + tile].T * scale
            new = np.maximum(most, scores.max(1, keepdims=True))
            shrink = np.exp(most - new)
            weights = np.exp(scores - new)
            total = total * shrink + weights.sum(1, keepdims=True)
            mixed = mixed * shrink + weights @ v[j : j + tile]
            most = new
        out[i : i + tile] = mixed / total
    return out


def allocated(
    function: Callable[..., np.ndarray], *arguments: np.ndarray
) -> tuple[np.ndarray, int]:
    """The result, and the most bytes that NumPy allocated meanwhile."""
    tracemalloc.start()
    result = function(*arguments)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return result, peak


random = np.random.default_rng(0)
tokens = 2048
q, k, v = (random.normal(size=(tokens, 64)).astype(np.float32) for _ in range(3))
whole, whole_bytes = allocated(attention, q, k, v)
tiled, tiled_bytes = allocated(tiled_attention, q, k, v)
predicted = tokens * tokens * 4
assert np.abs(whole - tiled).max() < 1e-5
assert predicted <= whole_bytes < 2.2 * predicted and tiled_bytes < predicted / 10
checks.report(
    predicted_matrix=predicted,
    measured_whole=whole_bytes,
    measured_tiled=tiled_bytes,
    largest_difference=float(np.abs(whole - tiled).max()),
)

# %% [markdown]
# ## Memory is linear in the context
#
# With a matrix, twice the context is four times the memory. In the plan, the most activations that are alive at once
# grow by two:

# %%
SHORT = tr.Settings(preset="gpt2", layers=2, batch=1, micro_batch=1, recompute="none", **CPU)
contexts = [128, 256, 512, 1024]
activations = np.array(
    [
        figures.live_by_class(tr.plan(context=context, **SHORT))["activation"].max()
        for context in contexts
    ]
)
matrices = np.array([2 * 12 * context**2 * 4 for context in contexts])
growth = activations[3] / activations[2]
assert 1.8 < growth < 2.2

figure, axes = plt.subplots(figsize=(6, 3))
axes.loglog(
    contexts, activations / figures.MIB, "o-", label="activations, planned", color="#f28e2b"
)
axes.loglog(
    contexts,
    matrices / figures.MIB,
    "s--",
    label="attention matrices, if they were stored",
    color="#888",
)
axes.set(xlabel="context", ylabel="MiB")
axes.set_xticks(contexts, map(str, contexts))
axes.minorticks_off()
axes.legend(frameon=False, fontsize=8)
plt.show()
checks.report(activations_double_by=float(growth), matrices_double_by=4)

# %% [markdown]
# ## The loss without the logits
#
# Logits are tokens × vocabulary. A small model with a large vocabulary has little else: here, 1,024 tokens and 32,768
# words.

# %%
WORDS, TOKENS = 32_768, 8 * 128
LOSS = tr.Settings(
    preset="tiny", vocab=WORDS, context=64, batch=16, micro_batch=16, recompute="none", **CPU
)
logits = TOKENS * WORDS * 4
chunks: list[str | int] = ["none", 512, 256, 128, 64]
plans = {chunk: tr.plan(loss_chunk=chunk, **LOSS) for chunk in chunks}
print(f"all logits take {figures.mib(logits)}")
for chunk, plan in plans.items():
    print(f"loss chunk {chunk!s:>5}: {figures.mib(plan.peak_bytes)}")

# %% [markdown]
# The loss needs of each row one number, its own cross-entropy, and so does the gradient of the head: a sum over rows.
# So the plan takes `loss_chunk` rows at a time: logits, loss, gradient of the logits, and what these add to the
# gradients of the head and of the input. The logits of the chunk are workspace, and the next chunk uses the same
# bytes. From 512 rows to 256, half of them should go:

# %%
saved = plans[512].peak_bytes - plans[256].peak_bytes
by_hand = 256 * WORDS * 4
print(f"by hand {by_hand:,}, planned {saved:,}")
assert abs(saved / by_hand - 1) < 0.1

# %% [markdown]
# ## Measure
#
# The same losses, and the bytes of each plan:

# %%
runs = {}
for chunk in chunks[0], chunks[-1]:
    trainer = tr.Trainer(loss_chunk=chunk, steps=3, **LOSS)
    assert trainer.measured_peak_bytes == plans[chunk].peak_bytes
    runs[chunk] = [step.loss for step in trainer]
    print(
        f"loss chunk {chunk!s:>5}: {trainer.measured_peak_bytes:>12,} bytes, as planned; "
        f"losses {np.round(runs[chunk], 5)}"
    )
assert np.abs(np.array(runs["none"]) - runs[64]).max() < 1e-4
checks.report(
    predicted_bytes=plans[64].peak_bytes,
    measured_bytes=trainer.measured_peak_bytes,
    logits_bytes=logits,
    saved_bytes=plans["none"].peak_bytes - plans[64].peak_bytes,
)

# %% [markdown]
# **What to remember.** Look for what is made only to be summed. It can be made in parts, and no part needs to be
# kept. Smaller parts read the other operand more often, so they take more time; the planner weighs that.
#
# The code: [attention](../core/src/ops/attention.rs), [linear cross-entropy](../core/src/ops/cross_entropy.rs), [the
# choice of a chunk](../core/src/plan/chunks.rs).
#
# ## Exercises
#
# **6.1** How many bytes would the attention matrices of a model of 32 layers and 32 heads take, for one sequence of
# 8,192 tokens, in 16 bits?

# %% tags=["exercise"]
answer = ...
checks.check("06.1", answer)

# %% [markdown]
# **6.2** Write `cross_entropy(x, head, targets, rows)`: the mean cross-entropy, in nats, of the scores `x @ head.T`
# (x: tokens × channels, head: words × channels), with at most `rows` rows of scores at a time. The check measures
# what it allocates.

# %% tags=["exercise"]
cross_entropy = ...
checks.check("06.2", cross_entropy)

# %% [markdown]
# **6.3** With `loss_chunk=64` instead of `"none"`, what else changes?
#
# - a: the gradient becomes an approximation
# - b: the head's weight is read, and its gradient written, more often
# - c: the loss counts fewer tokens
# - d: the logits are stored on disk

# %% tags=["exercise"]
answer = ...
checks.check("06.3", answer)
