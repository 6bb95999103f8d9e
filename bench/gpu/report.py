"""What is known so far of a call: written after each stage, and each time that one begins."""
import datetime
import json
import pathlib
import time

from watch import PASSED, write

# Status of a stage besides those of what it runs.
WAITS, RUNS, NO_TIME, LEFT_OUT, NOT_RUN = "not reached", "running", "no time left", "left out", "not run"
# Characters of a message in the text, which has room for few.
SHORT = 300
ROWS = 12
# Stages that differ in who multiplies, and ops with products in them.
OWN_KERNELS, LIBRARY = "gpt2-batch-64-own-kernels", "gpt2-batch-64-cublaslt"
PRODUCTS = ("matmul", "linear_cross_entropy")
# The step whose ops are held against what a GPU reaches.
STEP = "gpt2-batch-64"


class Report:
    """A file for machines, a text for people, and a log of everything as it happens."""

    def __init__(self, folder, call, limit, stages):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.name, self.began = f"gpu-{call}", time.monotonic()
        self.log = (self.folder / f"{self.name}.log").open("w", buffering=1)
        self.known = dict(
            call=call,
            gpu=None,
            date=datetime.date.today().isoformat(),
            limit_s=limit,
            seconds=0,
            complete=False,
            first_failure=None,
            stages={stage.name: dict(status=WAITS, limit_s=stage.limit) for stage in stages},
        )
        self.write()

    def tell(self, words):
        self.log.write(f"{time.monotonic() - self.began:7.2f}  {words}\n")

    def begins(self, stage, words):
        self.tell(f"{stage}: {words}")
        self.known["stages"][stage].update(status=RUNS, command=words)
        self.write()

    def ends(self, stage, status, seconds, **more):
        """What came of a stage; `failures` among the rest, the first of all of which is named apart."""
        of_stage = self.known["stages"][stage]
        of_stage.update(status=status, seconds=round(seconds, 1), **more)
        for failure in of_stage.get("failures", []):
            if self.known["first_failure"] is None:
                self.known["first_failure"] = dict(stage=stage, **failure)
        self.tell(f"{stage}: {status}, {seconds:.1f} s")
        self.write()
        print(line_of(stage, of_stage), flush=True)

    def complete(self):
        self.known["complete"] = True
        self.write()
        print("\n".join(["", *first_of(self.known), *figures(self.known)]))

    def passed(self):
        return all(stage["status"] in (PASSED, LEFT_OUT) for stage in self.known["stages"].values())

    def write(self):
        self.known["seconds"] = round(time.monotonic() - self.began, 1)
        write(self.folder / f"{self.name}.json", json.dumps(self.known, indent=1) + "\n")
        write(self.folder / f"{self.name}.txt", text(self.known))


def line_of(name, stage):
    """A stage on a line, and the first of its failures on the next."""
    cases = stage.get("cases")
    counts = ""
    if cases:
        counts = f"{cases['passed']} of {cases['of']} cases passed"
        others = (("left_out", "left out"), ("not_run", "not run"))
        counts += "".join(f", {cases[key]} {words}" for key, words in others if cases[key])
    lines = [f"{name:<28}{stage['status']:<18}{stage.get('seconds', 0):>6} s  {counts or stage.get('why', '')}".rstrip()]
    failures = stage.get("failures", [])
    if failures:
        lines += ["    " + line for line in failure_of(failures[0], SHORT)]
    if len(failures) > 1:
        lines.append(f"    and {len(failures) - 1} more")
    return "\n".join(lines)


def failure_of(failure, most):
    at = f", at {failure['at']}" if failure.get("at") else ""
    kernels = f" [{', '.join(failure['kernels'])}]" if failure["kernels"] else ""
    case = failure["case"] if len(failure["case"]) <= most else failure["case"][:most] + " …"
    message = failure["message"] if len(failure["message"]) <= most else failure["message"][:most] + " …"
    return [f"{failure['what']}{at}: {case}{kernels}", *message.splitlines()]


