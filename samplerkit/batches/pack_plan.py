"""The plan of packs of a whole set: arithmetic on the histogram of its lengths, and one table."""

from __future__ import annotations

from typing import final

import numpy as np

from samplerkit.batches.best_fit import Bins
from samplerkit.batches.histogram import Histogram
from samplerkit.batches.many_runs import ManyRuns
from samplerkit.batches.measure import Measure
from samplerkit.batches.members import SortedMembers
from samplerkit.batches.parts import Fit
from samplerkit.batches.plan import BatchSamples
from samplerkit.batches.segments import Segments
from samplerkit.batches.static import SetPlan
from samplerkit.order.blocks import Block, KeptBlocks
from samplerkit.order.intervals import edges_of, interval_of, numbers_in
from samplerkit.order.keys import Key
from samplerkit.order.located import Located
from samplerkit.order.typing import Ids


@final
class PackedSet:
    """How a set is packed, by its lengths alone: the same in every epoch.

    First come the packs that one document fills, numbered by document and part. Then come the bins of what
    is left: short documents and the ends of long ones, which are items, numbered from the largest.

    Args:
        histogram: of the lengths of the set.
        fit: how a document lies in packs.
    """

    def __init__(self, histogram: Histogram, fit: Fit) -> None:
        values = histogram.values
        self.fit = fit
        self.places = edges_of(histogram.counts)
        self.whole, self.rest = fit.parts(values)
        self.lasts = fit.is_last(values)
        self.whole_starts = edges_of(self.whole * histogram.counts)
        self.num_whole = int(self.whole_starts[-1])
        # Lengths in the order of items: neighbours of one size are a run, whatever they are the end of.
        sizes = fit.sizes(self.rest)
        self.by_item = np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes)]
        counts = histogram.counts[self.by_item]
        self.item_starts = edges_of(counts)
        self.first_items = np.full(values.size, -1)
        self.first_items[self.by_item] = self.item_starts[:-1]
        sizes = sizes[self.by_item]
        first = np.flatnonzero(np.diff(sizes, prepend=-1))
        self.runs = np.append(self.item_starts[first], self.item_starts[-1])
        self.bins = Bins(sizes[first], np.diff(self.runs), fit.capacity)
        self.num_packs = self.num_whole + self.bins.count
        self.num_left_out = histogram.total - int(self.item_starts[-1])


@final
class PackPlan(SetPlan):
    """Packs of a set: as many in each epoch, of documents that are drawn anew among those of a size.

    Args:
        packed: how the set is packed.
        members: the set, sorted by length.
        packs: in a batch.
        abreast: batches in a group.
        measure: how long samples are.
        num_batches: how many batches, from the first; None for all.
        keys: of the members and of the groups.
    """

    def __init__(
        self,
        packed: PackedSet,
        members: SortedMembers,
        packs: int,
        abreast: int,
        measure: Measure,
        num_batches: int | None,
        keys: tuple[Key, Key],
    ) -> None:
        count = -(-packed.num_packs // packs)
        super().__init__(members, count, abreast, measure, num_batches, keys[1])
        self._packed = packed
        self._packs = packs
        self._items = ManyRuns(packed.runs, keys[0])
        self._whole = KeptBlocks(keys[0])
        self._whole_block = Block(0, 1, packed.num_whole)

    @property
    def dropped(self) -> int:
        return self._packed.num_left_out

    @property
    def num_draws(self) -> int:
        return self._members.size

    def samples(self, numbers: Ids) -> BatchSamples:
        packed = self._packed
        first = self._groups.forward(numbers) * self._packs
        counts = np.minimum(first + self._packs, packed.num_packs) - first
        packs = numbers_in(first, counts)
        is_whole = packs < packed.num_whole
        items, item_edges = packed.bins.items(packs[~is_whole] - packed.num_whole)
        sizes = np.ones(packs.size, dtype=np.int64)
        sizes[~is_whole] = np.diff(item_edges)
        edges = edges_of(sizes)
        batch_edges = edges_of(counts)
        segment_is_whole = np.repeat(is_whole, sizes)
        value, places, starts = np.empty((3, segment_is_whole.size), dtype=np.int64)
        alone = packs[is_whole]
        if alone.size:
            value[segment_is_whole], places[segment_is_whole], starts[segment_is_whole] = self._parts(alone)
        if items.size:
            is_end = ~segment_is_whole
            value[is_end], places[is_end], starts[is_end] = self._ends(items)
        rest = packed.rest[value]
        segments = Segments(
            starts,
            np.where(segment_is_whole, packed.fit.seq_len, rest),
            np.repeat(packs - np.repeat(first, counts), sizes),
            ~segment_is_whole & packed.lasts[value],
        )
        return BatchSamples(self._members.at(places), places, edges[batch_edges], segments)

    def _parts(self, packs: Ids) -> tuple[Ids, Ids, Ids]:
        """Gives length, place and start of what fills packs alone."""
        packed = self._packed
        parts = self._whole.permuted(self._whole_block, packs)
        value = interval_of(packed.whole_starts, parts)
        document, part = np.divmod(parts - packed.whole_starts[value], packed.whole[value])
        return value, packed.places[value] + document, part * packed.fit.seq_len

    def _ends(self, items: Ids) -> tuple[Ids, Ids, Ids]:
        """Gives length, place and start of items."""
        packed = self._packed
        drawn = self._items.forward(items)
        at = interval_of(packed.item_starts, drawn)
        value = packed.by_item[at]
        return (
            value,
            packed.places[value] + drawn - packed.item_starts[at],
            packed.whole[value] * packed.fit.seq_len,
        )

    def locate(self, ids: Ids) -> Located:
        packed = self._packed
        which, places = self._members.places_of(ids)
        value = interval_of(packed.places, places)
        document = places - packed.places[value]
        is_item = packed.first_items[value] >= 0
        items = self._items.backward((packed.first_items[value] + document)[is_item])
        times = packed.whole[value]
        parts = numbers_in(packed.whole_starts[value] + document * times, times)
        if parts.size:
            parts = self._whole.permuted(self._whole_block, parts, inverse=True)
        packs = np.concatenate([packed.bins.bin_of(items) + packed.num_whole, parts])
        found = np.concatenate([which[is_item], np.repeat(which, times)])
        numbers = self._groups.backward(packs // self._packs)
        is_there = numbers < self._length
        # Two parts of a document may stand in one batch.
        pairs = np.unique(np.stack([found[is_there], numbers[is_there]]), axis=1)
        return pairs[0], pairs[1]
