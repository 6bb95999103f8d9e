"""Pictures of the course: bytes over the ops of a step, by class of tensor."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

import tightrope as tr

#: Colours of the classes, those of the plan's own map.
COLOURS = {
    "weight": "#4e79a7",
    "frozen": "#a0cbe8",
    "optimizer": "#76b7b2",
    "gradient": "#e15759",
    "activation": "#f28e2b",
    "workspace": "#9c755f",
    "input": "#bab0ac",
}

MIB = 1 << 20

plt.rcParams.update(
    {"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False, "figure.constrained_layout.use": True}
)


def mib(count: float) -> str:
    """Bytes in MiB, for people."""
    return f"{count / MIB:,.2f} MiB"


def live_by_class(plan: tr.Plan) -> dict[str, np.ndarray]:
    """Bytes that tensors of each class take at each op of the step."""
    columns, ops = plan.tensors(), len(plan.live_bytes())
    found = {}
    for name in COLOURS:
        of_class = columns["class"] == name
        if not of_class.any():
            continue
        change = np.zeros(ops + 1, np.int64)
        np.add.at(change, columns["first"][of_class].astype(int), columns["bytes"][of_class].astype(np.int64))
        np.add.at(change, columns["last"][of_class].astype(int) + 1, -columns["bytes"][of_class].astype(np.int64))
        found[name] = np.cumsum(change)[:-1]
    return found


def draw_live(plan: tr.Plan, axes: Axes | None = None, title: str = "") -> Axes:
    """Draws the live bytes of a step, stacked by class, and shades the backward pass and the update."""
    axes = axes or plt.subplots(figsize=(8, 3.2))[1]
    live = live_by_class(plan)
    ops = np.arange(len(plan.live_bytes()))
    axes.stackplot(
        ops, *(it / MIB for it in live.values()), labels=list(live), colors=[COLOURS[name] for name in live], step="mid"
    )
    phases = plan.ops()["phase"]
    bottom, top = axes.get_ylim()
    for phase in ("forward", "backward", "update"):
        at = np.flatnonzero((phases == phase) | ((phase == "backward") & (phases == "recompute")))
        if len(at):
            axes.axvline(at[0], color="#888", linewidth=0.6, linestyle=":")
            axes.text(at[0], top, f" {phase}", fontsize=8, color="#555", va="bottom")
    axes.set(xlabel="op of the step", ylabel="MiB alive", xlim=(0, max(len(ops) - 1, 1)))
    axes.set_title(title, fontsize=10, pad=14)
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return axes


def bars(
    names: Sequence[str],
    values: Sequence[float],
    axes: Axes | None = None,
    title: str = "",
    unit: str = "MiB",
    colours: str | Sequence[str] | None = None,
) -> Axes:
    """Draws one bar for each name, with its value."""
    axes = axes or plt.subplots(figsize=(7, 0.5 + 0.4 * len(names)))[1]
    place = np.arange(len(names))[::-1]
    axes.barh(place, values, color=colours or "#4e79a7")
    for at, value in zip(place, values):
        axes.text(value, at, f" {value:,.2f}", va="center", fontsize=8)
    axes.set_yticks(place, names, fontsize=8)
    axes.set(xlabel=unit)
    axes.set_title(title, fontsize=10)
    axes.margins(x=0.12)
    return axes
