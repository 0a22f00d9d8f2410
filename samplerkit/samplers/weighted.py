"""Samples drawn by weight."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import ArgumentRangeError, OutOfDatasetError
from samplerkit.order.keys import ALGORITHM, Key, keyed_hash, scaled
from samplerkit.order.layout import Layout
from samplerkit.order.order import Order
from samplerkit.order.sequences import Draws, Range, Table
from samplerkit.order.typing import Ids
from samplerkit.samplers import arguments
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.context import Context

_HASH_WORDS = 3


@final
class WeightedRandomSampler(Sampler):
    """Draws samples with probabilities in proportion to weights, other ones each epoch.

    The draws are made of integers: the weights are scaled by a power of two so that their sum is just below
    2^62, and rounded down, a positive one to no less than 1.

    Args:
        weights: the weight of each sample: a list, tuple or array of numbers, any number of them. There may
            be fewer than samples in the dataset; those without a weight are never drawn.
        num_samples: how many draws; None and 0 mean as many as the dataset has samples.
        replacement: whether a sample may be drawn again. Without, samples are drawn one after another, each
            in proportion to the weights of those that are left.
        seed: the seed of the draws, in [0, 2^64).
        algorithm: the id of the algorithm.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: `weights` is empty, all zero, or holds a negative, NaN or infinite one; or, as
            soon as it can be known, without replacement, more draws than positive weights.
        ArgumentValueError: `num_samples` or `seed` is negative, or `algorithm` is not known.
        OutOfDatasetError: when the order is asked for: there are more weights than samples.

    Source: `mindspore.dataset.WeightedRandomSampler`, whose draws are the same in every epoch.

    Example:
        >>> draws = np.asarray(WeightedRandomSampler([3.0, 0.0, 1.0], num_samples=4000).order(4000))
        >>> np.bincount(draws, minlength=3) // 100
        array([29,  0, 10])
    """

    def __init__(
        self,
        weights: Sequence[float] | np.ndarray[Any, Any],
        num_samples: int | None = None,
        replacement: bool = True,
        *,
        seed: int = 0,
        algorithm: str = ALGORITHM,
    ) -> None:
        super().__init__(num_samples)
        self.weights: Final = arguments.weights(weights)
        self.replacement: Final = arguments.boolean("replacement", replacement)
        self.seed: Final = arguments.seed(seed)
        self.algorithm: Final = arguments.algorithm(algorithm)
        wanted = self.num_samples or 0
        if not self.replacement and wanted <= self.weights.size:
            self._require_positive(wanted)

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout."""
        size = len(layout)
        if self.weights.size > size:
            raise OutOfDatasetError(
                "weights", f"are more than the {size} samples of the dataset", self.weights.size
            )
        key = context.key(self.seed, "weighted")
        if self.replacement:
            count = self.num_samples or size
            return Draws(count, key, cumulative=np.cumsum(self._integer_weights))
        count = min(self.num_samples or size, size)
        self._require_positive(count)
        return Table(draw_without_replacement(self._integer_weights, count, key)) if count else Range(0, 0)

    def _require_positive(self, count: int) -> None:
        positive = int(np.count_nonzero(self.weights))
        if count > positive:
            raise ArgumentRangeError(
                "num_samples",
                f"without replacement, only the {positive} samples of positive weight can be drawn",
                count,
                mend=f"say num_samples={positive} or replacement=True",
            )

    @cached_property
    def _integer_weights(self) -> Ids:
        return integer_weights(self.weights)


def integer_weights(weights: np.ndarray[Any, np.dtype[np.float64]]) -> Ids:
    """Scales weights by a power of two to integers whose sum is at most 2^62.

    A power of two and rounding down are exact, so that every machine gets the same integers.

    Example:
        >>> scaled = integer_weights(np.array([1.0, 0.5, 0.0, 1e-300]))
        >>> scaled[0] == 2 * scaled[1], scaled[2:]
        (np.True_, array([0, 1]))
    """
    _, exponent = math.frexp(float(weights.max()))
    shift = 61 - exponent - weights.size.bit_length()
    integers: Ids = np.floor(np.ldexp(weights, shift)).astype(np.int64)
    integers[(integers == 0) & (weights > 0)] = 1
    return integers


def draw_without_replacement(weights: Ids, count: int, key: Key) -> Ids:
    """Draws distinct ids one after another, each in proportion to the weights of those that are left.

    The ids are drawn with replacement and their first occurrences kept, which has just this law; whenever
    the draws have caught the heavy ones, they go on among the ids that are left.

    Args:
        weights: non-negative int64 array of shape (n,), its sum below 2^63.
        count: how many ids, at most as many as there are positive weights.
        key: where the randomness comes from.

    Returns:
        int64 array of shape (count,).

    Example:
        >>> key = Key(seed=7, epoch=0, depth=0, role="weighted")
        >>> sorted(draw_without_replacement(np.array([5, 0, 1, 9]), 3, key).tolist())
        [0, 2, 3]
    """
    left = np.flatnonzero(weights)
    drawn: list[Ids] = []
    missing = count
    for attempt in range(left.size):
        if not missing:
            break
        cumulative = np.cumsum(weights[left])
        counters = np.arange(2 * missing)
        hashes = keyed_hash(key.words(_HASH_WORDS, index=attempt), counters)
        picks = np.searchsorted(cumulative, scaled(hashes, int(cumulative[-1])), side="right")
        distinct, first = np.unique(picks, return_index=True)
        new = distinct[np.argsort(first)][:missing]
        drawn.append(left[new])
        missing -= new.size
        left = np.delete(left, new)
    return np.concatenate(drawn)
