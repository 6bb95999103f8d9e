"""A model of one's own as the engine reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import signature
from typing import Any

from .nn import Layer, Model
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


def _function(trace: Trace, function: Callable[..., Any], inputs: Sequence[str]) -> dict[str, Any]:
    """The ops of a function of the model, and which of them makes what it returns."""
    Trace.current = trace
    try:
        output = function(**{name: trace.add("input", name) for name in inputs})
    finally:
        Trace.current = None
    if not isinstance(output, Tensor):
        raise TypeError(f"{function.__qualname__} must return a tensor of the step, not {type(output).__name__}")
    return {"ops": trace.ops, "output": output.index}


def traced(model: Model, inputs: Mapping[str, tuple[str, Sequence[int]]]) -> str:
    """The model's layers and the ops of its functions, in JSON."""
    if Trace.current is not None:
        raise RuntimeError("a model is being traced already")
    listed = []
    for name, (dtype, shape) in inputs.items():
        if dtype not in ("f32", "i32"):
            raise ValueError(f'the input `{name}` has dtype {dtype!r}: it must be "f32" or "i32"')
        listed.append({"name": name, "dtype": dtype, "shape": [int(extent) for extent in shape]})
    trace = Trace()
    known: set[int] = set()
    for name, layer in _layers(model, ""):
        if id(layer) not in known:
            known.add(id(layer))
            trace.register(layer, {"name": name, **layer.describe()})
    loss = _function(trace, model.loss, list(inputs))
    predict = None
    if type(model).predict is not Model.predict:
        reads = list(signature(model.predict).parameters)
        for name in reads:
            if name not in inputs:
                raise TypeError(f"{type(model).__name__}.predict reads `{name}`, and the inputs are {', '.join(inputs)}")
        predict = _function(Trace(trace), model.predict, reads)
    # Samples that are sequences of ids are counted in tokens.
    sequences = [it["shape"][0] for it in listed if it["dtype"] == "i32" and len(it["shape"]) == 1]
    tokens = max(sequences, default=1)
    return json.dumps(
        {"inputs": listed, "layers": trace.layers, "loss": loss, "predict": predict, "tokens": tokens}
    )
