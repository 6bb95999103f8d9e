#!/usr/bin/env python3
"""What `--packing` and `--buckets` save on rows whose lengths are spread as those of instruction data: tokens a second that aren't
padding, with a sequence of 512 for each row, with batches of rows of like length, of three lengths and of six, and with packed rows.

    bench/memory/packing.py
"""
import json
import math
import random
import subprocess

import runs

# Tokens of a row, drawn from a log-normal distribution around those of Alpaca's rows.
MEDIAN, SPREAD, ROWS, SEQ_LEN = 90, 0.6, 2000, 512
MODEL = {"model.layers": 4, "model.channels": 384, "model.heads": 6, "model.context": SEQ_LEN}
STEP = {"train.batch": 8, "train.micro_batch": 8, "run.device": "cpu", "data.holdout": 0}
ROUNDS, STEPS, COLD = 3, 6, 1


def rows(folder):
    """Rows of a prompt and a completion of made-up letters: a token a byte, and the end of the text."""
    draw = random.Random(0)
    path = folder / "rows.jsonl"
    with path.open("w") as file:
        for _ in range(ROWS):
            length = min(max(int(math.exp(draw.gauss(math.log(MEDIAN), SPREAD))), 4), SEQ_LEN)
            text = "".join(draw.choices("abcdefghijklmnopqrstuvwxyz ", k=length - 1))
            cut = length // 3
            file.write(json.dumps({"prompt": text[:cut], "completion": text[cut:]}) + "\n")
    return path


# Settings, what `data show` calls the share of padding, and lengths of sequences.
WAYS = {
    "a row in each": ({}, "padding", 1),
    "in buckets of 3 lengths": ({"data.buckets": 3}, "padding_buckets", 3),
    "in buckets of 6 lengths": ({"data.buckets": 6}, "padding_buckets", 6),
    "packed": ({"data.packing": "true"}, "padding_packed", 1),
}


def main():
    with runs.scratch() as folder:
        path = rows(folder)
        runs.calibrate(folder, "f32")
        padding, lengths = {}, {}
        seconds, positions = ({way: [] for way in WAYS} for _ in range(2))
        for way, (settings, share, count) in WAYS.items():
            show = runs.words({"train.batch": STEP["train.batch"], **settings})
            line = [runs.TIGHTROPE, "data", "show", str(path), "--context", str(SEQ_LEN), "--json", *show]
            shown = json.loads(subprocess.run(line, capture_output=True, text=True, check=True).stdout)
            padding[way] = shown[share]
            if count > 1:
                lengths[way] = shown["buckets"]
        for _ in range(ROUNDS):
            for way, (settings, _, count) in WAYS.items():
                # Steps of several lengths: as many as show how often each comes.
                files = {"data.files": json.dumps([str(path)]), "train.steps": STEPS * count + COLD}
                found = runs.train(folder, {**MODEL, **STEP, **settings, **files})
                seconds[way] += found["steps_s"][COLD:]
                positions[way] += found["positions"][COLD:]
        speed = {way: sum(positions[way]) * (1 - padding[way]) / sum(seconds[way]) for way in WAYS}
        first = speed["a row in each"]
        table = [
            [way, f"{100 * padding[way]:.1f}", f"{sum(seconds[way]) / len(seconds[way]):.2f}", f"{speed[way]:.0f}", f"{speed[way] / first:.2f}"]
            for way in WAYS
        ]
        heads = ["sequences", "padding %", "s/step", "tokens/s that aren't padding", "times"]
        runs.write(
            "packing",
            runs.table(heads, table),
            padding=padding,
            lengths=lengths,
            steps_s=seconds,
            positions=positions,
            tokens_per_s=speed,
        )


main()
