#!/usr/bin/env python3
"""Holds predicted against measured seconds of each family of ops, over steps that are drawn by seeds fixed beforehand.

    bench/estimates/ops.py [--binary target/release/tightrope] [--shapes 20] [--out FILE]

Each seed draws a model, a batch, a precision and a number of threads as `estimates.py` does, with heads of 1 to 256 channels, and
`tightrope train --profile` times every op. The rates begin in an empty folder. Ops of a family in a step are summed; a family counts where
they take 100 us and 1 % of the step. The exit code is 1 if the prediction of one that counts isn't within 2 times.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

from estimates import drawn, words

FIRST_SEED = 45_000
BAR = 2.0
LEAST_S, LEAST_SHARE = 100e-6, 0.01
"""Seconds in a step, and share of it, from which on a family counts."""


def flags_of(seed):
    """The flags of a seed's step: `estimates.py`'s, with the seed's own heads."""
    flags, draw = drawn(seed), random.Random(seed)
    head_dim = 2 ** ((seed - FIRST_SEED) % 9)
    heads = max(1, draw.choice([64, 128, 256]) // head_dim)
    flags.pop("kv-heads", None)
    # Rotary positions turn channels in pairs.
    flags |= {"channels": heads * head_dim, "heads": heads}
    return flags | {"family": "gpt2"} if head_dim == 1 else flags


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="target/release/tightrope")
    parser.add_argument("--shapes", type=int, default=20)
    parser.add_argument("--out", help="a JSON file for all shapes")
    arguments = parser.parse_args()
    binary = os.path.abspath(arguments.binary)
    results, missed, counted = [], 0, 0
    with tempfile.TemporaryDirectory() as work:
        text, out = os.path.join(work, "text.txt"), os.path.join(work, "run")
        with open(text, "w", encoding="utf-8") as file:
            file.writelines(f"{n} and {n + 1} make {2 * n + 1}.\n" for n in range(20_000))
        environment = {**os.environ, "XDG_CACHE_HOME": os.path.join(work, "cache")}
        for seed in range(FIRST_SEED, FIRST_SEED + arguments.shapes):
            flags = flags_of(seed)
            shutil.rmtree(out, ignore_errors=True)
            subprocess.run(
                [binary, *words(flags, 3, text, out), "--profile"],
                env=environment, capture_output=True, text=True, check=True,
            )
            with open(os.path.join(out, "profile.json"), encoding="utf-8") as file:
                families = json.load(file)["families"]
            step_s = sum(family["measured_s"] for family in families)
            print(f"{seed}  {step_s:.5f} s  " + " ".join(f"--{name} {value}" for name, value in flags.items()))
            for family in families:
                predicted, took = family["predicted_s"], family["measured_s"]
                family["factor"] = max(predicted / took, took / predicted) if predicted and took else None
                family["counts"] = took >= max(LEAST_S, LEAST_SHARE * step_s)
                if family["counts"]:
                    counted += 1
                    held = family["factor"] is not None and family["factor"] <= BAR
                    missed += not held
                    note = "" if held else "  <-- "
                    print(f"    {family['op']:24} predicted {predicted:.6f} s, measured {took:.6f} s{note}", flush=True)
            results.append({"seed": seed, "flags": flags, "families": families})
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    print(f"{counted - missed} of {counted} families of ops at {len(results)} shapes within {BAR} x")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
