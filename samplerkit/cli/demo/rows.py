"""The rows of the demo's table, and what they show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from samplerkit.cli.demo.events import Training
from samplerkit.order.shuffle import Shuffle

LEAST_ACCURACY = 95.0
"""What GLOBAL must reach on the test set, in percent."""


@dataclass(frozen=True)
class CountRange:
    """The least and the most of a count over all epochs and seeds.

    Example:
        >>> str(CountRange.of([1438, 1438])), str(CountRange.of([229, 208]))
        ('1,438', '208-229')
    """

    low: int
    high: int

    @classmethod
    def of(cls, counts: Iterable[int]) -> CountRange:
        """Spans the counts."""
        known = list(counts)
        return cls(min(known), max(known))

    def __str__(self) -> str:
        return f"{self.low:,}" if self.low == self.high else f"{self.low:,}-{self.high:,}"


@dataclass(frozen=True)
class Row:
    """What a shuffle mode did, over all seeds; the counts are those of an epoch.

    Args:
        mode: the value of the mode.
        accuracy: the median over the seeds, in percent.
        accuracies: of each seed.
        seen: samples that reached a training loop.
        repeated: how many of those came again.
        missing: samples that reached no rank.
        files_opened: by each rank.
        orders: a digest of each seed's order.
    """

    mode: str
    accuracy: float
    accuracies: tuple[float, ...]
    seen: CountRange
    repeated: CountRange
    missing: CountRange
    files_opened: tuple[CountRange, ...]
    orders: tuple[str, ...]

    @classmethod
    def of(cls, trainings: Sequence[Training]) -> Row:
        """Sums up the trainings with one mode."""
        epochs = [epoch for training in trainings for epoch in training.epochs]
        ranks = range(len(epochs[0].files_opened))
        accuracies = tuple(round(training.accuracy, 2) for training in trainings)
        return cls(
            mode=trainings[0].mode,
            accuracy=median(accuracies),
            accuracies=accuracies,
            seen=CountRange.of(epoch.seen for epoch in epochs),
            repeated=CountRange.of(epoch.repeated for epoch in epochs),
            missing=CountRange.of(epoch.missing for epoch in epochs),
            files_opened=tuple(CountRange.of(epoch.files_opened[rank] for epoch in epochs) for rank in ranks),
            orders=tuple(training.order for training in trainings),
        )

    def to_json(self) -> dict[str, Any]:
        """Gives the row as plain values."""
        return asdict(self)


def explain(rows: Mapping[str, Row]) -> list[str]:
    """Says in plain sentences what the finished table shows: of what was measured, and nothing else."""
    whole, files, partial, adaptive = (
        rows[mode.value] for mode in (Shuffle.GLOBAL, Shuffle.FILES, Shuffle.PARTIAL, Shuffle.ADAPTIVE)
    )
    accuracy = (
        f"The files are sorted by digit. GLOBAL mixes all samples and reaches {whole.accuracy:.1f}%; FILES "
        f"reads file after file, so that a batch holds few digits, and reaches {files.accuracy:.1f}% "
        f"({_difference(files.accuracy - whole.accuracy)})."
    )
    cost = (
        f"What FILES saves: rank 0 opens {files.files_opened[0]} files an epoch, and "
        f"{whole.files_opened[0]} under GLOBAL. PARTIAL opens {partial.files_opened[0]} and reaches "
        f"{partial.accuracy:.1f}%."
    )
    sentences = [accuracy, cost]
    if adaptive.orders == partial.orders:
        sentences.append(
            "ADAPTIVE read the very order of PARTIAL: there are more samples than its adaptive_threshold."
        )
    if all(row.missing.high == 0 and row.repeated.high == 1 for row in rows.values()):
        sentences.append("The one sample that comes twice gives both ranks equally many.")
    return sentences


def verdict(rows: Mapping[str, Row]) -> str | None:
    """Says how the demo failed, if it did."""
    accuracy = rows[Shuffle.GLOBAL.value].accuracy
    if accuracy >= LEAST_ACCURACY:
        return None
    return f"GLOBAL reached {accuracy:.1f}%, and {LEAST_ACCURACY:.0f}% was expected"


def _difference(points: float) -> str:
    return f"{abs(points):.1f} points {'less' if points < 0 else 'more'}"
