#!/usr/bin/env python3
"""What half of the activations costs: predicted for GPT-2 1.5B, predicted and measured for 124M on the CPU.

Half: the budget is the peak of the fastest plan less half of the activations that are alive there.

    bench/memory/half.py            both
    bench/memory/half.py predicted  the plans alone
    bench/memory/half.py f32        measured in that precision alone
"""
import json
import pathlib
import shutil
import sys

import runs

# Rates of an H200 from its data sheet (NVIDIA, SXM, dense): bf16 on tensor cores, f32 on the others, memory. They are
# ceilings, so times are too short; the ratio of products to memory is what the share of recomputation depends on.
H200 = dict(matmul=989e12, loss=989e12, attention=989e12, elementwise=67e12, bytes=4.8e12, launch_s=0.0)
XL = {"model.preset": "gpt2-xl", "train.batch": 8, "train.micro_batch": 8, "run.device": "cpu"}
GPT2 = {"model.preset": "gpt2", "run.device": "cpu"}
# Sequences of 1024 tokens: enough activations that half of them are more than all gradients at the update.
BATCH = {"f32": 2, "bf16": 4}
# More than any of these plans takes.
ALL = f"{1 << 50}B"
ROUNDS, STEPS, COLD = 3, 3, 1


def halved(settings):
    """The plan that keeps all, and the fastest with half of its activations."""
    whole = runs.tightrope("plan", {**settings, "memory.budget": ALL})
    activations = whole["by_class"]["activation"]
    budget = whole["peak_bytes"] - activations // 2
    half = runs.tightrope("plan", {**settings, "memory.budget": f"{budget}B"})
    cost = half["predicted_step_s"] / whole["predicted_step_s"] - 1
    return dict(
        peak_bytes=[whole["peak_bytes"], half["peak_bytes"]],
        activation_bytes=[activations, half["by_class"]["activation"]],
        predicted_step_s=[whole["predicted_step_s"], half["predicted_step_s"]],
        rates=whole["rates"],
        budget_bytes=budget,
        predicted_cost=cost,
    )


def of_h200(cache):
    """Puts the rates of an H200 in place of this processor's. `plan` takes rates by the device's name."""
    for file in cache.glob("tightrope/rates-cpu-*.json"):
        kept = json.loads(file.read_text())
        kept["by_precision"] = {"bf16": H200}
        file.write_text(json.dumps(kept))


def predicted(folder, precision, rates=None):
    """`rates` changes those measured in a copy of the cache."""
    cache = pathlib.Path(runs.os.environ["XDG_CACHE_HOME"])
    if rates:
        other = folder / "other"
        shutil.copytree(cache, other)
        rates(other)
        runs.os.environ["XDG_CACHE_HOME"] = str(other)
    found = halved({**XL, "run.precision": precision})
    runs.os.environ["XDG_CACHE_HOME"] = str(cache)
    return found


def measured(folder, precision):
    batch = BATCH[precision]
    settings = {**GPT2, "run.precision": precision, "train.batch": batch, "train.micro_batch": batch}
    found = halved(settings)
    settings |= {"train.steps": STEPS, "data.holdout": 0, "data.files": runs.shard(folder, 50_257, 50_000)}
    times = [[], []]
    for _ in range(ROUNDS):
        for budget, of_budget in zip((ALL, f"{found['budget_bytes']}B"), times):
            of_budget += runs.train(folder, {**settings, "memory.budget": budget})["steps_s"][COLD:]
    found["step_s"] = [runs.middle(of_budget) for of_budget in times]
    found["steps_s"] = times
    found["cost"] = found["step_s"][1] / found["step_s"][0] - 1
    return found


def main(verbs):
    rows = {}
    with runs.scratch() as folder:
        runs.calibrate(folder, "f32", "bf16")
        rows["gpt2-xl, 8 x 1024, f32, this processor"] = predicted(folder, "f32")
        rows["gpt2-xl, 8 x 1024, bf16, this processor"] = predicted(folder, "bf16")
        rows["gpt2-xl, 8 x 1024, bf16, H200 by data sheet"] = predicted(folder, "bf16", of_h200)
        report(rows)
        for precision, batch in BATCH.items():
            if verbs and precision not in verbs:
                continue
            rows[f"gpt2, {batch} x 1024, {precision}, this processor"] = measured(folder, precision)
            report(rows)


def report(rows):
    gib = 1 << 30
    heads = ["model", "GiB", "half GiB", "activations", "half", "s", "half s", "cost %", "measured %"]
    show = lambda value: f"{value:.2f}"
    lines = []
    for name, row in rows.items():
        values = [*row["peak_bytes"], *row["activation_bytes"]]
        cost = f"{row['cost'] * 100:.2f}" if "cost" in row else "-"
        lines.append([name, *[show(v / gib) for v in values], *map(show, row["predicted_step_s"]), show(row["predicted_cost"] * 100), cost])
    runs.write("half", runs.table(heads, lines), h200_rates=H200, rounds=ROUNDS, steps=STEPS, cold=COLD, rows=rows)


if __name__ == "__main__":
    main(sys.argv[1:])
