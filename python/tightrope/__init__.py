"""Tightrope trains neural networks in the memory you have.

>>> import tightrope as tr
>>> plan = tr.plan(preset="gpt2", batch=8, memory="4GiB")
>>> plan.peak_bytes <= 4 << 30
True

Keyword arguments are the flags of the command ``tightrope`` with underscores; any other setting goes into
``settings={"table.key": value}``. ``tr.settings()`` lists them all.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _engine, data, nn
from .comparison import Comparison, compare
from .errors import BatchError, DeviceError, DoesNotFit, Error, SettingError, WeightError
from .functions import (
    abs,
    concat,
    exp,
    log,
    log_softmax,
    matmul,
    max,
    maximum,
    mean,
    min,
    minimum,
    pow,
    sigmoid,
    softmax,
    sqrt,
    sum,
    tanh,
    where,
)
from .nn import Model
from .plans import Plan, Settings, plan
from .plans import merged as _merged
from .trace import Tensor
from .tracking import Tracker
from .training import Evaluation, Step, Trainer, train
from .weights import IncompatibleKeys

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .keywords import Keywords

__version__: str = _engine.VERSION

__all__ = [
    "BatchError",
    "Comparison",
    "DeviceError",
    "DoesNotFit",
    "Error",
    "Evaluation",
    "IncompatibleKeys",
    "Model",
    "Plan",
    "SettingError",
    "Settings",
    "Step",
    "Tensor",
    "Tracker",
    "Trainer",
    "WeightError",
    "abs",
    "compare",
    "concat",
    "data",
    "doctor",
    "exp",
    "log",
    "log_softmax",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "nn",
    "plan",
    "pow",
    "settings",
    "sigmoid",
    "softmax",
    "sqrt",
    "sum",
    "tanh",
    "train",
    "verify",
    "where",
]


def settings() -> dict[str, str]:
    """What each setting does and its default, by keyword, or by key where it has none."""
    return {keyword or key: described for key, keyword, described in _engine.settings()}


def doctor() -> dict[str, Any]:
    """Devices, limits, libraries and memory, and the largest preset that fits each."""
    found: dict[str, Any] = json.loads(_engine.doctor())
    return found


def verify(folder: str | Path, **keywords: Unpack[Keywords]) -> dict[str, Any]:
    """Compares a device with a reference case that was recorded with PyTorch.

    Raises:
        Error: a figure is beyond its tolerance.
    """
    report: dict[str, Any] = json.loads(_engine.verify(Path(folder), _merged(keywords)))
    return report
