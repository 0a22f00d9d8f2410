"""Batches of a budget of tokens."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any, final

import numpy as np

from samplerkit.batches.apart import Repeats, repeats_in, spread
from samplerkit.batches.buckets import LONGS, Long, buckets_of, require_fit, upper_of
from samplerkit.batches.budget import Budget, Cost
from samplerkit.batches.checks import fill_in, fraction
from samplerkit.batches.chosen import ChosenSet
from samplerkit.batches.cuts import SHORTS, Short
from samplerkit.batches.halves import cut_again, halved
from samplerkit.batches.histogram import Histogram
from samplerkit.batches.kept import KeptArrays
from samplerkit.batches.lengths import SampleLengths, found_lengths, histogram_of
from samplerkit.batches.measure import Measure
from samplerkit.batches.members import SortedMembers
from samplerkit.batches.recipe import BatchRecipe, Prepared
from samplerkit.batches.static import StaticPlan
from samplerkit.batches.window_cut import WindowContext
from samplerkit.errors import ArgumentRangeError, ArgumentTypeError
from samplerkit.order import arguments
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids

_MOST_TOKENS = 1 << 32
_MOST_QUADRATIC = 1 << 30
_MOST_MULTIPLE = 1 << 20
_SMALLEST_WINDOW, _LARGEST_WINDOW = 1 << 12, 1 << 20
_GROUPS_IN_A_WINDOW = 16
_WINDOW_OF_PAIRS = 1 << 16
_LARGEST_POOL = 48
_PARTS = 1 << 20


@final
@dataclass(frozen=True, eq=False)
class TokenBatches(BatchRecipe):
    """Batches whose padded tokens stay within a budget: samples times the longest of them.

    Args:
        max_tokens: the budget of a batch, in padded tokens.
        lengths: of the samples: integers in an array or a list, pairs of them in shape (n, 2), or the path of
            an `.npy` file. Left out, the dataset's attribute or column `lengths` or `length`.
        max_samples: samples in a batch at most; None for as many as the budget allows.
        count_multiple: the number of samples is a multiple of it where that many fit.
        length_multiple: lengths are padded to a multiple of it.
        quadratic: Q, adds u^2 / Q to the cost of a sample of padded length u, as attention does.
        waste: a bucket grows while it wastes less than this part of its longest, in [0, 1).
        pool: or while it holds fewer batches than this; None for two fifths of the square root of the number
            of batches, and 48 at most.
        window: samples in a window; None for the whole set where the sampler fixes one, and else a power of
            two from 4,096 that holds 16 groups.
        abreast: batches that cost alike; None for the number of ranks at the first start.
        short: what becomes of the last batch of a bucket: `merge`, `keep` or `drop`.
        long: what becomes of a sample above the budget: `raise`, `drop`, `truncate` or `alone`.
        num_batches: batches in an epoch at most; None for all.
        cost: the cost of a sample, in place of its length: a function of int64 lengths of shape (m,), or
            (m, 2) for pairs, padded, that gives one number each and grows with each length.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: a number is out of range.
        ArgumentValueError: `short` or `long` is not known.

    Example:
        >>> import samplerkit as sk
        >>> recipe = TokenBatches(16, lengths=[8, 2, 7, 2, 3, 2, 8, 1])
        >>> plan = recipe.plan(sk.RandomSampler(seed=1), 8)
        >>> sorted(map(plan.shape, range(len(plan))))
        [(2, 7), (2, 8), (4, 2)]
    """

    max_tokens: int
    _: KW_ONLY
    lengths: Sequence[int] | np.ndarray[Any, Any] | str | os.PathLike[str] | None = field(
        default=None, repr=False
    )
    max_samples: int | None = None
    count_multiple: int = 1
    length_multiple: int = 1
    quadratic: int | None = None
    waste: float = 0.01
    pool: int | None = None
    window: int | None = None
    abreast: int | None = None
    short: Short = "merge"
    long: Long = "raise"
    num_batches: int | None = None
    cost: Cost | None = None

    def __post_init__(self) -> None:
        fill_in(self, "max_tokens", _MOST_TOKENS)
        fill_in(self, "max_samples", is_optional=True)
        fill_in(self, "count_multiple", _MOST_MULTIPLE)
        fill_in(self, "length_multiple", _MOST_MULTIPLE)
        fill_in(self, "quadratic", _MOST_QUADRATIC, is_optional=True)
        fill_in(self, "pool", is_optional=True)
        fill_in(self, "window", is_optional=True)
        fill_in(self, "abreast", _MOST_MULTIPLE, is_optional=True)
        fill_in(self, "num_batches", is_optional=True)
        object.__setattr__(self, "waste", fraction("waste", self.waste))
        arguments.choice("short", self.short, SHORTS)
        arguments.choice("long", self.long, LONGS)
        if self.cost is not None and not callable(self.cost):
            raise ArgumentTypeError("cost", "must be a function of lengths", self.cost)
        if self.cost is not None and self.quadratic is not None:
            raise ArgumentRangeError("quadratic", "stands beside cost", self.quadratic, mend="write it there")

    @property
    def budget(self) -> Budget:
        """What a batch may hold."""
        return Budget(
            self.max_tokens,
            self.max_samples,
            self.count_multiple,
            self.length_multiple,
            self.quadratic,
            self.cost,
        )

    def prepared(self, dataset: Any, chosen: ChosenSet | None, abreast: int, kept: KeptArrays) -> Prepared:
        lengths = found_lengths(self.lengths, dataset, len(Layout.of(dataset)), kept)
        budget = self.budget
        measure = Measure(lengths, budget.padded, most=partial(_most, budget, int(self.long == "alone")))
        if lengths.are_pairs:
            _require_pairs_fit(lengths, budget, self.long)
            return Prepared(measure, self.cut, self.window or _WINDOW_OF_PAIRS)
        histogram = lengths.histogram if chosen is None else histogram_of(lengths, chosen.size, chosen.ids)
        require_fit(histogram, budget, self.long)
        if self.long == "truncate":
            measure = replace(measure, longest=budget.longest())
        if chosen is None or self.window is not None:
            return Prepared(measure, self.cut, self.window or self._window_size(histogram, abreast))
        pool = self.pool or max(1, min(_LARGEST_POOL, math.isqrt(self._parts(histogram) // _PARTS) * 2 // 5))
        buckets = buckets_of(histogram, budget, self.waste, pool, self.long)
        members = SortedMembers(lengths, chosen.ids, histogram, kept)
        measure = replace(measure, upper=partial(upper_of, buckets.uppers[::-1]))
        whole = partial(StaticPlan, members, buckets, self.short, abreast, measure, self.num_batches)
        return Prepared(measure, self.cut, whole=whole)

    def _window_size(self, histogram: Histogram, abreast: int) -> int:
        wanted = _GROUPS_IN_A_WINDOW * abreast * histogram.total * _PARTS // max(1, self._parts(histogram))
        return min(max(1 << wanted.bit_length(), _SMALLEST_WINDOW), _LARGEST_WINDOW)

    def _parts(self, histogram: Histogram) -> int:
        """Gives how many batches the samples fill: in integers, whose sums no version of numpy changes."""
        sizes = np.maximum(self.budget.sizes(histogram.values), 1)
        return int((histogram.counts * (_PARTS // sizes)).sum())

    def cut(self, ids: Ids, lengths: Ids, context: WindowContext) -> list[Ids]:
        """Cuts a window that is sorted by length, the longest first; repeats of a sample are dealt apart."""
        repeats = repeats_in(ids)
        if lengths.ndim == 2:
            return _cut_pairs(_by_strips(lengths, repeats, self.budget), lengths, self)
        places = _by_length(lengths, repeats)
        descending = lengths[places]
        # A size for each length that occurs, not for each sample.
        first = np.flatnonzero(np.diff(descending, prepend=-1))
        sizes = np.repeat(self.budget.sizes(descending[first]), np.diff(first, append=places.size))
        above = int(np.count_nonzero(sizes == 0))
        batches = [places[at : at + 1] for at in range(above if self.long == "alone" else 0)]
        batches += spread(places[above:], sizes[above:], repeats)
        if self.short == "drop" and batches:
            last = batches[-1]
            batches = batches[:-1] if last.size < self.budget.sizes(lengths[last[:1]])[0] else batches
        return batches

    def evened(self, abreast: int, batches: list[Ids], ids: Ids, lengths: Ids, count: int) -> list[Ids]:
        """Cuts the last batches again, a little smaller; those of pairs, or with repeats, are halved."""
        if lengths.ndim == 2 or count == len(batches) or repeats_in(ids) is not None:
            return halved(batches, count, self.count_multiple)
        sizes = partial(_sizes_at, self.budget, lengths)
        return cut_again(batches, sizes, count, abreast, self.count_multiple)


def _sizes_at(budget: Budget, lengths: Ids, places: Ids) -> Ids:
    return budget.sizes(lengths[places])


def _most(budget: Budget, least: int, lengths: Ids) -> Ids:
    return np.maximum(budget.sizes(lengths), least)


def _by_length(lengths: Ids, repeats: Repeats | None) -> Ids:
    """Sorts places, the longest first; samples of one length as they come, repeats together."""
    down = lengths.max(initial=0) - lengths
    if repeats is not None:
        return np.lexsort((repeats.firsts, down))
    # numpy sorts 16-bit integers by radix, which is several times as fast.
    return np.argsort(down.astype(np.uint16) if down.max(initial=0) < 1 << 16 else down, kind="stable")


def _by_strips(lengths: Ids, repeats: Repeats | None, budget: Budget) -> Ids:
    """Sorts places of pairs: in strips by their first length, within a strip by the second one."""
    batches = int((_PARTS // np.maximum(budget.sizes(lengths), 1)).sum()) // _PARTS
    by_first = np.argsort(-lengths[:, 0], kind="stable")
    strips = np.empty(by_first.size, dtype=np.int64)
    strips[by_first] = np.arange(by_first.size) * math.isqrt(max(1, batches)) // by_first.size
    firsts = np.arange(strips.size) if repeats is None else repeats.firsts
    return np.lexsort((firsts, -lengths[:, 1], strips))


def _cut_pairs(places: Ids, lengths: Ids, recipe: TokenBatches) -> list[Ids]:
    """Cuts sorted pairs: a batch goes on while its longest on both sides allow so many samples."""
    budget = recipe.budget
    alone = budget.sizes(lengths[places])
    batches = [places[at : at + 1] for at in np.flatnonzero(alone == 0)] if recipe.long == "alone" else []
    places, alone = places[alone > 0], alone[alone > 0]
    at = 0
    while at < places.size:
        most = places[at : at + int(alone[at])]
        sizes = budget.sizes(np.maximum.accumulate(lengths[most], axis=0))
        fits = np.arange(1, most.size + 1) <= sizes
        count = most.size if fits.all() else int(np.argmin(fits))
        if count > recipe.count_multiple:
            count -= count % recipe.count_multiple
        batches.append(most[:count])
        at += count
    return batches


def _require_pairs_fit(lengths: SampleLengths, budget: Budget, long: Long) -> None:
    if long == "truncate":
        raise ArgumentRangeError("long", "cannot truncate pairs", long, mend='say "drop" or "alone"')
    seen = 0
    for chunk in lengths.chunks() if long == "raise" else ():
        above = np.flatnonzero(budget.sizes(chunk) == 0)
        if above.size:
            raise ArgumentRangeError(
                "max_tokens",
                f"is below sample {seen + int(above[0])}, of lengths {chunk[above[0]].tolist()}",
                budget.max_tokens,
                mend='raise it, or say long="drop" or "alone"',
            )
        seen += chunk.shape[0]
