# %% [markdown]
# # 10 · LoRA: fine-tune what doesn't fit
#
# Full fine-tuning of a model with 1.6 billion weights needs 25 GB for weights, gradients and moments alone. **How can
# it be fine-tuned in 4?**
#
# By not moving its weights. This notebook predicts the bytes of adapters, fine-tunes a small model in four ways,
# measures them, and then plans the large one.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import checks
import figures
import tightrope as tr

CPU = tr.Settings(device="cpu", threads=2)
FOLDER = tempfile.TemporaryDirectory()  # It goes when the notebook ends.

# %% [markdown]
# ## Adapters
#
# A linear layer computes $y = Wx$ with $W$ of $o \times i$. LoRA freezes $W$ and learns a difference of rank $r$:
#
# $$y = Wx + \tfrac{\alpha}{r}\,B A x, \qquad A: r \times i, \quad B: o \times r.$$
#
# $B$ starts as zeros, so training starts from the model as it is. Only $A$ and $B$ have gradients and moments. That
# is $r\,(i + o)$ numbers instead of $i \cdot o$.

# %%
RANK, C, L = 8, 128, 4
shapes = {"attn.qkv": (C, 3 * C), "attn.proj": (C, C), "mlp.up": (C, 4 * C), "mlp.down": (4 * C, C)}
in_adapters = L * sum(RANK * (i + o) for i, o in shapes.values())
P = 842_496 - 64 * C  # A context of 64 instead of 128.
print(f"{in_adapters:,} numbers in adapters, {in_adapters / P:.1%} of the model's {P:,}")

# %% [markdown]
# ## A model to start from
#
# Eighty steps on the built-in text, saved as a checkpoint.

# %%
MODEL = tr.Settings(preset="small", context=64, **CPU)
base = tr.Trainer(batch=8, micro_batch=8, steps=80, optimizer="muon", lr=1e-2, **MODEL)
*_, pretrained = base
checkpoint = base.save(Path(FOLDER.name) / "base")
print(
    f"loss {pretrained.loss:.3f} after {pretrained.step} steps; saved "
    f"{sorted(it.name for it in checkpoint.iterdir())}"
)

# %% [markdown]
# ## Predict
#
# The task: the text of a licence, which is nothing like Shakespeare. Four ways to fine-tune:
#
# - **full**: $4P$ weights, $8P$ moments.
# - **LoRA**: $4P$ frozen, and $4 + 8$ bytes for each number in an adapter.
# - **LoRA on 8 bits**: the blocks' matrices take $1 + 4/256$ bytes a weight.
# - **LoRA on 4 bits** (QLoRA): they take $1/2 + 1/64$ bytes, as NF4 with scales in 8 bits (notebook 5).

# %%
matrices = L * 12 * C * C
by_hand = {
    "full": 12 * P,
    "LoRA": 4 * P + 12 * in_adapters,
    "LoRA, 8 bits": 4 * (P - matrices) + matrices + matrices // 64 + 12 * in_adapters,
    "LoRA, 4 bits": 4 * (P - matrices) + matrices // 2 + matrices // 64 + 12 * in_adapters,
}
LICENCE = "../LICENSE-APACHE"
TUNE = tr.Settings(
    init=str(checkpoint),
    data=LICENCE,
    context=64,
    batch=8,
    micro_batch=8,
    recompute="none",
    steps=50,
    **CPU,
)
WAYS = {
    "full": tr.Settings(lr=2e-3),
    "LoRA": tr.Settings(lora_rank=RANK, lr=5e-3),
    "LoRA, 8 bits": tr.Settings(lora_rank=RANK, lr=5e-3, settings={"lora.base_bits": 8}),
    "LoRA, 4 bits": tr.Settings(lora_rank=RANK, lr=5e-3, settings={"lora.base_bits": 4}),
}


def persistent(plan: tr.Plan) -> int:
    """Bytes of weights, frozen or not, and of moments that stay between steps, without scalars."""
    columns = plan.tensors()
    stays = (
        (columns["phase"] == "kept")
        & np.isin(columns["class"], ["weight", "frozen", "optimizer"])
        & (columns["bytes"] > 16)
    )
    return int(columns["bytes"][stays].sum())


plans = {name: tr.plan(**way, **TUNE) for name, way in WAYS.items()}
for name, plan in plans.items():
    print(
        f"{name:<13} kept: by hand {by_hand[name]:>10,}, planned {persistent(plan):>10,}; "
        f"peak {figures.mib(plan.peak_bytes)}"
    )
    assert persistent(plan) == by_hand[name]
assert plans["LoRA"].by_class["weight"] == 4 * in_adapters

# %% [markdown]
# ## Measure


# %%
def held_out_loss(trainer: tr.Trainer) -> float:
    """Loss on the part of the text that isn't trained on."""
    found = trainer.evaluate()
    assert found is not None
    return found.loss


