"""Training: a run, one step after the other."""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _engine, checks
from .errors import BatchError, Error, SettingError
from .feeding import DTYPES, parts, samples
from .nn import Model
from .plans import Inputs, Plan, merged, trace_of
from .progress import Progress
from .restart import restarted
from .tracking import LogTo, Tracking
from .watched import Hooks, Kept, Watch
from .weights import IncompatibleKeys, Init, State, Weights, given

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .keywords import Keywords, KeywordsButInit

#: Settings by their keywords.
KEYWORDS = frozenset(keyword for _, keyword, _ in _engine.settings() if keyword)

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
        for name in ("loss", "grad_norm"):
            figures[name] = _number(figures[name])
        return cls(heldout=Evaluation(**heldout) if heldout else None, **figures)


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
        init: Init | None = None,
        watch: Sequence[str] = (),
        on: Hooks = (),
        log_to: LogTo | None = None,
        **keywords: Unpack[KeywordsButInit],
    ) -> None:
        """As :func:`tightrope.plan`; then allocates the plan, and nothing besides.

        Args:
            init: weights to begin with, all of them: a dict of arrays by name, as PyTorch's ``module.state_dict()``, or a file or
                folder of safetensors or of ``torch.save``. Without a model of one's own, a path is that of the model that is trained.
                With ``lora_rank=``, adapters are trained beside them: what :meth:`save` writes holds adapters alone.
            watch: tensors that each step keeps, for :attr:`activations` and :attr:`gradients`: activations as
                ``plan.tensors()`` names them, a layer for its output, ``grad.`` and a weight's name for its gradient before
                clipping. ``*`` stands for any characters. The plan counts their bytes.
            on: ``(name, function)``, or several: the function is called with name and array after each step.
            log_to: ``"wandb"`` or ``"mlflow"``, a :class:`tightrope.Tracker`, or several: each step and evaluation is logged there by
                the package of that name, into the run that is under way, or else into a new one.
        """
        said = merged(keywords)
        arrays = model is None and isinstance(init, Mapping)
        if model is None and init is not None and not arrays:
            said["init"] = init
        tracking = Tracking(log_to)
        self._start(model, inputs, Watch(watch, on), said, init=init if model is not None else None)
        self._track(tracking, said)
        if not arrays:
            return
        if self._inner.facts()["adapters"]:
            self._inner.close()
            raise SettingError(
                "init= with arrays, and lora_rank=: a checkpoint of adapters says where the weights of a model are that they're beside; "
                "give the folder of the model as init="
            )
        assert isinstance(init, Mapping)
        self.load_state_dict(init)

    def _start(
        self,
        model: Model | None,
        inputs: Inputs | None,
        watch: Watch,
        keywords: dict[str, Any],
        resume: Path | None = None,
        strict: bool = True,
        init: Init | None = None,
    ) -> None:
        self._inputs = dict(inputs or {})
        self._watch = watch
        self._live: Callable[[Step], None] | None = None
        trace = trace_of(model, inputs)
        self._constants = trace.constants if trace else {}
        self._keywords, self._resumed, self._trace = keywords, resume, trace.text if trace else None
        weights = None
        if init is not None and self._trace is not None:
            weights = given(init, {name: tuple(shape) for name, shape in _engine.traced_weights(self._trace)})
        self._inner = _engine.Trainer(keywords, self._trace, resume, watch=watch.names, strict=strict, given=weights)
        self._size = int(self._inner.facts()["batch"])

    def _track(self, tracking: Tracking, said: Mapping[str, Any]) -> None:
        """Begins to log what it does, until it's gone or the program ends."""
        self._tracking = tracking
        tracking.begin(said, self._inner.facts())
        weakref.finalize(self, tracking.end)

    @classmethod
    def resume(
        cls,
        path: str | Path,
        model: Model | None = None,
        *,
        inputs: Inputs | None = None,
        watch: Sequence[str] = (),
        on: Hooks = (),
        log_to: LogTo | None = None,
        strict: bool = True,
        init: Init | None = None,
        **keywords: Unpack[KeywordsButInit],
    ) -> Trainer:
        """Goes on from a run, or from what :meth:`save` wrote, bit for bit.

        What isn't said is as it was; what :meth:`save` wrote doesn't know where its data lies, so that ``data`` is said again.

        Args:
            strict: False if the checkpoint may differ from the run that goes on. Its ``model.safetensors`` may have been edited, a
                model of one's own may compute its loss otherwise, and other weights may be frozen, by
                ``settings={"train.freeze": [...]}``. Weights are still found by their names and have their shapes. Optimizer state
                of weights that were frozen begins at 0. Of a folder with several checkpoints the newest is taken, checked or not.
            init: weights that adapters of a model of one's own are beside: those that the run began with. Without a model of one's
                own, the folder of the model that adapters are beside, if it's elsewhere now.

        Raises:
            SettingError: the checkpoint is of another model, other data or other frozen weights: a ValueError that names the first
                difference.
            Error: the checkpoint is damaged, or was edited.
        """
        trainer = cls.__new__(cls)
        said, tracking = merged(keywords), Tracking(log_to)
        if model is None and init is not None:
            said["init"] = init
        trainer._start(model, inputs, Watch(watch, on), said, Path(path), strict, init)
        trainer._track(tracking, said)
        return trainer

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(getattr(Trainer, name, None), property):
            raise AttributeError(f"a trainer's `{name}` is read, and can't be set")
        if not name.startswith("_") and (type(self) is Trainer or name in KEYWORDS):
            raise AttributeError(
                f"a trainer keeps what it was made with, so that setting `{name}` would do nothing: give {name}= to "
                f"Trainer(…), or save() it and go on with Trainer.resume(path, {name}=…)"
            )
        super().__setattr__(name, value)

    def _batch(self, values: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
        """The inputs flat, in the dtypes of the model, and how many samples they are."""
        if not self._inputs:
            raise TypeError("this trainer reads its own data: call step() without a batch")
        arrays, count = samples(values, self._inputs)
        return {**arrays, **self._constants}, count

    @property
    def notes(self) -> list[str]:
        """Notes from before the first step: rows that were cut, padding, a run that takes more than a day."""
        return self._inner.notes()

    def step(self, **batch: Any) -> Step:
        """Trains one step; of a model of one's own on this batch, arrays by the names of its inputs.

        Raises:
            Error: all steps are done, or the loss isn't finite.
            BatchError: samples of another number than the batch, or labels out of range: a ValueError, too.
            TypeError: an input is missing, or isn't an array of numbers.
            ValueError: an array of another shape, or a value that its input can't hold: with its place.
        """
        arrays = None
        if batch or self._inputs:
            arrays, count = self._batch(batch)
            if count != self._size:
                raise BatchError(f"the inputs have {count} samples, and a step takes batch={self._size}")
        step = self._next(arrays)
        if step is None:
            raise Error("all steps are done: give more of them with steps=")
        return step

    def _next(self, batch: dict[str, np.ndarray] | None = None) -> Step | None:
        figures = self._inner.step(batch)
        if figures is None:
            return None
        step = Step._of(figures)
        self._watch.take(figures["watched"])
        if self._live is not None:
            self._live(step)
        self._tracking.stepped(step)
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
        """The loss on held-out data; of a model of one's own on these samples, of which there may be any number.

        It's the model's own loss over all of them, as one pass over them would have it, and so are its metrics. A model that mixes the
        samples of a batch takes as many as a micro-batch has.
        """
        if not self._inputs:
            if batch:
                raise TypeError("this trainer has its own held-out data: call evaluate() without a batch")
            held = self._inner.evaluate()
            return self._evaluated(Evaluation(**held)) if held else None
        if not batch:
            raise ValueError(f"evaluate() takes samples of a model of one's own, at least one: {self._asked()}")
        arrays, count = self._batch(batch)
        if count == 0:
            raise ValueError("there are no samples to evaluate: give at least one")
        found = self._inner.evaluate_batch(arrays, count)
        metrics = {name: _number(value) for name, value in found["metrics"].items()}
        return self._evaluated(Evaluation(_number(found["loss"]), count, metrics))

    def _evaluated(self, found: Evaluation) -> Evaluation:
        self._tracking.evaluated(found, self.steps_done)
        return found

    def _asked(self) -> str:
        return "evaluate(" + ", ".join(f"{name}=…" for name in self._inputs) + ")"

    def predict(self, **batch: Any) -> np.ndarray:
        """What the model's ``predict`` gives of these samples, float32: of any number of them, a micro-batch at a time."""
        if not self._inputs:
            raise TypeError("this trainer's model has no predict()")
        read = {name: it for name, it in self._inputs.items() if name in batch}
        unknown = [name for name in batch if name not in read]
        if unknown or not read:
            said = f"no input `{unknown[0]}`" if unknown else "inputs, and none is given"
            raise TypeError(f"the model has {said}; it reads {', '.join(self._inputs)}")
        arrays, count = samples(batch, read)
        size = self.micro_batch
        unread = {name: it for name, it in self._inputs.items() if name not in arrays}
        zeros = {name: np.zeros(size * math.prod(shape), DTYPES[dtype]) for name, (dtype, shape) in unread.items()}
        found = [self._inner.predict({**part, **zeros, **self._constants})[:real] for part, real in parts(arrays, count, size)]
        if not found:
            raise ValueError("there are no samples to predict of")
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
        """Text that follows ``prompt``. At temperature 0 the likeliest token follows each time.

        Args:
            prompt: the text to go on from, of a character or more.
            max_tokens: tokens that follow it at most.
            temperature: what scores are divided by, at least 0.
            top_k: how many of the likeliest tokens are drawn from; 0 for all.
            top_p: the likeliest tokens are drawn from whose probabilities make up this share, above 0 and at most 1.
            seed: what draws depend on, at least 0.
        """
        if not isinstance(prompt, str):
            raise TypeError(f"prompt={prompt!r}: it must be a text")
        if not prompt:
            raise ValueError('prompt="": it must have a character or more to go on from')
        max_tokens = checks.whole("max_tokens", max_tokens, 0)
        drawn = checks.at_least_0("temperature", temperature), checks.whole("top_k", top_k, 0)
        return self._inner.generate(
            prompt, max_tokens, (*drawn, checks.above_0("top_p", top_p, 1), checks.whole("seed", seed, 0))
        )

    def save(self, path: str | Path) -> Path:
        """Writes a checkpoint ``checkpoints/step-N`` under ``path``, whole or not at all. Gives its path."""
        saved = self._inner.save(Path(path))
        assert saved is not None, "a path was given"
        return saved

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
        """The weights by name, as arrays of float32; ``trainer.weights[name] = array`` sets one."""
        return Weights(lambda: self._inner)

    def load_state_dict(self, state: State, strict: bool = True) -> IncompatibleKeys:
        """Sets weights to those of a state dict, as PyTorch's method of this name does: all that it holds, or none.

        Names and shapes are those of :attr:`weights`. A model of Hugging Face takes the names of its class there as well, such as
        ``GPT2LMHeadModel(…).state_dict()``. Optimizer state and the count of steps stay as they are.

        Args:
            state: arrays by name, of NumPy, PyTorch or any library with DLPack.
            strict: False if names may be missing or unexpected; they are returned.

        Raises:
            WeightError: missing or unexpected names, unless ``strict`` is False; an array of another shape; a number that isn't
                finite. A RuntimeError, as PyTorch's, and a ValueError.
            TypeError: no dict of arrays by name.
        """
        return self.weights.load(state, strict)

    def freeze(self, *patterns: str) -> None:
        """Leaves weights as they are from the next step on. Plans the step again, since gradients and optimizer state go.

        All else is kept: weights, optimizer state of the others, the count of steps, the schedule. Names are those of
        :attr:`weights`, in which ``*`` stands for any characters.

        Raises:
            SettingError: a name that no weight has, or no weight left to train.
            DoesNotFit: no plan fits the memory; the trainer is as before.
            Error: a model with adapters, whose own weights are frozen anyway.
        """
        self._refreeze(patterns, True)

    def unfreeze(self, *patterns: str) -> None:
        """Trains weights from the next step on that were frozen; see :meth:`freeze`.

        Their optimizer state begins at 0. The number of updates that Adam corrects its averages by is the run's, so that their first
        updates aren't those of a new optimizer.
        """
        self._refreeze(patterns, False)

    def _refreeze(self, patterns: Sequence[str], freeze: bool) -> None:
        for pattern in patterns:
            if not isinstance(pattern, str):
                raise TypeError(f"weights are named by texts, and {pattern!r} is none")
        if self._inner.facts()["adapters"]:
            raise Error("adapters are trained here, and the model's own weights are frozen: there are no others to freeze or to train")
        names = self._inner.refrozen(list(patterns), freeze)
        if names is None:
            return

        def start(keywords: dict[str, Any], checkpoint: Path) -> _engine.Trainer:
            return _engine.Trainer(keywords, self._trace, checkpoint, watch=self._watch.names, strict=False)

        before = {name: value for name, value in self._keywords.items() if name not in ("init", "model.init")}
        after = {**before, "train.freeze": names}
        self._inner, self._keywords, failure = restarted(self._inner, start, (before, after), self._resumed)
        if failure is not None:
            raise failure

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
        return int(self._inner.facts()["measured_peak_bytes"])

    @property
    def steps_done(self) -> int:
        """Steps done, those before a resume included."""
        return int(self._inner.facts()["steps_done"])

    @property
    def stopped_early(self) -> bool:
        """True if ``patience`` ended the run: so many evaluations in a row had no lower held-out loss."""
        return bool(self._inner.facts()["stopped_early"])

    @property
    def micro_batch(self) -> int:
        """Samples of a pass."""
        return int(self._inner.facts()["micro_batch"])

    @property
    def device(self) -> str:
        """Name of the device."""
        return str(self._inner.facts()["device"])


def train(
    *,
    on_step: Callable[[Step], Any] | None = None,
    resume: str | Path | None = None,
    log_to: LogTo | None = None,
    **keywords: Unpack[Keywords],
) -> dict[str, Any]:
    """Trains as the command ``tightrope train`` does, in a run directory, and gives what it came to.

    ``on_step`` is called after each step; without it, a line shows the progress, on a terminal and in a notebook. ``log_to`` is that of :class:`Trainer`.
    Ctrl+C writes a checkpoint first.
    """
    said, tracking = merged(keywords), Tracking(log_to)
    inner = _engine.Trainer(said, None, Path(resume) if resume else None, True)
    tracking.begin(said, inner.facts())
    last, first = None, None
    progress = Progress(inner.facts()["steps"])
    if on_step is None:
        for note in inner.notes():
            print(f"note: {note}", file=sys.stderr)
    try:
        while (figures := inner.step()) is not None:
            last = Step._of(figures)
            first = first or last
            (on_step or progress)(last)
            tracking.stepped(last)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            inner.save()
        tracking.end(completed=False)
        raise
    finally:
        progress.end()
    facts, end = inner.facts(), inner.finish()
    heldout = Evaluation(**end["heldout"]) if end["heldout"] else None
    if heldout is not None:
        tracking.evaluated(heldout, facts["steps_done"])
    tracking.end()
    return {
        "steps": facts["steps_done"],
        "stopped_early": facts["stopped_early"],
        "tokens": facts["tokens"],
        "first_loss": first.loss if first else None,
        "last_loss": last.loss if last else None,
        "heldout": heldout,
        "sample": end["sample"],
        "predicted_peak_bytes": inner.plan.peak_bytes,
        "measured_peak_bytes": facts["measured_peak_bytes"],
        "run": Path(facts["run"]),
    }


def _number(figure: float | None) -> float:
    """A figure of the engine's: NaN where it isn't finite, as JSON has no such numbers."""
    return math.nan if figure is None else figure
