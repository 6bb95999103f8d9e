"""What a step costs from Python beyond what the engine takes for it: python3 bench/python/step.py [--steps N]

Trains the 10.8M model, 4 sequences of 256 tokens a step, with the installed package `tightrope`. The engine measures each step
by itself; the clock here also holds the way to it and back. The command makes the same steps by the same calls of the engine.
"""

import argparse
import statistics
import time

import tightrope as tr


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--steps", type=int, default=30, help="measured steps (30); three more come first")
    steps = options.parse_args().steps
    trainer = tr.Trainer(preset="shakespeare", batch=4, device="cpu", steps=steps + 3, eval_every=0, sample_every=0)
    for _ in range(3):
        trainer.step()
    outside, inside = [], []
    for _ in range(steps):
        start = time.perf_counter()
        step = trainer.step()
        outside.append(time.perf_counter() - start)
        inside.append(step.step_s)
    cost = [a - b for a, b in zip(outside, inside)]
    share = sum(cost) / sum(inside)
    print(f"{tr.__version__}, {trainer.device}, {steps} steps of {statistics.median(inside):.4f} s (median)")
    print(f"from Python: {1e6 * statistics.median(cost):.0f} µs more a step (median), {share:.3%} of all steps")


if __name__ == "__main__":
    main()
