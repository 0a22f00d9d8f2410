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
from samplerkit.samplers.chain import checked_ids
from samplerkit.samplers.context import Context
from samplerkit.samplers.iteration import read_ids


@final
class IterSampler(Sampler):
    """Reads the samples whose ids an iterable yields, for instance a torch sampler or a list.

    The iterable is read once for each order. If it has `set_epoch`, that is called before.

    Args:
        sampler: yields integers. It must be iterable more than once.
        num_samples: how many ids to read, from the first; None and 0 mean all.

    Raises:
        ArgumentTypeError: `sampler` cannot be iterated, or only once, as a generator; or, when the order
            is asked for, it yields something else than integers.
        ArgumentValueError: `num_samples` is negative.
        OutOfDatasetError: when the order is asked for: an id lies outside of the dataset.

    Source: `mindspore.dataset.IterSampler`.

    Example:
        >>> list(IterSampler([5, 1, 8], num_samples=2).order(10))
        [5, 1]
    """

    def __init__(self, sampler: Iterable[int], num_samples: int | None = None) -> None:
        super().__init__(num_samples)
        if isinstance(sampler, str | bytes) or not arguments.is_iterable(sampler):
            raise ArgumentTypeError("sampler", "must be an iterable of integers", sampler)
        if isinstance(sampler, Iterator):
            raise ArgumentTypeError(
                "sampler",
                "must be iterable more than once",
                sampler,
                mend="give a list, or an object whose __iter__ starts anew",
            )
        self.sampler: Final[Any] = sampler

    @property
    def _counts_alone(self) -> bool:
        return True

    def _own_num_samples(self) -> int | None:
        if self.num_samples is not None:
            return self.num_samples
        if isinstance(self.sampler, Sized):
            return len(self.sampler)
        return int(read_ids(self.sampler, None, "sampler").size)

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout."""
        if callable(getattr(self.sampler, "set_epoch", None)):
            self.sampler.set_epoch(context.epoch)
        ids = read_ids(self.sampler, self.num_samples, "sampler")
        if ids.size == 0 and len(layout):
            raise DatasetError("sampler", "yields nothing", self.sampler)
        return Table(checked_ids(ids, len(layout), "sampler"))
