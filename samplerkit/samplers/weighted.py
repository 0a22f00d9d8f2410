"""Samples drawn by weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import ArgumentRangeError, OutOfDatasetError
from samplerkit.order import arguments
from samplerkit.order.keys import ALGORITHM
from samplerkit.order.layout import Layout
from samplerkit.order.mixing.weights import draw_without_replacement, integer_weights
from samplerkit.order.order import Order
from samplerkit.order.sequences import DrawsWithReplacement, Range, Table
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.chain import Context, checked_algorithm


@final
class WeightedRandomSampler(Sampler):
    """Draws samples with probabilities in proportion to weights, other ones each epoch.

    The draws are made of integers: the weights are scaled by a power of two so that their sum is just below
    2^62, and rounded down, a positive one to no less than 1.

    Args:
        weights: the weight of each sample: a list, tuple or array of numbers, any number of them. Above a
            child, `weights[i]` is of the i-th sample that the child yields. There may be fewer than samples;
            those without a weight are never drawn.
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
        self.algorithm: Final = checked_algorithm(algorithm, self)
        wanted = self.num_samples or 0
        if not self.replacement and wanted <= self.weights.size:
            self._require_positive(wanted)

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout."""
        self.check_over(layout)
        key, integers = context.key(self.seed, "weighted"), integer_weights(self.weights)
        count = self.num_samples or len(layout)
        if self.replacement:
            return DrawsWithReplacement(count, key, cumulative=np.cumsum(integers))
        count = min(count, len(layout))
        return Table(draw_without_replacement(integers, count, key)) if count else Range(0, 0)

    def check_over(self, layout: Layout) -> None:
        """Refuses weights that do not fit the samples there are to draw from."""
        size = len(layout)
        if self.weights.size > size:
            problem = f"are more than the {size} samples of the dataset"
            raise OutOfDatasetError("weights", problem, self.weights.size)
        if not self.replacement:
            self._require_positive(min(self.num_samples or size, size))

    def _require_positive(self, count: int) -> None:
        positive = int(np.count_nonzero(self.weights))
        if count > positive:
            problem = f"without replacement, only the {positive} samples of positive weight can be drawn"
            hint = f"say num_samples={positive} or replacement=True"
            raise ArgumentRangeError("num_samples", problem, count, hint=hint)
