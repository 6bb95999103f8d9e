#!/usr/bin/env python3
"""Held-out loss of Muon and of AdamW at several learning rates: 10.8M parameters, on the built-in text.

    bench/memory/optimizers.py                 every rate, 300 steps of 16 sequences
    bench/memory/optimizers.py --batch 4       of 4 sequences, to find rates
"""
import argparse

import runs

RATES = {"adamw": [5e-4, 1e-3, 2e-3], "muon": [1e-3, 2e-3, 4e-3]}
STEPS, WARMUP = 300, 20


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--precision", default="bf16")
    given = parser.parse_args()
    rows = []
    with runs.scratch() as folder:
        for optimizer, rates in RATES.items():
            for lr in rates:
                settings = {
                    "model.preset": "shakespeare", "train.optimizer": optimizer, "train.lr": lr,
                    "train.min_lr": lr / 10, "train.steps": STEPS, "train.warmup": WARMUP, "train.batch": given.batch,
                    "run.precision": given.precision, "run.device": "cpu",
                }  # fmt: skip
                found = runs.train(folder, settings)
                rows.append(dict(
                    optimizer=optimizer, lr=lr, heldout_loss=found["heldout_loss"],
                    last_loss=found["last_loss"], peak_bytes=found["measured_peak_bytes"],
                ))  # fmt: skip
                report(rows, given.batch)


def report(rows, batch):
    heads = ["optimizer", "rate", "held-out loss", "last loss", "MiB"]
    show = lambda row: [
        row["optimizer"], f"{row['lr']:g}", f"{row['heldout_loss']:.4f}", f"{row['last_loss']:.4f}",
        f"{row['peak_bytes'] / runs.MIB:.0f}",
    ]  # fmt: skip
    runs.write("optimizers", runs.table(heads, map(show, rows)), steps=STEPS, warmup=WARMUP, batch=batch, rows=rows)


if __name__ == "__main__":
    main()
