"""The plan of packs of a whole set: arithmetic on the histogram of its lengths, and one table of samples.

Which sizes are in which pack is the same in all epochs. An epoch permutes the documents of each size.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from samplerkit.batches.lengths import Histogram
from samplerkit.batches.packs.best_fit import Bins, Fit
from samplerkit.batches.plan import BatchSamples
from samplerkit.batches.segments import Segments
from samplerkit.batches.set_plan import SetPlan
from samplerkit.order.intervals import distinct, edges_of, interval_of, numbers_in
from samplerkit.order.keys import Key, keyed_hash
from samplerkit.order.order import Located
from samplerkit.order.permutation import NARROW_LIMIT, ROUNDS, Network, network_constants, permuted
from samplerkit.order.sequences import Permuted
from samplerkit.order.typing import Ids


class PackedSet:
    """How a set is packed, by its lengths alone.

    First come the packs that one document fills, numbered by document and part. Then come the bins of items:
    short documents and the ends of long ones, numbered from the largest.

    Args:
        histogram: of the lengths of the set.
        fit: how documents are divided into parts.

    Attributes:
        places: the place of the first document of each length in the sorted set, and the size of the set.
        full: how many packs a document of each length fills by itself.
        rest: the remaining tokens of a document of each length.
        lasts: whether these are the end of the document.
        full_starts: the first pack that a document of each length fills, and their number at the end.
        num_full: the number of packs that one document fills.
        by_item: the index of the length of each kind of item, from the largest item to the smallest.
        item_starts: the first item of each kind, and the number of items at the end.
        first_items: the first item of each length, -1 if it has none.
        runs: the first item of each size, and the number of items at the end.
        bins: of the items.
        num_packs: of both sorts.
        num_left_out: documents that are in no pack.
    """

    def __init__(self, histogram: Histogram, fit: Fit) -> None:
        values = histogram.values
        self.fit = fit
        self.places = edges_of(histogram.counts)
        self.full, self.rest = fit.parts(values)
        self.lasts = fit.is_last(values)
        self.full_starts = edges_of(self.full * histogram.counts)
        self.num_full = int(self.full_starts[-1])
        # Several lengths may have items of one size: together, these are a run.
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
        self.num_packs = self.num_full + self.bins.count
        self.num_left_out = histogram.total - int(self.item_starts[-1])


@dataclass(eq=False, repr=False)
class PackPlan(SetPlan):
    """Batches of packs of a set. Each epoch permutes the documents of each size.

    Args:
        packed: how the set is packed.
        packs: in a batch.
    """

    packed: PackedSet
    packs: int

    def __post_init__(self) -> None:
        self._set_count(-(-self.packed.num_packs // self.packs))
        self._items = GroupedPermutation(self.packed.runs, self.keys[0])
        self._full = Permuted(self.packed.num_full, self.keys[0], number=1)

    @property
    def dropped(self) -> int:
        return self.packed.num_left_out

    @property
    def num_draws(self) -> int:
        return self.members.size

    def samples(self, numbers: Ids) -> BatchSamples:
        packed = self.packed
        first = self._groups.forward(numbers) * self.packs
        counts = np.minimum(first + self.packs, packed.num_packs) - first
        packs = numbers_in(first, counts)
        is_full = packs < packed.num_full
        items, item_edges = packed.bins.items(packs[~is_full] - packed.num_full)
        sizes = np.ones(packs.size, dtype=np.int64)
        sizes[~is_full] = np.diff(item_edges)
        edges = edges_of(sizes)
        batch_edges = edges_of(counts)
        segment_is_full = np.repeat(is_full, sizes)
        value, places, starts = np.empty((3, segment_is_full.size), dtype=np.int64)
        alone = packs[is_full]
        if alone.size:
            value[segment_is_full], places[segment_is_full], starts[segment_is_full] = self._parts(alone)
        if items.size:
            is_end = ~segment_is_full
            value[is_end], places[is_end], starts[is_end] = self._ends(items)
        rest = packed.rest[value]
        segments = Segments(
            starts,
            np.where(segment_is_full, packed.fit.seq_len, rest),
            np.repeat(packs - np.repeat(first, counts), sizes),
            ~segment_is_full & packed.lasts[value],
        )
        return BatchSamples(self.members.at(places), places, edges[batch_edges], segments)

    def _parts(self, packs: Ids) -> tuple[Ids, Ids, Ids]:
        """Returns the parts that fill packs: index of the length, place of the document, first token."""
        packed = self.packed
        parts = self._full.permuted(packs)
        value = interval_of(packed.full_starts, parts)
        document, part = np.divmod(parts - packed.full_starts[value], packed.full[value])
        return value, packed.places[value] + document, part * packed.fit.seq_len

    def _ends(self, items: Ids) -> tuple[Ids, Ids, Ids]:
        """Returns the parts that are items: index of the length, place of the document, first token."""
        packed = self.packed
        drawn = self._items.permuted(items)
        at = interval_of(packed.item_starts, drawn)
        value = packed.by_item[at]
        return (
            value,
            packed.places[value] + drawn - packed.item_starts[at],
            packed.full[value] * packed.fit.seq_len,
        )

    def locate(self, ids: Ids) -> Located:
        packed = self.packed
        which, places = self.members.places_of(ids)
        value = interval_of(packed.places, places)
        document = places - packed.places[value]
        is_item = packed.first_items[value] >= 0
        items = self._items.permuted((packed.first_items[value] + document)[is_item], inverse=True)
        times = packed.full[value]
        parts = numbers_in(packed.full_starts[value] + document * times, times)
        parts = self._full.permuted(parts, inverse=True)
        packs = np.concatenate([packed.bins.bin_of(items) + packed.num_full, parts])
        matches = np.concatenate([which[is_item], np.repeat(which, times)])
        numbers = self._groups.backward(packs // self.packs)
        exists = numbers < self._length
        # Two parts of a document may be in one batch.
        pairs = np.unique(np.stack([matches[exists], numbers[exists]]), axis=1)
        return pairs[0], pairs[1]


IN_A_TABLE = 128
"""Runs up to this size are permuted by a table. Larger ones have networks, which are as uniform as others."""

_HASH_BITS = 40
_KEY_WORDS = 3


class GroupedPermutation:
    """Permutes places within runs, by one key.

    Like `BlockShuffle`, but for thousands of runs, of which a pack has places of a dozen: the words of all
    runs come from one vectorized hash, and not from a digest for each.

    Args:
        starts: the first place of each run and the number of places at the end; int64 of shape (runs + 1,).
        key: where the randomness comes from.

    Example:
        >>> key = Key(seed=1, epoch=0, depth=0, role="batch members")
        >>> runs = GroupedPermutation(np.array([0, 3, 500]), key)
        >>> places = runs.permuted(np.arange(500))
        >>> sorted(places[:3].tolist()), runs.permuted(places, inverse=True).tolist() == list(range(500))
        ([0, 1, 2], True)
    """

    def __init__(self, starts: Ids, key: Key) -> None:
        self._starts = starts
        sizes = np.diff(starts)
        self._is_small = sizes <= IN_A_TABLE
        # The places of small runs are in one table, one run after another.
        self._small_starts = edges_of(np.where(self._is_small, sizes, 0))
        self._tables: dict[bool, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = {}
        self._words = key.words(2 * _KEY_WORDS)

    def permuted(self, places: Ids, *, inverse: bool = False) -> Ids:
        """Returns the place to which each place is moved; with `inverse`, the one that is moved to it."""
        run = interval_of(self._starts, places)
        first = self._starts[run]
        moved = np.empty_like(places)
        is_small = self._is_small[run]
        at = np.flatnonzero(is_small)
        if at.size:
            moved[at] = self._by_table(run[at], places[at] - first[at], inverse=inverse)
        at = np.flatnonzero(~is_small)
        is_wide = self._starts[run[at] + 1] - first[at] >= NARROW_LIMIT
        for part in (at[~is_wide], at[is_wide]):
            if part.size:
                network, rows = self._network(run[part]), places[part] - first[part]
                moved[part] = permuted(network, rows, inverse=inverse)
        moved += first
        return moved

    def _by_table(self, run: Ids, rows: Ids, *, inverse: bool) -> Ids:
        if inverse not in self._tables:
            size = int(self._small_starts[-1])
            self._tables[inverse] = np.empty(size, np.uint8), np.zeros(self._is_small.size, dtype=bool)
        table, is_made = self._tables[inverse]
        missing = run[~is_made[run]]
        if missing.size:
            missing = np.unique(missing)
            self._make(table, missing, inverse=inverse)
            # Set last, since other threads may read it.
            is_made[missing] = True
        moved: Ids = table[self._small_starts[run] + rows].astype(np.int64)
        return moved

    def _make(self, table: np.ndarray[Any, Any], runs: Ids, *, inverse: bool) -> None:
        """Fills the table for some runs: their rows are sorted by keyed hashes, in one call for all."""
        sizes = self._starts[runs + 1] - self._starts[runs]
        run_of = np.repeat(np.arange(runs.size), sizes)
        begins = np.cumsum(sizes) - sizes
        hashes = keyed_hash(self._words[:_KEY_WORDS], numbers_in(self._starts[runs], sizes))
        shift = np.uint64(64 - _HASH_BITS)
        by_run = (run_of.astype(np.uint64) << np.uint64(_HASH_BITS)) | (hashes >> shift)
        rows = np.argsort(by_run, kind="stable") - begins[run_of]
        if inverse:
            inverted = np.empty_like(rows)
            inverted[begins[run_of] + rows] = np.arange(rows.size) - begins[run_of]
            rows = inverted
        table[numbers_in(self._small_starts[runs], sizes)] = rows

    def _network(self, run: Ids) -> Network:
        """Makes the network of each place, by its run; the runs are all below `NARROW_LIMIT` or all above."""
        runs, index = distinct(run)
        sizes = self._starts[runs + 1] - self._starts[runs]
        counters = runs * (2 * ROUNDS) + np.arange(2 * ROUNDS)[:, None]
        words = keyed_hash(self._words[_KEY_WORDS:], counters)
        return Network.of_columns(network_constants(sizes.tolist(), words), index)
