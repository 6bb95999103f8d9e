#!/usr/bin/env python3
"""What fewer bits cost in loss on the built-in text, each choice with several seeds.

    bench/memory/bits.py                        the 10.8M parameters of the preset `shakespeare`, 300 steps of 4 sequences, seeds 1 to 3
    bench/memory/bits.py --preset small         a smaller model
    bench/memory/bits.py --seeds 1 --steps 20   to try the script

Each row is the mean over seeds of the held-out loss, and of its difference from that of the same seed in bf16 with nothing else
changed: the first row.
"""
import argparse
import statistics

import runs

NARROW = {"memory.gradients": "bf16", "memory.master": "none", "memory.optimizer_bits": 8, "memory.table_bits": 8}
CHOICES = [
    ("bf16", {}),
    ("gradients bf16", {"memory.gradients": "bf16"}),
    ("4 passes, gradients f32", {"train.micro_batch": 1}),
    ("4 passes, gradients bf16", {"train.micro_batch": 1, "memory.gradients": "bf16"}),
    ("4 passes, gradients bf16-kahan", {"train.micro_batch": 1, "memory.gradients": "bf16-kahan"}),
    ("no masters", {"memory.master": "none"}),
    ("8-bit state", {"memory.optimizer_bits": 8}),
    ("8-bit state, tables too", {"memory.optimizer_bits": 8, "memory.table_bits": 8}),
    ("all of these", NARROW),
]
BATCH, LR, WARMUP = 4, 1e-3, 20


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="shakespeare")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    rows = []
    with runs.scratch() as folder:
        # Seed by seed, so that what ends early has every choice.
        for seed in range(1, given.seeds + 1):
            for choice, change in CHOICES:
                settings = {
                    "model.preset": given.preset, "train.batch": BATCH, "train.micro_batch": BATCH, "train.lr": LR,
                    "train.min_lr": LR / 10, "train.steps": given.steps, "train.warmup": WARMUP, "train.seed": seed,
                    "run.precision": "bf16", "run.device": "cpu", "memory.recompute": "none", **change,
                }  # fmt: skip
                found = runs.train(folder, settings)
                rows.append(dict(
                    choice=choice, seed=seed, heldout_loss=found["heldout_loss"], last_loss=found["last_loss"],
                    peak_bytes=found["measured_peak_bytes"],
                ))  # fmt: skip
                print(rows[-1], flush=True)
            report(rows, given)


def report(rows, given):
    of_first = {row["seed"]: row["heldout_loss"] for row in rows if row["choice"] == CHOICES[0][0]}
    lines = []
    for choice, _ in CHOICES:
        own = [row for row in rows if row["choice"] == choice]
        losses = [row["heldout_loss"] for row in own]
        differences = [row["heldout_loss"] - of_first[row["seed"]] for row in own]
        lines.append([
            choice, f"{statistics.mean(losses):.4f}", f"{statistics.mean(differences):+.4f}",
            " ".join(f"{difference:+.4f}" for difference in differences), f"{own[0]['peak_bytes'] / runs.MIB:.1f}",
        ])  # fmt: skip
    heads = ["choice", "held-out loss", "difference", "by seed", "MiB"]
    made = dict(preset=given.preset, steps=given.steps, warmup=WARMUP, batch=BATCH, lr=LR)
    runs.write(f"bits-{given.preset}", runs.table(heads, lines), **made, rows=rows)


if __name__ == "__main__":
    main()
