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

#: Gives a hint for an answer, or None where the answer is right.
Check = Callable[[Any], str | None]
#: Gives the right number, and hints for wrong ones.
Numbers = Callable[[], tuple[int, Mapping[int, str]]]

_known: dict[str, Check] = {}


@dataclass(frozen=True)
class Verdict:
    """Whether an answer is right, and what is said of it."""

    right: bool
    said: str

    def __bool__(self) -> bool:
        return self.right

    def __repr__(self) -> str:
        return self.said


def exercise(number: str) -> Callable[[Check], Check]:
    """Marks a function as the check of an exercise."""

    def keep(check: Check) -> Check:
        _known[number] = check
        return check

    return keep


def program(number: str, name: str) -> Callable[[Check], Check]:
    """Marks a function as the check of an exercise whose answer is a function ``name``."""

    def keep(check: Check) -> Check:
        exercise(number)(lambda answer: check(answer) if callable(answer) else f"give the function itself: {name}")
        return check

    return keep


def number(number: str, otherwise: str) -> Callable[[Numbers], Numbers]:
    """Marks a function that gives an exercise's answer, a whole number, and hints for numbers that a known mistake leads to;
    ``otherwise`` is the hint for all others."""

    def keep(numbers: Numbers) -> Numbers:
        def check(answer: Any) -> str | None:
            found = whole(answer)
            if found is None:
                return "the answer is a whole number"
            expected, hints = numbers()
            return None if found == expected else hints.get(found, otherwise)

        exercise(number)(check)
        return numbers

    return keep


def choice(number: str, right: str, **hints: str) -> None:
    """An exercise that asks for one of the options a to d, of which the right one has the fingerprint ``right``; a hint for each
    of the others."""

    def check(answer: Any) -> str | None:
        chosen = answer.strip().lower() if isinstance(answer, str) else None
        if chosen not in tuple("abcd"):
            return "answer with one letter of a, b, c, d, in quotes"
        return None if fingerprint(number, chosen) == right else hints[chosen]

    exercise(number)(check)


def numbers() -> list[str]:
    """The numbers of all exercises."""
    for notebook in range(1, 14):
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


def fingerprint(number: str, letter: str) -> str:
    """What stands for an option where the option itself mustn't be read."""
    return hashlib.sha256(f"tightrope {number} {letter}".encode()).hexdigest()[:12]


def whole(answer: Any) -> int | None:
    """A whole number, or None where it isn't one."""
    try:
        return int(answer) if float(answer) == int(answer) and not isinstance(answer, (str, bool)) else None
    except (TypeError, ValueError):
        return None


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
    """A figure for people: four digits of each number that isn't whole."""
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
