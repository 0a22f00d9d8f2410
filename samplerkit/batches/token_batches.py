"""Batches with a budget of padded tokens."""

import math
import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import partial
from typing import Any, final

import numpy as np

from samplerkit.batches.budget import LONGS, Budget, Cost, Long, buckets_of, require_fit, upper_of
from samplerkit.batches.cutting import (
    SHORTS,
    Repeats,
    Short,
    cut_again,
    halved,
    has_repeats,
    longest_first,
    repeats_in,
    spread,
)
from samplerkit.batches.lengths import SampleLengths, find_lengths
from samplerkit.batches.plan import Measure
from samplerkit.batches.recipe import SHARED_ARGUMENTS, BatchRecipe, Prepared, require_positive
from samplerkit.batches.sample_set import SampleSet
from samplerkit.batches.set_plan import SortedMembers, StaticPlan
from samplerkit.batches.table_cache import TableCache
from samplerkit.batches.window_plan import WindowContext, window_size
from samplerkit.errors import ArgumentRangeError
from samplerkit.order import arguments
from samplerkit.order.arguments import LARGEST
from samplerkit.order.typing import Ids

_MAX_TOKENS = 1 << 32
_MAX_QUADRATIC = 1 << 30
_MAX_MULTIPLE = 1 << 20
_SMALLEST_WINDOW = 1 << 12
_WINDOW_OF_PAIRS = 1 << 16
_LARGEST_POOL = 48
_PARTS = 1 << 20


