"""The rows of the demo's table, and what they show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from statistics import median
from typing import Any

import numpy as np

from samplerkit.cli.demo.data import EPOCHS
from samplerkit.order.modes import Shuffle

LEAST_ACCURACY = 95.0
"""What GLOBAL must reach on the test set, in percent."""

_LINE = "{:<8}{:>9}{:>9}{:>10}{:>9}{:>14}{:>14}"

HEADINGS = "\n".join(
    _LINE.format(*words)
    for words in (
        ("", "test", "samples", "", "", "files opened", "files opened"),
        ("shuffle", "accuracy", "seen", "repeated", "missing", "by rank 0", "by rank 1"),
    )
)

Row = dict[str, Any]
"""What a shuffle mode did, over all seeds: counts are of an epoch, the least and the most; files, by rank."""


def row_of(
    mode: str,
    accuracies: Sequence[float],
    received: Sequence[Sequence[Sequence[Mapping[str, Any]]]],
    num_samples: int,
) -> Row:
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
    rounded = [round(accuracy, 2) for accuracy in accuracies]
    return {
        "mode": mode,
        "accuracy": median(rounded),
        "accuracies": rounded,
        "seen": _extent(ids.size for ids in seen),
        "repeated": _extent(ids.size - count for ids, count in zip(seen, distinct, strict=True)),
        "missing": _extent(num_samples - count for count in distinct),
        "files_opened": [*map(_extent, zip(*opened, strict=True))],
        "orders": [blake2b(ids.astype("<i8").tobytes(), digest_size=8).hexdigest() for ids in orders],
    }


def line_of(row: Row) -> str:
    """Writes a row of the table."""
    counts = (row["seen"], row["repeated"], row["missing"], *row["files_opened"])
    return _LINE.format(row["mode"], f"{row['accuracy']:.1f}%", *map(_shown, counts))


def summary(rows: Mapping[str, Row]) -> str:
    """Says in plain words what the finished table shows."""
    whole, files = (rows[mode.value] for mode in (Shuffle.GLOBAL, Shuffle.FILES))
    opened, of_whole = (_shown(row["files_opened"][0]) for row in (files, whole))
    return (
        f"The files are sorted by digit. GLOBAL mixes all samples and reaches {whole['accuracy']:.1f}%; "
        f"FILES reads file after file and reaches {files['accuracy']:.1f}%, and rank 0 opens {opened} files "
        f"an epoch in place of {of_whole}."
    )


def verdict(rows: Mapping[str, Row]) -> str | None:
    """Says how the demo failed, if it did."""
    accuracy = rows[Shuffle.GLOBAL.value]["accuracy"]
    if accuracy >= LEAST_ACCURACY:
        return None
    return f"GLOBAL reached {accuracy:.1f}%, and {LEAST_ACCURACY:.0f}% was expected"


def _extent(counts: Iterable[int]) -> dict[str, int]:
    known = list(counts)
    return {"low": min(known), "high": max(known)}


def _shown(extent: Mapping[str, int]) -> str:
    low, high = extent["low"], extent["high"]
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"
