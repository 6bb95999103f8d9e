"""What can go wrong, as exceptions."""

from __future__ import annotations


class Error(RuntimeError):
    """Something went wrong on the way: a disk, a damaged file, a loss that isn't finite."""


class DoesNotFit(MemoryError):
    """The training step doesn't fit the memory.

    Attributes:
        needed: bytes of the smallest plan that was found.
        budget: bytes that the plan may take.
        suggestion: the cheapest change that would fit, in words.
    """

    def __init__(
        self,
        message: str,
        needed: int | None = None,
        budget: int | None = None,
        suggestion: str | None = None,
    ) -> None:
        super().__init__(message)
        self.needed = needed
        self.budget = budget
        self.suggestion = suggestion


class BatchError(Error, ValueError):
    """A batch isn't what the model takes: samples of another number, or labels out of range. The message has their place."""


class WeightError(Error, ValueError):
    """Weights that don't fit the model: missing or unexpected names, another shape, or a number that the precision doesn't hold."""


class SettingError(ValueError):
    """A setting is wrong; the message names the nearest one, or what the value must be."""


class DeviceError(Error):
    """A device failed, or isn't there."""
