"""Samples drawn by weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import ArgumentRangeError, OutOfDatasetError
from samplerkit.order.keys import ALGORITHM
from samplerkit.order.layout import Layout
from samplerkit.order.order import Order
from samplerkit.samplers import arguments
from samplerkit.samplers.algorithms.known import ALGORITHMS
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.context import Context


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
        ALGORITHMS[self.algorithm].check(self.seed)
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
        wanted = self.num_samples or None
        if not self.replacement:
            self._require_positive(min(wanted or size, size))
        algorithm = ALGORITHMS[self.algorithm]
        return algorithm.weighted(self.weights, wanted, self.replacement, layout, self.seed, context)

    def _require_positive(self, count: int) -> None:
        positive = int(np.count_nonzero(self.weights))
        if count > positive:
            raise ArgumentRangeError(
                "num_samples",
                f"without replacement, only the {positive} samples of positive weight can be drawn",
                count,
                mend=f"say num_samples={positive} or replacement=True",
            )
