"""Plans: where every byte of a training step goes, before anything is allocated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _engine
from .nn import Model
from .notebook import Bundle, bundle
from .traced import Traced, traced

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .keywords import Keywords
    from .widget import PlanWidget

#: Inputs of a model: dtype ("f32" or "i32") and shape of one sample, by name.
Inputs = Mapping[str, tuple[str, Sequence[int]]]


class Settings(dict[str, Any]):
    """Settings for several plans and runs, which take them as ``**settings``.

    Each argument is checked at once. An editor knows them by name, and type checkers take the dict beside other arguments.

    >>> import tightrope as tr
    >>> tiny = tr.Settings(preset="tiny", device="cpu")
    >>> tr.plan(batch=8, **tiny).peak_bytes > tr.plan(batch=4, **tiny).peak_bytes
    True

    Raises:
        SettingError: a keyword or value that isn't one.
    """

    def __init__(self, **keywords: Unpack[Keywords]) -> None:
        _engine.check_settings(merged(keywords))
        super().__init__(keywords)


def merged(keywords: Mapping[str, object]) -> dict[str, Any]:
    """Keywords, and the settings among them that are said by their keys."""
    by_keyword = dict(keywords)
    by_key = by_keyword.pop("settings", None)
    if by_key is not None and not isinstance(by_key, Mapping):
        raise TypeError(f'settings= takes a dict by key, such as {{"train.beta2": 0.99}}, and not {by_key!r}')
    return {**by_keyword, **(by_key or {})}


def trace_of(model: Model | None, inputs: Inputs | None) -> Traced | None:
    """The trace of an own model."""
    if model is None:
        if inputs is not None:
            raise TypeError("inputs= describes what a model reads, and no model was given")
        return None
    if not isinstance(model, Model):
        raise TypeError(f"a model is a tightrope.Model, not {type(model).__name__}; presets are named: preset=\"gpt2\"")
    if inputs is None:
        raise TypeError('a model needs inputs={"x": ("f32", (64,)), …}: dtype and shape of one sample, by name')
    return traced(model, inputs)


class Columns(dict[str, np.ndarray]):
    """A table, by column: a dict of arrays that libraries of tables read.

    ``pandas.DataFrame(columns)`` takes it as a dict; polars, pyarrow and others by Arrow's PyCapsule interface, as
    ``polars.from_arrow(columns)``.
    """

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return _engine.arrow_stream(self)


class Plan:
    """A plan: every byte of a training step, known before anything is allocated."""

    def __init__(self, inner: _engine.Plan) -> None:
        self._inner = inner
        self._widget: PlanWidget | None = None

    @property
    def peak_bytes(self) -> int:
        """Bytes that the step takes on the device, all in all."""
        return self._inner.peak_bytes

    @property
    def lower_bound_bytes(self) -> int:
        """The most bytes that are alive at once: no plan of this order of ops takes fewer."""
        return self._inner.lower_bound_bytes

    @property
    def budget_bytes(self) -> int | None:
        """Bytes that the plan may take; None where nothing limits it."""
        return self._inner.budget_bytes

    @property
    def predicted_step_s(self) -> float:
        """Predicted seconds of a step."""
        return self._inner.predicted_step_s

    @property
    def by_class(self) -> dict[str, int]:
        """Bytes at the peak by class of tensor, and of gaps: alignment and holes. They add up to `peak_bytes`."""
        by_class: dict[str, int] = self._inner.by_class
        return by_class

    @property
    def choices(self) -> dict[str, Any]:
        """What the planner chose."""
        choices: dict[str, Any] = self._inner.choices
        return choices

    def tensors(self) -> Columns:
        """Every tensor of the step, as columns: name, class, phase, offset, bytes, first, last.

        ``first`` and ``last`` are the ops of the step that it lives from and to, counted as in :meth:`live_bytes`; ``phase`` is that
        of the op that makes it, or "kept" of what stays between steps.
        """
        return Columns(self._inner.tensors_columns())

    def ops(self) -> Columns:
        """Every op of the step, as columns: op, name, phase, predicted seconds, flops, and bytes that it moves."""
        return Columns(self._inner.ops_columns())

    def live_bytes(self) -> np.ndarray[Any, Any]:
        """Bytes that are alive at each op of the step."""
        live: np.ndarray[Any, Any] = self._inner.live_bytes()
        return live

    def frontier(self) -> list[tuple[int, float]]:
        """``(bytes, predicted seconds)`` of plans from the fastest to the smallest."""
        return self._inner.frontier()

    def advice(self) -> dict[str, Any]:
        """What the plan could be instead: what more bytes would buy, and fewer cost."""
        advice: dict[str, Any] = self._inner.advice()
        return advice

    def techniques(self) -> dict[str, Any]:
        """What each memory technique saves and costs, alone and together, against a plan that has none of them."""
        techniques: dict[str, Any] = self._inner.techniques()
        return techniques

    def to_dict(self) -> dict[str, Any]:
        """Every figure of the plan, as ``tightrope plan --json`` prints them."""
        figures: dict[str, Any] = self._inner.to_dict()
        return figures

    def to_svg(self, title: str = "", beside: Mapping[str, Plan] | None = None) -> str:
        """The plan as a map, beside others on the same scale: ops from left to right, offsets from the bottom up."""
        others = [(name, other._inner) for name, other in (beside or {}).items()]
        return self._inner.to_svg(title, others)

    def to_html(self) -> str:
        """The plan as one interactive page that needs no network."""
        return self._inner.to_html()

    def within(self, memory: int) -> Plan:
        """The fastest plan of the same step that takes at most ``memory`` bytes.

        Raises:
            DoesNotFit: no plan is as small.
        """
        return Plan(_engine.Planner(self._inner).within(memory))

    def widget(self) -> PlanWidget:
        """The map with a budget slider, as a widget of anywidget: ``pip install 'tightrope[notebook]'`` brings it.

        A cell that ends in a plan shows it. Its ``shown`` is the plan within the slider's budget.
        """
        if self._widget is None:
            from .widget import PlanWidget

            self._widget = PlanWidget(self)
        return self._widget

    def _repr_mimebundle_(self, **_: object) -> Bundle:
        return bundle(self.widget, self.to_svg(), repr(self))

    def __str__(self) -> str:
        return str(self._inner)

    def __repr__(self) -> str:
        return repr(self._inner)


def plan(
    model: Model | None = None,
    *,
    inputs: Inputs | None = None,
    watch: Sequence[str] = (),
    gpu: str | None = None,
    **keywords: Unpack[Keywords],
) -> Plan:
    """The fastest plan of a training step that fits the memory. Nothing runs, and no tensor is allocated.

    Args:
        model: a model of one's own; without it, keywords such as ``preset`` describe one.
        inputs: what the model reads: dtype and shape of one sample, by name.
        watch: tensors that steps keep for the program, as :class:`tightrope.Trainer` takes them. They take bytes.
        gpu: a GPU that isn't here, such as ``"h100"`` or ``"rtx-4090"``, by its published memory and rates.
        keywords: the flags of the command with underscores, such as ``batch=8, memory="4GiB"``, which
            :class:`tightrope.Settings` lists; and ``settings``, a dict of any by their keys, such as ``{"train.beta2": 0.99}``.

    Raises:
        DoesNotFit: no plan is as small as ``memory``; its ``suggestion`` is the cheapest change that would fit.
        SettingError: a keyword or value that isn't one.
    """
    trace = trace_of(model, inputs)
    return Plan(_engine.Plan(merged(keywords), trace.text if trace else None, list(watch), gpu))
