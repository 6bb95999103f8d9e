"""Tensors of a training step by name: activations, gradients, and functions that are called with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Union

import numpy as np

#: Called after each step with a tensor's name and values.
Hook = Callable[[str, np.ndarray], Any]

#: A name, in which ``*`` stands for any characters, and what is called; or several such pairs.
Hooks = Union[tuple[str, Hook], Iterable[tuple[str, Hook]]]

#: What the name of a gradient begins with; that of its parameter follows.
GRADIENT = "grad."


class Kept(Mapping[str, np.ndarray]):
    """Tensors that the last step kept, by name."""

    def __init__(self, arrays: Mapping[str, np.ndarray] | None, prefix: str = "") -> None:
        self._arrays = arrays
        self._prefix = prefix

    def __getitem__(self, name: str) -> np.ndarray:
        if self._arrays is None:
            raise KeyError("no step was made yet")
        if name not in self._arrays:
            asked = f'watch=["{self._prefix}{name}"]'
            raise KeyError(f"the step didn't keep `{name}`: name it when the trainer is made, {asked}")
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays or {})

    def __len__(self) -> int:
        return len(self._arrays or {})

    def __repr__(self) -> str:
        return f"<{', '.join(f'{name} {array.shape}' for name, array in self.items()) or 'nothing'}>"


class Watch:
    """What a trainer keeps of its steps, and who is told of it."""

    def __init__(self, names: Sequence[str], hooks: Hooks) -> None:
        if isinstance(names, str):
            raise TypeError(f'watch= takes a list of names: watch=["{names}"]')
        is_pair = isinstance(hooks, tuple) and len(hooks) == 2 and isinstance(hooks[0], str)
        self._hooks: list[tuple[str, Hook]] = [hooks] if is_pair else list(hooks)  # type: ignore[list-item, arg-type]
        for name, hook in self._hooks:
            if not callable(hook):
                raise TypeError(f"on=(`{name}`, …) takes a function of a name and an array, not {type(hook).__name__}")
        self._arrays: dict[str, np.ndarray] | None = None
        #: Every name that is asked for, once.
        self.names = list(dict.fromkeys([*names, *(name for name, _ in self._hooks)]))

    def take(self, arrays: dict[str, np.ndarray]) -> None:
        """Takes what a step kept, and calls the hooks."""
        self._arrays = arrays
        for pattern, hook in self._hooks:
            for name, array in arrays.items():
                if name == pattern or fnmatchcase(name, pattern):
                    hook(name, array)

    def activations(self) -> Kept:
        """All that is no gradient."""
        return Kept(self._of(lambda name: None if name.startswith(GRADIENT) else name))

    def gradients(self) -> Kept:
        """Gradients by the names of their parameters."""
        return Kept(self._of(lambda name: name[len(GRADIENT) :] if name.startswith(GRADIENT) else None), GRADIENT)

    def _of(self, named: Callable[[str], str | None]) -> dict[str, np.ndarray] | None:
        if self._arrays is None:
            return None
        return {own: array for name, array in self._arrays.items() if (own := named(name)) is not None}
