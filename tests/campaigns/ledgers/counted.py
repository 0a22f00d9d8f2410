"""Counts the samples that the loops of a job received in an epoch. Imports nothing of samplerkit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable


class Ledger:
    """The samples received in the current epoch, step by step, and the sums over all epochs."""

    def __init__(self) -> None:
        self.epochs = self.delivered = self.lost = self.repeated = 0
        self._before: Counter[Hashable] = Counter()
        self._steps: list[Counter[Hashable]] = []

    def begin(self, before: Iterable[Hashable] = ()) -> None:
        """Begins an epoch; with `before`, in its middle, after these samples."""
        self._before, self._steps = Counter(before), []

    def receive(self, samples: Iterable[Hashable]) -> None:
        """Adds the samples that all ranks together received in a step."""
        self._steps.append(Counter(samples))

    def after(self, steps: int) -> list[Hashable]:
        """The samples received after some of the steps, with repeats."""
        return list(sum(self._steps[:steps], self._before).elements())

    def end(self, samples: Iterable[Hashable]) -> str | None:
        """Ends the epoch; returns what is wrong with it, or None."""
        expected, received = Counter(samples), sum(self._steps, self._before)
        lost, repeated = expected - received, received - expected
        self.epochs += 1
        self.delivered += received.total()
        self.lost += lost.total()
        self.repeated += repeated.total()
        self.begin()
        return f"lost {dict(lost)}, repeated {dict(repeated)}" if lost or repeated else None
