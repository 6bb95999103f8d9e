#!/usr/bin/env python3
"""Holds predicted against measured seconds of a step, over runs that are drawn by seeds fixed beforehand.

    bench/estimates/estimates.py [--binary target/release/tightrope] [--runs 60] [--under-load] [--out FILE]

Each seed draws a model, a batch, a precision and a number of threads, and `tightrope train` trains it for a few seconds. The rates begin
in an empty folder; with --under-load, the first run measures them while every core is busy. A run counts if its threads had at least
0.97 of the processor's time that they could use. All runs are printed, and the shares within 1.5 and 2 times come last. The exit code is
1 if fewer than 9 of 10 runs that count are within 1.5 times, or one isn't within 2 times.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

FIRST_SEED = 44_000
SECONDS = 3.0
"""Seconds of training that the number of steps is chosen for."""
COUNTS = 0.97
"""Processor time over that which was wanted, of runs that count."""
BARS = [(1.5, 0.9), (2.0, 1.0)]
"""Factor between predicted and measured, and the share of runs within it."""


def drawn(seed):
    """The flags of a seed's run."""
    draw = random.Random(seed)
    family = draw.choice(["gpt2", "gpt2", "llama", "qwen3", "gemma3"])
    head_dim = draw.choice([2, 4, 8, 16, 32, 64, 128, 256])
    heads = draw.choice([count for count in [1, 2, 3, 4, 6, 8, 16] if 16 <= count * head_dim <= 512])
    flags = {
        "family": family,
        "layers": draw.randint(1, 4),
        "channels": heads * head_dim,
        "heads": heads,
        "context": draw.choice([8, 16, 33, 64, 100, 128, 256, 512]),
        "batch": draw.choice([1, 2, 3, 4, 8]),
        "vocab": draw.choice([256, 300, 1024, 5000, 16384, 50257]),
        "precision": draw.choice(["f32", "f32", "bf16"]),
        "optimizer": draw.choice(["adamw", "adamw", "sgd", "lion", "adafactor"]),
        "threads": draw.choice([1, 2]),
    }
    if family != "gpt2" and heads % 2 == 0 and draw.random() < 0.5:
        flags["kv-heads"] = heads // 2
    return flags


def words(flags, steps, data, out):
    """The command's words after `tightrope`."""
    given = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    rest = ["--device", "cpu", "--tokenizer", "byte", "--data", data, "--eval-every", "0", "--steps", str(steps)]
    return ["train", *given, *rest, "--set", "train.warmup=0", "--out", out, "--json", "--quiet"]


def run(binary, flags, steps, work, cache):
    """Trains, and returns what the command says at its end, with the process's times."""
    out = os.path.join(work, "run")
    shutil.rmtree(out, ignore_errors=True)
    environment = {**os.environ, "XDG_CACHE_HOME": cache}
    before, start = os.times(), time.monotonic()
    done = subprocess.run(
        [binary, *words(flags, steps, os.path.join(work, "text.txt"), out)],
        env=environment, capture_output=True, text=True, check=False,
    )
    wall, after = time.monotonic() - start, os.times()
    if done.returncode != 0:
        return {"failed": done.returncode, "message": done.stderr.strip().splitlines()[-3:]}
    said = json.loads(done.stdout.splitlines()[-1])
    processor = sum(after[2:4]) - sum(before[2:4])
    kept = ["step_s", "predicted_step_s", "rates", "waited_for_processor", "steps"]
    return {**{name: said[name] for name in kept}, "wall_s": wall, "processor_s": processor}


def measured(binary, seed, work, cache):
    """One run of a seed: a few steps tell how many take long enough, and those are measured."""
    flags = drawn(seed)
    first = run(binary, flags, 3, work, cache)
    if "failed" in first:
        return {"seed": seed, "flags": flags, **first}
    steps = max(5, min(2000, int(SECONDS / max(first["step_s"], 1e-5))))
    result = run(binary, flags, steps, work, cache)
    if "failed" not in result:
        predicted, step_s = result["predicted_step_s"], result["step_s"]
        result["factor"] = max(predicted / step_s, step_s / predicted)
        # Threads wait for each other too, so that processor time over wall time and cores isn't 1 on a quiet machine: what they could have
        # had and didn't is what other programs took.
        result["counts"] = 1.0 - (result["waited_for_processor"] or 0.0) >= COUNTS
    return {"seed": seed, "flags": flags, **result}


def load(seconds):
    """Two busy loops a core."""
    loop = f"end=$(($(date +%s) + {seconds})); while [ $(date +%s) -lt $end ]; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; done"
    return [subprocess.Popen(["sh", "-c", loop]) for _ in range(2 * (os.cpu_count() or 1))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="target/release/tightrope")
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--first", type=int, default=0, help="the first run's number; for a part of them")
    parser.add_argument("--under-load", action="store_true", help="rates are measured first while every core is busy")
    parser.add_argument("--cache", help="a folder where rates are kept; a new one unless given")
    parser.add_argument("--out", help="a JSON file for all runs")
    arguments = parser.parse_args()
    binary = os.path.abspath(arguments.binary)
    results = []
    with tempfile.TemporaryDirectory() as work:
        with open(os.path.join(work, "text.txt"), "w", encoding="utf-8") as text:
            text.writelines(f"{n} and {n + 1} make {2 * n + 1}.\n" for n in range(20_000))
        cache = os.path.abspath(arguments.cache) if arguments.cache else os.path.join(work, "cache")
        seeds = range(FIRST_SEED + arguments.first, FIRST_SEED + arguments.first + arguments.runs)
        if arguments.under_load:
            for threads in [1, 2]:
                for precision in ["f32", "bf16"]:
                    loops = load(30)
                    run(binary, {**drawn(FIRST_SEED), "threads": threads, "precision": precision}, 3, work, cache)
                    for loop in loops:
                        loop.kill()
                        loop.wait()
        for seed in seeds:
            result = measured(binary, seed, work, cache)
            results.append(result)
            flags = " ".join(f"--{name} {value}" for name, value in result["flags"].items())
            if "failed" in result:
                print(f"{seed}  failed with {result['failed']}: {result['message']}  {flags}", flush=True)
                continue
            waited = result["waited_for_processor"] or 0.0
            print(
                f"{seed}  predicted {result['predicted_step_s']:.5f} s, measured {result['step_s']:.5f} s, "
                f"{result['factor']:.2f} x  waited {100 * waited:.1f} %  "
                f"{result['processor_s']:.1f} s of {result['wall_s']:.1f} s  {flags}",
                flush=True,
            )
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    counted = [result for result in results if result.get("counts")]
    failed = sum("failed" in result for result in results)
    print(f"{len(results)} runs, {failed} failed, {len(counted)} counted")
    held = failed == 0 and bool(counted)
    for factor, share in BARS:
        within = sum(result["factor"] <= factor for result in counted)
        held &= within >= share * len(counted)
        print(f"{within} of {len(counted)} within {factor} x")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
