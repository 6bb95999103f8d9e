# %% [markdown]
# # 13 · Sixteen bytes a parameter, over N cards
#
# Four people have a card each and train one model together. **What does each card hold, what do they send each other,
# and does the model learn the same?**
#
# With mixed precision and Adam a parameter takes 16 bytes: 2 of weight, 2 of gradient, and 12 of master and two
# moments. Data parallelism keeps all 16 on every card: N times the same bytes. ZeRO (Rajbhandari et al. 2020) keeps
# each of them once.

# %%
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import checks
import figures
import tightrope as tr

# %% [markdown]
# ## Predict
#
# Of $\Psi$ parameters, each of $N$ ranks (processes with a card each) keeps between steps:
#
# | shard | a rank has its $N$th part of | bytes |
# |---|---|---|
# | 0 | nothing | $16\,\Psi$ |
# | 1 | master and moments | $4\,\Psi + 12\,\Psi/N$ |
# | 2 | and gradients | $2\,\Psi + 14\,\Psi/N$ |
# | 3 | and weights | $16\,\Psi/N$ |
#
# A part isn't any number of elements. The engine cuts tensors into whole blocks of 4,096, so that the norm of all
# gradients has the same bits however they are cut. The last parts may reach beyond the tensor, a tensor of fewer
# elements is the first rank's, and weights below 64 KiB stay with everybody.

# %%
BLOCK = 4096


