"""
The part of the package `tightrope` that is written in Rust.
"""

from _typeshed import Incomplete, SupportsGetItem
from os import PathLike
from pathlib import Path
from typing import Any, Final, SupportsFloat, SupportsIndex, final

__all__ = ["VERSION", "Plan", "Planner", "Trainer", "arrow_stream", "check_settings", "digits", "doctor", "read_weights", "run_checks", "settings", "traced_weights", "verify"]

VERSION: Final[str]
"""
Version of the library.
"""

@final
class Plan:
    """
    A plan: every byte of a training step, known before anything is allocated.
    """
    def __new__(cls, /, keywords: dict[str, Any], trace: str | None = None, watch: SupportsGetItem[int, str] = ..., gpu: str | None = None) -> Plan:
        """
        Plans a step by keywords. `trace` is a model that was traced, in JSON; `watch` names tensors that steps keep; `gpu` is one
        that isn't here.
        """
    def __repr__(self, /) -> str: ...
    def __str__(self, /) -> str: ...
    def advice(self, /) -> Any:
        """
        What a plan could be instead: what more bytes would buy, and fewer cost.
        """
    @property
    def budget_bytes(self, /) -> int | None:
        """
        Bytes that the plan may take; None where nothing limits it.
        """
    @property
    def by_class(self, /) -> Any:
        """
        Bytes at the peak by class of tensor, and of gaps. They add up to the peak.
        """
    @property
    def choices(self, /) -> Any:
        """
        What the planner chose.
        """
    def frontier(self, /) -> list[tuple[int, float]]:
        """
        `(bytes, predicted seconds)` of plans from the fastest to the smallest.
        """
    def live_bytes(self, /) -> Incomplete:
        """
        Bytes that are alive at each op of a step.
        """
    @property
    def lower_bound_bytes(self, /) -> int:
        """
        The most bytes that are alive at once: no plan of this order of ops takes fewer.
        """
    def ops_columns(self, /) -> dict[str, Any]:
        """
        Every op of the step, a column a property: op, name of its first output, phase, predicted seconds, floating-point
        operations, bytes that it moves.
        """
    @property
    def peak_bytes(self, /) -> int:
        """
        Bytes that the step takes on the device, all in all.
        """
    @property
    def predicted_step_s(self, /) -> float:
        """
        Predicted seconds of a step.
        """
    def techniques(self, /) -> Any:
        """
        What each memory technique saves and costs, alone and together, against a plan that has none of them.
        """
    def tensors_columns(self, /) -> dict[str, Any]:
        """
        Every tensor of the step, a column a property: name, class, phase of the op that makes it, offset and bytes in the
        arena, first and last op that it lives for. Ops are counted through the programs of a step, as in `live_bytes`.
        """
    def to_dict(self, /) -> Any:
        """
        Every figure of the plan, as `tightrope plan --json` prints them.
        """
    def to_html(self, /) -> str:
        """
        The plan as one page of HTML that needs no network.
        """
    def to_svg(self, /, title: str = "", beside: SupportsGetItem[int, tuple[str, Plan]] = ...) -> str:
        """
        The plan as a map, in SVG: ops from left to right, offsets from the bottom up.
        """
    def widget_columns(self, /) -> dict[str, Any]:
        """
        Figures, and ops and tensors as columns, as the widget takes them.
        """

@final
class Planner:
    """
    Plans a step again, within other budgets. The device stays open in between, on a thread of its own.
    """
    def __new__(cls, /, plan: Plan) -> Planner:
        """
        Of the step of a plan.
        """
    def range(self, /) -> tuple[int, int]:
        """
        Bytes of the smallest plan, and of the fastest.
        """
    def within(self, /, bytes: SupportsIndex) -> Plan:
        """
        The fastest plan that takes at most so many bytes.
        """

