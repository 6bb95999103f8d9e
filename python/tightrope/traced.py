"""A model of one's own as the engine reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import numpy as np

from . import checks
from .described import described
from .nn import Layer, Model
from .shapes import Batch
from .trace import Tensor, Trace


def _layers(value: Any, path: str) -> Iterator[tuple[str, Layer]]:
    """Layers in a model, a list or a dict, each with the place that its parameters are named by."""
    if isinstance(value, Layer) and value.parts is None:
        yield path, value
        return
    if isinstance(value, Layer):
        value = value.parts
    elif isinstance(value, Model):
        value = vars(value)
    if isinstance(value, (list, tuple)):
        value = dict(enumerate(value))
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _layers(item, f"{path}.{name}" if path else str(name))


def _function(trace: Trace, function: Callable[..., Any], inputs: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], Tensor]:
    """The ops of a function of the model, and the tensor that it returns."""
    Trace.current = trace
    try:
        output = function(**{it["name"]: trace.add("input", it["name"], (Batch(), *it["shape"]), it["dtype"]) for it in inputs})
    finally:
        Trace.current = None
    if not isinstance(output, Tensor):
        raise TypeError(f"{function.__qualname__} must return a tensor of the step, not {type(output).__name__}")
    return {"ops": trace.ops, "output": trace.read(output).index}, output


@dataclass(frozen=True)
class Traced:
    """A model that was traced."""

    #: Layers, and the ops of the functions, in JSON.
    text: str
    #: Arrays that its functions read, which are given with each batch.
    constants: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)


def traced(model: Model, inputs: Mapping[str, tuple[str, Sequence[int]]]) -> Traced:
    """Traces the model's functions.

    Raises:
        TypeError: a function that returns something else than a tensor, or reads an input that isn't there.
        ValueError: an input of an unknown dtype or without elements, ops whose shapes don't fit, a loss of several numbers.
    """
    if Trace.current is not None:
        raise RuntimeError("a model is being traced already")
    listed: list[dict[str, Any]] = []
    for name, (dtype, shape) in inputs.items():
        if dtype not in ("f32", "i32"):
            raise ValueError(f'the input `{name}` has dtype {dtype!r}: it must be "f32" or "i32"')
        listed.append({"name": name, "dtype": dtype, "shape": [checks.whole(f"extent of the input `{name}`", it) for it in shape]})
    trace = Trace()
    known: set[int] = set()
    for name, layer in _layers(model, ""):
        if id(layer) not in known:
            known.add(id(layer))
            trace.register(layer, {"name": name, **layer.describe()})
    loss, output = _function(trace, model.loss, listed)
    if output.shape not in ((), (1,)):
        raise ValueError(f"{type(model).__name__}.loss must return one number, such as x.mean(), and it returns {output.shape}")
    predict, last = None, trace
    if type(model).predict is not Model.predict:
        reads = list(signature(model.predict).parameters)
        for name in reads:
            if name not in inputs:
                raise TypeError(f"{type(model).__name__}.predict reads `{name}`, and the inputs are {', '.join(inputs)}")
        last = Trace(trace)
        predict, output = _function(last, model.predict, [it for name in reads for it in listed if it["name"] == name])
        if output.shape[:1] != (Batch(),):
            raise ValueError(f"{type(model).__name__}.predict must return (batch, …), and it returns {output.shape}")
    # Samples that are sequences of ids are counted in tokens.
    sequences = [it["shape"][0] for it in listed if it["dtype"] == "i32" and len(it["shape"]) == 1]
    tokens = max(sequences, default=1)
    arrays = dict(last.constants.values())
    constants = {name: values.reshape(-1) for name, values in arrays.items()}
    shapes = [{"name": name, "shape": list(values.shape)} for name, values in arrays.items()]
    said = {
        "inputs": listed,
        "constants": shapes,
        "layers": trace.layers,
        "loss": loss,
        "predict": predict,
        "tokens": tokens,
        "described": described(loss, listed, arrays, trace.layers),
    }
    return Traced(json.dumps(said), constants)
