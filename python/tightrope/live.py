"""What a notebook shows of a trainer while it trains: the loss so far, and the bytes that were planned and measured."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from .notebook import Bundle, bundle

if TYPE_CHECKING:
    from .training import Step, Trainer
    from .widget import RunWidget

#: Seconds between two updates.
PAUSE = 0.25
#: Points of a curve that are kept; then every second one is dropped, and not the last.
MOST = 2000

Points = list[tuple[int, float]]


class Live:
    """Shows a trainer in the cell that runs. It's called with each step."""

    def __init__(self, trainer: Trainer) -> None:
        from IPython import get_ipython
        from IPython import display as displays

        plan = trainer.plan
        self._trainer = trainer
        self._shell = get_ipython()
        self._plan = {"planned_bytes": plan.peak_bytes, "by_class": plan.by_class}
        self._losses: Points = []
        self._heldout: Points = []
        self._last: Step | None = None
        self._widget: RunWidget | None = None
        self._shown = time.monotonic()
        self._awaits_end = False
        data, metadata = self._bundle()
        display: Any = displays.display
        self._handle = display(data, metadata=metadata, raw=True, display_id=True)

    def __call__(self, step: Step) -> None:
        """Takes a step, and shows it where the last was shown long enough ago."""
        self._last = step
        self._losses.append((step.step, step.loss))
        if len(self._losses) > MOST:
            del self._losses[-2::-2]
        if step.heldout is not None:
            self._heldout.append((step.step, step.heldout.loss))
        if not self._awaits_end and self._shell is not None:
            # However the loop ends, so does the cell.
            self._shell.events.register("post_run_cell", self._end)
            self._awaits_end = True
        now = time.monotonic()
        if self._widget is not None and now - self._shown >= PAUSE:
            self._shown = now
            self._update(self._widget)

    def _end(self, *_: object) -> None:
        """Shows what came after the last update, and leaves a picture of it for readers without a kernel."""
        self._shell.events.unregister("post_run_cell", self._end)
        self._awaits_end = False
        if self._widget is not None:
            self._update(self._widget)
        data, metadata = self._bundle()
        self._handle.update(data, metadata=metadata, raw=True)

    def _figures(self) -> dict[str, Any]:
        last, heldout = self._last, self._heldout
        return {
            **self._plan,
            "measured_bytes": self._trainer.measured_peak_bytes,
            "step": last.step if last else self._trainer.steps_done,
            "loss": last.loss if last and math.isfinite(last.loss) else None,
            "heldout": heldout[-1][1] if heldout else None,
            "step_s": last.step_s if last else None,
        }

    def _update(self, widget: RunWidget) -> None:
        with widget.hold_sync():
            widget.losses = np.array(self._losses, np.float64).tobytes()
            widget.heldout = np.array(self._heldout, np.float64).tobytes()
            widget.figures = self._figures()

    def _make(self) -> RunWidget:
        if self._widget is None:
            from .widget import RunWidget

            self._widget = RunWidget()
            self._update(self._widget)
        return self._widget

    def _bundle(self) -> Bundle:
        figures = self._figures()
        return bundle(self._make, svg(self._losses, self._heldout, figures), text(figures))


def text(figures: dict[str, Any]) -> str:
    """The run in a line."""
    loss = "no loss yet" if figures["loss"] is None else f"loss {figures['loss']:.4f}"
    planned, measured = figures["planned_bytes"], figures["measured_bytes"]
    return f"step {figures['step']}: {loss}; {planned:,} bytes planned, {measured:,} measured"


WIDTH, HEIGHT = 560, 200
LEFT, TOP, BOTTOM = 48, 24, 22
LOSS, HELDOUT = "#3f6ea8", "#c73e1d"


def svg(losses: Points, heldout: Points, figures: dict[str, Any]) -> str:
    """The curves as a picture, with the run in a line above them."""
    points = [point for point in (*losses, *heldout) if math.isfinite(point[1])]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        f' style="max-width:100%;height:auto" font-family="sans-serif" font-size="11" fill="#888" role="img">\n<title>Loss over steps</title>',
        f'<text x="{LEFT}" y="13">{text(figures)}</text>',
    ]
    if points:
        steps, values = zip(*points)
        first, last, low, high = min(steps), max(steps), min(values), max(values)

        def x(step: int) -> float:
            return float(LEFT + (WIDTH - LEFT - 10) * (step - first) / max(last - first, 1))

        def y(loss: float) -> float:
            return float(TOP + (HEIGHT - TOP - BOTTOM) * (high - loss) / ((high - low) or 1))

        for value in {low, high}:
            parts.append(f'<text x="{LEFT - 6}" y="{y(value) + 4:.0f}" text-anchor="end">{value:.3f}</text>')
        for step, anchor in {first: "start", last: "end"}.items():
            parts.append(f'<text x="{x(step):.0f}" y="{HEIGHT - 6}" text-anchor="{anchor}">step {step}</text>')
        for curve, colour, name, right in ((losses, LOSS, "loss", 60), (heldout, HELDOUT, "held-out", 10)):
            if not curve:
                continue
            parts.append(f'<text x="{WIDTH - right}" y="13" text-anchor="end" fill="{colour}">{name}</text>')
            line = " ".join(f"{x(step):.1f},{y(loss):.1f}" for step, loss in curve if math.isfinite(loss))
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    return "\n".join((*parts, "</svg>\n"))
