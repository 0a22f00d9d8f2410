"""Samples that are read several times per epoch: repeated augmentation, and repeats by factors."""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Final, final

import numpy as np

from samplerkit.errors import ArgumentRangeError, ArgumentTypeError
from samplerkit.order import arguments
from samplerkit.order.algebra import limited
from samplerkit.order.caching import cached_property
from samplerkit.order.dataset_protocol import require_one_each
from samplerkit.order.intervals import numbers_in
from samplerkit.order.layout import Layout
from samplerkit.order.order import Located, Order
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.chain import Context

UNIT_BITS = 32
"""Factors are counted in units of 2^-32."""

MAX_DRAWS = 1 << 30
"""The largest sum of factors: its units fit into 63 bits."""


@dataclass(frozen=True, eq=False, repr=False)
class Repeated(Order):
    """Each id of [0, size) several times in a row: position p holds p div repeats.

    Args:
        repeats: how often each comes.
        length: the number of positions, at most repeats * size.
    """

    repeats: int
    length: int

    def __len__(self) -> int:
        return self.length

    def ids_at(self, positions: Ids) -> Ids:
        return positions // self.repeats

    @property
    def num_passes(self) -> int:
        return max(1, min(self.repeats, self.length))

    def passes_at(self, positions: Ids) -> Ids:
        return positions % self.repeats

    def locate(self, ids: Ids) -> Located:
        which = np.flatnonzero((ids >= 0) & (ids <= (self.length - 1) // self.repeats))
        positions = (ids[which, None] * self.repeats + np.arange(self.num_passes)).reshape(-1)
        exists = positions < self.length
        return np.repeat(which, self.num_passes)[exists], positions[exists]


@dataclass(frozen=True, eq=False, repr=False)
class RepeatedByFactors(Order):
    """Each id i as often as floor(sums[i + 1] + phase) - floor(sums[i] + phase) says, in a row.

    So id i comes floor(r) or ceil(r) times, r = sums[i + 1] - sums[i], and r times on average over phases.

    Args:
        sums: of the factors, from 0 to a whole number, in units of 2^-32; int64 of shape (ids + 1,).
        phase: in [0, 2^32).
    """

    sums: Ids
    phase: int

    def __len__(self) -> int:
        return int(self.sums[-1]) >> UNIT_BITS

    def ids_at(self, positions: Ids) -> Ids:
        return np.searchsorted(self.sums[1:], (positions + 1 << UNIT_BITS) - self.phase, side="left")

    @cached_property
    def num_passes(self) -> int:
        return max(1, int(np.diff(self._begins(slice(None))).max(initial=1)))

    def passes_at(self, positions: Ids) -> Ids:
        return positions - self._begins(self.ids_at(positions))

    def locate(self, ids: Ids) -> Located:
        which = np.flatnonzero((ids >= 0) & (ids < self.sums.size - 1))
        begins = self._begins(ids[which])
        counts = self._begins(ids[which] + 1) - begins
        return np.repeat(which, counts), numbers_in(begins, counts)

    def _begins(self, ids: Any) -> Ids:
        """The position at which each id begins."""
        begins: Ids = (self.sums[ids] + self.phase) >> UNIT_BITS
        return begins


def sums_of_factors(factors: np.ndarray[Any, np.dtype[np.float64]]) -> Ids:
    """Adds up factors in units of 2^-32, scaled so that their sum is a whole number, the nearest one.

    Args:
        factors: none negative, one positive, their sum at most `MAX_DRAWS`.

    Example:
        >>> (sums_of_factors(np.array([1.0, 1.5, 0.25, 0.25])) / 2**32).tolist()
        [0.0, 1.0, 2.5, 2.75, 3.0]
    """
    units = np.floor(np.ldexp(factors, UNIT_BITS)).astype(np.int64)
    units[(units == 0) & (factors > 0)] = 1
    sums = np.cumsum(units)
    total = int(sums[-1])
    rounded = max(1, (total + (1 << UNIT_BITS - 1)) >> UNIT_BITS) << UNIT_BITS
    # The difference is below 2^32: its parts are exact enough as doubles, and the last one is the whole.
    sums += np.floor(sums / total * (rounded - total)).astype(np.int64)
    return np.append(0, sums)


MAX_REPEATS = 1 << 20


@final
class RepeatSampler(Sampler):
    """Reads each sample several times in a row: repeated augmentation.

    Over a `RandomSampler` the copies of a sample are consecutive, so that they are dealt to different ranks,
    if there are as many. Each copy is a separate draw (`draw_rng`), in another pass.

    Args:
        repeats: how often each sample comes, at most 2^20.
        num_samples: how many samples, including copies; None and 0 mean all. With the size of the dataset,
            epochs have the usual length, and each reads a part of the samples.

    Raises:
        ArgumentTypeError: an argument is not an integer.
        ArgumentRangeError: `repeats` is not in [1, 2^20]; or, when the order is made, it is longer than 2^62.
        ArgumentValueError: `num_samples` is negative.

    Source: Hoffer et al., "Augment your batch" (2019); Berman et al., "MultiGrain" (2019).

    Example:
        >>> sampler = RepeatSampler(3)
        >>> list(sampler.order(2))
        [0, 0, 0, 1, 1, 1]
    """

    is_fixed: ClassVar[bool] = True

    def __init__(self, repeats: int, num_samples: int | None = None) -> None:
        super().__init__(num_samples)
        self.repeats: Final = arguments.positive("repeats", repeats, MAX_REPEATS)

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout."""
        total = len(layout) * self.repeats
        length = min(self.num_samples or total, total)
        if length > arguments.LARGEST:
            raise ArgumentRangeError("repeats", "makes an order of more than 2^62 samples", self.repeats)
        return Repeated(self.repeats, length)


@final
@dataclass(eq=False, repr=False)
class RepeatFactorSampler(Sampler):
    """Reads sample i `factors[i]` times on average: rounded down in some epochs, and up in others.

    The length of an epoch does not change: it is the sum of the factors, rounded to a whole number, and the
    factors are scaled to it. Samples are in storage order, with copies next to one another: a `RandomSampler`
    with this as its child mixes them.

    Args:
        factors: of each sample: a list, tuple or array of numbers, none negative. Above a child,
            `factors[i]` is of the i-th sample that the child yields.
        num_samples: how many samples, from the first; None and 0 mean all.
        seed: of the choice between the two whole numbers, in [0, 2^64).

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: `factors` is empty, all zero, holds a negative, NaN or infinite one, or adds up
            to more than 2^30.
        ArgumentValueError: `num_samples` or `seed` is negative.
        DatasetError: when the order is made: there is not one factor for each sample.

    Source: Gupta, Dollar and Girshick, "LVIS: a dataset for large vocabulary instance segmentation" (2019).

    Example:
        >>> sampler = RepeatFactorSampler([1, 2.5, 0.5], seed=7)
        >>> [sampler.order(3, epoch)[:].tolist() for epoch in range(2)]
        [[0, 1, 1, 2], [0, 1, 1, 1]]
    """

    factors: Sequence[float] | np.ndarray[Any, Any]
    num_samples: int | None = None
    _: KW_ONLY
    seed: int = 0

    def __post_init__(self) -> None:
        self._check(factors=arguments.weights)
        total = float(np.sum(self.factors))
        if total > MAX_DRAWS:
            raise ArgumentRangeError("factors", f"must add up to at most {MAX_DRAWS}", total)

    @staticmethod
    def factors_of(categories: Iterable[Iterable[Any]], threshold: float = 0.001) -> np.ndarray[Any, Any]:
        """Returns the factors of samples from the categories that are in each.

        A category in a share f of the samples has the factor max(1, sqrt(threshold / f)), and a sample the
        largest factor of its categories; 1 if there are none.

        Args:
            categories: of each sample: numbers or names, repeats allowed.
            threshold: categories in a smaller share of the samples are repeated.

        Returns:
            float64 array, one factor a sample.

        Raises:
            ArgumentTypeError: a sample has no list of categories.
            ArgumentRangeError: `threshold` is not in (0, 1].

        Example:
            >>> RepeatFactorSampler.factors_of([["cat"], ["cat"], ["cat", "owl"], []], threshold=1)
            array([1.15470054, 1.15470054, 2.        , 1.        ])
        """
        share = arguments.number("threshold", threshold)
        if not 0 < share <= 1:
            raise ArgumentRangeError("threshold", "must be in (0, 1]", threshold)
        if isinstance(categories, str | bytes) or not arguments.is_iterable(categories):
            raise ArgumentTypeError("categories", "must be a list of lists", categories)
        sets = [_names(f"categories[{number}]", names) for number, names in enumerate(categories)]
        counts = Counter(name for names in sets for name in names)
        rarest = [min((counts[name] for name in names), default=len(sets)) for names in sets]
        return np.maximum(1.0, np.sqrt(share * len(sets) / np.array(rarest, dtype=np.float64)))

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout."""
        require_one_each("factors", len(self.factors), layout)
        phase = int(context.key(self.seed, "repeat factors").words(1)[0]) >> 64 - UNIT_BITS
        return limited(RepeatedByFactors(self._sums, phase), self.num_samples or None)

    @cached_property
    def _sums(self) -> Ids:
        return sums_of_factors(np.asarray(self.factors))


def _names(place: str, names: Any) -> set[Any]:
    if not isinstance(names, str | bytes):
        with suppress(TypeError):  # no list, or a list in it
            return {*names}
    raise ArgumentTypeError(place, "must be a list of numbers or names", names)
