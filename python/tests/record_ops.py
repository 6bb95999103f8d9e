"""Writes what PyTorch makes of the table of ops into ``ops.npz``: python python/tests/record_ops.py, where PyTorch is."""

import json
from pathlib import Path

import numpy as np
from ops_cases import CASES

if __name__ == "__main__":
    expected = {case.name: case.expected() for case in CASES}
    shapes = {name: out.shape for name, (out, _) in expected.items()}
    numbers = [it.reshape(-1).astype(np.float32) for pair in expected.values() for it in pair]
    path = Path(__file__).with_name("ops.npz")
    np.savez_compressed(path, shapes=json.dumps(shapes, ensure_ascii=False), numbers=np.concatenate(numbers))