@final
class Trainer:
    """
    Trains a model, one step after the other.
    """
    def __new__(cls, /, keywords: dict[str, Any], trace: str | None = None, resume: str | PathLike[str] | None = None, records: bool = False, watch: SupportsGetItem[int, str] = ..., strict: bool = True, given: dict[str, Any] | None = None) -> Trainer:
        """
        By keywords; `trace` is a model that was traced, in JSON; `resume` a run or a checkpoint that it goes on from; `records`
        is true if it gets a run directory; `watch` names tensors that steps keep; `strict` is false if the checkpoint may have edited weights,
        and be of another model or of other frozen weights; `given` is weights of an own model by name, each with its shape and flat float32.
        """
    def close(self, /) -> None:
        """
        Ends its thread and frees its memory. Nothing can be asked of it then.
        """
    def evaluate(self, /) -> Any | None:
        """
        Loss and metrics on held-out data, or None where nothing is held out.
        """
    def evaluate_batch(self, /, batch: dict[str, Any], count: int) -> Any:
        """
        Loss and metrics of `count` samples of an own model.
        """
    def facts(self, /) -> Any:
        """
        Facts of the run: steps done and in all, bytes, batch, directory.
        """
    def finish(self, /) -> Any:
        """
        The run's last words: the loss on all held-out data and a sample, which its directory records.
        """
    def generate(self, /, prompt: str, max_tokens: SupportsIndex, sampling: tuple[SupportsFloat | SupportsIndex, SupportsIndex, SupportsFloat | SupportsIndex, SupportsIndex]) -> str:
        """
        Text that follows a prompt. `sampling` is temperature, top-k, top-p and seed.
        """
    def matched(self, /, names: SupportsGetItem[int, str]) -> tuple[dict[str, Any], list[str], list[str], list[tuple[str, str]]]:
        """
        Names of a state dict, matched to those of the weights: `(found, missing, unexpected, copies)`, where `found` has the name in the
        state dict of each weight that it holds, and `copies` a weight and another name of it there.
        """
    def notes(self, /) -> list[str]:
        """
        Notes from before the first step: rows that were cut, padding, and a run that takes more than a day.
        """
    @property
    def plan(self, /) -> Plan:
        """
        The plan that it trains by.
        """
    def predict(self, /, batch: dict[str, Any]) -> Any:
        """
        What `predict` gives of a micro-batch.
        """
    def refrozen(self, /, patterns: SupportsGetItem[int, str], freeze: bool) -> list[str] | None:
        """
        Names of the parameters that are frozen once those that `patterns` name are (`freeze`), or no longer are; None if that changes
        none.
        """
    def save(self, /, folder: str | PathLike[str] | None = None) -> Path | None:
        """
        Writes a checkpoint under `folder`, or into the run directory; its path.
        """
    def set_weights(self, /, values: dict[str, Any]) -> None:
        """
        Sets weights, by their names, to flat arrays of float32.
        """
    def step(self, /, batch: dict[str, Any] | None = None) -> Any | None:
        """
        The next step: its figures and the arrays that are watched, or None where all are done. `batch` is the inputs of an own
        model by name.
        """
    def weight(self, /, name: str) -> Any:
        """
        The values of a weight, in f32.
        """
    def weight_shapes(self, /) -> list[tuple[str, list[int]]]:
        """
        Names and shapes of the weights, as checkpoints hold them.
        """

def arrow_stream(columns: dict[str, Any]) -> Any:
    """
    NumPy's columns by their names, as an Arrow stream.
    """

def check_settings(keywords: dict[str, Any]) -> None:
    """
    Checks settings, by their keywords: that each is one, and that it accepts its value.
    """

def digits() -> tuple[Incomplete, Incomplete]:
    """
    Scikit-learn's digits: pixels from 0 to 1, 64 an image, and labels.
    """

def doctor() -> str:
    """
    What the machine has, as JSON.
    """

def read_weights(path: str | PathLike[str]) -> dict[str, Any]:
    """
    Tensors of a file or folder of safetensors or of `torch.save` by their names: shape and flat float32.
    """

def run_checks() -> None:
    """
    Runs kernels that may take the process down, for another process.
    """

def settings() -> list[tuple[str, str | None, str]]:
    """
    Every setting: `(key, keyword or None, description)`.
    """

def traced_weights(trace: str) -> list[tuple[str, list[int]]]:
    """
    Names and shapes of the weights of a model that was traced, as checkpoints hold them, without adapters.
    """

def verify(folder: str | PathLike[str], keywords: dict[str, Any]) -> str:
    """
    Compares a device with a recorded reference case; its report as JSON.
    """
