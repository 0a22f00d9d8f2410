"""Samples by the ids that an iterable of the user's yields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Any, Final, final

from samplerkit.errors import ArgumentTypeError, DatasetError
from samplerkit.order import arguments
from samplerkit.order.layout import Layout
from samplerkit.order.order import Order
from samplerkit.order.sequences import Table
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.chain import Context
from samplerkit.samplers.iteration import checked_ids, lent_randomness, read_ids


@final
class IterSampler(Sampler):
    """Reads the samples whose ids an iterable yields, for instance a torch sampler or a list.

    The iterable is read once for each order. If it has `set_epoch`, that is called before. While it is read,
    the random generators of torch, numpy and Python, and those that it holds in attributes, are seeded by
    `seed` and the epoch, and get their states back afterwards: so each rank reads the same ids, and so does a
    job that resumes. A digest of the ids is part of a state, and ranks compare it.

    Args:
        sampler: yields integers. It must be iterable more than once.
        num_samples: how many ids to read, from the first; None and 0 mean all. An iterable without `__len__`
            that yields more than 2^24 ids needs it, since it might never end.
        seed: in [0, 2^64), of what the iterable draws at random.

    Raises:
        ArgumentTypeError: `sampler` cannot be iterated, or only once, as a generator; or, when the order
            is asked for, it yields something else than integers.
        ArgumentValueError: `num_samples` is negative, or `seed` is out of range.
        OutOfDatasetError: when the order is asked for: an id lies outside of the dataset.
        DatasetError: when the order is asked for: it yields no id, or too many without `num_samples`.

    Source: `mindspore.dataset.IterSampler`.

    Example:
        >>> list(IterSampler([5, 1, 8], num_samples=2).order(10))
        [5, 1]
    """

    is_foreign = True
    _counts_alone = True

    def __init__(self, sampler: Iterable[int], num_samples: int | None = None, *, seed: int = 0) -> None:
        super().__init__(num_samples)
        self.seed: Final = arguments.seed(seed)
        if isinstance(sampler, str | bytes) or not arguments.is_iterable(sampler):
            raise ArgumentTypeError("sampler", "must be an iterable of integers", sampler)
        if isinstance(sampler, Iterator):
            hint = "give a list, or an object whose __iter__ starts again"
            raise ArgumentTypeError("sampler", "must be iterable more than once", sampler, hint=hint)
        self.sampler: Final[Any] = sampler

    def _own_num_samples(self) -> int | None:
        if self.num_samples is not None:
            return self.num_samples
        if isinstance(self.sampler, Sized):
            return len(self.sampler)
        return int(read_ids(self.sampler, None, "sampler").size)

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout."""
        with lent_randomness(self.sampler, self.seed, context.epoch):
            if callable(getattr(self.sampler, "set_epoch", None)):
                self.sampler.set_epoch(context.epoch)
            ids = read_ids(self.sampler, self.num_samples, "sampler")
        if ids.size == 0 and len(layout):
            raise DatasetError("sampler", "yields nothing", self.sampler)
        return Table(checked_ids(ids, len(layout), "sampler"))
