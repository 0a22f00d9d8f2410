"""Segments: the parts of samples that are in packs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from samplerkit.order.typing import Ids


@final
@dataclass(frozen=True, eq=False)
class Segments:
    """Which part of its sample each segment is, and in which pack of its batch it is.

    Args:
        starts: the first token of each in its sample, int64 of shape (m,).
        lengths: tokens of each, int64 of shape (m,).
        rows: the pack of its batch in which each is, from 0, ascending in a batch; int64 of shape (m,).
        is_last: whether its sample ends with it; bool of shape (m,).
    """

    starts: Ids
    lengths: Ids
    rows: Ids
    is_last: np.ndarray[Any, Any]

    def at(self, chosen: Any) -> Segments:
        """Returns those at some places: a slice, or an array."""
        return Segments(self.starts[chosen], self.lengths[chosen], self.rows[chosen], self.is_last[chosen])

    @staticmethod
    def joined(parts: Sequence[Segments]) -> Segments:
        """Joins segments, those of one after those of another."""
        columns = zip(*((part.starts, part.lengths, part.rows, part.is_last) for part in parts), strict=True)
        return Segments(*map(np.concatenate, columns))

    def of_one_batch(self) -> Segments:
        """Returns the same with packs that are counted from 0 on, where those before them are gone."""
        rows = np.cumsum(np.diff(self.rows, prepend=self.rows[:1]) > 0, dtype=np.int64)
        return Segments(self.starts, self.lengths, rows, self.is_last)

    def table(self, ids: Ids) -> Ids:
        """Returns the argument of `__getsegments__` of a dataset: id, start and length, shape (m, 3)."""
        return np.stack([ids, self.starts, self.lengths], axis=1)

    def packs(self, ids: Ids) -> Packs:
        """Returns a batch of packs, by the ids of the samples."""
        return Packs(ids, self.starts, self.lengths, self.rows)

    def __len__(self) -> int:
        return self.starts.size


@final
@dataclass(frozen=True, eq=False)
class Packs:
    """A batch of packs: which parts of which samples it holds.

    Args:
        ids: of the samples, int64 of shape (m,); one may be there twice.
        starts: the first token of each part in its sample, int64 of shape (m,).
        lengths: tokens of each part, int64 of shape (m,).
        rows: the pack of the batch in which each part is, from 0, ascending; int64 of shape (m,).
    """

    ids: Ids
    starts: Ids
    lengths: Ids
    rows: Ids

    def __len__(self) -> int:
        return self.ids.size
