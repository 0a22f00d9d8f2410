"""How many samples there are of each length, and how they are counted: chunk by chunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from samplerkit.order.typing import Ids

_COUNTED_IN_A_TABLE = 1 << 22


@final
@dataclass(frozen=True, eq=False)
class Histogram:
    """How many samples there are of each length.

    Args:
        values: the lengths that occur, descending; int64 of shape (d,).
        counts: how many samples have each; int64 of shape (d,).
        digest: of all lengths in their order.
    """

    values: Ids
    counts: Ids
    digest: str

    @property
    def total(self) -> int:
        """The number of samples."""
        return int(self.counts.sum())


@final
class Tally:
    """Counts values chunk by chunk, in a table where they are small."""

    def __init__(self) -> None:
        self._table = np.zeros(0, dtype=np.int64)
        self._values = np.zeros(0, dtype=np.int64)
        self._counts = np.zeros(0, dtype=np.int64)

    def add(self, chunk: Ids) -> None:
        """Counts some values, none negative."""
        if chunk.max(initial=0) < _COUNTED_IN_A_TABLE:
            counts = np.bincount(chunk, minlength=self._table.size)
            counts[: self._table.size] += self._table
            self._table = counts
            return
        values, counts = np.unique(chunk, return_counts=True)
        self._values, self._counts = _added(self._values, self._counts, values, counts)

    def result(self) -> tuple[Ids, Ids]:
        """Gives the values that occur, descending, and how often each does."""
        small = np.flatnonzero(self._table)
        values, counts = _added(self._values, self._counts, small, self._table[small])
        return values[::-1].copy(), counts[::-1].copy()


def _added(values: Ids, counts: Ids, others: Ids, their: Ids) -> tuple[Ids, Ids]:
    merged, at = np.unique(np.concatenate([values, others]), return_inverse=True)
    total = np.zeros(merged.size, dtype=np.int64)
    np.add.at(total, at, np.concatenate([counts, their]))
    return merged, total
