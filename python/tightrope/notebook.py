"""How values show themselves in notebooks: as a widget where somebody can use it, as a picture everywhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anywidget import AnyWidget

#: Data by MIME type, and what is said of it.
Bundle = tuple[dict[str, Any], dict[str, Any]]


def is_used() -> bool:
    """Whether a person is at the cell that runs. Who executes a notebook as a whole, as nbclient and nbconvert do, takes no input, and says
    so with each cell; what it writes is read where no kernel answers a widget."""
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    kernel = getattr(get_ipython(), "kernel", None)
    if kernel is None:
        return False
    return bool(kernel.get_parent().get("content", {}).get("allow_stdin"))


def bundle(widget: Callable[[], AnyWidget], svg: str, text: str) -> Bundle:
    """What a cell shows: the picture and the text, and the widget where it can be used and anywidget is installed."""
    data: dict[str, Any] = {"text/plain": text, "image/svg+xml": svg}
    metadata: dict[str, Any] = {}
    if is_used():
        try:
            made = widget()
        except ModuleNotFoundError as missing:
            if missing.name not in ("anywidget", "traitlets"):
                raise
        else:
            if (bundled := made._repr_mimebundle_()) is not None:
                view, metadata = bundled
                data = {**view, **data}
    return data, metadata
