#!/usr/bin/env python3
"""What there is to do on a machine with an NVIDIA GPU; bench/gpu.sh starts it."""
import argparse
import json
import os
import pathlib
import re
import signal
import sys
import time

import pack
import rehearsal
import stages
from report import LEFT_OUT, NO_TIME, NOT_RUN, Report
from watch import CASE, FAILED, OPENS, PASSED, Cases, Command

# Seconds for a whole call: a machine that is lent for ten minutes has transfers to make, and ends what takes longer.
LIMIT = 500
# Seconds that are kept for what comes after a stage: a process that doesn't die, and the report.
KEPT = 8
# Seconds under which a stage isn't begun.
LEAST = 5
# The first stage asks who is there.
DEVICE, DEVICE_LIMIT = "device", 30
# How the engine's messages name a kernel, by its file and entry.
KERNEL = re.compile(r"(?:kernel|lost:) (\w+\.\w+)")
HERE = pathlib.Path(__file__).resolve().parent


def libraries():
    """Folders of NVRTC and cuBLASLt that came along or lie among Python's packages, where the loader doesn't look."""
    names = ("libnvrtc", "libcublasLt")
    folders = [HERE.parent / "lib"]
    for folder in sys.path:
        folders += sorted(pathlib.Path(folder or ".").glob("nvidia/*/lib"))
    found = [str(folder) for folder in folders if any(list(folder.glob(f"{name}.so.[0-9]*")) for name in names)]
    return list(dict.fromkeys(found))


class Call:
    """A call, stage by stage."""

    def __init__(self, call, place, results, limit, faults, case_limit, only):
        self.place, self.faults, self.case_limit = place, faults, case_limit
        self.end = time.monotonic() + limit - KEPT
        self.libraries = ":".join([*filter(None, [os.environ.get("LD_LIBRARY_PATH")]), *libraries()])
        self.device = stages.Stage(DEVICE, DEVICE_LIMIT, [place.binaries / "gpu-cases", DEVICE], cases=True)
        self.stages = [stage for stage in stages.of(call, place) if only is None or stage.name in only]
        self.report = Report(results, call, limit, [self.device, *self.stages])

    def run(self):
        missing = self.who()
        for stage in self.stages:
            start = time.monotonic()
            if missing or stage.left_out:
                self.report.ends(stage.name, LEFT_OUT if stage.left_out else NOT_RUN, 0, why=stage.left_out or missing)
            elif self.end - start < LEAST:
                self.report.ends(stage.name, NO_TIME, 0)
            else:
                # What goes wrong here is no reason to lose the stages that are left.
                try:
                    (self.cases if stage.cases else self.command)(stage, start)
                except Exception as error:  # noqa: BLE001
                    self.fails(stage, start, FAILED, f"{type(error).__name__}: {error}")
        self.report.complete()
        return self.report.passed()

    def environment(self, stage):
        words = {"LD_LIBRARY_PATH": self.libraries, "TIGHTROPE_CUDA": "0", "PYTHONUNBUFFERED": "1"}
        # Kernels are held against the references by the first stages: the others needn't.
        words["TIGHTROPE_CHECK_KERNELS"] = "off"
        if self.place.rehearsed:
            words |= rehearsal.environment(self.place.rehearsed, self.faults.get(stage.name, self.faults.get("*", "")))
        return words

    def deadline(self, stage, start):
        return min(start + stage.limit, self.end)

    def shown(self, stage):
        return " ".join(str(word) for word in stage.words)

    def who(self):
        """Runs the first stage, which opens the device; why it doesn't, where it doesn't."""
        start = time.monotonic()
        try:
            cases = self.cases(self.device, start)
        except OSError as error:
            self.fails(self.device, start, FAILED, str(error))
            return str(error)
        self.report.known["gpu"] = cases.device
        first = cases.failures[0] if cases.failures else None
        # A device that hangs may come back.
        return first["message"] if first and first["case"] == OPENS and first["what"] == FAILED else None

    def fails(self, stage, start, what, message, result=None):
        kernels = list(dict.fromkeys(KERNEL.findall(message)))
        failure = dict(case=self.shown(stage), at=None, kernels=kernels, what=what, message=message)
        self.report.ends(stage.name, what, time.monotonic() - start, failures=[failure], result=result)

    def cases(self, stage, start):
        self.report.begins(stage.name, self.shown(stage))
        deadline = self.deadline(stage, start)
        cases = Cases(stage.words, self.environment(stage), deadline, self.report.tell, self.case_limit)
        whole = cases.run()
        counts = dict(of=cases.of, passed=cases.passed, left_out=cases.left_out, not_run=cases.not_run())
        # What failed first says how the stage did.
        status = cases.failures[0]["what"] if cases.failures else PASSED if whole else FAILED
        self.report.ends(
            stage.name,
            status,
            time.monotonic() - start,
            cases=counts,
            failures=cases.failures,
            device=cases.device,
            **({"why": cases.why} if cases.why else {}),
        )
        return cases

    def command(self, stage, start):
        self.report.begins(stage.name, self.shown(stage))
        command = Command(stage.words, self.environment(stage), self.deadline(stage, start))
        command.run()
        if command.what == PASSED:
            self.report.ends(stage.name, PASSED, time.monotonic() - start, result=command.result)
        else:
            self.fails(stage, start, command.what, command.message, command.result)


def main():
    parser = argparse.ArgumentParser(prog="gpu.sh", description=__doc__)
    what = "kernels and throughput, PyTorch's, or compute-sanitizer"
    parser.add_argument("call", nargs="?", default="own", choices=stages.CALLS, help=what)
    parser.add_argument("--results", default=HERE.parent / "results", help="folder of the report")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for all stages together")
    parser.add_argument("--only", type=lambda words: words.split(","), help="the stages with these names, commas between")
    parser.add_argument("--binaries", type=pathlib.Path, default=HERE.parent, help="folder of tightrope and gpu-cases")
    parser.add_argument("--dry-run", action="store_true", help="walk all stages on the emulated device, with and without faults")
    parser.add_argument("--rehearsed", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--fault", action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--short", action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--case-limit", type=float, default=CASE, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.dry_run:
        return rehearsal.run(asked.binaries)
    for folder in (HERE.parent, HERE.parent / "lib"):
        pack.unpack(folder)
    place = stages.Place(asked.binaries.resolve(), HERE.parent / "pytorch.py", HERE.parent / "parity", asked.rehearsed)
    faults = dict(fault.split("=", 1) for fault in asked.fault)
    if unknown := set(asked.only or []) - {stage.name for stage in stages.of(asked.call, place)}:
        parser.error(f"{asked.call} has no stage {', '.join(sorted(unknown))}")
    # Whoever ends this ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    call = Call(asked.call, place, asked.results, asked.limit, faults, asked.case_limit, asked.only)
    for stage in call.stages:
        if stage.name in asked.short:
            stage.limit = rehearsal.SHORT_STAGE
    return call.run()


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
