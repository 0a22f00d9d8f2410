"""Chosen samples, as they were listed or shuffled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, final

from samplerkit.order import arguments
from samplerkit.order.algebra import compose
from samplerkit.order.keys import ALGORITHM
from samplerkit.order.layout import Layout
from samplerkit.order.order import Order
from samplerkit.order.sequences import Permuted, Table
from samplerkit.order.typing import Ids
from samplerkit.samplers.algorithm import checked_algorithm
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.chain import checked_ids
from samplerkit.samplers.context import Context


def chosen(sampler: SubsetSampler | SubsetRandomSampler, layout: Layout) -> Table:
    """Gives the ids that a sampler lists, in the order in which it lists them."""
    kept = sampler.indices[: sampler.num_samples or None]
    return Table(checked_ids(kept, len(layout), f"{type(sampler).__name__}: indices"))


def _fewest(num_samples: int | None, indices: Ids) -> int:
    return indices.size if num_samples is None else min(num_samples, indices.size)


@final
class SubsetSampler(Sampler):
    """Reads the listed samples in the order of the list, repeats included.

    Args:
        indices: ids of samples: a list, tuple or array of integers, not empty and none negative.
        num_samples: how many of them, from the first; None and 0 mean all.

    Raises:
        ArgumentTypeError: `indices` holds something else than integers.
        ArgumentRangeError: `indices` is empty or holds a negative id.
        ArgumentValueError: `num_samples` is negative.
        OutOfDatasetError: when the order is asked for: an id lies outside of the dataset.

    Source: `mindspore.dataset.SubsetSampler`.

    Example:
        >>> list(SubsetSampler([7, 2, 7]).order(10))
        [7, 2, 7]
    """

    is_fixed: ClassVar[bool] = True

    def __init__(self, indices: Sequence[int] | Ids, num_samples: int | None = None) -> None:
        super().__init__(num_samples)
        self.indices: Final = arguments.indices(indices)

    def _own_num_samples(self) -> int:
        return _fewest(self.num_samples, self.indices)

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout."""
        return chosen(self, layout)


@final
class SubsetRandomSampler(Sampler):
    """Reads the listed samples in a random order, another one each epoch.

    Args:
        indices: ids of samples: a list, tuple or array of integers, not empty and none negative.
        num_samples: how many of them, from the first, before they are shuffled; None and 0 mean all.
        seed: the seed of the order, in [0, 2^64).
        algorithm: the id of the algorithm.

    Raises:
        ArgumentTypeError: `indices` holds something else than integers.
        ArgumentRangeError: `indices` is empty or holds a negative id.
        ArgumentValueError: `num_samples` or `seed` is negative, or `algorithm` is not known.
        OutOfDatasetError: when the order is asked for: an id lies outside of the dataset.

    Source: `mindspore.dataset.SubsetRandomSampler`, whose order is the same in every epoch.

    Example:
        >>> sorted(SubsetRandomSampler([7, 2, 5], seed=1).order(10))
        [2, 5, 7]
    """

    def __init__(
        self,
        indices: Sequence[int] | Ids,
        num_samples: int | None = None,
        *,
        seed: int = 0,
        algorithm: str = ALGORITHM,
    ) -> None:
        super().__init__(num_samples)
        self.indices: Final = arguments.indices(indices)
        self.seed: Final = arguments.seed(seed)
        self.algorithm: Final = checked_algorithm(algorithm, self)

    def _own_num_samples(self) -> int:
        return _fewest(self.num_samples, self.indices)

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout."""
        listed = chosen(self, layout)
        return compose(Permuted(len(listed), context.key(self.seed, "subset")), listed)
