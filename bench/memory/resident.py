#!/usr/bin/env python3
"""Memory of the whole process against the plan's: VmHWM of runs on the CPU, from some MiB to 2 GiB.

The constant is what the process holds right before the arena is allocated, which every run says of itself
(`resident_start_bytes`). What is left, VmHWM - constant - predicted peak, has to stay within 64 MiB.

    bench/memory/resident.py
"""
import sys

import runs

LIMIT = 64 * runs.MIB
STEPS = 3
GPT2 = {"model.preset": "gpt2", "model.context": 256}
# Name and settings.
CASES = [
    ("tiny", {"model.preset": "tiny", "train.batch": 1}),
    ("small, batch 4", {"model.preset": "small", "train.batch": 4}),
    ("the default model", {"train.batch": 4}),
    ("shakespeare, batch 4", {"model.preset": "shakespeare", "train.batch": 4}),
    ("shakespeare, batch 16 in 300 MiB", {"model.preset": "shakespeare", "train.batch": 16, "memory.budget": "300MiB"}),
    ("shakespeare, batch 16", {"model.preset": "shakespeare", "train.batch": 16, "train.micro_batch": 16}),
    ("shakespeare, batch 16, bf16", {"model.preset": "shakespeare", "train.batch": 16, "run.precision": "bf16"}),
    ("llama-15m, batch 4", {"model.preset": "llama-15m", "train.batch": 4}),
    ("gpt2, 8-bit states, bf16", {**GPT2, "train.batch": 1, "run.precision": "bf16", "memory.optimizer_bits": 8}),
    ("gpt2, bf16", {**GPT2, "train.batch": 1, "run.precision": "bf16"}),
    ("gpt2, batch 1", {**GPT2, "train.batch": 1}),
    ("gpt2, batch 4 in 2 GiB", {**GPT2, "train.batch": 4, "memory.budget": "2GiB"}),
]


def main():
    rows = []
    with runs.scratch() as folder:
        runs.calibrate(folder, "f32", "bf16")
        for name, settings in CASES:
            fixed = {"run.device": "cpu", "train.steps": STEPS, "data.holdout": 0.01}
            vocab = 256 if not settings.get("model.preset", "").startswith(("gpt2", "llama-1")) else 32_000
            if vocab > 256:
                fixed["data.files"] = runs.shard(folder, vocab, 50_000)
            found = runs.train(folder, {**fixed, **settings})
            start, peak = found["resident_start_bytes"], found["resident_peak_bytes"]
            rows.append(
                dict(
                    case=name,
                    predicted_bytes=found["predicted_peak_bytes"],
                    allocated_bytes=found["measured_peak_bytes"],
                    start_bytes=start,
                    resident_peak_bytes=peak,
                    rest_bytes=peak - start - found["predicted_peak_bytes"],
                )
            )
            print(name, f"{rows[-1]['rest_bytes'] / runs.MIB:.1f} MiB over", flush=True)
    report(rows)
    return all(abs(row["rest_bytes"]) <= LIMIT for row in rows)


def report(rows):
    heads = ["case", "predicted MiB", "process MiB", "at start MiB", "rest MiB"]
    keys = ["predicted_bytes", "resident_peak_bytes", "start_bytes", "rest_bytes"]
    shown = runs.table(heads, [[row["case"], *[row[key] / runs.MIB for key in keys]] for row in rows])
    runs.write("resident", shown, steps=STEPS, limit_bytes=LIMIT, rows=rows)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
