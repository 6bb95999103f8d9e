"""Plans and runs in a notebook, as widgets of anywidget. Who shows them imports this; `import tightrope` doesn't."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from . import _engine
from .errors import DoesNotFit, Error

if TYPE_CHECKING:
    from .plans import Plan

#: One module for all kinds of views, built from the page's TypeScript (`web/widget`).
_MODULE = Path(__file__).parent / "static" / "widget.js"


class _Widget(anywidget.AnyWidget):
    _esm = _MODULE
    #: Which view the module shows.
    kind = traitlets.Unicode().tag(sync=True)


class PlanWidget(_Widget):
    """A plan: its map, its tables, and a slider for its budget, which plans again.

    ``budget`` is what the slider is at, in bytes, and can be set; :attr:`shown` is the plan within it.
    """

    kind = traitlets.Unicode("plan").tag(sync=True)
    plan = traitlets.Dict().tag(sync=True)
    range = traitlets.Tuple().tag(sync=True)
    budget = traitlets.Int(None, allow_none=True).tag(sync=True)
    error = traitlets.Unicode().tag(sync=True)

    def __init__(self, plan: Plan) -> None:
        self._planner = _engine.Planner(plan._inner)
        self.shown = plan
        super().__init__(plan=plan._inner.widget_columns(), range=self._planner.range())

    @traitlets.observe("budget")
    def _plan_again(self, change: dict[str, Any]) -> None:
        if change["new"] is None:
            return
        from .plans import Plan

        with self.hold_sync():
            try:
                self.shown = Plan(self._planner.within(change["new"]))
            except (DoesNotFit, Error) as error:
                self.error = str(error)
            else:
                self.error = ""
                self.plan = self.shown._inner.widget_columns()


class CompareWidget(_Widget):
    """Two plans side by side, and what differs."""

    kind = traitlets.Unicode("compare").tag(sync=True)
    first = traitlets.Dict().tag(sync=True)
    second = traitlets.Dict().tag(sync=True)
    names = traitlets.Tuple().tag(sync=True)

    def __init__(self, first: Plan, second: Plan, names: tuple[str, str]) -> None:
        columns = {"first": first._inner.widget_columns(), "second": second._inner.widget_columns()}
        super().__init__(**columns, names=names)


class RunWidget(_Widget):
    """A run: the loss so far, and the bytes that were planned and measured."""

    kind = traitlets.Unicode("run").tag(sync=True)
    figures = traitlets.Dict().tag(sync=True)
    #: Pairs of step and loss, as float64.
    losses = traitlets.Bytes().tag(sync=True)
    heldout = traitlets.Bytes().tag(sync=True)
