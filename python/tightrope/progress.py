"""The progress of a training run, on one line that is written over: in terminals and in notebooks."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from .training import Step

WIDTH = 20
#: Seconds between two updates of the line.
PAUSE = 0.1


def is_shown(stream: TextIO) -> bool:
    """Whether a line that is written over can be seen: on a terminal, and in the output of a notebook's cell."""
    return stream.isatty() or type(stream).__module__.startswith("ipykernel")


class Progress:
    """A bar with loss, speed and the time that is left."""

    def __init__(self, steps: int, stream: TextIO | None = None) -> None:
        self._steps = steps
        self._stream = stream or sys.stderr
        self._shown = is_shown(self._stream)
        self._start = self._last = time.monotonic()
        self._first: int | None = None
        self._length = 0

    def __call__(self, step: Step) -> None:
        """Shows a step."""
        now = time.monotonic()
        first = self._first = step.step if self._first is None else self._first
        if not self._shown or (now - self._last < PAUSE and step.step < self._steps):
            return
        self._last = now
        share = min(1.0, step.step / max(self._steps, 1))
        left = (now - self._start) / (step.step - first + 1) * (self._steps - step.step)
        bar = "█" * round(share * WIDTH)
        line = (
            f"{share:4.0%} |{bar:<{WIDTH}}| {step.step}/{self._steps}"
            f" · loss {step.loss:.4f} · {step.tokens_per_s:,.0f} tokens/s · {clock(left)} left"
        )
        # What was longer before is wiped away.
        self._stream.write(f"\r{line:<{self._length}}")
        self._stream.flush()
        self._length = len(line)

    def end(self) -> None:
        """Ends the line."""
        if self._length:
            self._stream.write("\n")


def clock(seconds: float) -> str:
    """Seconds as minutes and seconds, with hours where there are any."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes:02}:{seconds:02}"
