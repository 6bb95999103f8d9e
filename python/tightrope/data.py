"""Data to begin with."""

from __future__ import annotations

import numpy as np

from . import _engine


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Scikit-learn's digits: 1,797 images of 8 × 8 pixels from 0 to 1, float32, and what they show, int32."""
    pixels, labels = _engine.digits()
    return pixels.reshape(-1, 8, 8), labels
