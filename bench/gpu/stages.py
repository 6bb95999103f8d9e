"""What each call runs, in which order, and for how long at most."""
import dataclasses
import pathlib
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent
# Made-up tokens: what is measured doesn't depend on them.
VOCABULARY = ("--set", "model.vocab=50304")
# What the emulated device trains in a moment, in place of GPT-2.
SMALL = ("--layers", "1", "--channels", "16", "--heads", "2", "--context", "8", "--batch", "2", "--vocab", "64", "--quick")
# Cases that tools look at, which make a GPU slower by far.
LOOKED_AT = ("maps", "wgmma", "mma", "others")

CALLS = ("own", "pytorch", "sanitizer")


@dataclasses.dataclass
class Place:
    """Where everything lies."""

    binaries: pathlib.Path
    peer: pathlib.Path
    parity: pathlib.Path
    # A folder that remembers faults, where it's a rehearsal on a device that is emulated.
    rehearsed: pathlib.Path | None


@dataclasses.dataclass
class Stage:
    name: str
    limit: int
    words: list
    # Whether it's gpu-cases, which names each case before it runs.
    cases: bool = False
    # Why it isn't run, where it isn't.
    left_out: str = ""


def of(call, place):
    return {"own": own, "pytorch": pytorch, "sanitizer": sanitizer}[call](place)


def own(place):
    few = ["--few"] if place.rehearsed else []
    tightrope = place.binaries / "tightrope"

    def cases(name, limit):
        return Stage(name, limit, [place.binaries / "gpu-cases", *few, name], cases=True)

    def bench(name, limit, precision, *words):
        words = SMALL if place.rehearsed else (*words, *VOCABULARY)
        return Stage(name, limit, [tightrope, "bench", "--json", "--device", "cuda", "--precision", precision, *words])

    def measured(name, limit):
        script = "rehearsal.py" if place.rehearsed else "measures.py"
        return Stage(name, limit, [sys.executable, HERE / script, name])

    def gpt2(batch):
        return "--preset", "gpt2", "--batch", batch, "--micro-batch", batch

    large = bench("gpt2-batch-64-own-kernels", 40, "bf16", *gpt2("64"), "--set", "run.matmul=own")
    stages = [
        cases("maps", 60),
        cases("wgmma", 45),
        cases("mma", 70),
        cases("others", 60),
        cases("cublaslt", 50),
        cases("losses", 45),
        bench("gpt2-batch-4", 35, "bf16", *gpt2("4")),
        bench("gpt2-batch-64", 55, "bf16", *gpt2("64")),
        bench("gpt2-xl-batch-16-in-42-gib", 80, "bf16", "--preset", "gpt2-xl", "--batch", "16", "--memory", "42GiB"),
        measured("attention", 25),
        measured("copies", 25),
    ]
    if place.rehearsed:
        return stages
    # As far as time is left.
    recorded = sorted(place.parity.glob("*-case"))
    return [
        *stages,
        Stage("verify", 40, [tightrope, "verify", "--json", "--device", "cuda", *recorded]),
        Stage("doctor", 30, [tightrope, "doctor", "--json"]),
        large,
        bench("gpt2-batch-64-cublaslt", 40, "bf16", *gpt2("64"), "--set", "run.matmul=cublaslt"),
        bench("gpt2-batch-64-in-14.5-gib", 50, "bf16", *gpt2("64"), "--memory", "14.5GiB"),
        bench("gpt2-batch-8-f32", 30, "f32", *gpt2("8")),
        bench("gpt2-batch-8-tf32", 30, "tf32", *gpt2("8")),
    ]


def pytorch(place):
    script = [HERE / "rehearsal.py", "peer"] if place.rehearsed else [place.peer]

    def peer(name, limit, *words):
        words = ["--device", "cuda", "--precision", "bf16", "--steps", "20", *words]
        return Stage(name, limit, [sys.executable, *script, *words])

    return [
        peer("torch-batch-64", 90, "--batch", "64", "--compile", "default"),
        peer("torch-batch-4", 80, "--batch", "4", "--compile", "default"),
        peer("torch-batch-64-checkpoint", 80, "--batch", "64", "--compile", "default", "--checkpoint", "block", "--loss-chunk", "8192"),
        peer("torch-batch-64-autotune", 150, "--batch", "64", "--compile", "max-autotune"),
        peer("torch-batch-4-autotune", 120, "--batch", "4", "--compile", "max-autotune"),
    ]


def sanitizer(place):
    found = shutil.which("compute-sanitizer")
    stand_in = [sys.executable, HERE / "rehearsal.py", "compute-sanitizer"]
    tool = stand_in if place.rehearsed else [found or "compute-sanitizer"]
    missing = "" if found or place.rehearsed else "compute-sanitizer is not installed"
    stages = LOOKED_AT[:2] if place.rehearsed else LOOKED_AT

    def looks(name):
        words = [*tool, "--tool", name, place.binaries / "gpu-cases", "--few", *stages]
        return Stage(name, 170, words, cases=True, left_out=missing)

    return [looks("memcheck"), looks("racecheck"), looks("synccheck")]
