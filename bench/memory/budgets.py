#!/usr/bin/env python3
"""Tokens per second at five budgets, against PyTorch's best of no checkpointing and block checkpointing, on the CPU.

The model is GPT-2 124M with 4 x 256 tokens a step, on two threads. The budgets lie evenly between the smallest that
Tightrope takes and what PyTorch takes without checkpointing. A way of PyTorch fits a budget where the peak of its
process, less that of one that only imports torch, is within it; Tightrope's plan is within it by construction. The
sides take turns, and figures are medians over the rounds of the medians over steps, with
the fastest steps of either side beside them.

    bench/memory/budgets.py PEER [PRECISION...]     PEER is the path of pytorch.py; f32 and bf16 unless told otherwise
"""
import json
import subprocess
import sys

import runs

VOCAB, BATCH, TIME, THREADS = 50_257, 4, 256, 2
BUDGETS, ROUNDS, STEPS, COLD = 5, 2, 3, 1
WAYS = ("none", "block")
# What `python3` holds that has done a product with torch and nothing else.
IMPORT = "import torch, resource; torch.ones(64, 64) @ torch.ones(64, 64); " \
    "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"


def python(*line):
    done = subprocess.run([sys.executable, *line], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"python3 {' '.join(line)} failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def pytorch(peer, precision, way):
    numbers = dict(layers=12, channels=768, heads=12, vocab=VOCAB, batch=BATCH, seq=TIME, threads=THREADS, steps=STEPS - COLD, warmup=COLD)
    line = [word for key, value in numbers.items() for word in (f"--{key}", str(value))]
    own = {"f32": "fp32"}.get(precision, precision)
    return python(peer, "--device", "cpu", "--precision", own, "--checkpoint", way, *line)


def compare(folder, peer, precision, constant):
    settings = {
        "model.preset": "gpt2",
        "model.context": TIME,
        "train.batch": BATCH,
        "train.steps": STEPS,
        "run.device": "cpu",
        "run.threads": THREADS,
        "run.precision": precision,
        "data.files": runs.shard(folder, VOCAB, 50_000),
        "data.holdout": 0,
    }
    runs.calibrate(folder, precision)
    first = {way: pytorch(peer, precision, way) for way in WAYS}
    peaks = {way: found["peak_resident"] - constant for way, found in first.items()}
    least = runs.tightrope("plan", {**settings, "memory.budget": "1MiB"}, fits=False)["smallest_bytes"]
    budgets = [least + step * (peaks["none"] - least) // (BUDGETS - 1) for step in range(BUDGETS)]
    plans = [runs.tightrope("plan", {**settings, "memory.budget": f"{budget}B"}) for budget in budgets]
    # Budgets with one plan share its runs.
    keys = [json.dumps([plan["peak_bytes"], plan["choices"]]) for plan in plans]
    own, resident = {key: [] for key in keys}, {}
    tokens = BATCH * TIME
    # Of each run, at its median step and at its fastest: other programs only ever make a step slower.
    theirs = lambda found: [found["tokens_per_s"], tokens / found["step_min_s"]]
    peers = {way: [theirs(found)] for way, found in first.items()}
    for turn in range(ROUNDS):
        # PyTorch was first in the first round, to know the budgets.
        for way in WAYS if turn else ():
            peers[way].append(theirs(pytorch(peer, precision, way)))
        for key, budget in dict(zip(keys, budgets)).items():
            found = runs.train(folder, {**settings, "memory.budget": f"{budget}B"})
            steps = found["steps_s"][COLD:]
            own[key].append([tokens / runs.middle(steps), tokens / min(steps)])
            resident[key] = found["resident_peak_bytes"]
    middle = lambda values: runs.middle([value for value, _ in values])
    fastest = lambda values: max(value for _, value in values)
    speeds = {way: middle(values) for way, values in peers.items()}
    rows = []
    for budget, plan, key in zip(budgets, plans, keys):
        fitting = [way for way in WAYS if peaks[way] <= budget]
        best = max(fitting, key=speeds.get, default=None)
        rows.append(
            dict(
                budget_bytes=budget,
                peak_bytes=plan["peak_bytes"],
                resident_peak_bytes=resident[key],
                tokens_per_s=middle(own[key]),
                fastest_tokens_per_s=fastest(own[key]),
                runs=own[key],
                pytorch=best,
                pytorch_tokens_per_s=speeds.get(best),
                pytorch_fastest_tokens_per_s=fastest(peers[best]) if best else None,
                recomputed_share=plan["recomputed_share"],
                micro_batch=plan["choices"]["micro_batch"],
            )
        )
    return dict(precision=precision, pytorch_peak_bytes=peaks, pytorch_runs=peers, rows=rows)


def main(words):
    if not words:
        sys.exit(__doc__)
    peer, precisions = words[0], words[1:] or ["f32", "bf16"]
    constant, version = python("-c", IMPORT), python("-c", "import torch; print(f'\"{torch.__version__}\"')")
    with runs.scratch() as folder:
        compared = [compare(folder, peer, precision, constant) for precision in precisions]
    shown = "".join(f"{of_precision['precision']}\n{lines(of_precision['rows'])}" for of_precision in compared)
    model = f"GPT-2 124M, {BATCH} x {TIME} tokens a step"
    numbers = dict(model=model, threads=THREADS, rounds=ROUNDS, steps=STEPS, cold=COLD)
    runs.write("budgets", shown, **numbers, torch=version, torch_import_bytes=constant, compared=compared)


def lines(rows):
    heads = ["budget MiB", "plan MiB", "process MiB", "tokens/s", "PyTorch's best", "tokens/s", "ratio", "of the fastest steps"]
    cells = []
    for row in rows:
        sizes = [row[key] / runs.MIB for key in ("budget_bytes", "peak_bytes", "resident_peak_bytes")]
        theirs = row["pytorch_tokens_per_s"]
        of = lambda key: f"{row[key] / row['pytorch_' + key]:.2f}" if theirs else "-"
        ratios = [of("tokens_per_s"), of("fastest_tokens_per_s")]
        best = row["pytorch"] or "none fits"
        cells.append([f"{sizes[0]:.0f}", *sizes[1:], row["tokens_per_s"], best, theirs or "-", *ratios])
    return runs.table(heads, cells)


if __name__ == "__main__":
    main(sys.argv[1:])
