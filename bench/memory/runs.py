"""What the scripts of this folder share: runs of `tightrope`, made-up data, and results as a file and a table."""
import array
import contextlib
import datetime
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"
MIB = 1 << 20
# First words of a token shard of 16-bit ids, as llm.c writes them: magic and version; then the count. The header has 256.
SHARD, HEADER_WORDS = (20240520, 1), 256
TIGHTROPE = os.environ.get("TIGHTROPE") or str(
    pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "tightrope"
)


@contextlib.contextmanager
def scratch():
    """A folder for runs. Rates of the device are measured into it, so that they are those of the day."""
    if not pathlib.Path(TIGHTROPE).is_file():
        sys.exit(f"{TIGHTROPE} is missing: run `cargo build --release`, or name the binary in TIGHTROPE")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tightrope-memory-"))
    try:
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        yield folder
    finally:
        shutil.rmtree(folder)


def shard(folder, vocab, tokens):
    """A token shard of random ids below `vocab`: no tokenizer is needed, and no sample is printed."""
    draw = random.Random(0)
    header = array.array("i", [*SHARD, tokens] + [0] * (HEADER_WORDS - 3))
    ids = array.array("H", (draw.randrange(vocab) for _ in range(tokens)))
    path = folder / f"random-{vocab}.bin"
    path.write_bytes(header.tobytes() + ids.tobytes())
    return path


def words(settings):
    """Settings as arguments of the command line."""
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


# Exit code of what doesn't fit the memory.
DOES_NOT_FIT = 3


def tightrope(command, settings, fits=True, more=()):
    """The object that a command prints, with `more` flags; the refusal, where what is asked needn't fit."""
    line = [TIGHTROPE, command, *more, "--json", *words(settings)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode != 0 and (fits or done.returncode != DOES_NOT_FIT):
        sys.exit(f"{' '.join(map(str, line))} failed with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    # `train` prints its object on one line, `plan` on many.
    return json.loads(done.stdout)


def train(folder, settings):
    """What a run of `train` says of itself. Its directory is removed."""
    run = folder / "run"
    found = tightrope("train", {**settings, "run.out": run, "run.log_every": 1})
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    found["losses"] = [step["loss"] for step in steps]
    found["steps_s"] = [step["step_s"] for step in steps]
    found["positions"] = [step["tokens_per_s"] * step["step_s"] for step in steps]
    shutil.rmtree(run)
    return found


def calibrate(folder, *precisions):
    """Measures the processor's rates, which the first run of a precision does otherwise."""
    for precision in precisions:
        train(folder, {"model.preset": "tiny", "train.steps": 1, "run.precision": precision, "run.device": "cpu"})


def middle(values):
    return statistics.median(values)


def machine():
    info = pathlib.Path("/proc/cpuinfo").read_text()
    name = [line.partition(": ")[2] for line in info.splitlines() if line.startswith("model name")][0]
    memory = pathlib.Path("/proc/meminfo").read_text().split()[1]
    return dict(cpu=name, cores=os.cpu_count(), memory_gib=round(int(memory) / MIB, 1))


def table(heads, rows):
    """Rows under heads as text, columns as wide as needed."""
    cells = [heads, *[[f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
    line = lambda row: "  ".join(cell.rjust(width) if at else cell.ljust(width) for at, (cell, width) in enumerate(zip(row, widths)))
    return "".join(line(row).rstrip() + "\n" for row in cells)


def write(name, shown, **result):
    """Writes bench/results/memory-NAME-DATE.json, and the table that is `shown` beside it."""
    date = datetime.date.today().isoformat()
    command = " ".join(["python3", os.path.relpath(sys.argv[0], ROOT), *map(os.path.basename, sys.argv[1:])])
    # Above the number of cores, other programs ran too, and times are worth little.
    load = round(os.getloadavg()[1], 1)
    made = dict(command=command, date=date, **machine(), load_average=load)
    path = RESULTS / f"memory-{name}-{date}"
    path.with_suffix(".json").write_text(json.dumps({**made, **result}, indent=1) + "\n")
    said = ", ".join(f"{key} {value}" for key, value in made.items())
    path.with_suffix(".txt").write_text(f"{said}\n\n{shown}")
    print(f"{shown}written to {os.path.relpath(path, ROOT)}.json and .txt")
