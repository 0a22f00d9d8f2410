"""Counts what the loops of a job received in an epoch. Imports nothing of samplerkit."""

from collections import Counter
from collections.abc import Hashable, Iterable


class Ledger:
    """The received samples of the current epoch, step by step, and the sums over all epochs."""

    def __init__(self) -> None:
        self.epochs = self.delivered = self.lost = self.repeated = 0
        self._before: Counter[Hashable] = Counter()
        self._steps: list[Counter[Hashable]] = []

    def begin(self, before: Iterable[Hashable] = ()) -> None:
        """Begins to read: from the start, or after samples that were received before."""
        self._before, self._steps = Counter(before), []

    def receive(self, samples: Iterable[Hashable]) -> None:
        """Takes the samples that all ranks together received in a step."""
        self._steps.append(Counter(samples))

    def after(self, steps: int) -> list[Hashable]:
        """Returns the samples after some of the steps, as a list with repeats."""
        return list(sum(self._steps[:steps], self._before).elements())

    def end(self, order: Iterable[Hashable]) -> str | None:
        """Ends the epoch; returns its error, or None."""
        expected, received = Counter(order), sum(self._steps, self._before)
        lost, repeated = expected - received, received - expected
        self.epochs += 1
        self.delivered += received.total()
        self.lost += lost.total()
        self.repeated += repeated.total()
        self.begin()
        return f"lost {dict(lost)}, repeated {dict(repeated)}" if lost or repeated else None
