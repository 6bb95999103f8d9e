#!/usr/bin/env python3
"""GPT-2 124M at T = 1024, 8 sequences an optimizer step, in less and less memory, rung by rung.

The first rungs hold attention's probabilities, (B, H, T, T) in every layer. Tightrope never does, and they are more than
many machines hold: their peaks are arithmetic, the plan's peak with what an eager implementation keeps on top. From the
rung without them on, plans are predicted and run. Losses are of the 6 x 384 model of the preset `shakespeare` on the
built-in text, each rung's against the first's, step by step.

    bench/memory/ladder.py                     all of it
    bench/memory/ladder.py plans|runs|losses   that alone, beside the plans
    bench/memory/ladder.py runs cpu|wgpu       the rungs on that device alone

What isn't measured again is taken over from the newest results, and they say so.
"""
import json
import sys

import runs

LAYERS, HEADS, TIME, BATCH = 12, 12, 1024, 8
STEPS, COLD, LOSS_STEPS = 3, 1, 50
# Elements of attention's probabilities in all layers. PyTorch in eager mode keeps them once for the backward pass: softmax
# and the product with the values share them, and scores are freed when they are made. llm.c's CPU code keeps the scores
# too (`preatt` and `att`). Both peak at the loss, where every layer's are alive and the plan's own peak is.
PROBABILITIES = LAYERS * BATCH * HEADS * TIME * TIME
WIDTH = {"f32": 4, "bf16": 2}
FIRST = {
    "run.device": "cpu",
    "run.precision": "f32",
    "memory.recompute": "none",
    "memory.loss_chunk": "none",
    "train.micro_batch": BATCH,
}
# Each rung changes the one before.
RUNGS = [
    ("all kept, full logits, eager attention", {}),
    ("bf16", {"run.precision": "bf16"}),
    ("flash attention", {}),
    ("loss in chunks", {"memory.loss_chunk": "auto"}),
    ("checkpointing", {"memory.recompute": "block"}),
    ("accumulation", {"train.micro_batch": 1}),
    ("8-bit states", {"memory.optimizer_bits": 8}),
    ("optimizer on the host", {"memory.offload": '["optimizer"]', "run.device": "wgpu"}),
    ("gradients on the host", {"memory.offload": '["optimizer", "gradients"]'}),
    ("block inputs on the host", {"memory.offload": '["optimizer", "gradients", "activations"]'}),
    ("block weights on the host", {"memory.offload": '["optimizer", "gradients", "activations", "weights"]'}),
]
# Rungs with probabilities in memory.
EAGER = 2
GPT2 = {"model.preset": "gpt2", "model.context": TIME, "train.batch": BATCH}
SMALL = {"model.preset": "shakespeare", "model.context": 128, "train.lr": 3e-4, "train.warmup": 5, "data.holdout": 0.002}
SMALL_BATCH = 4
# Where there is no GPU, a processor emulates one. How many micro-batches a step has changes no allocation.
EMULATED = {"train.batch": 1}
DEVICES = {"cpu", "wgpu"}
OF_RUNS = ["steps_s", "allocated_bytes", "peak_bytes", "predicted_tokens_per_s", "resident_peak_bytes", "tokens_per_s"]
OF_LOSSES = ["last_loss", "loss_off"]


def rungs():
    """Names and settings."""
    settings = dict(FIRST)
    for name, change in RUNGS:
        settings = {**settings, **change}
        yield name, settings


def plans():
    rows = []
    for at, (name, settings) in enumerate(rungs()):
        plan = runs.tightrope("plan", {**GPT2, **settings})
        row = dict(rung=name, peak_bytes=plan["peak_bytes"], measured=at >= EAGER, by_class=plan["by_class"])
        row["predicted_tokens_per_s"] = plan["predicted_tokens_per_s"]
        if at < EAGER:
            kept = PROBABILITIES * WIDTH[settings["run.precision"]]
            row["peak_bytes_with_scores"] = row["peak_bytes"] + 2 * kept
            row["peak_bytes"] += kept
        rows.append(row)
        print(f"{name}: {row['peak_bytes'] / runs.MIB:.0f} MiB", flush=True)
    return rows


