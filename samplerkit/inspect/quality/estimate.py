"""A figure at each window as an estimate, and the figure that is made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from samplerkit.inspect.quality.figure import Figure, Point
from samplerkit.inspect.quality.pairs import Numbers


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

    def scaled(self, factor: float, added: float = 0.0) -> Estimate:
        """Multiplies by a number, then adds one."""
        influences = None if self.influences is None else self.influences * factor
        return Estimate(self.values * factor + added, influences)

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

    def figure(self, name: str, windows: tuple[int, ...], *, exact: bool) -> Figure:
        """Makes the figure: the mean over the windows, and errors clustered by epoch."""
        errors = _standard_errors(self.influences, self.values.size)
        mean = None if self.influences is None else self.influences.mean(axis=1, keepdims=True)
        curve = zip(windows, self.values.tolist(), errors.tolist(), strict=True)
        return Figure(
            name,
            float(self.values.mean()),
            float(_standard_errors(mean, 1)[0]),
            exact and self.influences is None,
            tuple(Point(*point) for point in curve),
        )


def _standard_errors(influences: Numbers | None, count: int) -> Numbers:
    if influences is None:
        return np.zeros(count)
    epochs = influences.shape[0]
    errors: Numbers = np.sqrt(epochs / (epochs - 1) * (influences**2).sum(axis=0))
    return errors
