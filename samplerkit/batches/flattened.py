"""The samples of some batches of a plan, batch after batch, as an order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from samplerkit.batches.plan import BatchPlan
from samplerkit.order.caching import Latest, cached_property
from samplerkit.order.intervals import edges_of, groups, interval_of, numbers_in
from samplerkit.order.order import Located, Order
from samplerkit.order.typing import Ids

_MARKED = 256
"""Batches between two marks: as many are looked up for one sample, and 8 bytes are kept for them."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class FlattenedBatches(Order):
    """The samples of successive batches; of packs, a sample comes once for each of its parts.

    Args:
        plan: which samples are in a batch.
        begin: the first batch.
        end: behind the last one, at most the number of batches.

    Example:
        >>> import samplerkit as sk
        >>> plan = sk.TokenBatches(12, lengths=[3, 6, 2, 3, 5]).plan(sk.RandomSampler(seed=7), 5, epoch=0)
        >>> order = FlattenedBatches(plan, 0, len(plan))
        >>> order[:].tolist() == [id for batch in plan for id in batch.tolist()]
        True
    """

    plan: BatchPlan
    begin: int
    end: int

    @cached_property
    def _marks(self) -> Ids:
        """The number of samples before every 256th batch, and of all: one pass over the batches."""
        starts = range(self.begin, self.end, _MARKED)
        return edges_of(np.array([self._samples(number).size for number in range(len(starts))], np.int64))

    @cached_property
    def _kept(self) -> Latest[Ids]:
        return Latest(2)

    def _samples(self, number: int) -> Ids:
        """Returns the samples of the batches from a mark to the next one."""
        first = self.begin + number * _MARKED
        return self._kept.get(
            number, lambda: self.plan.samples(np.arange(first, min(first + _MARKED, self.end))).ids
        )

    def __len__(self) -> int:
        return int(self._marks[-1])

    def ids_at(self, positions: Ids) -> Ids:
        ids = np.empty_like(positions)
        for number, at in groups(interval_of(self._marks, positions)):
            ids[at] = self._samples(number)[positions[at] - self._marks[number]]
        return ids

    def locate(self, ids: Ids) -> Located:
        _, batches = self.plan.locate(ids)
        marks = np.unique((batches[(batches >= self.begin) & (batches < self.end)] - self.begin) // _MARKED)
        found = [(np.zeros(0, dtype=np.int64),) * 2]
        wanted = np.argsort(ids, kind="stable")
        for number in marks.tolist():
            samples = self._samples(number)
            # An id that is asked for twice is found twice.
            low = np.searchsorted(ids, samples, "left", sorter=wanted)
            times = np.searchsorted(ids, samples, "right", sorter=wanted) - low
            places = np.repeat(np.arange(samples.size), times)
            found.append((wanted[numbers_in(low, times)], places + self._marks[number]))
        which, positions = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        return which, positions