def part(elements: int, ranks: int) -> int:
    """Elements of each rank's part of a tensor."""
    each = -(-elements // ranks)
    return min(elements, -(-each // BLOCK) * BLOCK)


def kept(shapes: list[tuple[int, ...]], shard: int, ranks: int) -> int:
    """Bytes that a rank keeps of tensors of these shapes: f16, and gradients of matrices in bf16."""
    total = 0
    for shape in shapes:
        whole = int(np.prod(shape))
        own = part(whole, ranks)
        total += 2 * (own if shard == 3 and 2 * whole >= 1 << 16 else whole)
        total += (2 if len(shape) > 1 else 4) * (own if shard >= 2 else whole)
        total += 12 * (own if shard >= 1 else whole)
    return total


C, LAYERS, CONTEXT, VOCAB = 768, 12, 64, 50304
block: list[tuple[int, ...]] = [
    *((3 * C, C), (3 * C,), (C, C), (C,), (4 * C, C), (4 * C,), (C, 4 * C), (C,)),
    *(4 * [(C,)]),  # Scales and shifts of two norms.
]
gpt2 = [(VOCAB, C), (CONTEXT, C), (C,), (C,)] + LAYERS * block
P = sum(int(np.prod(shape)) for shape in gpt2)
print(f"{P:,} parameters")

# %% [markdown]
# ## Ask the planner
#
# A plan names every tensor that stays between steps. Here are those of GPT-2 on each of four ranks. A step makes two
# passes on each, so that gradients are kept too. Nothing runs yet.

# %%
RANKS = 4
STEP = tr.Settings(
    preset="gpt2", context=CONTEXT, batch=2 * RANKS, micro_batch=1, precision="f16", gradients="bf16"
)
plans = {
    shard: tr.plan(ranks=RANKS, shard=shard, device="cpu", threads=2, **STEP) for shard in range(4)
}


def planned(plan: tr.Plan) -> int:
    """Bytes of weights, gradients and state that stay: the rate and the like, of one number each, left away."""
    state = ("weight", "gradient", "optimizer")
    stays = plan.to_dict()["persistent"]
    return sum(it["bytes"] for it in stays if it["class"] in state and it["bytes"] > 4)


for shard, plan in plans.items():
    by_hand = kept(gpt2, shard, RANKS)
    print(
        f"shard {shard}: by hand {by_hand:>13,}, planned {planned(plan):>13,} bytes, "
        f"{by_hand / P:5.2f} a parameter; peak {figures.mib(plan.peak_bytes)}"
    )
    assert planned(plan) == by_hand
checks.report(
    kept_by_hand=kept(gpt2, 3, RANKS),
    kept_in_the_plan=planned(plans[3]),
    bytes_a_parameter=[kept(gpt2, shard, RANKS) / P for shard in plans],
)

# %% [markdown]
# The formulas hold to the padding. More cards make the rest smaller, and what isn't cut stays:

# %%
counts = [1, 2, 4, 8, 16, 32, 64]
figure, axes = plt.subplots(figsize=(6, 3))
for shard in range(4):
    axes.plot(counts, [kept(gpt2, shard, count) / P for count in counts], marker="o", label=f"shard {shard}")
axes.set(xscale="log", xlabel="ranks", ylabel="bytes a parameter", ylim=(0, None))
axes.set_xticks(counts, map(str, counts))
axes.legend(frameon=False, fontsize=8)
plt.show()

# %% [markdown]
# ## Measure: four processes
#
# The program below is a rank. It reads its quarter of each batch of digits, makes a gradient, and then all four
# *exchange*: each sends everybody the part that is theirs, and adds up what it gets **in the order of ranks**. With
# shard 0 all then *gather* the sums. With 1 to 3 each updates its own part, and they gather new weights; with 3 a rank
# keeps none but its part, and gathers them before each pass. After 20 steps a rank measures what it still holds: NumPy
# tells Python's `tracemalloc` of each array's bytes.

# %%
RANK = '''
import hashlib, json, os, sys, tracemalloc
from multiprocessing.connection import Client, Listener
import numpy as np
import tightrope as tr

rank, ranks, shard, folder = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]


def place(r):
    """Where rank r listens."""
    return rf"\\\\.\\pipe\\{os.path.basename(folder)}-{r}" if os.name == "nt" else f"{folder}/{r}"


# A way to each of the others: the higher rank calls the lower one, once that one listens.
others, listener = {}, Listener(place(rank))
for lower in range(rank):
    while lower not in others:
        try:
            others[lower] = Client(place(lower))
            others[lower].send(rank)
        except (FileNotFoundError, ConnectionRefusedError):
            pass
while len(others) < ranks - 1:
    caller = listener.accept()
    others[caller.recv()] = caller


def swap(parts):
    """Sends part r to rank r, and gives what each rank has sent to this one, in their order."""
    got = {rank: parts[rank]}
    for k in range(1, ranks):
        other = rank ^ k  # In round k everybody has another partner. Ranks are a power of two.
        if rank < other:
            others[other].send(parts[other])
            got[other] = others[other].recv()
        else:
            got[other] = others[other].recv()
            others[other].send(parts[other])
    return [got[r] for r in range(ranks)]


def gather(part):
    return np.concatenate(swap([part] * ranks))


images, labels = tr.data.digits()
images = images.reshape(len(images), -1).astype(np.float32)
sizes = [(64, 48), (48, 10)]
count = sum(a * b for a, b in sizes)
own = -(-count // ranks)
start = np.zeros(own * ranks, np.float32)
start[:count] = np.random.default_rng(0).normal(scale=0.1, size=count)
mine = slice(rank * own, (rank + 1) * own)


def gradient(weights, x, y):
    """Loss and gradient of two layers with softmax, of one quarter of a batch."""
    first, second = np.split(weights[:count], [sizes[0][0] * sizes[0][1]])
    first, second = first.reshape(sizes[0]), second.reshape(sizes[1])
    hidden = np.tanh(x @ first)
    logits = hidden @ second
    share = np.exp(logits - logits.max(1, keepdims=True))
    share /= share.sum(1, keepdims=True)
    loss = -np.log(share[np.arange(len(y)), y]).mean()
    share[np.arange(len(y)), y] -= 1
    share /= np.float32(4 * len(y))
    into = (share @ second.T) * (1 - hidden * hidden)
    flat = np.zeros(own * ranks, np.float32)
    flat[:count] = np.concatenate([(x.T @ into).ravel(), (hidden.T @ share).ravel()])
    return loss, flat


def summed(parts):
    total = parts[0].copy()
    for other in parts[1:]:
        total += other
    return total


# State that stays between steps. From here on every array is measured.
tracemalloc.start()
weights = start[mine].copy() if shard == 3 else start.copy()
size = own if shard else own * ranks
moments = [np.zeros(size, np.float32) for _ in range(2)]
grads = np.zeros(own if shard >= 2 else own * ranks, np.float32)


def train(step):
    """A step; what it makes on the way is gone when it returns."""
    at = (step - 1) * 64 % 1728
    quarters = [slice(at + 16 * q, at + 16 * (q + 1)) for q in range(4)]
    parts = [q for q in range(4) if q % ranks == rank]
    sums = []
    whole = gather(weights) if shard == 3 else weights
    for q in parts:  # One process makes all four quarters, one after the other.
        loss, flat = gradient(whole, images[quarters[q]], labels[quarters[q]])
        sums.append(flat)
    flat = summed(sums)
    part = summed(swap([flat[r * own : (r + 1) * own] for r in range(ranks)]))
    if shard >= 2:
        grads[:] = part
    else:
        grads[mine if shard else slice(None)] = part if shard else gather(part)
    g = grads if shard >= 2 or shard == 0 else grads[mine]
    m, v = moments
    m[:] = np.float32(0.9) * m + np.float32(0.1) * g
    v[:] = np.float32(0.999) * v + np.float32(0.001) * g * g
    root = np.sqrt(v / np.float32(1 - 0.999**step)) + np.float32(1e-8)
    change = np.float32(0.01) * (m / np.float32(1 - 0.9**step)) / root
    weights[:] = gather(weights[mine] - change) if shard in (1, 2) else weights - change


for step in range(1, 21):
    train(step)
arrays = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
kept = sum(it.size for it in tracemalloc.take_snapshot().filter_traces([arrays]).traces)
whole = gather(weights) if shard == 3 else weights
bits = hashlib.sha256(whole[:count].tobytes()).hexdigest()[:12]
print(json.dumps({"rank": rank, "kept": kept, "bits": bits}))
'''


def launch(ranks: int, shard: int) -> list[dict[str, Any]]:
    """Runs so many ranks, and gives what each says."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "rank.py"
        program.write_text(RANK)
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        started = [
            subprocess.Popen(
                [sys.executable, str(program), str(rank), str(ranks), str(shard), folder],
                stdout=subprocess.PIPE,
                env=environment,
            )
            for rank in range(ranks)
        ]
        return [json.loads(process.communicate(timeout=60)[0]) for process in started]


count = 64 * 48 + 48 * 10
own = -(-count // 4)
each = {0: 16 * 4 * own, 1: 8 * 4 * own + 8 * own, 2: 4 * 4 * own + 12 * own, 3: 16 * own}
alone = launch(1, 0)[0]
found = {shard: launch(4, shard) for shard in range(4)}
for shard, ranks in found.items():
    held = {rank["kept"] for rank in ranks}
    bits = {rank["bits"] for rank in ranks}
    print(
        f"shard {shard}: predicted {each[shard]:>6,} bytes on each of 4, measured {held}; "
        f"weights {bits}"
    )
    assert held == {each[shard]}
print("one process:", alone["bits"])
same = {rank["bits"] for ranks in found.values() for rank in ranks} == {alone["bits"]}
checks.report(
    predicted_bytes=each[3], measured_bytes=found[3][0]["kept"], same_bits_as_one_process=same
)

# %% [markdown]
# All have the bits of one process that makes the four quarters one after the other. That isn't a matter of course: a
# sum of floating-point numbers depends on its order, and libraries that reduce in a ring or a tree have an order for
# each number of ranks. Here everything is added up in the order of ranks, whoever carries it and whatever is cut.
#
# The engine does the same. In a terminal, with MPI (`pip install mpich` brings it):
#
#     mpirun -n 4 tightrope train --preset tiny --shard 3
#
# ## What is sent
#
# Plans count that too: bytes that each rank sends in a step.

# %%
once = dict(STEP, batch=RANKS, precision="f32", gradients="f32")
for name, step in (("one pass", once), ("two passes", dict(once, batch=2 * RANKS))):
    for shard in range(4):
        sent = tr.plan(ranks=RANKS, shard=shard, device="cpu", threads=2, **step).to_dict()["sent_bytes"]
        parts = ", ".join(f"{what} {figures.mib(count)}" for what, count in sent.items())
        print(f"{name:<10}, shard {shard}: {figures.mib(sum(sent.values())):>12}: {parts}")

# %% [markdown]
# With one pass, shards 0 to 2 send the same: gradients go out once, and sums or new weights come back once. With shard
# 3 weights come twice, forward and backward, and the table of embeddings a third time, as the head reads it too. With
# two passes, 2 and 3 send for each.
# So `--shard auto` takes the fastest that fits the memory.
#
# ## What it is good for
#
# Llama 3.1 8B has 8.03 thousand million parameters. In f32 with Adam their state is 128 GB. On eight cards of 24 GiB:

# %%
large = tr.plan(
    preset="llama-3.1-8b", gpu="rtx-4090", ranks=8, shard=3, batch=8, micro_batch=1, context=2048, recompute="block"
)
print(f"each card takes {large.peak_bytes / 2**30:.1f} of 24 GiB, and 8 × 24 GiB are {8 * 24} GiB")
assert large.peak_bytes < 24 << 30
checks.report(llama_8b_bytes=large.peak_bytes)

# %% [markdown]
# **What to remember.** State that all ranks have alike can be cut, and nothing that is learnt changes. What is cut has
# to be sent when it is needed: memory is bought with bytes on the link. Activations aren't state; each rank has those
# of its own samples, and recomputation (notebook 4) is for those.
#
# The code: [how tensors are cut](../core/src/shards.rs), [what ranks hold](../nn/src/sharding.rs),
# [collectives as ops](../core/src/ops/collective.rs), [weights put together](../core/src/plan/sharding.rs).
#
# ## Exercises
#
# **13.1** A model of 70 thousand million parameters takes 16 bytes each. Cards have 80 thousand million bytes, and half
# of each is to be left for activations. How many cards are needed, with everything cut?

# %% tags=["exercise"]
answer = ...
checks.check("13.1", answer)

# %% [markdown]
# **13.2** Write `owner(element, elements, ranks)`: the rank that has element number `element` of a tensor of so many
# elements, cut as above.

# %% tags=["exercise"]
answer = ...
checks.check("13.2", answer)

# %% [markdown]
# **13.3** Four ranks make eight passes a step each, and everything fits with shard 1. What does shard 2 change?
#
# - a: it saves bytes, and costs nothing
# - b: each rank sends its gradients once a pass, not once a step
# - c: weights have to come for each pass
# - d: the losses get worse

# %% tags=["exercise"]
answer = ...
checks.check("13.3", answer)
