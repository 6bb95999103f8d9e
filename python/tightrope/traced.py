"""A model of one's own as the engine reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
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


def traced(model: Model, inputs: Mapping[str, tuple[str, Sequence[int]]]) -> str:
    """The model's layers and the ops of its loss, in JSON."""
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
    Trace.current = trace
    try:
        loss = model.loss(**{name: trace.add("input", name) for name in inputs})
    finally:
        Trace.current = None
    if not isinstance(loss, Tensor):
        raise TypeError(f"{type(model).__name__}.loss must return a loss of tightrope.nn, not {type(loss).__name__}")
    # Samples that are sequences of ids are counted in tokens.
    sequences = [it["shape"][0] for it in listed if it["dtype"] == "i32" and len(it["shape"]) == 1]
    tokens = max(sequences, default=1)
    return json.dumps(
        {"inputs": listed, "layers": trace.layers, "ops": trace.ops, "loss": loss.index, "tokens": tokens}
    )
