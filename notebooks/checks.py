"""What the notebooks of this course have in common: figures that tests read, and exercises that check their answers.

``check("01.2", answer)`` says whether an answer is right, and gives a hint where it isn't. The checks of a notebook are in the folder
``exercises``. They compute the answer afresh, or try a function on cases, or compare a fingerprint of a choice.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

#: How an output carries figures for tests.
FIGURES = "application/vnd.tightrope.figures+json"

_known: dict[str, Callable[[Any], str | None]] = {}


@dataclass(frozen=True)
class Verdict:
    """Whether an answer is right, and what is said of it."""

    right: bool
    said: str

    def __bool__(self) -> bool:
        return self.right

    def __repr__(self) -> str:
        return self.said


def exercise(number: str) -> Callable[[Callable[[Any], str | None]], Callable[[Any], str | None]]:
    """Marks a function as the check of an exercise: it takes an answer and gives a hint, or None where the answer is right."""

    def keep(function: Callable[[Any], str | None]) -> Callable[[Any], str | None]:
        _known[number] = function
        return function

    return keep


def numbers() -> list[str]:
    """The numbers of all exercises."""
    for notebook in range(1, 13):
        importlib.import_module(f"exercises.nb{notebook:02}")
    return sorted(_known)


def check(number: str, answer: Any) -> Verdict:
    """Whether ``answer`` is right. ``...`` is no answer yet."""
    importlib.import_module(f"exercises.nb{number[:2]}")
    if answer is ...:
        return Verdict(False, f"Exercise {number}: put your answer in place of the dots.")
    try:
        hint = _known[number](answer)
    except Exception as error:  # The program of a student may raise anything.
        hint = f"the check stopped at {type(error).__name__}: {error}"
    if hint is None:
        return Verdict(True, f"Exercise {number}: right.")
    return Verdict(False, f"Exercise {number}: not yet. Hint: {hint}")


def fingerprint(number: str, choice: str) -> str:
    """What stands for a choice where the choice itself mustn't be read."""
    return hashlib.sha256(f"tightrope {number} {choice.strip().lower()}".encode()).hexdigest()[:12]


def chosen(number: str, answer: Any, expected: str, hints: Mapping[str, str], options: str = "abcd") -> str | None:
    """The hint for a choice among lettered options whose right one has the fingerprint ``expected``."""
    if not isinstance(answer, str) or answer.strip().lower() not in tuple(options):
        return f"answer with one letter of {', '.join(options)}, in quotes"
    if fingerprint(number, answer) == expected:
        return None
    return hints.get(answer.strip().lower(), "read the options once more, and look at the figures above")


def whole(answer: Any) -> int | None:
    """A whole number, or None where it isn't one."""
    try:
        return int(answer) if float(answer) == int(answer) and not isinstance(answer, (str, bool)) else None
    except (TypeError, ValueError):
        return None


def equals(answer: Any, expected: int, hints: Mapping[int, str], otherwise: str) -> str | None:
    """The hint for a whole number that must be ``expected``; ``hints`` are for numbers that a known mistake leads to."""
    number = whole(answer)
    if number is None:
        return "the answer is a whole number"
    if number == expected:
        return None
    return hints.get(number, otherwise)


class Figures:
    """Figures by name: a table for people, and JSON for tests."""

    def __init__(self, figures: Mapping[str, Any]) -> None:
        self.figures = {name: _plain(value) for name, value in figures.items()}

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        width = max(map(len, self.figures))
        lines = [f"{name.replace('_', ' '):<{width}}  {_text(value)}" for name, value in self.figures.items()]
        return {"text/plain": "\n".join(lines), FIGURES: self.figures}


def report(**figures: Any) -> Figures:
    """Figures by name, to end a cell with."""
    return Figures(figures)


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    return list(value) if isinstance(value, tuple) else value


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