runs, before, after, measured = {}, {}, {}, {}
for name, way in WAYS.items():
    trainer = tr.Trainer(**way, **TUNE)
    before[name] = held_out_loss(trainer)
    runs[name] = [step.loss for step in trainer]
    after[name] = held_out_loss(trainer)
    measured[name] = trainer.measured_peak_bytes
    assert measured[name] == plans[name].peak_bytes
    print(
        f"{name:<13} {measured[name]:>11,} bytes, as planned; held-out loss "
        f"{before[name]:.3f} before, {after[name]:.3f} after"
    )

figure, axes = plt.subplots(figsize=(6, 3))
for name, losses in runs.items():
    axes.plot(losses, label=name, linewidth=1.2)
axes.set(xlabel="step", ylabel="training loss, nats a byte")
axes.legend(frameon=False, fontsize=8)
plt.show()

# Adapters start as nothing, so they begin with the model's own loss. Eight bits move it a little, four a little more.
assert abs(before["LoRA"] - before["full"]) < 1e-4
assert abs(before["LoRA, 8 bits"] - before["full"]) < 0.02
assert abs(before["LoRA, 4 bits"] - before["full"]) < 0.1
assert all(after[name] < before[name] - 0.1 for name in WAYS)
checks.report(
    predicted_bytes=plans["LoRA, 4 bits"].peak_bytes,
    measured_bytes=measured["LoRA, 4 bits"],
    full_bytes=measured["full"],
    loss_full=after["full"],
    loss_lora=after["LoRA"],
    loss_lora_8_bits=after["LoRA, 8 bits"],
    loss_lora_4_bits=after["LoRA, 4 bits"],
)

# %% [markdown]
# Full fine-tuning moves faster on a task so far from the first one, and the adapters follow, at 32, 8 and 4 bits alike:
# their three lines lie on one another. What is left of the peak are activations: LoRA still sends gradients *through* the frozen layers, so most activations are kept.

# %%
pair = plt.subplots(1, 2, figsize=(12, 3.2), sharey=True)[1]
figures.draw_live(plans["full"], pair[0], "full")
figures.draw_live(plans["LoRA, 4 bits"], pair[1], "LoRA on 4 bits")
pair[0].get_legend().remove()
plt.show()

# %% [markdown]
# ## What doesn't fit
#
# GPT-2 1.5B, one sequence of 1,024 tokens, bf16, in 4 GiB and in 3. Nothing is downloaded and nothing runs; these are plans.

# %%
XL = tr.Settings(preset="gpt2-xl", batch=1, precision="bf16", **CPU)
full_needs = 0
try:
    tr.plan(memory="4GiB", **XL)
except tr.DoesNotFit as error:
    full_needs = error.needed or 0
    print(f"full fine-tuning needs at least {full_needs / (1 << 30):.1f} GiB")
fitting = {}
for bits, budget in ((8, "4GiB"), (4, "3GiB")):
    xl = tr.plan(memory=budget, lora_rank=16, settings={"lora.base_bits": bits}, **XL)
    fitting[bits] = xl.peak_bytes
    print(
        f"LoRA on {bits} bits takes {xl.peak_bytes / (1 << 30):.2f} GiB: frozen "
        f"{xl.by_class['frozen'] / (1 << 30):.2f}, "
        f"adapters {xl.by_class['weight'] / (1 << 30):.3f}, their moments "
        f"{xl.by_class['optimizer'] / (1 << 30):.3f}"
    )
assert full_needs > 4 << 30 >= fitting[8] > fitting[4]
checks.report(
    full_needs_bytes=full_needs, lora_bytes=fitting[4], times_less=full_needs / fitting[4]
)

# %% [markdown]
# Half a byte for each frozen weight is 3 GiB in place of 4. It costs the error that notebook 5 shows.
#
# **What to remember.** LoRA removes gradients, masters and moments of what is frozen, and leaves activations. So
# combine it with recomputation, which the planner does where the budget asks for it.
#
# The code: [LoRA](../nn/src/lora.rs), [quantized weights](../core/src/ops/quant.rs), [adapters as PEFT stores
# them](../nn/src/peft.rs).
#
# ## Exercises
#
# **10.1** How many numbers are in the adapters of rank 16 on all linear layers of GPT-2 (12 layers, 768 channels)?

# %% tags=["exercise"]
answer = ...
checks.check("10.1", answer)

# %% [markdown]
# **10.2** Write `merged(w, a, b, alpha)`, which gives the weight that does what the frozen weight and its adapter do
# together (`w`: out × in, `a`: rank × in, `b`: out × rank).

# %% tags=["exercise"]
merged = ...
checks.check("10.2", merged)

# %% [markdown]
# **10.3** LoRA of rank 8 fits, and rank 16 is one MiB too large. What is the cheapest thing to do?
#
# - a: halve the context
# - b: train in f32
# - c: go back to full fine-tuning
# - d: give the planner the budget: it recomputes a little

# %% tags=["exercise"]
answer = ...
checks.check("10.3", answer)
