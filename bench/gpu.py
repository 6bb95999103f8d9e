#!/usr/bin/env python3
"""What gpu.sh needs of Python.

gpu.py device               reads what `tightrope doctor --json` prints, and says which GPU there is, or why there's none
gpu.py libraries            folders of NVRTC and cuBLASLt among Python's packages, as LD_LIBRARY_PATH takes them
gpu.py ceilings             what the GPU reaches at most, by torch: a product of bf16, and a copy
gpu.py report LOGS RESULTS  puts the stages' outputs together: a table, and RESULTS/GPU-DATE.json
"""
import datetime
import json
import pathlib
import re
import sys

# Edge of the product, and bytes of the copy.
EDGE, COPIED = 8192, 4 << 30
RUNS = 20
ROWS = 15
# Stages that differ in who multiplies, and ops with products in them.
OWN_KERNELS, LIBRARY = "gpt2-batch-64-own-kernels", "gpt2-batch-64-cublaslt"
PRODUCTS = ("matmul", "linear_cross_entropy")


def device():
    found = [d for d in json.load(sys.stdin)["devices"] if d["name"] == "cuda"]
    gpu = found[0] if found else {"available": False, "reason": "this binary has no CUDA"}
    print(gpu["description"] if gpu["available"] else gpu["reason"])
    return gpu["available"]


def libraries():
    names = ("libnvrtc", "libcublasLt")
    found = (
        path
        for folder in sys.path
        for name in names
        for path in pathlib.Path(folder).glob(f"nvidia/*/lib/{name}.so.[0-9]*")
    )
    print(":".join(sorted({str(path.parent) for path in found})))
    return True


def ceilings():
    import torch

    def seconds(work):
        best = float("inf")
        for _ in range(RUNS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            work()
            end.record()
            torch.cuda.synchronize()
            best = min(best, begin.elapsed_time(end) / 1e3)
        return best

    a, b = (torch.randn(EDGE, EDGE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = torch.empty_like(a)
    flops = 2 * EDGE**3 / seconds(lambda: torch.matmul(a, b, out=product))
    source = torch.zeros(COPIED, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    moved = 2 * COPIED / seconds(lambda: target.copy_(source))
    print(json.dumps(dict(gpu=torch.cuda.get_device_name(), torch=torch.__version__, bf16_flops=flops, copy_bytes=moved)))
    return True


def outcome(text):
    """The object that a stage printed, on its last line or over all of them."""
    for part in (text, text.strip().rpartition("\n")[2]):
        try:
            return json.loads(part)
        except ValueError:
            pass
    return None


def report(logs, results):
    logs, results = pathlib.Path(logs), pathlib.Path(results)
    doctor = json.loads((logs / "doctor.out").read_text())
    name = [d for d in doctor["devices"] if d["name"] == "cuda"][0]["description"]
    stages = {}
    for line in (logs / "stages").read_text().splitlines():
        stage, status, seconds, command = line.split("\t")
        out, err = logs / f"{stage}.out", logs / f"{stage}.err"
        stages[stage] = dict(status=status, seconds=int(seconds), command=command)
        text = out.read_text(errors="replace") if out.exists() else ""
        found = outcome(text)
        if found is not None:
            stages[stage]["result"] = found
        if found is None or status != "passed":
            said = text + (err.read_text(errors="replace") if err.exists() else "")
            stages[stage]["said"] = said[-2000:]
    table(stages)
    date = datetime.date.today().isoformat()
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower().removeprefix("cuda (").removesuffix(")")).strip("-")
    results.mkdir(parents=True, exist_ok=True)
    path = results / f"{slug}-{date}.json"
    path.write_text(json.dumps(dict(gpu=name, date=date, doctor=doctor, stages=stages), indent=1) + "\n")
    print(f"written to {path}")
    return all(stage["status"] == "passed" for stage in stages.values())


def table(stages):
    def result(stage):
        found = stages[stage].get("result")
        return found if isinstance(found, dict) else {}

    print(f"\n{'stage':<34}{'status':<16}{'s':>5}")
    for stage, of_stage in stages.items():
        print(f"{stage:<34}{of_stage['status']:<16}{of_stage['seconds']:>5}")
    print(f"\n{'whole steps':<34}{'tokens/s':>12}{'peak GiB':>10}")
    for stage in stages:
        found = result(stage)
        # Tightrope's figures lie in `step`; PyTorch's peak is what it reserved.
        step = found.get("step", found)
        if isinstance(step, dict) and "tokens_per_s" in step:
            peak = step.get("peak_bytes", step.get("peak_reserved", 0))
            print(f"{stage:<34}{step['tokens_per_s']:>12.0f}{peak / 2**30:>10.2f}")
    products(*(result(stage) if stage in stages else {} for stage in (OWN_KERNELS, LIBRARY)))
    ceilings = result("ceilings") if "ceilings" in stages else {}
    ops = result("gpt2-batch-64").get("ops", []) if "gpt2-batch-64" in stages else []
    if not ops:
        return
    print(f"\n{'op':<26}{'shape':<44}{'runs':>5}{'ms':>9}{'TFLOP/s':>9}{'GB/s':>8}{'ceiling':>9}{'share':>7}")
    for op in ops[:ROWS]:
        of = "-"
        if ceilings:
            reached = max(op["gflop_s"] * 1e9 / ceilings["bf16_flops"], op["gb_s"] * 1e9 / ceilings["copy_bytes"])
            of = f"{reached:.0%}"
        print(
            f"{op['op']:<26}{op['shape']:<44}{op['count']:>5}{op['ms']:>9.3f}"
            f"{op['gflop_s'] / 1e3:>9.1f}{op['gb_s']:>8.0f}{of:>9}{op['share']:>7.1%}"
        )


def products(own, library):
    """Ops with matrix products, by the engine's kernels and by cuBLASLt."""
    milliseconds = lambda found: {(op["op"], op["shape"]): op["ms"] for op in found.get("ops", [])}
    own, library = milliseconds(own), milliseconds(library)
    both = [key for key in own if key in library and any(word in key[0] for word in PRODUCTS)]
    if not both:
        return
    print(f"\n{'product':<26}{'shape':<44}{'own ms':>9}{'cuBLASLt':>9}{'own is':>9}")
    for op, shape in both:
        kernels, other = own[op, shape], library[op, shape]
        print(f"{op:<26}{shape:<44}{kernels:>9.3f}{other:>9.3f}{other / kernels:>8.2f}x")


if __name__ == "__main__":
    verbs = {"device": device, "libraries": libraries, "ceilings": ceilings, "report": report}
    if len(sys.argv) < 2 or sys.argv[1] not in verbs:
        sys.exit(__doc__)
    sys.exit(0 if verbs[sys.argv[1]](*sys.argv[2:]) else 1)
