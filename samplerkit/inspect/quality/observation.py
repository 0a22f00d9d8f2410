"""One look at an order: closed forms where there are any, and windows at random for the rest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np

from samplerkit.errors import ArgumentRangeError
from samplerkit.inspect.quality.closed import closed_figures
from samplerkit.inspect.quality.figure import Estimate, Figure
from samplerkit.inspect.quality.order_source import OrderSource
from samplerkit.inspect.quality.pairs import different_pairs, random_distance
from samplerkit.inspect.quality.sampled import SamplingPlan, Statistic, differing, distance, sampled
from samplerkit.order import arguments

DOUBLINGS = 7
"""How many windows there are: the batch size times 2^0 to 2^6."""


@final
@dataclass(frozen=True)
class Observation:
    """What is looked at, and how much of it."""

    subject: OrderSource
    plan: SamplingPlan

    @classmethod
    def on(
        cls, subject: OrderSource, batch_size: int, epochs: int = 64, windows: int = 8, seed: int = 0
    ) -> Observation:
        """Looks at a subject; other arguments as `mixing` names them."""
        batch_size = arguments.positive("batch_size", batch_size)
        epochs, windows = arguments.positive("epochs", epochs), arguments.positive("windows", windows)
        if epochs < 2:
            raise ArgumentRangeError("epochs", "must be at least 2, for a standard error", epochs)
        sizes = window_sizes(subject.length, batch_size)
        # Where each epoch holds all samples once, what two of them share is known.
        whole = subject.plain is None
        return cls(subject, SamplingPlan(sizes, epochs, windows, arguments.seed(seed), whole))

    @property
    def has_files(self) -> bool:
        """Whether there are files that could be mixed."""
        return int(np.count_nonzero(self.subject.layout.sizes)) > 1

    def mixing(self) -> Figure:
        """Gives the mixing, with its parts."""
        parts = self.figures("file_mixing", "spread") if self.has_files else self.figures("spread")
        return replace(min(parts, key=lambda part: part.value), name="mixing", parts=tuple(parts))

    def figures(self, *names: str) -> list[Figure]:
        """Gives the file mixing, the spread, or both."""
        subject, windows = self.subject, self.plan.windows
        found: dict[str, Estimate | None] = dict.fromkeys(names)
        if subject.plain is not None and not subject.is_shuffled:
            found = closed_figures(subject.plain, windows, names)
        layout = subject.layout
        known: dict[str, tuple[Statistic, float]] = {
            "file_mixing": (differing(layout.file_of), different_pairs(layout.sizes)),
            "spread": (distance, random_distance(len(layout))),
        }
        missing = [name for name in names if found[name] is None]
        estimates = iter(self.estimates(*(known[name] for name in missing)))
        return [(found[name] or next(estimates)).figure(name, windows) for name in names]

    def estimates(self, *asked: tuple[Statistic, float]) -> list[Estimate]:
        """Estimates statistics of two samples of a window, over those of two samples of the epoch.

        Args:
            asked: statistics, and what each is for two samples of the dataset.
        """
        if self.subject.is_shuffled:
            return [Estimate(np.ones(len(self.plan.windows))) for _ in asked]
        found = sampled(self.subject, self.plan, [statistic for statistic, _ in asked]) if asked else []
        return [
            windows.over(whole or Estimate(np.array([known])))
            for (windows, whole), (_, known) in zip(found, asked, strict=True)
        ]


def window_sizes(num_samples: int, batch_size: int) -> tuple[int, ...]:
    """Gives the sizes of the windows, in samples.

    They are the batch size times 1, 2, 4, up to 64, as far as they hold at least two samples and at most half
    of the order. Where already a batch holds more than half, half of the order is the only window.

    Raises:
        ArgumentRangeError: the order has fewer than four samples, so that no window says anything.

    Example:
        >>> window_sizes(1000, 100), window_sizes(1000, 1), window_sizes(100, 64)
        ((100, 200, 400), (2, 4, 8, 16, 32, 64), (50,))
    """
    if num_samples < 4:
        raise ArgumentRangeError("dataset", "has too few samples to speak of mixing", num_samples)
    half = num_samples // 2
    doubled = (batch_size << doubling for doubling in range(DOUBLINGS))
    return tuple(window for window in doubled if 2 <= window <= half) or (half,)
