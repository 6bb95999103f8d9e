"""Steps of a run, logged to Weights & Biases and MLflow by their own packages."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, Union

from .errors import SettingError

if TYPE_CHECKING:
    from .training import Evaluation, Step

#: Characters of a parameter that MLflow's stores all take.
_LONGEST = 500


class Tracker(Protocol):
    """A run of an experiment tracker. ``log_to=`` takes any object with these methods, too."""

    def begin(self, config: Mapping[str, Any]) -> None:
        """Begins with the settings of the run, by keyword or key, and figures that are known before the first step."""

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """Logs figures by name, such as ``train/loss``, of a step, counted from 1."""

    def end(self, completed: bool) -> None:
        """Ends the run; ``completed`` is False if an exception ended it."""


#: Names of trackers, trackers, or several of them.
LogTo = Union[str, Tracker, Sequence[Union[str, Tracker]]]


class _Wandb:
    """A run of Weights & Biases: the program's own that is under way, which goes on afterwards, or a new one."""

    def __init__(self) -> None:
        self._wandb = _package("wandb")
        self._run: Any = None
        self._is_new = False

    def begin(self, config: Mapping[str, Any]) -> None:
        self._is_new = self._wandb.run is None
        if self._is_new:
            # Two trainers of a program have a run each.
            self._run = self._wandb.init(config=dict(config), reinit="create_new")
        else:
            self._run = self._wandb.run
            self._run.config.update(dict(config), allow_val_change=True)

    def log(self, figures: Mapping[str, float], step: int) -> None:
        self._run.log(dict(figures), step=step)

    def end(self, completed: bool) -> None:
        if self._is_new:
            self._run.finish(exit_code=0 if completed else 1)


class _Mlflow:
    """A run of MLflow: the program's own that is active, which stays so afterwards, or a new one."""

    def __init__(self) -> None:
        self._mlflow = _package("mlflow")
        self._run_id = ""
        self._is_new = False

    def begin(self, config: Mapping[str, Any]) -> None:
        active = self._mlflow.active_run()
        self._is_new = active is None
        self._run_id = (active or self._mlflow.start_run()).info.run_id
        if self._is_new:
            # It is named by its id from here on: two trainers of a program have a run each.
            self._mlflow.end_run("RUNNING")
        params = {name: str(value)[:_LONGEST] for name, value in config.items()}
        self._mlflow.log_params(params, run_id=self._run_id)

    def log(self, figures: Mapping[str, float], step: int) -> None:
        self._mlflow.log_metrics(dict(figures), step=step, run_id=self._run_id)

    def end(self, completed: bool) -> None:
        if self._is_new:
            self._mlflow.MlflowClient().set_terminated(self._run_id, "FINISHED" if completed else "FAILED")


_KNOWN: dict[str, Callable[[], Tracker]] = {"wandb": _Wandb, "mlflow": _Mlflow}


class Tracking:
    """The trackers of a run: none, one or several."""

    def __init__(self, log_to: LogTo | None) -> None:
        """
        Raises:
            SettingError: a name that no tracker has.
            ImportError: a tracker whose package isn't installed, with the command that installs it.
        """
        named: Sequence[str | Tracker] = ()
        if isinstance(log_to, str) or (log_to is not None and not isinstance(log_to, Sequence)):
            named = (log_to,)
        elif log_to is not None:
            named = log_to
        self._trackers = [_tracker(it) for it in named]

    def begin(self, said: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        """Begins a run of these settings, whose facts the engine tells."""
        config = {name: _plain(value) for name, value in said.items() if value is not None}
        known = {name: facts[name] for name in ("steps", "batch", "micro_batch", "device", "measured_peak_bytes")}
        for tracker in self._trackers:
            tracker.begin({**config, **known})

    def stepped(self, step: Step) -> None:
        """Logs a step."""
        figures = {"loss": step.loss, "lr": step.lr, "grad_norm": step.grad_norm, "tokens_per_s": step.tokens_per_s, **step.metrics}
        self._log("train", figures, step.step)
        if step.heldout is not None:
            self.evaluated(step.heldout, step.step)

    def evaluated(self, found: Evaluation, step: int) -> None:
        """Logs an evaluation after a step."""
        self._log("eval", {"loss": found.loss, **found.metrics}, step)

    def _log(self, kind: str, figures: Mapping[str, float], step: int) -> None:
        for tracker in self._trackers:
            tracker.log({f"{kind}/{name}": value for name, value in figures.items()}, step)

    def end(self, completed: bool = True) -> None:
        """Ends the runs that it began."""
        trackers, self._trackers = self._trackers, []
        for tracker in trackers:
            tracker.end(completed)


def _tracker(named: str | Tracker) -> Tracker:
    if not isinstance(named, str):
        if not all(callable(getattr(named, name, None)) for name in ("begin", "log", "end")):
            raise TypeError(f"log_to={named!r}: a tracker has the methods begin(config), log(figures, step) and end(completed)")
        return named
    if named not in _KNOWN:
        hint = ": a run directory of tr.train(…) has TensorBoard's events already" if named == "tensorboard" else ""
        raise SettingError(f'log_to="{named}"{hint}; trackers are {" and ".join(_KNOWN)}')
    return _KNOWN[named]()


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ImportError(f'log_to="{name}" needs the package {name}: pip install {name}', name=name) from None


def _plain(value: Any) -> Any:
    """A setting as trackers show it: paths as text, lists of them too."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return [_plain(it) for it in value] if isinstance(value, (list, tuple)) else value
