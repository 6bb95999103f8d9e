#!/usr/bin/env python3
"""What PyTorch reaches on a GPU, for what the engine reaches to be held against.

measures.py copies       a product of bf16, and copies: on the device, and between it and the host
measures.py attention    scaled dot-product attention, of GPT-2's size, in both directions
"""
import json
import sys

# Edge of the product, and bytes of the copies.
EDGE, COPIED, MOVED = 8192, 4 << 30, 1 << 30
RUNS = 20
# Sequences, heads, tokens of each, and channels of a head: of GPT-2 124M at batch 64.
ATTENTION = (64, 12, 1024, 64)


def seconds(torch, work):
    """The shortest time of several runs, on the device."""
    best = float("inf")
    for _ in range(RUNS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        best = min(best, begin.elapsed_time(end) / 1e3)
    return best


def copies(torch):
    a, b = (torch.randn(EDGE, EDGE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = torch.empty_like(a)
    source = torch.zeros(COPIED, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    host = torch.zeros(MOVED, dtype=torch.uint8).pin_memory()
    part = target[:MOVED]
    return dict(
        bf16_flops=2 * EDGE**3 / seconds(torch, lambda: torch.matmul(a, b, out=product)),
        copy_bytes=2 * COPIED / seconds(torch, lambda: target.copy_(source)),
        to_device_bytes=MOVED / seconds(torch, lambda: part.copy_(host, non_blocking=True)),
        to_host_bytes=MOVED / seconds(torch, lambda: host.copy_(part, non_blocking=True)),
    )


def attention(torch):
    qkv = [torch.randn(ATTENTION, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]

    def forward():
        return torch.nn.functional.scaled_dot_product_attention(*qkv, is_causal=True)

    out = forward()
    slope = torch.randn_like(out)
    backward = seconds(torch, lambda: torch.autograd.grad(out, qkv, slope, retain_graph=True))
    return dict(shape=ATTENTION, forward_ms=1e3 * seconds(torch, forward), backward_ms=1e3 * backward)


if __name__ == "__main__":
    measures = {"copies": copies, "attention": attention}
    if len(sys.argv) != 2 or sys.argv[1] not in measures:
        sys.exit(__doc__)
    import torch

    of = dict(gpu=torch.cuda.get_device_name(), torch=torch.__version__)
    print(json.dumps({**of, **measures[sys.argv[1]](torch)}))
