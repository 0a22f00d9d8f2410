"""Figures: a value with its standard error and its curve over windows; and the estimates behind them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np

from samplerkit.inspect.quality.pairs import Numbers


@final
@dataclass(frozen=True)
class Point:
    """A figure at one size of window.

    Args:
        window: samples in the window.
        value: the figure: 1 for a full shuffle, 0 if nothing is mixed; for `effective_batch`, samples.
        standard_error: the standard error of the value; 0 for a closed form.
    """

    window: int
    value: float
    standard_error: float = 0.0


@final
@dataclass(frozen=True)
class Figure:
    """A quality figure of an order.

    Args:
        name: which figure: `mixing`, `file_mixing`, `spread`, `label_mixing`, `storage_mixing` or
            `effective_batch`.
        value: the mean over the windows; for `effective_batch`, samples.
        standard_error: the standard error of the value, from the differences between epochs; 0 for a closed
            form.
        exact: whether the value is from closed forms, without sampling.
        curve: the figure at each window, the smallest window first.
        parts: for `mixing`, the figures whose minimum it is.

    Example:
        >>> figure = Figure("spread", 0.5, 0.0, True, (Point(32, 0.25), Point(64, 0.75)))
        >>> print(figure)
        spread .500 (exact; weakest .250 in windows of 32)
        >>> figure.to_dict()["curve"][0]
        {'window': 32, 'value': 0.25, 'standard_error': 0.0}
    """

    name: str
    value: float
    standard_error: float
    exact: bool
    curve: tuple[Point, ...]
    parts: tuple[Figure, ...] = ()

    @property
    def weakest(self) -> Point:
        """The point of the curve with the smallest value."""
        return min(self.curve, key=lambda point: point.value)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        precision = "exact" if self.exact else f"standard error {shown(self.standard_error)}"
        weakest = self.weakest
        return (
            f"{self.name} {shown(self.value)} "
            f"({precision}; weakest {shown(weakest.value)} in windows of {weakest.window})"
        )


def shown(value: float) -> str:
    """Formats a figure with three decimals, without a zero before the point.

    Example:
        >>> shown(0.5), shown(1.0), shown(-0.25)
        ('.500', '1.000', '-.250')
    """
    text = f"{value:.3f}"
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


@dataclass(frozen=True)
class Estimate:
    """Values at some windows, for each epoch.

    Args:
        epochs: float64 of shape (epochs, windows), to be averaged over epochs; one row if the values do not
            depend on the epoch.
    """

    epochs: Numbers

    @classmethod
    def ratio(cls, above: Numbers, below: Numbers) -> Estimate:
        """Divides the sums over epochs of two arrays of shape (epochs, windows).

        The value of an epoch is the ratio of the sums plus the epoch's linearized deviation from it, so that
        the mean is the ratio of the sums.
        """
        values = above.sum(axis=0) / below.sum(axis=0)
        return cls(values + (above - values * below) / below.mean(axis=0))

    def over(self, reference: Estimate) -> Estimate:
        """Divides by the mean of a reference; 1 if that is 0, since then there is nothing to mix."""
        base = float(reference.epochs.mean())
        if base <= 0:
            return Estimate(np.ones((1, self.epochs.shape[1])))
        values = self.epochs / base
        # Linearized as in `ratio`: an epoch with a larger reference has lower values.
        return Estimate(values - values.mean(axis=0) * (reference.epochs - base) / base)

    def figure(self, name: str, windows: tuple[int, ...]) -> Figure:
        """Returns the figure: the mean over the windows, with standard errors clustered by epoch."""
        values, errors = self.epochs.mean(axis=0), _standard_errors(self.epochs)
        curve = zip(windows, values.tolist(), errors.tolist(), strict=True)
        return Figure(
            name,
            float(values.mean()),
            float(_standard_errors(self.epochs.mean(axis=1))),
            len(self.epochs) == 1,
            tuple(Point(*point) for point in curve),
        )


def _standard_errors(epochs: Numbers) -> Numbers:
    if len(epochs) == 1:
        return np.zeros(epochs.shape[1:])
    errors: Numbers = epochs.std(axis=0, ddof=1) / np.sqrt(len(epochs))
    return errors
