"""Segments: the parts of samples that are in packs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from samplerkit.order.typing import Ids


@dataclass(frozen=True, eq=False)
class Segments:
    """Parts of samples, each of them in a pack of a batch. The ids of the samples are kept elsewhere.

    Args:
        starts: the first token of each segment in its sample, int64 of shape (m,).
        lengths: the number of tokens of each segment, int64 of shape (m,).
        rows: the pack of its batch in which each segment is, from 0, ascending in a batch; int64 of shape
            (m,).
        is_last: whether the sample ends with the segment; bool of shape (m,).
    """

    starts: Ids
    lengths: Ids
    rows: Ids
    is_last: np.ndarray[Any, Any]

    def at(self, chosen: Any) -> Segments:
        """Returns some of the segments, by a slice or an array of indices."""
        return Segments(self.starts[chosen], self.lengths[chosen], self.rows[chosen], self.is_last[chosen])

    @staticmethod
    def joined(parts: Sequence[Segments]) -> Segments:
        """Concatenates segments."""
        columns = zip(*((part.starts, part.lengths, part.rows, part.is_last) for part in parts), strict=True)
        return Segments(*map(np.concatenate, columns))

    def of_one_batch(self) -> Segments:
        """Returns these segments of one batch with its packs numbered from 0, without gaps."""
        rows = np.cumsum(np.diff(self.rows, prepend=self.rows[:1]) > 0, dtype=np.int64)
        return Segments(self.starts, self.lengths, rows, self.is_last)

    def table(self, ids: Ids) -> Ids:
        """Returns the argument of a dataset's `__getsegments__`: id, start and length, shape (m, 3)."""
        return np.stack([ids, self.starts, self.lengths], axis=1)

    def packs(self, ids: Ids) -> Packs:
        """Returns these segments of one batch as `Packs`, with the ids of their samples."""
        return Packs(ids, self.starts, self.lengths, self.rows)

    def __len__(self) -> int:
        return self.starts.size


@dataclass(frozen=True, eq=False)
class Packs:
    """A batch of packs: which parts of which samples are in each.

    Args:
        ids: of the sample of each part, int64 of shape (m,); a sample may have two parts.
        starts: the first token of each part in its sample, int64 of shape (m,).
        lengths: the number of tokens of each part, int64 of shape (m,).
        rows: the pack of the batch in which each part is, from 0, ascending; int64 of shape (m,).
    """

    ids: Ids
    starts: Ids
    lengths: Ids
    rows: Ids

    def __len__(self) -> int:
        return self.ids.size