def run(folder, row, settings):
    shard = runs.shard(folder, 50_257, 50_000)
    settings = {**GPT2, **settings, "train.steps": STEPS, "data.files": shard, "data.holdout": 0}
    if settings["run.device"] != "cpu":
        settings |= EMULATED
    found = runs.train(folder, settings)
    tokens = settings["train.batch"] * TIME
    row["steps_s"] = found["steps_s"]
    row["allocated_bytes"] = found["measured_peak_bytes"]
    row["peak_bytes"] = found["predicted_peak_bytes"]
    # By rates that were measured as the run began.
    row["predicted_tokens_per_s"] = tokens / found["predicted_step_s"]
    row["resident_peak_bytes"] = found["resident_peak_bytes"]
    row["tokens_per_s"] = tokens / runs.middle(found["steps_s"][COLD:] or found["steps_s"])
    print(f"{row['rung']}: {row['allocated_bytes'] / runs.MIB:.0f} MiB, {row['tokens_per_s']:.0f} tokens/s", flush=True)


def losses(folder, rows):
    first = None
    for row, (name, settings) in zip(rows, rungs()):
        settings = {**SMALL, **settings, "train.batch": SMALL_BATCH, "train.steps": LOSS_STEPS}
        settings["train.micro_batch"] = min(settings["train.micro_batch"], SMALL_BATCH)
        found = runs.train(folder, settings)["losses"]
        first = first or found
        row["last_loss"] = found[-1]
        row["loss_off"] = max(abs(a - b) for a, b in zip(found, first))
        print(f"{name}: loss {found[-1]:.4f}, at most {row['loss_off']:.4f} off", flush=True)


def taken_over(rows):
    """Gives rows what they lack of the newest results; which those are, and the fields by rung."""
    files = sorted(runs.RESULTS.glob("memory-ladder-*.json"))
    if not files:
        return None
    newest = json.loads(files[-1].read_text())
    known = {row["rung"]: row for row in newest["rows"]}
    taken = {}
    for row in rows:
        lacking = [] if "last_loss" in row else OF_LOSSES
        lacking = lacking + (OF_RUNS if row["measured"] and "steps_s" not in row else [])
        found = {field: known[row["rung"]][field] for field in lacking if field in known.get(row["rung"], {})}
        row.update(found)
        if found:
            taken[row["rung"]] = sorted(found)
    return dict(command=newest["command"], date=newest["date"], fields=taken) if taken else None


def main(verbs):
    devices = DEVICES & set(verbs) or DEVICES
    with runs.scratch() as folder:
        runs.calibrate(folder, "f32", "bf16")
        rows = plans()
        if not verbs or "losses" in verbs:
            losses(folder, rows)
        if not verbs or "runs" in verbs:
            for row, (_, settings) in zip(rows, rungs()):
                if row["measured"] and settings["run.device"] in devices:
                    run(folder, row, settings)
    taken = taken_over(rows)
    top = rows[0]
    lines = []
    for row in (row for row in rows if "peak_bytes" in row):
        of = f"1/{top['peak_bytes'] / row['peak_bytes']:.1f}"
        of_scores = f"1/{top['peak_bytes_with_scores'] / row.get('peak_bytes_with_scores', row['peak_bytes']):.1f}"
        allocated = f"{row['allocated_bytes'] / runs.MIB:.1f}" if "allocated_bytes" in row else "-"
        speed = row.get("tokens_per_s", "-")
        off = f"{row['loss_off']:.4f}" if "loss_off" in row else "-"
        lines.append([row["rung"], row["peak_bytes"] / runs.MIB, allocated, of, of_scores, row["predicted_tokens_per_s"], speed, off])
    heads = ["rung", "peak MiB", "allocated", "of the first", "with scores", "predicted tok/s", "tok/s", "loss off"]
    measured = dict(steps=STEPS, loss_steps=LOSS_STEPS, probabilities=PROBABILITIES, taken_over=taken, rows=rows)
    runs.write("ladder", runs.table(heads, lines), **measured)


if __name__ == "__main__":
    main(sys.argv[1:])
