"""The plan of a whole set as one window: all of it is arithmetic and one table."""

from __future__ import annotations

from typing import final

import numpy as np

from samplerkit.batches.buckets import Buckets
from samplerkit.batches.cuts import Cuts, Groups, Short
from samplerkit.batches.measure import Measure
from samplerkit.batches.members import SortedMembers
from samplerkit.batches.plan import BatchPlan, BatchSamples
from samplerkit.order.blocks import Block, KeptBlocks
from samplerkit.order.files import BlockShuffle
from samplerkit.order.intervals import edges_of, interval_of, numbers_in
from samplerkit.order.keys import Key
from samplerkit.order.located import Located
from samplerkit.order.once import once
from samplerkit.order.typing import Ids

KEPT_UP_TO = 1 << 22
"""Sets up to this size keep the samples at the places of an epoch: 16 MiB at most."""

KEPT_ABREAST = 4
"""With more ranks each looks up its own samples: that costs less than to permute those of all ranks."""


class SetPlan(BatchPlan):
    """Batches of a set whose number is known from the start.

    Args:
        members: the set, sorted by length.
        count: of all batches.
        abreast: batches in a group.
        measure: how long samples are.
        most: how many batches there may be, from the first; None for all.
        key: of the groups.
    """

    def __init__(
        self, members: SortedMembers, count: int, abreast: int, measure: Measure, most: int | None, key: Key
    ) -> None:
        super().__init__(measure, abreast)
        self._members = members
        self._groups = Groups(count, abreast, key)
        self._length = count if most is None else min(most, count)

    @final
    def __len__(self) -> int:
        return self._length

    @final
    def has(self, number: int) -> bool:
        return 0 <= number < self._length


@final
class StaticPlan(SetPlan):
    """Batches of a set, each bucket permuted within itself: the same number of batches in each epoch.

    Args:
        members: the set, sorted by length.
        buckets: its buckets.
        short: what becomes of the last batch of a bucket.
        abreast: batches in a group.
        measure: how long samples are.
        num_batches: how many batches, from the first; None for all.
        keys: of the members and of the groups.
    """

    def __init__(
        self,
        members: SortedMembers,
        buckets: Buckets,
        short: Short,
        abreast: int,
        measure: Measure,
        num_batches: int | None,
        keys: tuple[Key, Key],
    ) -> None:
        self._first = int(buckets.starts[0])
        starts = buckets.starts - self._first
        self._cuts = Cuts(starts, buckets.sizes, short)
        super().__init__(members, self._cuts.count, abreast, measure, num_batches, keys[1])
        self._shuffle = BlockShuffle(starts, None, keys[0])
        self._blocks = KeptBlocks(keys[0])
        self._starts = starts
        is_small = members.size <= KEPT_UP_TO and starts.size > 1 and abreast <= KEPT_ABREAST
        self._kept = np.empty(int(starts[-1]), dtype=members.dtype) if is_small else None
        self._is_kept = np.zeros(buckets.sizes.size, dtype=bool)
        self._dropped = members.size - self._cuts.placed

    @property
    def dropped(self) -> int:
        return self._dropped

    @property
    def num_draws(self) -> int:
        return int(self._starts[-1])

    def samples(self, numbers: Ids) -> BatchSamples:
        begin, end = self._cuts.edges(self._groups.forward(numbers))
        sizes = end - begin
        edges = edges_of(sizes)
        places = numbers_in(begin, sizes)
        return BatchSamples(self._ids_at(places, begin, end), places, edges)

    def _ids_at(self, places: Ids, begin: Ids, end: Ids) -> Ids:
        """Gives the samples at places; those of small sets are kept, a bucket at a time."""
        if self._kept is None:
            return self._looked_up(places, begin, end)
        touched = np.zeros(self._is_kept.size + 1, dtype=np.int64)
        np.add.at(touched, interval_of(self._starts, begin), 1)
        np.add.at(touched, interval_of(self._starts, end - 1) + 1, -1)
        for bucket in np.flatnonzero((np.cumsum(touched[:-1]) > 0) & ~self._is_kept).tolist():
            block, start = self._block(bucket), int(self._starts[bucket])
            members = self._members.part(self._first + start, block.size)
            self._kept[start : start + block.size] = members[
                self._blocks.permuted(block, np.arange(block.size))
            ]
            # Last: another thread may look at the same moment.
            self._is_kept[bucket] = True
        return self._kept[places].astype(np.int64)

    def _looked_up(self, places: Ids, begin: Ids, end: Ids) -> Ids:
        """Gives the samples at places: in their order those of a bucket stand together, and are found so."""
        by_place = np.argsort(begin, kind="stable")
        sizes = end - begin
        at = numbers_in((np.cumsum(sizes) - sizes)[by_place], sizes[by_place])
        rows = places[at]
        counts = np.diff(np.searchsorted(rows, self._starts))
        buckets = np.flatnonzero(counts)
        counts = counts[buckets]
        starts = np.repeat(self._starts[buckets], counts)
        rows -= starts
        blocks = [self._block(bucket) for bucket in buckets.tolist()]
        which = np.repeat(np.arange(buckets.size), counts)
        rows = self._blocks.permuted_within(blocks, which, rows, inverse=False)
        rows += starts
        rows += self._first
        ids = np.empty(places.size, dtype=np.int64)
        ids[at] = self._members.at(rows)
        return ids

    def _block(self, bucket: int) -> Block:
        return self._of_buckets[bucket]

    @once
    def _of_buckets(self) -> list[Block]:
        return [Block(bucket, 0, size) for bucket, size in enumerate(np.diff(self._starts).tolist())]

    def locate(self, ids: Ids) -> Located:
        which, rows = self._members.places_of(ids)
        is_kept = rows >= self._first
        which, rows = which[is_kept], rows[is_kept] - self._first
        if not which.size:
            return which, rows
        found, places = self._shuffle.locate(rows)
        batches = self._cuts.batch_of(places)
        is_placed = batches >= 0
        which, numbers = which[found[is_placed]], self._groups.backward(batches[is_placed])
        is_there = numbers < self._length
        return which[is_there], numbers[is_there]
