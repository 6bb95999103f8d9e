"""Weights of a trainer by name: read, set, and loaded from files and from other libraries."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, Union

import numpy as np

from . import _engine
from .arrays import array
from .errors import WeightError

#: Arrays by the names of weights, such as PyTorch's ``module.state_dict()``.
State = Mapping[str, Any]

#: Weights to begin with: a file or folder, or arrays by name.
Init = Union[str, "os.PathLike[str]", State]


class IncompatibleKeys(NamedTuple):
    """Names that a state dict and a model don't share, as PyTorch's ``load_state_dict`` returns them."""

    #: Weights of the model that the state dict lacks.
    missing_keys: list[str]
    #: Names in the state dict that the model has no weight of.
    unexpected_keys: list[str]


class Weights(Mapping[str, np.ndarray]):
    """Weights by name, in names, shapes and layouts of checkpoints, which are PyTorch's.

    A linear layer's is (out, in), an embedding's (rows, channels), a convolution's (out, in, height, width), or (out, height, width, in)
    if it reads images with channels last. Models of Hugging Face have the names and shapes of their own files there. ``weights[name]`` reads the
    device and gives a float32 array of its own memory; ``weights[name] = array`` sets a weight. Optimizer state stays as it is.
    """

    def __init__(self, inner: Callable[[], _engine.Trainer]) -> None:
        """``inner`` gives the engine's trainer, which changes when other weights are frozen."""
        self._inner = inner
        self._shapes = {name: tuple(shape) for name, shape in inner().weight_shapes()}

    def __getitem__(self, name: str) -> np.ndarray:
        values: np.ndarray[Any, Any] = self._inner().weight(name)
        return values

    def __setitem__(self, name: str, value: Any) -> None:
        """Sets a weight to an array of its shape, of NumPy, PyTorch or any library with DLPack.

        Raises:
            WeightError: no weight of this name, an array of another shape, or a number that isn't finite: a ValueError, too.
            TypeError: no array of numbers.
        """
        if name not in self._shapes:
            near = get_close_matches(str(name), self._shapes, 1)
            raise WeightError(f"no weight is called `{name}`" + (f"; did you mean `{near[0]}`?" if near else ""))
        self._inner().set_weights({name: fitting(name, value, self._shapes[name])})

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def __repr__(self) -> str:
        return f"<Weights: {len(self)} tensors>"

    def load(self, state: State, strict: bool) -> IncompatibleKeys:
        """Sets the weights that ``state`` holds, once all of them fit; see ``Trainer.load_state_dict``."""
        if not isinstance(state, Mapping):
            hint = ": give its .state_dict()" if hasattr(state, "state_dict") else ""
            raise TypeError(f"weights come as a dict of arrays by name, not as {type(state).__name__}{hint}")
        for name in state:
            if not isinstance(name, str):
                raise TypeError(f"weights are named by texts, and {name!r} is none")
        found, missing, unexpected, copies = self._inner().matched(list(state))
        if strict and (missing or unexpected):
            help = "\nhelp: strict=False sets the weights that both have, and returns the other names"
            raise _other_model(missing, unexpected, help)
        values = {name: fitting(own, state[own], self._shapes[name]) for name, own in found.items()}
        for name, other in copies:
            if not np.array_equal(values[name], fitting(other, state[other], self._shapes[name])):
                raise WeightError(f"`{other}` differs from `{found[name]}`, and the model ties them: they are one weight")
        self._inner().set_weights(values)
        return IncompatibleKeys(missing, unexpected)


def fitting(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """An array as the engine takes it: flat, in float32, if it has this shape and is finite.

    Raises:
        WeightError: another shape, or a number that isn't a finite float32, with its place.
        TypeError: no array of numbers.
    """
    found = array(name, value)
    if found.shape != shape:
        raise WeightError(f"`{name}` has shape {shape}, and the array given has shape {found.shape}")
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = np.ascontiguousarray(found, np.float32)
    wrong = np.argwhere(~np.isfinite(numbers.reshape(shape)))
    if len(wrong):
        place = tuple(int(at) for at in wrong[0])
        raise WeightError(f"`{name}` at {list(place)} is {found[place]}, which isn't a finite float32")
    return numbers.reshape(-1)


def initial(init: Init) -> State:
    """Arrays of a file or folder by name; a dict of arrays as it is.

    Raises:
        Error: no file there, or a broken one.
    """
    if isinstance(init, Mapping):
        return init
    if not isinstance(init, (str, os.PathLike)):
        hint = ": give its .state_dict()" if hasattr(init, "state_dict") else ""
        raise TypeError(f"init= takes a path, or a dict of arrays by name, not {type(init).__name__}{hint}")
    return {name: values.reshape(shape) for name, (shape, values) in _engine.read_weights(Path(init)).items()}


def given(init: Init, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[tuple[int, ...], np.ndarray[Any, Any]]]:
    """Weights of a model with these names and shapes, as the engine takes them: shape and flat float32 by name.

    A tensor that modules share has each of their names in a state dict, and may have any one in the model.

    Raises:
        WeightError: missing or unexpected names, an array of another shape, or a number that isn't finite.
        Error: no file there, or a broken one.
    """
    state = _own_names(initial(init), shapes, _address if isinstance(init, Mapping) else _content)
    missing, unexpected = [name for name in shapes if name not in state], [str(name) for name in state if name not in shapes]
    if missing or unexpected:
        raise _other_model(missing, unexpected)
    return {name: (shape, fitting(name, state[name], shape)) for name, shape in shapes.items()}


def _own_names(state: State, shapes: Mapping[str, tuple[int, ...]], place: Callable[[Any], Any]) -> State:
    """The state dict without second names of tensors that the model knows by another."""
    known = {place(values) for name, values in state.items() if name in shapes}
    return {name: values for name, values in state.items() if name in shapes or place(values) not in known}


def _address(values: Any) -> tuple[Any, ...]:
    """Address, shape and strides of the elements of a PyTorch tensor or a NumPy array; of anything else, its own."""
    if hasattr(values, "data_ptr") and hasattr(values, "stride"):
        return values.data_ptr(), tuple(values.shape), tuple(values.stride())
    if isinstance(values, np.ndarray):
        return values.__array_interface__["data"][0], values.shape, values.strides
    return (id(values),)


def _content(values: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    """Shape and elements of an array of a file, which holds a shared tensor under each of its names."""
    return values.shape, values.tobytes()


def _other_model(missing: list[str], unexpected: list[str], help: str = "") -> WeightError:
    words = _listed("it lacks", missing) + _listed("the model has no", unexpected)
    return WeightError(f"the state dict isn't that of this model{words}{help}")


def _listed(words: str, names: list[str]) -> str:
    most = 8
    if not names:
        return ""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"; {words} " + ", ".join(f"`{name}`" for name in names[:most]) + more
