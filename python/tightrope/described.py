"""A traced model as text, a line for each op: a resumed run compares it with the checkpoint's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np

#: Fields of an op that name the op whose tensor it reads.
_TENSORS = frozenset(["x", "a", "b", "found", "expected", "scores", "labels", "targets"])

#: Fields that change no number, or follow from others.
_LEFT_OUT = frozenset(["op", "name", "block", "figure"])


def described(
    function: Mapping[str, Any],
    inputs: Sequence[Mapping[str, Any]],
    constants: Mapping[str, np.ndarray[Any, Any]],
    layers: Sequence[Mapping[str, Any]],
) -> list[str]:
    """Lists the ops of a function of the model up to its output, a line each: name, kind, inputs and attributes."""
    ops = function["ops"][: function["output"] + 1]
    names = [op["name"] for op in ops]
    shapes = {it["name"]: f"{it['dtype']} {tuple(it['shape'])}" for it in inputs}
    for name, values in constants.items():
        shapes[name] = f"f32 {values.shape} of {sha256(values.tobytes()).hexdigest()[:16]}"

    def value(field: str, found: Any) -> str:
        if field in _TENSORS:
            return str(names[found])
        if field == "layer":
            layer = layers[found]
            return f"{layer['kind']}({_fields({key: it for key, it in layer.items() if key != 'kind'})})"
        if field == "parts":
            return f"[{', '.join(names[part] for part in found)}]"
        if field == "operands":
            return f"[{', '.join(names[it['tensor']] if isinstance(it, dict) and 'tensor' in it else str(it) for it in found)}]"
        if field == "extent" and isinstance(found, dict):
            return f"{names[found['of']]}.shape[{found['axis']}]"
        return str(found)

    def line(op: Mapping[str, Any]) -> str:
        if op["op"] == "input":
            return f"{op['name']} = input {shapes[op['name']]}"
        return f"{op['name']} = {op['op']}({_fields({key: value(key, it) for key, it in op.items() if key not in _LEFT_OUT})})"

    return [line(op) for op in ops]


def _fields(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
