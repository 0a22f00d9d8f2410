"""One look at an order: closed forms where there are any, and windows at random for the rest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from samplerkit.errors import ArgumentRangeError
from samplerkit.inspect.quality.closed import closed_figures
from samplerkit.inspect.quality.figure import Estimate, Figure
from samplerkit.inspect.quality.order_source import OrderSource
from samplerkit.inspect.quality.pairs import random_distance, same_pairs
from samplerkit.inspect.quality.sampled import SamplingPlan, Statistic, distance, sampled, sharing
from samplerkit.order import arguments
from samplerkit.order.deal import World
from samplerkit.order.order import Order
from samplerkit.samplers.base import Sampler

DOUBLINGS = 7
"""How many windows there are: the batch size times 2^0 to 2^6."""


@final
@dataclass(frozen=True)
class Observation:
    """What is looked at, and how much of it."""

    subject: OrderSource
    plan: SamplingPlan

    @classmethod
    def at(
        cls,
        order: Sampler | Order,
        dataset: Any,
        batch_size: int,
        world: World | None,
        epochs: int,
        windows: int,
        seed: int,
    ) -> Observation:
        """Takes the arguments of a figure, as `mixing` names them."""
        return cls.on(OrderSource.of(order, dataset, world), batch_size, epochs, windows, seed)

    @classmethod
    def on(
        cls, subject: OrderSource, batch_size: int, epochs: int = 64, windows: int = 8, seed: int = 0
    ) -> Observation:
        """Looks at a subject, other arguments as for `at`."""
        batch_size = arguments.positive("batch_size", batch_size)
        epochs, windows = arguments.positive("epochs", epochs), arguments.positive("windows", windows)
        if epochs < 2:
            raise ArgumentRangeError("epochs", "must be at least 2, for a standard error", epochs)
        sizes = window_sizes(subject.length, batch_size)
        return cls(subject, SamplingPlan(sizes, epochs, windows, arguments.seed(seed)))

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
        closed = self._closed(names)
        missing = [name for name in names if closed[name] is None]
        found = dict(zip(missing, self._sampled(missing), strict=True)) if missing else {}
        return [
            (closed[name] or found[name]).figure(name, self.plan.windows, exact=closed[name] is not None)
            for name in names
        ]

    def _closed(self, names: tuple[str, ...]) -> dict[str, Estimate | None]:
        if self.subject.is_shuffled:
            return dict.fromkeys(names, Estimate(np.ones(len(self.plan.windows))))
        plain = self.subject.plain
        return dict.fromkeys(names) if plain is None else closed_figures(plain, self.plan.windows, names)

    def _sampled(self, names: list[str]) -> list[Estimate]:
        subject = self.subject
        statistics: dict[str, Statistic] = {
            "file_mixing": sharing(subject.layout.file_of),
            "spread": distance,
        }
        # Where each epoch holds all samples once, what two of them share is known.
        plan = replace(self.plan, whole=subject.plain is None)
        found = sampled(subject, plan, [statistics[name] for name in names])
        estimates = []
        for name, (windows, whole) in zip(names, found, strict=True):
            reference = whole or Estimate(np.array([self._known(name)]))
            if name == "file_mixing":
                estimates.append(windows.scaled(-1, 1).over(reference.scaled(-1, 1)))
            else:
                estimates.append(windows.over(reference))
        return estimates

    def _known(self, name: str) -> float:
        layout = self.subject.layout
        return same_pairs(layout.sizes) if name == "file_mixing" else random_distance(len(layout))


def window_sizes(num_samples: int, batch_size: int) -> tuple[int, ...]:
    """Gives the sizes of the windows, in samples.

    They are the batch size times 1, 2, 4, up to 64, as far as they hold at least two samples and at most half
    of the order. Where already a batch holds more than half, half of the order is the only window.

    Raises:
        ArgumentRangeError: the order has fewer than four samples, so that no window tells anything.

    Example:
        >>> window_sizes(1000, 100), window_sizes(1000, 1), window_sizes(100, 64)
        ((100, 200, 400), (2, 4, 8, 16, 32, 64), (50,))
    """
    if num_samples < 4:
        raise ArgumentRangeError("dataset", "has too few samples to speak of mixing", num_samples)
    half = num_samples // 2
    doubled = (batch_size << doubling for doubling in range(DOUBLINGS))
    return tuple(window for window in doubled if 2 <= window <= half) or (half,)
