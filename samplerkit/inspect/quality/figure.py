"""What a figure is: a value with its standard error and its curve over windows; the estimate behind it."""

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
        value: the figure: 1 for a full shuffle, 0 where nothing is mixed.
        standard_error: of the value; 0 for a closed form.
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
        standard_error: of the value, by the differences between epochs; 0 for a closed form.
        exact: whether closed forms gave it, and nothing was sampled.
        curve: the figure at each window, the smallest window first.
        parts: for `mixing`, the figures of which it is the smallest.

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
        """Gives plain data, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        precision = "exact" if self.exact else f"standard error {shown(self.standard_error)}"
        weakest = self.weakest
        return (
            f"{self.name} {shown(self.value)} "
            f"({precision}; weakest {shown(weakest.value)} in windows of {weakest.window})"
        )


def shown(value: float) -> str:
    """Writes a figure with three decimals, without a zero before the point.

    Example:
        >>> shown(0.5), shown(1.0), shown(-0.25)
        ('.500', '1.000', '-.250')
    """
    text = f"{value:.3f}"
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


@final
@dataclass(frozen=True)
class Estimate:
    """Values at some windows, and how much each epoch moves them.

    Args:
        values: float64 of shape (windows,).
        influences: by how much each epoch moves each value; float64 of shape (epochs, windows), of which the
            columns sum to zero; None where nothing depends on the epoch.
    """

    values: Numbers
    influences: Numbers | None = None

    @classmethod
    def mean_of(cls, epochs: list[Numbers]) -> Estimate:
        """Averages what each epoch gives: arrays of shape (windows,)."""
        if len(epochs) == 1:
            return cls(epochs[0])
        each = np.stack(epochs)
        values = each.mean(axis=0)
        return cls(values, (each - values) / len(epochs))

    @classmethod
    def ratio(cls, above: Numbers, below: Numbers) -> Estimate:
        """Divides the sums over epochs of two arrays of shape (epochs, windows)."""
        total = below.sum(axis=0)
        values = above.sum(axis=0) / total
        return cls(values, (above - values * below) / total)

    def over(self, reference: Estimate) -> Estimate:
        """Divides by the one value of a reference; 1 where that is 0, and so there is nothing to mix."""
        base = float(reference.values[0])
        if base <= 0:
            return Estimate(np.ones_like(self.values))
        values = self.values / base
        influences = None if self.influences is None else self.influences / base
        if reference.influences is not None:
            moved = -values * reference.influences[:, :1] / base
            influences = moved if influences is None else influences + moved
        return Estimate(values, influences)

    def figure(self, name: str, windows: tuple[int, ...]) -> Figure:
        """Makes the figure: the mean over the windows, and errors clustered by epoch."""
        errors = _standard_errors(self.influences, self.values.size)
        mean = None if self.influences is None else self.influences.mean(axis=1, keepdims=True)
        curve = zip(windows, self.values.tolist(), errors.tolist(), strict=True)
        return Figure(
            name,
            float(self.values.mean()),
            float(_standard_errors(mean, 1)[0]),
            self.influences is None,
            tuple(Point(*point) for point in curve),
        )


def _standard_errors(influences: Numbers | None, count: int) -> Numbers:
    if influences is None:
        return np.zeros(count)
    epochs = influences.shape[0]
    errors: Numbers = np.sqrt(epochs / (epochs - 1) * (influences**2).sum(axis=0))
    return errors
