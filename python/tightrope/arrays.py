"""Arrays of other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np


def array(name: str, value: Any) -> np.ndarray[Any, Any]:
    """NumPy's view of an array of any library that has one.

    Raises:
        TypeError: what isn't an array of numbers, or hides some of them.
    """
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        # PyTorch exports neither tensors with gradients, nor those on a GPU, nor bfloat16.
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            value = value.float()
    try:
        if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
            found: np.ndarray[Any, Any] = np.from_dlpack(value)
        else:
            found = value if isinstance(value, np.ndarray) else np.asarray(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise TypeError(f"`{name}` can't be read as an array: {error}") from error
    if isinstance(found, np.ma.MaskedArray):
        if np.ma.is_masked(found):
            raise TypeError(f"`{name}` is a masked array: fill what it hides, or leave it out by its label")
        found = np.ma.getdata(found)
    numbers = found.dtype.kind in "biuf" or found.dtype.names is None and np.can_cast(found.dtype, np.float32)
    if not numbers:
        raise TypeError(f"`{name}` holds {found.dtype}, and the model reads real numbers")
    return found
