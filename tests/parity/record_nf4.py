#!/usr/bin/env python3
"""Records what bitsandbytes makes of weights in 4-bit NormalFloat with double quantization, for tests/tests/ops/nf4.rs.

    pip install torch bitsandbytes numpy
    tests/parity/record_nf4.py
"""
import json
import pathlib

import bitsandbytes
import torch
from bitsandbytes import functional

# More than 256 scales of 64 values, so that scales of scales have a second block; and an odd rest.
SIZES = [(1,), (64,), (7, 19), (67, 257)]


def weight(i):
    """Element i of the weights: a number of few bits, which f32 holds exactly. Blocks differ in size, one is zeros and one has an outlier."""
    if 64 <= i < 128:
        return 0.0
    drawn = (i * 2654435761 % 2**32) >> 16
    return (drawn - 2**15) * (1 + i // 64 % 7) / 2**22 if i != 130 else 3.0


def case(shape):
    count = torch.Size(shape).numel()
    weights = torch.tensor([weight(i) for i in range(count)], dtype=torch.float32).view(shape)
    packed, state = functional.quantize_4bit(weights, blocksize=64, compress_statistics=True, quant_type="nf4")
    return {
        "count": count,
        "bytes": bytes(packed.view(-1).tolist()).hex(),
        "scales": bytes(state.absmax.view(-1).tolist()).hex(),
        "scales_of_scales": state.state2.absmax.view(-1).tolist(),
        "offset": state.offset.item(),
        # Every 31st.
        "dequantized": functional.dequantize_4bit(packed, state).view(-1)[::31].tolist(),
    }


def main():
    cases = [case(shape) for shape in SIZES]
    path = pathlib.Path(__file__).parent / "nf4-case.json"
    made = {"bitsandbytes": bitsandbytes.__version__, "torch": torch.__version__, "cases": cases}
    path.write_text(json.dumps(made) + "\n")


main()
