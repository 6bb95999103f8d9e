#!/usr/bin/env python3
"""All stages on the emulated device, with faults and without: what their report says of each is held against what was done.

Programs that need a GPU by themselves have stand-ins here: PyTorch, and compute-sanitizer.
"""
import concurrent.futures
import datetime
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
# Seconds that a case may take on an emulated device, on a machine that does other things too: where its kernels were compiled
# before, and where they weren't.
CASE, FIRST = 12, 90
# Seconds for a call, for one in which everything hangs, and for a stage that does.
LIMIT, SHORT, SHORT_STAGE = 400, 30, 5
# Seconds that Python takes to start and to end, on a machine that does other things too.
STARTS = 20
DATE = "TIGHTROPE_DRAW"

# Faults of the emulated device.
DEVICE = "TIGHTROPE_EMULATED"
# Faults of what stands in for programs that need a GPU by themselves.
STAND_IN = "TIGHTROPE_STAND_IN"
ALWAYS = "always"

# What is done to each stage, and what its report says of that: what a case came to, or a command, and words of the message.
REFUSED = ("failed", "does not compile")
WRONG = ("failed", "should be")
HANGS = ("hung", "more than")
LOST = ("lost the device", "illegal memory access")
STOPS = ("hung", "time was over")
FAILS = ("failed", "injected fault")
KINDS = {"refused": REFUSED, "wrong": WRONG, "hang": HANGS, "fault": LOST}
# A kernel of each stage of cases.
KERNELS = {
    "maps": "norm.rms_forward",
    "wgmma": "matmul_wgmma.wgmma",
    "mma": "attention_mma.grad_keys_mma",
    "others": "gather.embedding",
    "cublaslt": "cuBLASLt",
    "losses": "attention.forward",
}
# Stages of commands, whose kernels a step has.
COMMANDS = {
    "gpt2-batch-4": "attention.forward",
    "gpt2-batch-64": "norm.layer_forward",
    "gpt2-xl-batch-16-in-42-gib": "map.elements",
}
STAND_INS = ("attention", "copies")


def environment(once, faults):
    """What has a program open the emulated device with such faults, of which some happen once; or a stand-in have one."""
    if faults and "=" not in faults:
        return {DEVICE: "", STAND_IN: faults}
    words = [word for word in faults.split(",") if word]
    words = [word for word in words if word != ALWAYS] if ALWAYS in words else [*words, f"once={once}"]
    return {DEVICE: ",".join(words), STAND_IN: ""}


