"""Several datasets mixed by weights, or in proportion to their sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final, final, get_args

import numpy as np

from samplerkit.errors import ArgumentRangeError, DatasetError, NotSupportedError
from samplerkit.order import arguments
from samplerkit.order.arguments import LARGEST
from samplerkit.order.keys import ALGORITHM
from samplerkit.order.layout import Layout
from samplerkit.order.mixture import Mixed, Stop, mixture_length
from samplerkit.order.once import once
from samplerkit.order.order import Order
from samplerkit.order.schedule import LONGEST_PERIOD, Schedule, schedule_of
from samplerkit.samplers.algorithm import checked_algorithm
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.context import Context

_LARGEST_DENOMINATOR = 10**6
_ROUNDED = 1 << 30


@final
class MixtureSampler(Sampler):
    """Mixes several datasets, the files of a layout or the parts of a ConcatDataset, with exact counts.

    After any number of samples, each source has been read within less than one sample of its share; within
    two where there are more than three sources whose shares, as integers, add up to more than 2^20. A source
    that is read to its end begins anew, in another order, until the mixture stops.

    Args:
        weights: the share of each source: a list, tuple or array of numbers. None means in proportion to
            their sizes, so that each sample comes once. Weights without a short common measure are
            rounded to a 2^30th of their sum.
        num_samples: how many samples; None and 0 mean until `stop`. A source may then come more than once.
        shuffle: whether the samples of a source come in a random order, another one each pass and epoch.
        stop: `first` ends before a source would begin anew; `all` once each was read to its end.
        seed: the seed of the order, in [0, 2^64).
        algorithm: the id of the algorithm.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: `num_samples` or `seed` is negative, or `stop` or `algorithm` is not known.
        ArgumentRangeError: `weights` is empty, all zero, or holds a negative, NaN or infinite one; or, when
            the order is asked for, the mixture is longer than 2^62.
        DatasetError: when the order is asked for: the dataset has no files, others than weights, an empty
            one of positive weight, or, without weights, more than 2^31 samples by sizes without a common
            divisor.

    Example:
        >>> sampler = MixtureSampler([0.75, 0.25], seed=7)
        >>> layout = Layout([6000, 6000])
        >>> ids = sampler.order(layout)[:100]
        >>> np.bincount(layout.file_of(ids))
        array([75, 25])
    """

    def __init__(
        self,
        weights: Sequence[float] | np.ndarray[Any, Any] | None = None,
        num_samples: int | None = None,
        *,
        shuffle: bool = True,
        stop: str = "first",
        seed: int = 0,
        algorithm: str = ALGORITHM,
    ) -> None:
        super().__init__(num_samples)
        self.weights: Final = None if weights is None else arguments.weights(weights)
        self.shuffle: Final = arguments.boolean("shuffle", shuffle)
        self.stop: Final = arguments.choice("stop", stop, get_args(Stop))
        self.seed: Final = arguments.seed(seed)
        self.algorithm: Final = checked_algorithm(algorithm, self)
        if self.algorithm != ALGORITHM:
            raise NotSupportedError("algorithm", "knows no mixtures", algorithm, mend=f"use {ALGORITHM}")

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout."""
        if not layout.has_files:
            raise DatasetError("dataset", "has no parts to mix", layout, mend="give a ConcatDataset")
        schedule = self._schedule(layout)
        empty = np.flatnonzero((schedule.weights > 0) & (layout.sizes == 0))
        if empty.size:
            raise DatasetError("weights", "give a share to an empty source", int(empty[0]))
        length = self.num_samples or mixture_length(schedule, layout, self.stop)
        if length > LARGEST:
            raise ArgumentRangeError(
                "num_samples", "must be at most 2^62", length, mend="say a smaller one, and more epochs"
            )
        key = context.key(self.seed, "mixture") if self.shuffle else None
        return Mixed(layout, schedule, length, key)

    def _schedule(self, layout: Layout) -> Schedule:
        if self.weights is None:
            if not len(layout):
                raise DatasetError("dataset", "holds no samples to mix", layout)
            shares = _smallest(layout.sizes.tolist())
            if sum(shares) > LONGEST_PERIOD:
                raise DatasetError(
                    "dataset",
                    f"has sizes which, without a common divisor, add up to more than {LONGEST_PERIOD}",
                    sum(shares),
                    mend="give weights",
                )
            return schedule_of(shares)
        if self.weights.size != layout.num_files:
            raise DatasetError(
                "weights", f"must be one for each of the {layout.num_files} sources", self.weights.size
            )
        return schedule_of(self._shares)

    @once
    def _shares(self) -> list[int]:
        """The weights as the smallest integers in their ratio."""
        given = [] if self.weights is None else self.weights.tolist()
        fractions = [Fraction(weight).limit_denominator(_LARGEST_DENOMINATOR) for weight in given]
        common = math.lcm(*(fraction.denominator for fraction in fractions))
        shares = _smallest([int(fraction * common) for fraction in fractions])
        # A weight below a part in the largest denominator would lose its digits there, or all of itself.
        is_coarse = any(0 < weight * _LARGEST_DENOMINATOR < 1 for weight in given)
        if not is_coarse and sum(shares) <= LONGEST_PERIOD:
            return shares
        # Scaled by a power of two, which rounds nothing, so that the sum is a double too.
        _, exponent = math.frexp(max(given))
        scaled = [math.ldexp(weight, -exponent) for weight in given]
        total = math.fsum(scaled)
        rounded = [round(weight / total * _ROUNDED) for weight in scaled]
        pairs = zip(given, rounded, strict=True)
        return _smallest([max(1, share) if weight else 0 for weight, share in pairs])


def _smallest(numbers: list[int]) -> list[int]:
    divisor = math.gcd(*numbers)
    return [number // divisor for number in numbers]