@final
@dataclass(frozen=True, eq=False)
class TokenBatches(BatchRecipe):
    """Batches whose padded tokens, the number of samples times the longest of them, stay within a budget.

    Args:
        max_tokens: the budget of a batch, in padded tokens.
        lengths: of the samples: integers in an array or a list, pairs of them in shape (n, 2), or the path of
            an `.npy` file. Left out, the dataset's attribute or column `lengths` or `length`.
        max_samples: the most samples in a batch; None for no other limit than the budget.
        count_multiple: the number of samples is a multiple of it, if that many fit.
        length_multiple: lengths are padded to a multiple of it.
        quadratic: Q, which adds u^2 / Q to the cost of a sample of padded length u, as attention does.
        waste: a bucket grows while its shortest sample is padded by less than this share of the longest, in
            [0, 1), or while it has samples for fewer than `pool` batches. Windows have no buckets, and ignore
            both.
        pool: see `waste`; None for two fifths of the square root of the number of batches, at most 48.
        window: samples in a window. None for the whole set if the sampler reads one, otherwise for a power of
            two of at least 4,096 that is large enough for 16 groups.
        abreast: batches of a group, which cost alike; None for the number of ranks at the first start.
        short: how the last batch of a bucket, or of a window, is handled if it is not full: `merge` (with the
            next bucket), `keep` or `drop`.
        long: how a sample above the budget is handled: `raise`, `drop`, `truncate` or `alone`. `raise` checks
            the set that the sampler reads, or all samples of the dataset if it reads none.
        num_batches: the most batches in an epoch; None for all.
        cost: the cost of a sample, in place of its length: a function of padded int64 lengths of shape (m,),
            or (m, 2) for pairs. It returns one number each, which grows with each length.

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
        require_positive(
            self,
            max_tokens=_MAX_TOKENS,
            max_samples=LARGEST,
            count_multiple=_MAX_MULTIPLE,
            length_multiple=_MAX_MULTIPLE,
            quadratic=_MAX_QUADRATIC,
            pool=LARGEST,
            **SHARED_ARGUMENTS,
        )
        object.__setattr__(self, "waste", arguments.number("waste", self.waste))
        if not 0 <= self.waste < 1:
            raise ArgumentRangeError("waste", "must be in [0, 1)", self.waste)
        arguments.choice("short", self.short, SHORTS)
        arguments.choice("long", self.long, LONGS)
        if self.cost is not None:
            arguments.function("cost", self.cost, "lengths")
        if self.cost is not None and self.quadratic is not None:
            problem = "cannot be given with cost"
            raise ArgumentRangeError("quadratic", problem, self.quadratic, hint="write it there")

    @property
    def budget(self) -> Budget:
        """The budget of a batch."""
        return Budget(**{argument.name: getattr(self, argument.name) for argument in fields(Budget)})

    def prepared(self, dataset: Any, chosen: SampleSet | None, abreast: int, kept: TableCache) -> Prepared:
        lengths = find_lengths(self.lengths, dataset, kept)
        budget = self.budget
        measure = Measure(lengths, budget.padded, cap=partial(budget.sizes, least=int(self.long == "alone")))
        if lengths.are_pairs:
            _require_pairs_fit(lengths, chosen, budget, self.long)
            return Prepared(measure, _WINDOW_OF_PAIRS)
        histogram = lengths.histogram_of(chosen)
        require_fit(histogram, budget, self.long)
        # The number of batches that the samples fill, times `_PARTS`: in integers, which numpy adds exactly.
        parts = int((histogram.counts * (_PARTS // np.maximum(budget.sizes(histogram.values), 1))).sum())
        if self.long == "truncate":
            measure = replace(measure, longest=budget.longest())
        if chosen is None or self.window is not None:
            size = window_size(abreast, histogram.total * _PARTS, parts, _SMALLEST_WINDOW)
            return Prepared(measure, size)
        pool = self.pool or max(1, min(_LARGEST_POOL, math.isqrt(parts // _PARTS) * 2 // 5))
        buckets = buckets_of(histogram, budget, self.waste, pool, self.long)
        members = SortedMembers(lengths, chosen, histogram, kept)
        measure = replace(measure, upper=partial(upper_of, buckets.uppers[::-1]))
        return Prepared(measure, plan=partial(StaticPlan, members=members, buckets=buckets, short=self.short))

    def cut(self, ids: Ids, lengths: Ids, context: WindowContext) -> list[Ids]:
        """Sorts a window by length, the longest first, and cuts it; repeats are in different batches."""
        repeats = repeats_in(ids)
        if lengths.ndim == 2:
            batches = _cut_pairs(_sort_by_strips(lengths, repeats.firsts, self.budget), lengths, self)
        else:
            batches = self._cut_lengths(lengths, repeats)
        if self.short == "drop" and batches:
            longest = lengths[batches[-1]].max(axis=0, keepdims=True)
            batches = batches[:-1] if batches[-1].size < self.budget.sizes(longest)[0] else batches
        return batches

    def _cut_lengths(self, lengths: Ids, repeats: Repeats) -> list[Ids]:
        # Samples of one length keep their order, except that repeats are together.
        places = longest_first(lengths) if repeats.counts is None else np.lexsort((repeats.firsts, -lengths))
        descending = lengths[places]
        # The size is computed once for each distinct length.
        first = np.flatnonzero(np.diff(descending, prepend=-1))
        sizes = np.repeat(self.budget.sizes(descending[first]), np.diff(first, append=places.size))
        num_too_long = int(np.count_nonzero(sizes == 0))
        batches = [places[at : at + 1] for at in range(num_too_long if self.long == "alone" else 0)]
        return batches + spread(places[num_too_long:], sizes[num_too_long:], repeats)

    def evened(self, abreast: int, batches: list[Ids], ids: Ids, lengths: Ids, count: int) -> list[Ids]:
        """Makes the last batches a little smaller; with pairs or repeats, the largest are halved."""
        if lengths.ndim == 2 or count == len(batches) or has_repeats(ids):
            return halved(batches, count, self.count_multiple)
        budget = self.budget
        return cut_again(
            batches, lambda places: budget.sizes(lengths[places]), count, abreast, self.count_multiple
        )


def _sort_by_strips(lengths: Ids, firsts: Ids, budget: Budget) -> Ids:
    """Sorts the places of pairs: by the first length into strips, and by the second one within each strip.

    As many strips as each of them fills batches, so that pairs in a batch are similar on both sides.
    """
    batches = int((_PARTS // np.maximum(budget.sizes(lengths), 1)).sum()) // _PARTS
    by_first = np.argsort(-lengths[:, 0], kind="stable")
    strips = np.empty(by_first.size, dtype=np.int64)
    strips[by_first] = np.arange(by_first.size) * math.isqrt(max(1, batches)) // by_first.size
    return np.lexsort((firsts, -lengths[:, 1], strips))


def _cut_pairs(places: Ids, lengths: Ids, recipe: TokenBatches) -> list[Ids]:
    """Cuts sorted pairs: a batch grows while so many samples of its longest lengths are within the budget."""
    budget = recipe.budget
    alone = budget.sizes(lengths[places])
    batches = [places[at : at + 1] for at in np.flatnonzero(alone == 0)] if recipe.long == "alone" else []
    places, alone = places[alone > 0], alone[alone > 0]
    at = 0
    while at < places.size:
        candidates = places[at : at + int(alone[at])]
        sizes = budget.sizes(np.maximum.accumulate(lengths[candidates], axis=0))
        fits = np.arange(1, candidates.size + 1) <= sizes
        count = candidates.size if fits.all() else int(np.argmin(fits))
        if count > recipe.count_multiple:
            count -= count % recipe.count_multiple
        batches.append(candidates[:count])
        at += count
    return batches


def _require_pairs_fit(lengths: SampleLengths, chosen: SampleSet | None, budget: Budget, long: Long) -> None:
    if long == "truncate":
        raise ArgumentRangeError("long", "cannot truncate pairs", long, hint='use "drop" or "alone"')
    for ids, chunk in lengths.chunks(chosen) if long == "raise" else ():
        too_long = np.flatnonzero(budget.sizes(chunk) == 0)
        if too_long.size:
            problem = f"is below sample {int(ids[too_long[0]])}, of lengths {chunk[too_long[0]].tolist()}"
            hint = 'raise it, or use long="drop" or "alone"'
            raise ArgumentRangeError("max_tokens", problem, budget.max_tokens, hint=hint)
