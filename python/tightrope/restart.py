"""A trainer that is planned again, from a checkpoint of itself."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from . import _engine
from .errors import Error

#: Settings of a run, in its directory.
_RUN_SETTINGS = "run.toml"

#: Starts a trainer by keywords, from a checkpoint.
Start = Callable[[dict[str, Any], Path], _engine.Trainer]


def restarted(
    inner: _engine.Trainer,
    start: Start,
    keywords: tuple[dict[str, Any], dict[str, Any]],
    resumed: Path | None,
) -> tuple[_engine.Trainer, dict[str, Any], BaseException | None]:
    """Ends ``inner`` and starts it by the second of ``keywords``: the new trainer, its keywords, and None.

    If that fails it is started by the first, as if nothing had been asked, and the failure is returned. The two trainers are never in
    memory together. ``resumed`` is where the trainer came from: a run directory has settings that a checkpoint lacks.

    Raises:
        Error: neither can be started. The message names the checkpoint, which stays.
    """
    before, after = keywords
    folder = Path(mkdtemp(prefix="tightrope-"))
    kept = False
    try:
        saved = inner.save(folder)
        assert saved is not None, "a path was given"
        for run in (resumed, resumed.parent.parent) if resumed is not None else ():
            if (run / _RUN_SETTINGS).exists():
                shutil.copy(run / _RUN_SETTINGS, folder)
                break
        inner.close()
        try:
            return start(after, saved), after, None
        except BaseException as failure:
            try:
                return start(before, saved), before, failure
            except BaseException as again:
                kept = True
                raise Error(f"the trainer can't be started again: {again}; its checkpoint is {saved}") from failure
    finally:
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)
