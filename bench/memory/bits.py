#!/usr/bin/env python3
"""What fewer bits cost in loss, each choice with several seeds: in training from random weights, and in fine-tuning.

    bench/memory/bits.py                        the 10.8M parameters of the preset `shakespeare`, 300 steps of 4 sequences, seeds 1 to 3
    bench/memory/bits.py --fine-tune            that model, trained on the first four fifths of the built-in text in bf16, goes on with
                                                conversations made of the last fifth: a speech is the user's, the answer to it the assistant's
    bench/memory/bits.py --preset small         a smaller model
    bench/memory/bits.py --seeds 1 --steps 20   to try the script

Each row is the mean over seeds of the held-out loss, and of its difference from that of the same seed in bf16 with nothing else
changed: the first row. A run's row is appended to a file, `--rows FILE`, and the report is written anew. What is cut goes on: runs of
the same settings whose rows are there aren't run again.
"""
import argparse
import bz2
import json
import pathlib
import shutil
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
BATCH, WARMUP = 4, 20
# Of training from random weights, and of fine-tuning.
LR, FINE_LR = 1e-3, 1e-4
TEXT = runs.ROOT / "data" / "assets" / "tinyshakespeare.txt.bz2"
# Share of the text that the model is trained on before it's fine-tuned.
SHARE = 0.8
# Letters of a conversation, which fill the context of 256 bytes with what the template writes around them.
LETTERS = 190


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="shakespeare")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--fine-tune", action="store_true")
    parser.add_argument("--rows", type=pathlib.Path, help="file of rows [bench/results/memory-bits-PRESET.jsonl, of --fine-tune one of its own]")
    given = parser.parse_args()
    name = f"bits-{given.preset}" + ("-fine-tune" if given.fine_tune else "")
    path = given.rows or runs.RESULTS / f"memory-{name}.jsonl"
    lr = FINE_LR if given.fine_tune else LR
    made = dict(preset=given.preset, steps=given.steps, warmup=WARMUP, batch=BATCH, lr=lr)
    kept = read(path)
    rows = []
    with runs.scratch() as folder:
        start = fine_tuning(folder, path.with_suffix(".base"), given) if given.fine_tune else {}
        # Seed by seed, so that what ends early has every choice.
        for seed in range(1, given.seeds + 1):
            for choice, change in CHOICES:
                settings = {**training(given, lr, seed), **change}
                asked = dict(choice=choice, seed=seed, fine_tune=given.fine_tune, settings=settings)
                row = next((row for row in kept if row.items() >= asked.items()), None)
                if row is None:
                    found = runs.train(folder, {**settings, **start})
                    row = dict(**asked, heldout_loss=found["heldout_loss"], last_loss=found["last_loss"], peak_bytes=found["measured_peak_bytes"])
                    with path.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                    report(name, made, [*rows, row])
                rows.append(row)
                print(choice, f"seed {seed}, held-out loss {row['heldout_loss']:.4f}", flush=True)
    report(name, made, rows)


def read(path):
    """The rows of a file. A last line that was cut short is cut off."""
    text = path.read_text() if path.is_file() else ""
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    return [json.loads(line) for line in whole.splitlines()]


def training(given, lr, seed):
    """Settings of training in bf16 on the CPU."""
    return {
        "model.preset": given.preset, "train.batch": BATCH, "train.micro_batch": BATCH, "train.lr": lr, "train.min_lr": lr / 10,
        "train.steps": given.steps, "train.warmup": WARMUP, "train.seed": seed, "run.precision": "bf16", "run.device": "cpu",
        "memory.recompute": "none",
    }  # fmt: skip


def fine_tuning(folder, base, given):
    """Settings that go on with the model in `base`, which is trained where it isn't there, on conversations."""
    text = bz2.open(TEXT, "rt").read()
    cut = text.index("\n\n", int(len(text) * SHARE))
    conversations = folder / "conversations.jsonl"
    conversations.write_text("".join(json.dumps(row) + "\n" for row in dialogue(text[cut:])))
    said = base / "bits.json"
    settings = training(given, LR, 1)
    if not said.is_file() or json.loads(said.read_text()) != settings:
        shutil.rmtree(base, ignore_errors=True)
        part = folder / "text.txt"
        part.write_text(text[:cut])
        runs.tightrope("train", {**settings, "data.files": json.dumps([str(part)]), "run.out": base})
        # Written last: a folder without it is of a training that was cut.
        said.write_text(json.dumps(settings))
    return {"model.init": base, "data.files": json.dumps([str(conversations)]), "data.chat_template": "chatml"}


def dialogue(text):
    """Rows of two speeches, one after the other, as far as they fit the context."""
    speeches = text.strip().split("\n\n")
    for first, answer in zip(speeches, speeches[1:]):
        if len(first) + len(answer) <= LETTERS:
            yield {"messages": [{"role": "user", "content": first}, {"role": "assistant", "content": answer}]}


def report(name, made, rows):
    of_first = {row["seed"]: row["heldout_loss"] for row in rows if row["choice"] == CHOICES[0][0]}
    lines = []
    for choice, _ in CHOICES:
        own = [row for row in rows if row["choice"] == choice]
        if own:
            losses = [row["heldout_loss"] for row in own]
            differences = [row["heldout_loss"] - of_first[row["seed"]] for row in own]
            lines.append([
                choice, f"{statistics.mean(losses):.4f}", f"{statistics.mean(differences):+.4f}",
                " ".join(f"{difference:+.4f}" for difference in differences), f"{own[0]['peak_bytes'] / runs.MIB:.1f}",
            ])  # fmt: skip
    heads = ["choice", "held-out loss", "difference", "by seed", "MiB"]
    figures = [{key: value for key, value in row.items() if key != "settings"} for row in rows]
    runs.write(name, runs.table(heads, lines), **made, rows=figures)


if __name__ == "__main__":
    main()