def text(known):
    gpu = known["gpu"] or "no device yet"
    lines = [f"{gpu}, {known['date']}: {known['call']}, {known['seconds']} s of {known['limit_s']} s", ""]
    lines += first_of(known)
    lines += [line_of(name, stage) for name, stage in known["stages"].items()]
    return "\n".join([*lines, "", *figures(known)]) + "\n"


def first_of(known):
    """The first failure, with its whole message."""
    first = known["first_failure"]
    if not first:
        return []
    return [f"the first failure, in {first['stage']}:", *("    " + line for line in failure_of(first, 100_000)), ""]


def figures(known):
    """Tables of what was measured."""
    stages = known["stages"].items()
    results = {name: stage["result"] for name, stage in stages if isinstance(stage.get("result"), dict)}
    tables = (table(results) for table in (steps, products, attention, ops))
    return [line for rows in tables if rows for line in (*rows, "")]


def steps(results):
    rows = []
    for name, found in results.items():
        # Tightrope's figures lie in `step`; PyTorch's peak is what it reserved.
        step = found.get("step", found)
        if isinstance(step, dict) and "tokens_per_s" in step:
            peak = step.get("peak_bytes", step.get("peak_reserved", 0))
            rows.append(f"{name:<34}{step['tokens_per_s']:>12.0f}{peak / 2**30:>10.2f}")
    return [f"{'whole steps':<34}{'tokens/s':>12}{'peak GiB':>10}", *rows] if rows else []


def products(results):
    """Ops with matrix products, by the engine's kernels and by cuBLASLt."""

    def milliseconds(name):
        return {(op["op"], op["shape"]): op["ms"] for op in results.get(name, {}).get("ops", [])}

    own, library = milliseconds(OWN_KERNELS), milliseconds(LIBRARY)
    rows = [
        f"{op:<26}{shape:<44}{own[op, shape]:>9.3f}{library[op, shape]:>9.3f}{library[op, shape] / own[op, shape]:>8.2f}x"
        for op, shape in own
        if (op, shape) in library and any(word in op for word in PRODUCTS)
    ]
    return [f"{'product':<26}{'shape':<44}{'own ms':>9}{'cuBLASLt':>9}{'own is':>9}", *rows] if rows else []


def attention(results):
    """Attention of the step by the engine's kernels and by PyTorch's SDPA."""
    ours = {op["op"]: op["ms"] for op in results.get(STEP, {}).get("ops", [])}
    theirs = results.get("attention", {})
    rows = [
        f"{name:<34}{ours[op]:>9.3f}{theirs[key]:>9.3f}{theirs[key] / ours[op]:>8.2f}x"
        for name, op, key in (("forward", "attention", "forward_ms"), ("backward", "attention_grad", "backward_ms"))
        if op in ours and key in theirs
    ]
    return [f"{'attention':<34}{'own ms':>9}{'SDPA':>9}{'own is':>9}", *rows] if rows else []


def ops(results):
    ceilings, found = results.get("copies", {}), results.get(STEP, {}).get("ops", [])
    rows = []
    for op in found[:ROWS]:
        of = "-"
        if "bf16_flops" in ceilings:
            reached = max(op["gflop_s"] * 1e9 / ceilings["bf16_flops"], op["gb_s"] * 1e9 / ceilings["copy_bytes"])
            of = f"{reached:.0%}"
        rows.append(
            f"{op['op']:<26}{op['shape']:<44}{op['count']:>5}{op['ms']:>9.3f}"
            f"{op['gflop_s'] / 1e3:>9.1f}{op['gb_s']:>8.0f}{of:>9}{op['share']:>7.1%}"
        )
    head = f"{'op':<26}{'shape':<44}{'runs':>5}{'ms':>9}{'TFLOP/s':>9}{'GB/s':>8}{'ceiling':>9}{'share':>7}"
    return [head, *rows] if rows else []
