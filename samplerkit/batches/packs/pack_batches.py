"""Packs: documents of different lengths side by side in sequences of one length, without padding."""

import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, final

import numpy as np

from samplerkit.batches.cutting import has_repeats, longest_first
from samplerkit.batches.lengths import Histogram, find_lengths
from samplerkit.batches.packs.best_fit import LONG_DOCUMENTS, Bins, Fit, LongDocument
from samplerkit.batches.packs.pack_plan import PackedSet, PackPlan
from samplerkit.batches.plan import BatchSamples, Measure
from samplerkit.batches.recipe import SHARED_ARGUMENTS, BatchRecipe, Prepared, require_positive
from samplerkit.batches.sample_set import SampleSet
from samplerkit.batches.segments import Segments
from samplerkit.batches.set_plan import SortedMembers
from samplerkit.batches.table_cache import TableCache
from samplerkit.batches.window_plan import WindowContext, window_size
from samplerkit.errors import ArgumentRangeError
from samplerkit.order import arguments
from samplerkit.order.intervals import numbers_in
from samplerkit.order.sequences import Occurrences
from samplerkit.order.typing import Ids

_LONGEST_PACK = 1 << 24
_MAX_PACKS = 1 << 20
_SMALLEST_WINDOW = 1 << 14


@final
@dataclass(frozen=True, eq=False)
class PackBatches(BatchRecipe):
    """Batches of packs: sequences of one length, filled with documents by best fit, the longest first.

    `plan[k]` is a value with `ids`, `starts`, `lengths` and `rows`: which parts of which documents are in
    batch k, and in which of its packs. A dataset with `__getsegments__(segments)`, int64 of shape (m, 3) with
    id, start and length, returns the m parts; from any other dataset whole samples are read, and cut.

    Args:
        seq_len: tokens of a pack.
        lengths: of the documents, in tokens: integers in an array or a list, or the path of an `.npy` file.
            Left out, the dataset's attribute or column `lengths` or `length`.
        packs: in a batch.
        window: documents in a window. None for the whole set if the sampler reads one, otherwise for a power
            of two, at least 16,384, that has documents for 16 groups.
        long: how a document that is longer than a pack is handled. `split`: it fills packs by itself, and its
            end is packed with others. `raise`, `drop`, `truncate`: an error, left out, cut off.
        length_multiple: the length of a part is rounded up to a multiple of it; it divides `seq_len`. With
            few documents, a larger one lets more of them change places.
        abreast: batches of a group, in neighbouring steps; None for the number of ranks at the first start.
        num_batches: the most batches in an epoch; None for all.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: a number is out of range, or `length_multiple` does not divide `seq_len`.
        ArgumentValueError: `long` is not known.

    Example:
        >>> import samplerkit as sk
        >>> plan = PackBatches(8, lengths=[5, 3, 11, 4, 1]).plan(sk.RandomSampler(seed=1), 5)
        >>> sorted(sorted(batch.lengths.tolist()) for batch in plan), plan.efficiency()
        ([[1, 3, 4], [3, 5], [8]], 1.0)
    """

    seq_len: int
    _: KW_ONLY
    lengths: Sequence[int] | np.ndarray[Any, Any] | str | os.PathLike[str] | None = field(
        default=None, repr=False
    )
    packs: int = 1
    window: int | None = None
    long: LongDocument = "split"
    length_multiple: int = 1
    abreast: int | None = None
    num_batches: int | None = None

    def __post_init__(self) -> None:
        require_positive(self, seq_len=_LONGEST_PACK, packs=_MAX_PACKS)
        require_positive(self, length_multiple=self.seq_len, **SHARED_ARGUMENTS)
        arguments.choice("long", self.long, LONG_DOCUMENTS)
        if self.seq_len % self.length_multiple:
            problem = f"must divide seq_len, which is {self.seq_len}"
            hint = f"use a seq_len of {-(-self.seq_len // self.length_multiple) * self.length_multiple}"
            raise ArgumentRangeError("length_multiple", problem, self.length_multiple, hint=hint)

    @property
    def needs_loader(self) -> bool:
        return self.packs > 1 or self.long in ("split", "truncate")

    @property
    def fit(self) -> Fit:
        """How documents are divided into parts."""
        return Fit(self.seq_len, self.length_multiple, self.long)

    def prepared(self, dataset: Any, chosen: SampleSet | None, abreast: int, kept: TableCache) -> Prepared:
        lengths = find_lengths(self.lengths, dataset, kept, pairs_hint="give one for each document")
        histogram = lengths.histogram_of(chosen)
        self._require_fit(histogram)
        measure = Measure(lengths, pack=self.seq_len, multiple=self.length_multiple)
        if chosen is None or self.window is not None:
            samples = histogram.total * self.packs * self.seq_len
            tokens = int((histogram.values * histogram.counts).sum())
            return Prepared(measure, window_size(abreast, samples, tokens, _SMALLEST_WINDOW))
        members = SortedMembers(lengths, chosen, histogram, kept)
        packed = PackedSet(histogram, self.fit)
        return Prepared(measure, plan=partial(PackPlan, members=members, packed=packed, packs=self.packs))

    def cut(self, ids: Ids, lengths: Ids, context: WindowContext) -> list[Ids]:
        """Packs a window: returns the places of the documents in each batch; one may be in several."""
        cut = self._packed(ids, lengths)
        return np.split(cut.positions, cut.edges[1:-1]) if cut.edges.size > 1 else []

    def _cut_window(
        self, measure: Measure, ids: Ids, context: WindowContext, in_whole_groups: bool
    ) -> BatchSamples:
        """Packs a window. All packs have the same number of tokens, so groups need not be whole."""
        return self._packed(ids, measure.counted(ids))

    def _packed(self, ids: Ids, lengths: Ids) -> BatchSamples:
        """Packs a window: first packs that one document fills, then the bins of all remainders."""
        full, rest = self.fit.parts(lengths)
        sizes = self.fit.sizes(rest)
        repeats = Occurrences(ids).repeats if has_repeats(ids) else None
        # Documents of one size keep their order, but repeats come after all first occurrences: so they are in
        # different packs, if possible.
        by_size = longest_first(sizes) if repeats is None else np.lexsort((repeats, -sizes))
        by_size = by_size[: np.count_nonzero(sizes)]
        descending = sizes[by_size]
        first = np.flatnonzero(np.diff(descending, prepend=-1))
        counts = np.diff(np.append(first, descending.size))
        bins = Bins(descending[first], counts, self.fit.capacity)
        items, edges = bins.items(np.arange(bins.count))
        alone = np.repeat(np.arange(lengths.size), full)
        ends = by_size[items]
        places = np.concatenate([alone, ends])
        starts = np.concatenate([numbers_in(np.zeros_like(full), full), full[ends]]) * self.seq_len
        parts = np.concatenate([np.full(alone.size, self.seq_len), rest[ends]])
        is_last = np.append(np.zeros(alone.size, dtype=bool), self.fit.is_last(lengths[ends]))
        pack_edges = np.concatenate([np.arange(alone.size), alone.size + edges])
        number = np.repeat(np.arange(pack_edges.size - 1), np.diff(pack_edges))
        # A batch ends after each `packs` packs, and after the last one.
        batch_edges = np.append(pack_edges[: -1 : self.packs], pack_edges[-1])
        segments = Segments(starts, parts, number % self.packs, is_last)
        return BatchSamples(ids[places], places, batch_edges, segments)

    def _require_fit(self, histogram: Histogram) -> None:
        longest = int(histogram.values.max(initial=0))
        if self.long == "raise" and longest > self.seq_len:
            problem = f"is below the longest document, of {longest} tokens"
            hint = 'use long="split", "drop" or "truncate", or raise it'
            raise ArgumentRangeError("seq_len", problem, self.seq_len, hint=hint)
