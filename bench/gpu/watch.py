"""Processes that may hang, or break the device: watched, ended in time, and started anew for what is left."""
import json
import os
import pathlib
import queue
import signal
import subprocess
import tempfile
import threading
import time

# Characters of what a process said that are kept.
SAID = 4000
# Seconds that a killed process gets to be gone: one that waits for a driver may stay, and nobody waits for it.
GRACE = 3
# Seconds that a case may take, and what comes before cases: the device opens, kernels compile.
CASE, BEFORE = 20, 90
# Processes in a row that end before their first case.
TRIES = 2

# What comes before all cases.
OPENS = "the device opens"
# What came of something.
PASSED, FAILED, HUNG, LOST, DIED = "passed", "failed", "hung", "lost the device", "died"


class Process:
    """A command, in a process group of its own."""

    def __init__(self, words, environment):
        self.errors = tempfile.TemporaryFile()
        self.lines = queue.Queue()
        self.process = subprocess.Popen(
            [str(word) for word in words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.decode(errors="replace").rstrip("\n"))
        self.lines.put(None)

    def line(self, seconds):
        """The next line, `None` at the end; raises `queue.Empty` where neither comes in time."""
        return self.lines.get(timeout=max(seconds, 0))

    def end(self):
        """Its exit code, minus a signal's number; `None` where it's still there. What it started ends with it."""
        try:
            code = self.process.wait(timeout=GRACE)
        except subprocess.TimeoutExpired:
            code = None
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        return code

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(timeout=GRACE)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass

    def said(self):
        """The end of what it wrote to stderr."""
        end = self.errors.seek(0, os.SEEK_END)
        self.errors.seek(max(0, end - SAID))
        return self.errors.read().decode(errors="replace").strip()


def ended(code):
    if code is None:
        return "it closed its output and stays"
    return f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"


class Cases:
    """Runs cases of gpu-cases, in as many processes as it takes."""

    def __init__(self, words, environment, deadline, tell, case_limit=CASE):
        self.words, self.environment, self.deadline = words, environment, deadline
        self.tell, self.case_limit = tell, case_limit
        self.of = self.passed = self.left_out = self.next = 0
        self.failures, self.device, self.why = [], None, None
        # Compiles each case's kernels by themselves, once compiling all of them together has failed.
        self.apart = False
        self.current, self.at, self.findings = None, None, []
        # Whether kernels compile, and whether the process said why it ends.
        self.compiles = self._told_end = False

    def run(self):
        """Whether all cases ran, whatever came of them."""
        tries = 0
        while tries < TRIES:
            before = self.next
            if self._process():
                return True
            if time.monotonic() >= self.deadline:
                return False
            tries = 0 if self.next > before else tries + 1
            self.apart = self.apart or self.next == before
        return False

    def not_run(self):
        return self.of - self.next

    def _process(self):
        """Whether a process came to the last case."""
        words = [*self.words, "--from", self.next] + (["--apart"] if self.apart else [])
        process = Process(words, self.environment)
        self.current, self.at, self.compiles, self._told_end = None, None, False, False
        limit = BEFORE
        try:
            while True:
                try:
                    line = process.line(min(limit, self.deadline - time.monotonic()))
                except queue.Empty:
                    over = time.monotonic() >= self.deadline
                    what = "the stage's time was over" if over else f"it took more than {limit} s"
                    process.kill()
                    self._fails(HUNG, "; ".join(filter(None, [what, process.said()])))
                    return False
                if line is None:
                    code = process.end()
                    if self.current is not None or not self._told_end:
                        self._fails(DIED, "; ".join(filter(None, [ended(code), process.said()])))
                    return False
                if self._heard(line):
                    self._drain(process)
                    return True
                limit = self.case_limit if self._in_case() and not self.compiles else BEFORE
        finally:
            process.kill()

    def _drain(self, process):
        """Takes in what a tool around the cases says after the last."""
        try:
            while (line := process.line(min(BEFORE, self.deadline - time.monotonic()))) is not None:
                self._heard(line)
        except queue.Empty:
            pass
        if found := found_by_sanitizer(self.findings):
            self.current = dict(begins=None, case="after the last case", kernels=[])
            self._fails(FAILED, "\n".join(found))

    def _in_case(self):
        return self.current is not None and self.current["begins"] is not None

    def _heard(self, line):
        """Takes a line in; whether it's the last."""
        try:
            told = json.loads(line)
        except ValueError:
            told = None
        if not isinstance(told, dict):
            # Of a tool around it.
            self.findings.append(line)
            return False
        if "cases" in told:
            self.of = told["cases"]
        elif "begins" in told:
            self.current, self.at, self.compiles = told, None, False
            self.tell(told["case"] if told["begins"] is None else f"case {told['begins'] + 1} of {self.of}: {told['case']}")
        elif "at" in told:
            self.at, self.compiles = told["at"], told.get("compiles", False)
            self.tell(f"  {self.at}")
        elif "left_out" in told:
            self.left_out += told["left_out"]
            self.next += told["left_out"]
            self.why = told["why"]
        elif "ended" in told:
            self._ended(told)
        return told.get("done", False)

    def _ended(self, told):
        what = {"passed": PASSED, "failed": FAILED, "lost": LOST}[told["outcome"]]
        found, self.findings = found_by_sanitizer(self.findings), []
        self._told_end = what == LOST or what != PASSED and told["ended"] is None
        if what == PASSED and not found:
            if told["ended"] is None:
                if self.current["case"] == OPENS:
                    self.device = told["says"]
            else:
                self.passed += 1
                self.next = told["ended"] + 1
            self.current = None
        elif what == PASSED:
            self._fails(FAILED, "\n".join(found))
        else:
            self._fails(what, "\n".join([told["says"], *found]))

    def _fails(self, what, message):
        current = self.current or {"begins": None, "case": "the process starts", "kernels": []}
        self.failures.append(
            dict(case=current["case"], at=self.at, kernels=current["kernels"], what=what, message=message[-SAID:])
        )
        self.tell(f"  {what}: {message}")
        if current["begins"] is not None:
            self.next = current["begins"] + 1
        self.current = None


def found_by_sanitizer(lines):
    """What compute-sanitizer reports of a case."""
    told = [line for line in lines if line.startswith("=========")]
    quiet = ("COMPUTE-SANITIZER", "SUMMARY", "LEAK", "Target application")
    return [line for line in told if line.strip("= ") and not any(word in line for word in quiet)]


class Command:
    """A command that prints an object, and says on stderr what it does."""

    def __init__(self, words, environment, deadline):
        self.words, self.environment, self.deadline = words, environment, deadline
        self.result, self.what, self.message = None, PASSED, ""

    def run(self):
        process = Process(self.words, self.environment)
        lines = []
        try:
            while (line := process.line(self.deadline - time.monotonic())) is not None:
                lines.append(line)
            code = process.end()
            if code != 0:
                self.what, self.message = DIED if code is None or code < 0 else FAILED, ended(code)
        except queue.Empty:
            process.kill()
            self.what, self.message = HUNG, "its time was over"
        finally:
            process.kill()
        self.result = outcome(lines)
        if self.what != PASSED:
            self.message = "\n".join(filter(None, [self.message, *lines[-20:], process.said()]))[-SAID:]
        elif self.result is None:
            self.what, self.message = FAILED, "it printed no result\n" + process.said()


def outcome(lines):
    """The object that a command printed, on its last line or over all of them."""
    for text in ("\n".join(lines), lines[-1] if lines else ""):
        try:
            found = json.loads(text)
        except ValueError:
            continue
        if isinstance(found, dict | list):
            return found
    return None


def write(path, text):
    """Writes a file that whoever reads it finds whole: as it was, or as it is now."""
    path = pathlib.Path(path)
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
