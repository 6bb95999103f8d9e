#!/usr/bin/env python3
"""One training step in less and less memory, each rung run: bytes planned, allocated and of the process, tokens/s, loss.

The first rung has none of the memory techniques: f32, all logits at once, attention that stores its probabilities, nothing
recomputed, one pass a step. Then comes each technique alone, those that change no number but for the order of sums one after
the other, and all of them. The techniques are those of `tightrope plan --techniques`, which says too why some don't apply.

    bench/memory/ladder.py             on the processor, then on wgpu
    bench/memory/ladder.py cpu|wgpu    on that device alone, beside the other's results of the same day

The model is the preset `small`, of four layers and 128 channels, so that all rungs take minutes. Where there is no GPU, a
processor emulates one for wgpu, so sequences are shorter there and the vocabulary is bytes; tokens/s of an emulated GPU say
nothing of a real one, and bytes are the same.
"""
import bz2
import datetime
import json
import os
import sys

import runs

# Steps, of which tokens/s leave out the first.
STEPS = 4
# Of a tokenizer that learns from Tiny Shakespeare: bytes alone have so few logits that no chunk of them saves anything.
VOCAB = 4096
TEXT = runs.ROOT / "data" / "assets" / "tinyshakespeare.txt.bz2"
DATA = {"train.steps": STEPS, "data.holdout": 0, "train.lr": 1e-3, "train.warmup": 2}
STEP = {
    "cpu": {"model.preset": "small", "model.context": 1024, "model.vocab": VOCAB, "train.batch": 12},
    "wgpu": {"model.preset": "small", "model.context": 256, "train.batch": 8},
}
# Of a plan's choices, the setting that makes each.
SETTINGS = {
    "attention": "memory.attention",
    "loss_chunk": "memory.loss_chunk",
    "checkpoint": "memory.recompute",
    "micro_batch": "train.micro_batch",
    "precision": "run.precision",
    "master": "memory.master",
    "gradients": "memory.gradients",
    "optimizer_bits": "memory.optimizer_bits",
    "table_bits": "memory.table_bits",
    "offload": "memory.offload",
    "consume_gradients": "memory.consume_gradients",
}


def words(choices):
    """Choices as settings."""
    found = {setting: choices[name] for name, setting in SETTINGS.items()}
    found["memory.loss_chunk"] = found["memory.loss_chunk"] or "none"
    found["memory.offload"] = "[" + ", ".join(f'"{name}"' for name in choices["offload"]) + "]"
    found["memory.consume_gradients"] = str(choices["consume_gradients"]).lower()
    if choices["consume_gradients"]:
        found["train.clip"] = 0
    return found


def rungs(table):
    """Sections, names, and what a technique or a sum of them chooses."""
    base = table["base"]
    yield "first", "none of them", base
    alone = [technique for technique in table["techniques"] if "choices" in technique]
    for technique in alone:
        kept = "exact" if technique["numerics"] != "changed" else "changed"
        yield f"alone, {kept}", technique["name"], technique
    together = dict(base["choices"])
    by_name = {technique["name"]: technique["choices"] for technique in alone}
    # The first one is a rung of its own already.
    for at, name in enumerate(table["exact"]["techniques"]):
        changed = {key: value for key, value in by_name[name].items() if value != base["choices"][key]}
        if "offload" in changed:
            changed["offload"] = [*together["offload"], *(it for it in changed["offload"] if it not in together["offload"])]
        together |= changed
        if at:
            yield "together, exact", f"+ {name}", dict(choices=dict(together))
    yield "together, changed", "all", table["all"]


def data(folder, step):
    """What a step with a vocabulary of its own reads: the text, by the tokenizer that learned from it."""
    if "model.vocab" not in step:
        return {}
    text, tokenizer = folder / "text.txt", folder / "tokenizer"
    if not tokenizer.exists():
        text.write_bytes(bz2.decompress(TEXT.read_bytes()))
        runs.tightrope("tokenizer", {}, more=["train", text, "--vocab", str(VOCAB), "--out", tokenizer])
    return {"data.files": text, "data.tokenizer": tokenizer / "tokenizer.json"}


def run(folder, step, section, name, figures):
    settings = {**step, **words(figures["choices"])}
    found = runs.train(folder, {**settings, **DATA, **data(folder, step)})
    tokens = found["tokens"] / found["steps"]
    return dict(
        section=section,
        rung=name,
        planned_bytes=found["predicted_peak_bytes"],
        allocated_bytes=found["measured_peak_bytes"],
        process_bytes=found["resident_peak_bytes"] - found["resident_start_bytes"],
        tokens_per_s=tokens / runs.middle(found["steps_s"][1:]),
        steps_s=found["steps_s"],
        losses=found["losses"],
        settings={key: str(value) for key, value in settings.items()},
    )


def climb(folder, device):
    step = {**STEP[device], "run.device": device}
    table = runs.tightrope("plan", step, more=["--techniques"])
    rows = []
    for section, name, figures in rungs(table):
        row = run(folder, step, section, name, figures)
        first = rows[0] if rows else row
        row["part"] = first["allocated_bytes"] / row["allocated_bytes"]
        row["loss_off"] = max(abs(a - b) for a, b in zip(row["losses"], first["losses"]))
        rows.append(row)
        print(f"{device}: {name}: 1/{row['part']:.1f}, {row['tokens_per_s']:.0f} tokens/s", flush=True)
    refused = {it["name"]: it["not_here"] for it in table["techniques"] if "not_here" in it}
    # Above the number of cores, other programs ran too, and tokens/s are worth little.
    load = round(os.getloadavg()[1], 1)
    together = table["all"]["without"]
    return dict(device=device, step=step, load_average=load, rows=rows, refused=refused, together=together)


def shown(ladder):
    heads = ["rung", "planned MiB", "allocated MiB", "process MiB", "of the first", "tok/s", "last loss", "largest difference"]
    lines, section = [], None
    for row in ladder["rows"]:
        if row["section"] != section:
            section = row["section"]
            lines.append([f"[{section}]", *[""] * (len(heads) - 1)])
        sizes = [row[key] / runs.MIB for key in ["planned_bytes", "allocated_bytes", "process_bytes"]]
        part = f"1/{row['part']:.1f}"
        losses = [f"{row['losses'][-1]:.4f}", f"{row['loss_off']:.1e}"]
        lines.append([row["rung"], *sizes, part, row["tokens_per_s"], *losses])
    step = ", ".join(f"{key} {value}" for key, value in ladder["step"].items())
    refused = "".join(f"not here: {name}: {why}\n" for name, why in ladder["refused"].items())
    left = "".join(f"not in all: {it['name']}: {it['why']}\n" for it in ladder["together"])
    return f"{step}; load average {ladder['load_average']}\n\n{runs.table(heads, lines)}{refused}{left}\n"


def taken_over(devices):
    """Ladders of other devices than these from a run of the same day."""
    files = sorted(runs.RESULTS.glob(f"memory-ladder-{datetime.date.today().isoformat()}.json"))
    known = [ladder for path in files for ladder in json.loads(path.read_text())["ladders"]]
    return [ladder for ladder in known if ladder["device"] not in devices]


def main(devices):
    ladders = []
    with runs.scratch() as folder:
        for device in devices or STEP:
            ladders.append(climb(folder, device))
            # As soon as there is something: the other device takes as long again.
            both = sorted([*taken_over({it["device"] for it in ladders}), *ladders], key=lambda it: list(STEP).index(it["device"]))
            runs.write("ladder", "".join(map(shown, both)), steps=STEPS, ladders=both)


if __name__ == "__main__":
    main(sys.argv[1:])
