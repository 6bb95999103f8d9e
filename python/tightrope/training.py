"""Training: a run, one step after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from . import _engine
from .errors import Error
from .nn import Model
from .plans import Inputs, Plan, merged, trace_of
from .progress import Progress
from .watched import Hooks, Kept, Watch


_DTYPES = {"f32": np.float32, "i32": np.int32}

#: Files of a checkpoint that only a run that goes on needs.
_OF_A_RUN = ("manifest.json", "optimizer.safetensors")


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation came to: the mean loss in nats over ``tokens`` (or images), and the model's metrics."""

    loss: float
    tokens: int
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def perplexity(self) -> float:
        """e to the loss."""
        return math.exp(self.loss)


@dataclass(frozen=True)
class Step:
    """What a step came to."""

    step: int
    loss: float
    lr: float
    grad_norm: float
    step_s: float
    tokens: int
    tokens_per_s: float
    updated: bool
    metrics: dict[str, float]
    heldout: Evaluation | None
    sample: str | None
    notes: list[str]

    @classmethod
    def _of(cls, figures: dict[str, Any]) -> Step:
        figures = {name: value for name, value in figures.items() if name not in ("logged", "watched")}
        heldout = figures.pop("heldout")
        # JSON has no infinite numbers.
        for name in ("loss", "grad_norm"):
            figures[name] = math.nan if figures[name] is None else figures[name]
        return cls(heldout=Evaluation(**heldout) if heldout else None, **figures)


