"""Checks of notebook 2."""

from typing import Any

import numpy as np

import checks


def first_fit(size: np.ndarray, first: np.ndarray, last: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Offsets where tensors take the lowest hole among those that are placed already and alive with them."""
    offset: np.ndarray = np.zeros(len(size), int)
    placed: list[int] = []
    for i in order:
        place = 0
        together = [j for j in placed if first[j] <= last[i] and first[i] <= last[j]]
        for j in sorted(together, key=lambda j: offset[j]):
            if offset[j] - place >= size[i]:
                break
            place = max(place, offset[j] + size[j])
        offset[i] = place
        placed.append(i)
    return offset


def case(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lifetimes of a made-up step: long ones that end in reverse order, and short ones in between."""
    random = np.random.default_rng(seed)
    ops, count = 60, 40
    first = random.integers(0, ops, count)
    long = random.random(count) < 0.5
    last = np.where(
        long & (first < ops // 2), ops - 1 - first, np.minimum(first + random.integers(0, 6, count), ops - 1)
    )
    return random.integers(1, 64, count) * 64, first, last


def live(size: np.ndarray, first: np.ndarray, last: np.ndarray) -> int:
    """The most bytes alive at once."""
    return max(int(size[(first <= op) & (op <= last)].sum()) for op in range(int(last.max()) + 1))


@checks.program("02.1", "place")
def place(answer: Any) -> str | None:
    total, online = 0, 0
    for seed in range(6):
        size, first, last = case(seed)
        offset = np.asarray(answer(size.copy(), first.copy(), last.copy()))
        if offset.shape != size.shape or (offset < 0).any():
            return "give one offset for each tensor, all at least 0"
        for i in range(len(size)):
            for j in range(i):
                together = first[j] <= last[i] and first[i] <= last[j]
                if together and offset[i] < offset[j] + size[j] and offset[j] < offset[i] + size[i]:
                    return "two tensors that are alive at once share bytes; lifetimes include their last op"
        total += int((offset + size).max())
        online += int((first_fit(size, first, last, np.argsort(first, kind="stable")) + size).max())
    if total >= online:
        return "no better than program order: which tensors are hardest to place late?"
    return None


@checks.exercise("02.2")
def broken(answer: Any) -> str | None:
    table = np.asarray(answer, dtype=int)
    if table.ndim != 2 or table.shape[1] != 3 or len(table) > 8:
        return "give a list of at most 8 triples (bytes, first, last)"
    size, first, last = table.T
    if (size < 1).any() or (first < 0).any() or (last < first).any() or last.max() > 1000:
        return "bytes are at least 1, and a tensor's last op isn't before its first"
    taken = (first_fit(size, first, last, np.argsort(first, kind="stable")) + size).max()
    ratio = taken / live(size, first, last)
    if ratio < 1.5:
        return f"first fit takes {ratio:.2f} × the live bytes: leave a large hole below a small tensor that stays, then ask for slightly more"
    return None


checks.choice(
    "02.3",
    "bf893b91a728",
    a="leaked tensors would be allocated, and only 12 GiB are",
    b="drivers don't lose memory; reserved and not allocated is the allocator's own",
    c="weights have the size that they had at the start",
)
