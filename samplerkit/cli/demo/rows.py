"""The rows of the demo's table, and what they show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from statistics import median
from typing import Any

import numpy as np

from samplerkit.cli.demo.data import EPOCHS
from samplerkit.order.modes import Shuffle

LEAST_ACCURACY = 95.0
"""What GLOBAL must reach on the test set, in percent."""


_PLAIN = "{:<8}{:>9}{:>9}{:>10}{:>9}{:>14}{:>14}"

HEADINGS = "\n".join(
    _PLAIN.format(*words)
    for words in (
        ("", "test", "samples", "", "", "files opened", "files opened"),
        ("shuffle", "accuracy", "seen", "repeated", "missing", "by rank 0", "by rank 1"),
    )
)

ReceivedLines = Sequence[Sequence[Sequence[Mapping[str, Any]]]]
"""Lines of ledgers: of each training, each rank, each step."""


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
    """What a shuffle mode did, over all seeds; the counts are those of an epoch, the files of each rank."""

    mode: str
    accuracy: float
    accuracies: tuple[float, ...]
    seen: CountRange
    repeated: CountRange
    missing: CountRange
    files_opened: tuple[CountRange, ...]
    orders: tuple[str, ...]

    @classmethod
    def of(cls, mode: Shuffle, accuracies: Sequence[float], received: ReceivedLines, num_samples: int) -> Row:
        """Sums up the trainings with one mode.

        Args:
            mode: the mode.
            accuracies: of each training, in percent.
            received: what each rank wrote of each step, for each training.
            num_samples: of the training part.
        """
        epochs = [
            [[line for line in rank if line["epoch"] == epoch] for rank in ranks]
            for ranks in received
            for epoch in range(EPOCHS)
        ]
        seen = [np.concatenate([line["ids"] for rank in epoch for line in rank]) for epoch in epochs]
        distinct = [np.unique(ids).size for ids in seen]
        opened = [[sum(line["files_opened"] for line in rank) for rank in epoch] for epoch in epochs]
        orders = [np.concatenate(seen[first : first + EPOCHS]) for first in range(0, len(seen), EPOCHS)]
        rounded = tuple(round(accuracy, 2) for accuracy in accuracies)
        return cls(
            mode.value,
            median(rounded),
            rounded,
            seen=CountRange.of(ids.size for ids in seen),
            repeated=CountRange.of(ids.size - count for ids, count in zip(seen, distinct, strict=True)),
            missing=CountRange.of(num_samples - count for count in distinct),
            files_opened=tuple(map(CountRange.of, zip(*opened, strict=True))),
            orders=tuple(blake2b(ids.astype("<i8").tobytes(), digest_size=8).hexdigest() for ids in orders),
        )

    def __str__(self) -> str:
        counts = (self.seen, self.repeated, self.missing, *self.files_opened)
        return _PLAIN.format(self.mode, f"{self.accuracy:.1f}%", *map(str, counts))


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