class Weights(Mapping[str, np.ndarray]):
    """Weights by name, as checkpoints hold them; each is read from the device when it's asked for."""

    def __init__(self, inner: _engine.Trainer) -> None:
        self._inner = inner
        self._shapes = dict(inner.weight_shapes())

    def __getitem__(self, name: str) -> np.ndarray:
        return self._inner.weight(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def __repr__(self) -> str:
        return f"<Weights: {len(self)} tensors>"


class Trainer:
    """Trains a model, one step after the other.

    ``for step in trainer`` trains to the end. With a model of one's own, :meth:`step` takes the batch. Ctrl+C abandons the step that is
    under way; the trainer is then as before it, and can go on.
    """

    def __init__(
        self,
        model: Model | None = None,
        *,
        inputs: Inputs | None = None,
        watch: Sequence[str] = (),
        on: Hooks = (),
        settings: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> None:
        """As :func:`tightrope.plan`; then allocates the plan, and nothing besides.

        Args:
            watch: tensors that each step keeps, for :attr:`activations` and :attr:`gradients`: activations as
                ``plan.tensors()`` names them, a layer for its output, ``grad.`` and a weight's name for its gradient before
                clipping. ``*`` stands for any characters. The plan counts their bytes.
            on: ``(name, function)``, or several: the function is called with name and array after each step.
        """
        self._start(model, inputs, Watch(watch, on), merged(keywords, settings))

    def _start(
        self,
        model: Model | None,
        inputs: Inputs | None,
        watch: Watch,
        keywords: dict[str, Any],
        resume: Path | None = None,
    ) -> None:
        self._inputs = dict(inputs or {})
        self._watch = watch
        self._live: Callable[[Step], None] | None = None
        self._inner = _engine.Trainer(keywords, trace_of(model, inputs), resume, watch=watch.names)

    @classmethod
    def resume(
        cls,
        path: str | Path,
        model: Model | None = None,
        *,
        inputs: Inputs | None = None,
        watch: Sequence[str] = (),
        on: Hooks = (),
        settings: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> Trainer:
        """Goes on from a run, or from what :meth:`save` wrote, bit for bit.

        What isn't said is as it was; what :meth:`save` wrote doesn't know where its data lies, so that ``data`` is said again.
        """
        trainer = cls.__new__(cls)
        trainer._start(model, inputs, Watch(watch, on), merged(keywords, settings), Path(path))
        return trainer

    def _batch(self, values: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The inputs flat, in the dtypes of the model; not copied where they have them."""
        if not self._inputs:
            raise TypeError("this trainer reads its own data: call step() without a batch")
        unknown = sorted(set(values) - set(self._inputs))
        if unknown:
            raise TypeError(f"the model has no input `{unknown[0]}`; it reads {', '.join(self._inputs)}")
        batch = {}
        for name, (dtype, shape) in self._inputs.items():
            if name not in values:
                raise TypeError(f"the batch lacks the input `{name}`")
            array = _array(values[name])
            if array.shape[1:] != tuple(shape):
                raise ValueError(f"`{name}` has shape {array.shape}: it must be (batch, {', '.join(map(str, shape))})")
            if dtype == "i32" and array.dtype.kind not in "iub":
                raise ValueError(f"`{name}` holds {array.dtype}, and the model reads whole numbers")
            batch[name] = np.ascontiguousarray(array, _DTYPES[dtype]).reshape(-1)
        return batch

    def step(self, **batch: Any) -> Step:
        """Trains one step; of a model of one's own on this batch, arrays by the names of its inputs.

        Raises:
            Error: all steps are done, or the loss isn't finite.
        """
        step = self._next(self._batch(batch) if batch or self._inputs else None)
        if step is None:
            raise Error("all steps are done: give more of them with steps=")
        return step

    def _next(self, batch: Mapping[str, np.ndarray] | None = None) -> Step | None:
        figures = self._inner.step(batch)
        if figures is None:
            return None
        step = Step._of(figures)
        self._watch.take(figures["watched"])
        if self._live is not None:
            self._live(step)
        return step

    def __iter__(self) -> Iterator[Step]:
        if self._inputs:
            raise TypeError("a model of one's own is given its batches: trainer.step(x=…, y=…)")
        while (step := self._next()) is not None:
            yield step

    def live(self) -> None:
        """Shows the loss so far, and bytes planned and measured, in a notebook: here, and as long as this trainer trains.

        A widget where ``pip install 'tightrope[notebook]'`` brought one; else a picture, once the cell has ended.
        """
        from .live import Live

        self._live = Live(self)

    def evaluate(self, **batch: Any) -> Evaluation | None:
        """The loss on held-out data; of a model of one's own on these samples.

        Samples are taken a micro-batch at a time. What is left of them at the end is filled up with samples that don't count, so that their
        labels, negative ones, are of an i32 input; without one, their number must be a multiple of the micro-batch.
        """
        if not self._inputs:
            if batch:
                raise TypeError("this trainer has its own held-out data: call evaluate() without a batch")
            found = self._inner.evaluate()
            return Evaluation(**found) if found else None
        return self._evaluate(batch)

    def _evaluate(self, values: Mapping[str, Any]) -> Evaluation:
        arrays, count = _counted(values)
        size = self.micro_batch
        labels = [name for name, (dtype, _) in self._inputs.items() if dtype == "i32"]
        if count % size and not labels:
            raise ValueError(f"{count} samples aren't a multiple of the micro-batch of {size}")
        losses, metrics, done = 0.0, dict[str, float](), 0
        for part, real in _parts(arrays, count, size):
            if real < size:
                part = {name: _filled(array, size, -1 if name == labels[-1] else 0) for name, array in part.items()}
            found = self._inner.evaluate_batch(self._batch(part))
            losses += found["loss"] * real
            for name, value in found["metrics"].items():
                metrics[name] = metrics.get(name, 0.0) + value * real
            done += real
        return Evaluation(losses / done, done, {name: value / done for name, value in metrics.items()})

    def predict(self, **batch: Any) -> np.ndarray:
        """What the model's ``predict`` gives of these samples, float32: of any number of them, a micro-batch at a time."""
        arrays, count = _counted(batch)
        size = self.micro_batch
        unread = {name: it for name, it in self._inputs.items() if name not in arrays}
        zeros = {name: np.zeros((size, *shape), _DTYPES[dtype]) for name, (dtype, shape) in unread.items()}
        found = []
        for part, real in _parts(arrays, count, size):
            part = {name: _filled(array, size, 0) for name, array in part.items()}
            found.append(self._inner.predict(self._batch({**part, **zeros}))[:real])
        return np.concatenate(found)

    def generate(
        self,
        prompt: str,
        max_tokens: int = 200,
        *,
        temperature: float = 0.8,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> str:
        """Text that follows ``prompt``. At temperature 0 the likeliest token follows each time."""
        return self._inner.generate(prompt, max_tokens, (temperature, top_k, top_p, seed))

    def save(self, path: str | Path) -> Path:
        """Writes a checkpoint ``checkpoints/step-N`` under ``path``, whole or not at all. Gives its path."""
        return Path(self._inner.save(Path(path)))

    def export(self, path: str | Path) -> Path:
        """Writes the model as Hugging Face's libraries read it: its weights and, of one that they know, ``config.json``.

        What only a run that goes on needs isn't there; :meth:`save` writes that. Whole or not at all.

        Raises:
            FileExistsError: something is at ``path`` already.
        """
        path = Path(path)
        if path.exists():
            raise FileExistsError(f"{path} is there already; give another path")
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent, prefix=".export-") as folder:
            saved = self.save(folder)
            for name in _OF_A_RUN:
                (saved / name).unlink()
            saved.rename(path)
        return path

    @property
    def weights(self) -> Weights:
        """The weights by name, as arrays of float32."""
        return Weights(self._inner)

    @property
    def activations(self) -> Kept:
        """What the last step kept of the tensors that are watched, by name: of its last pass, where it makes several."""
        return self._watch.activations()

    @property
    def gradients(self) -> Kept:
        """The last step's gradients before clipping, of the weights that are watched, by their names."""
        return self._watch.gradients()

    @property
    def plan(self) -> Plan:
        """The plan that it trains by."""
        return Plan(self._inner.plan)

    @property
    def measured_peak_bytes(self) -> int:
        """Bytes that the device holds for the plan, by the account of whoever gave them."""
        return self._inner.facts()["measured_peak_bytes"]

    @property
    def steps_done(self) -> int:
        """Steps done, those before a resume included."""
        return self._inner.facts()["steps_done"]

    @property
    def micro_batch(self) -> int:
        """Samples of a pass."""
        return self._inner.facts()["micro_batch"]

    @property
    def device(self) -> str:
        """Name of the device."""
        return self._inner.facts()["device"]


def train(
    *,
    on_step: Callable[[Step], Any] | None = None,
    resume: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> dict[str, Any]:
    """Trains as the command ``tightrope train`` does, in a run directory, and gives what it came to.

    ``on_step`` is called after each step; without it, a line shows the progress, on a terminal and in a notebook. Ctrl+C writes a checkpoint first.
    """
    inner = _engine.Trainer(merged(keywords, settings), None, Path(resume) if resume else None, True)
    last, first = None, None
    progress = Progress(inner.facts()["steps"])
    try:
        while (figures := inner.step()) is not None:
            last = Step._of(figures)
            first = first or last
            (on_step or progress)(last)
    except KeyboardInterrupt:
        inner.save()
        raise
    finally:
        progress.end()
    facts, end = inner.facts(), inner.finish()
    heldout = end["heldout"]
    return {
        "steps": facts["steps_done"],
        "tokens": facts["tokens"],
        "first_loss": first.loss if first else None,
        "last_loss": last.loss if last else None,
        "heldout": Evaluation(**heldout) if heldout else None,
        "sample": end["sample"],
        "predicted_peak_bytes": inner.plan.peak_bytes,
        "measured_peak_bytes": facts["measured_peak_bytes"],
        "run": Path(facts["run"]),
    }


def _array(value: Any) -> np.ndarray:
    """NumPy's view of an array of any library that has one."""
    if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    return np.asarray(value)


def _counted(values: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
    """Arrays of samples, and how many they have."""
    arrays = {name: _array(value) for name, value in values.items()}
    counts = {len(array) for array in arrays.values()}
    if len(counts) != 1:
        raise ValueError(f"the inputs have different numbers of samples: {sorted(counts)}")
    return arrays, counts.pop()


def _parts(arrays: Mapping[str, np.ndarray], count: int, size: int) -> Iterator[tuple[dict[str, np.ndarray], int]]:
    """At most ``size`` samples at a time, with how many they are."""
    for start in range(0, count, size):
        yield {name: array[start : start + size] for name, array in arrays.items()}, min(size, count - start)


def _filled(array: np.ndarray, count: int, value: int) -> np.ndarray:
    """``array`` with samples of ``value`` at its end, ``count`` in all."""
    filled = np.full((count, *array.shape[1:]), value, array.dtype)
    filled[: len(array)] = array
    return filled
