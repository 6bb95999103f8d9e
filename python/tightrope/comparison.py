"""Two plans side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .notebook import Bundle, bundle
from .plans import Plan

if TYPE_CHECKING:
    from .widget import CompareWidget


class Comparison:
    """Two plans: their maps on one scale, and what differs in bytes by class, choices and seconds."""

    def __init__(self, first: Plan, second: Plan, names: tuple[str, str]) -> None:
        self.first = first
        self.second = second
        self.names = names
        self._widget: CompareWidget | None = None

    def widget(self) -> CompareWidget:
        """Both maps and a table of what differs, as a widget of anywidget."""
        if self._widget is None:
            from .widget import CompareWidget

            self._widget = CompareWidget(self.first, self.second, self.names)
        return self._widget

    def to_svg(self) -> str:
        """Both maps side by side."""
        first, second = self.names
        return self.first.to_svg(first, beside={second: self.second})

    def _repr_mimebundle_(self, **_: object) -> Bundle:
        return bundle(self.widget, self.to_svg(), repr(self))

    def __repr__(self) -> str:
        first, second = self.names
        return f"<Comparison: {first} {self.first!r}, {second} {self.second!r}>"


def compare(first: Plan, second: Plan, names: tuple[str, str] = ("first", "second")) -> Comparison:
    """Two plans side by side, on one scale, and what differs: peak, bytes by class, choices, predicted seconds.

    >>> import tightrope as tr
    >>> plan = tr.plan(preset="tiny", device="cpu")
    >>> tr.compare(plan, plan.within(plan.peak_bytes * 3 // 4), names=("fastest", "3/4 of its bytes"))
    <Comparison: fastest <Plan: ...>, 3/4 of its bytes <Plan: ...>>
    """
    return Comparison(first, second, names)