class Rehearsal:
    """Calls on an emulated device, whose compiled kernels are kept for the next rehearsal."""

    def __init__(self, binaries):
        self.binaries = pathlib.Path(binaries).resolve()
        self.cache = self.binaries.parent / "tmp" / "gpu"
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpu-rehearsal-"))

    def call(self, call, name, faults=(), limit=LIMIT, case=CASE, only=()):
        """Runs a call; its report, and the seconds that it took."""
        results = self.folder / name
        start = time.monotonic()
        process = self.start(call, results, faults, limit, case, only)
        _, errors = process.communicate(timeout=2 * LIMIT)
        seconds = time.monotonic() - start
        report = json.loads((results / f"gpu-{call}.json").read_text())
        text = (results / f"gpu-{call}.txt").read_text()
        assert report["complete"], errors
        assert report["seconds"] < limit, f"{report['seconds']} s of {limit} s"
        assert seconds < limit + STARTS, f"{seconds:.1f} s of {limit} s"
        waiting = [stage for stage, of in report["stages"].items() if of["status"] in ("not reached", "running")]
        assert not waiting, waiting
        failed = report["first_failure"] is not None
        assert (process.returncode != 0) == failed, (process.returncode, report["first_failure"], errors)
        assert not failed or report["first_failure"]["message"] in text.replace("\n    ", "\n"), text
        print(f"{name}: {seconds:.1f} s", flush=True)
        return report

    def start(self, call, results, faults, limit, case, only):
        """Starts a call with such faults."""
        once = results / "faults"
        once.mkdir(parents=True)
        words = ["--rehearsed", once, "--binaries", self.binaries, "--results", results, "--limit", limit, "--case-limit", case]
        words += ["--only", ",".join(only)] if only else []
        for stage, said in faults:
            words += ["--fault", f"{stage}={said}"]
            # Which isn't waited for.
            words += ["--short", stage] if "hang" in said and stage not in KERNELS else []
        return subprocess.Popen(
            ["bash", HERE.parent / "gpu.sh", call, *map(str, words)],
            env={**os.environ, "XDG_CACHE_HOME": str(self.cache)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )


def named(report, stage, kind, kernel=None):
    """A failure of this kind is in the report of a stage, with its kernel."""
    what, words = kind
    failures = report["stages"][stage].get("failures", [])
    found = [failure for failure in failures if failure["what"] == what and words in failure["message"]]
    assert found, f"{stage}: no `{what}` with `{words}` in {json.dumps(failures, indent=1)}"
    if kernel:
        assert any(kernel in " ".join(failure["kernels"]) for failure in found), (kernel, found)
    assert all(failure["case"] for failure in found), found


def kind_of(index, days):
    """Kinds of faults go round the stages, a place further each day, so that each stage has had all of them in four."""
    return list(KINDS)[(index + days) % len(KINDS)]


def without_faults(rehearsal):
    report = rehearsal.call("own", "own", case=FIRST)
    for name, stage in report["stages"].items():
        assert stage["status"] == "passed", (name, stage)
        if "cases" in stage:
            cases = stage["cases"]
            assert cases["passed"] == cases["of"] > 0, (name, cases)
    steps = [stage["result"]["step"] for name, stage in report["stages"].items() if name in COMMANDS]
    assert all(step["tokens_per_s"] > 0 for step in steps), steps
    assert report["gpu"] == "cuda (emulated)", report["gpu"]


def with_faults(rehearsal, days):
    """Every stage has a fault; the report names each, and the cases that have none pass."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        calls = [pool.submit(check, rehearsal, days) for check in (of_cases, of_commands)]
    for call in calls:
        call.result()


def of_cases(rehearsal, days):
    faults, expected = [], []
    for index, (stage, kernel) in enumerate(KERNELS.items()):
        kind = kind_of(index, days)
        # A library isn't compiled; training on one device that never comes to an end is like any other.
        kind = "wrong" if kind == "refused" and stage == "cublaslt" else kind
        faults.append((stage, f"{kernel}={kind}"))
        expected.append((stage, KINDS[kind], kernel))
    report = rehearsal.call("own", f"cases-{days}", faults, only=KERNELS)
    for stage, kind, kernel in expected:
        of_stage = report["stages"][stage]
        if stage == "losses":
            # Training runs many kernels: it names the step.
            named(report, stage, ("failed", "on the processor") if kind == WRONG else kind)
            assert all(failure["at"] for failure in of_stage["failures"]), of_stage
        else:
            named(report, stage, kind, kernel)
        cases = of_stage["cases"]
        assert cases["not_run"] == 0, (stage, cases)
        assert cases["passed"] + len(of_stage["failures"]) == cases["of"], (stage, cases)
    first = report["first_failure"]
    assert first["stage"] == "maps" and KERNELS["maps"] in first["kernels"], first


def of_commands(rehearsal, days):
    faults, expected = [], []
    for index, (stage, kernel) in enumerate(COMMANDS.items()):
        kind = ("refused", "fault", "hang")[(index + days) % 3]
        faults.append((stage, f"{kernel}={kind}"))
        expected.append((stage, STOPS if kind == "hang" else (FAILS[0], KINDS[kind][1]), None if kind == "hang" else kernel))
    for index, stage in enumerate(STAND_INS):
        kind = ("fails", "hangs")[(index + days) % 2]
        faults.append((stage, kind))
        expected.append((stage, STOPS if kind == "hangs" else FAILS, None))
    report = rehearsal.call("own", f"commands-{days}", faults, only=[*COMMANDS, *STAND_INS])
    for stage, kind, kernel in expected:
        named(report, stage, kind, kernel)


def without_a_driver(rehearsal):
    for call in ("own", "pytorch", "sanitizer"):
        report = rehearsal.call(call, f"no-driver-{call}", [("*", "driver=none")])
        first = report["first_failure"]
        assert first["stage"] == "device" and "no NVIDIA driver" in first["message"], first
        others = [stage for name, stage in report["stages"].items() if name != "device"]
        assert all(stage["status"] == "not run" and "no NVIDIA driver" in stage["why"] for stage in others), report


def where_everything_hangs(rehearsal):
    """Each launch hangs, of every process: the call still ends in time, and each stage says where it was."""
    faults = [(stage, "map=hang,reduce=hang,norm=hang,matmul=hang,attention=hang,cuBLASLt=hang,always") for stage in KERNELS]
    report = rehearsal.call("own", "hangs", faults, SHORT)
    assert report["stages"]["maps"]["status"] == "hung", report["stages"]["maps"]
    assert report["first_failure"]["stage"] == "maps", report["first_failure"]
    assert report["stages"]["copies"]["status"] == "no time left", report["stages"]["copies"]


def of_processes(results):
    """Processes of a call, by what their environment says of its folder."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            found += [path] if os.fsencode(results) in path.read_bytes() else []
        except OSError:
            pass
    return found


def cut_off(rehearsal):
    """A call is ended from outside: what it had done is in its report, with where it was, and nothing of it goes on."""
    results = rehearsal.folder / "cut-off"
    faults = [("wgmma", "matmul_wgmma=hang")]
    process = rehearsal.start("own", results, faults, LIMIT, FIRST, ["maps", "wgmma"])
    path = results / "gpu-own.json"
    end = time.monotonic() + LIMIT
    while not path.exists() or "case 1 of" not in (results / "gpu-own.log").read_text().partition("wgmma: ")[2]:
        assert process.poll() is None and time.monotonic() < end, process.communicate()
        time.sleep(0.1)
    assert of_processes(results), "nothing runs"
    process.terminate()
    process.wait(timeout=LIMIT)
    report = json.loads(path.read_text())
    assert not report["complete"]
    assert {stage: of["status"] for stage, of in report["stages"].items()} == dict(device="passed", maps="passed", wgmma="running")
    assert not of_processes(results), of_processes(results)


def beside_pytorch(rehearsal):
    report = rehearsal.call("pytorch", "pytorch", [("torch-batch-4", "fails"), ("torch-batch-64-autotune", "lost")])
    stages = report["stages"]
    assert stages["torch-batch-64"]["result"]["tokens_per_s"] > 0
    named(report, "torch-batch-4", FAILS)
    named(report, "torch-batch-64-autotune", ("failed", "illegal memory access"))
    assert stages["torch-batch-4-autotune"]["status"] == "passed"


def under_the_sanitizer(rehearsal):
    report = rehearsal.call("sanitizer", "sanitizer", [("racecheck", "found"), ("synccheck", "norm.rms_forward=fault")])
    stages = report["stages"]
    cases = stages["memcheck"]["cases"]
    assert stages["memcheck"]["status"] == "passed" and cases["passed"] == cases["of"] > 0, cases
    named(report, "racecheck", ("failed", "Race reported"))
    assert stages["racecheck"]["cases"]["passed"] == cases["of"] - 1, stages["racecheck"]["cases"]
    named(report, "synccheck", LOST, "norm.rms_forward")


def run(binaries):
    """Runs all checks side by side, and reports as Rust's tests do; whether all passed."""
    rehearsal = Rehearsal(binaries)
    day = datetime.date.today().toordinal()
    days = range(len(KINDS)) if os.environ.get(DATE) == "all" else [day % len(KINDS)]
    # The first compiles kernels for those that come after it.
    first = {check.__name__: check for check in (without_faults, without_a_driver, beside_pytorch)}
    then = {f"with_faults_{each}": lambda rehearsal, each=each: with_faults(rehearsal, each) for each in days}
    then |= {check.__name__: check for check in (where_everything_hangs, cut_off, under_the_sanitizer)}
    errors = {}
    for checks in (first, then):
        with concurrent.futures.ThreadPoolExecutor() as pool:
            results = {name: pool.submit(check, rehearsal) for name, check in checks.items()}
        errors |= {name: result.exception() for name, result in results.items()}
    for name, error in errors.items():
        print(f"test gpu::{name} ... {'FAILED' if error else 'ok'}", flush=True)
        if error:
            traceback.print_exception(error)
    failed = sum(error is not None for error in errors.values())
    if failed:
        print(f"reports are in {rehearsal.folder}")
    else:
        shutil.rmtree(rehearsal.folder)
    print(f"test result: {'FAILED' if failed else 'ok'}. {len(errors) - failed} passed; {failed} failed; 0 ignored", flush=True)
    return not failed


def stand_in(what, words):
    """What a program says that needs a GPU by itself, or that it has a fault."""
    fault = os.environ.get(STAND_IN, "")
    if what == "compute-sanitizer":
        return sanitizer(words[words.index("--tool") + 2 :], fault)
    if fault == "hangs":
        time.sleep(2 * LIMIT)
    if fault == "fails":
        sys.exit("an injected fault")
    if fault == "lost":
        sys.exit("CUDA error: an illegal memory access was encountered (an injected fault)")
    figures = {
        "attention": dict(forward_ms=1.0, backward_ms=2.0),
        "copies": dict(bf16_flops=1e12, copy_bytes=1e12, to_device_bytes=1e10, to_host_bytes=1e10),
        "peer": dict(tokens_per_s=1e5, peak_reserved=1 << 30),
    }
    print(json.dumps(figures[what]))


def sanitizer(words, fault):
    """Runs the program, and finds something in its first case."""
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    print("========= COMPUTE-SANITIZER", flush=True)
    for line in process.stdout:
        print(line, end="", flush=True)
        if fault == "found" and '"begins":0' in line:
            print("========= Error: Race reported between Write access and Read access (an injected fault)", flush=True)
    print("========= ERROR SUMMARY: 0 errors", flush=True)
    sys.exit(process.wait())


if __name__ == "__main__":
    stand_in(sys.argv[1], sys.argv[2:])
