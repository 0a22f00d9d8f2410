"""Samples in the order in which they stand."""

from __future__ import annotations

from typing import ClassVar, Final, final

from samplerkit.errors import ArgumentRangeError, OutOfDatasetError
from samplerkit.order import arguments
from samplerkit.order.layout import Layout
from samplerkit.order.order import Order
from samplerkit.order.sequences import Range
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.context import Context


@final
class SequentialSampler(Sampler):
    """Reads samples as they stand.

    Args:
        start_index: the first sample; None means 0.
        num_samples: how many samples, at most those that there are; None and 0 mean all.

    Raises:
        ArgumentTypeError: an argument is no integer.
        ArgumentRangeError: `start_index` is negative or above 2^63 - 1.
        ArgumentValueError: `num_samples` is negative.
        OutOfDatasetError: when the order is asked for: `start_index` lies outside of a dataset without
            files. A dataset of files yields nothing then, as a MindSpore MindDataset.

    Source: `mindspore.dataset.SequentialSampler`.

    Example:
        >>> list(SequentialSampler(2, 3).order(10))
        [2, 3, 4]
    """

    is_fixed: ClassVar[bool] = True

    def __init__(self, start_index: int | None = None, num_samples: int | None = None) -> None:
        super().__init__(num_samples)
        self.start_index: Final = arguments.optional_integer("start_index", start_index)
        if self.start_index is not None and not 0 <= self.start_index <= arguments.INT64_MAX:
            raise ArgumentRangeError("start_index", "must be in [0, 2^63)", self.start_index)

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout."""
        start, size = self.start_index or 0, len(layout)
        if start >= size and start > 0 and not layout.has_files:
            raise OutOfDatasetError("start_index", f"outside of a dataset of {size} samples", start)
        available = max(0, size - start)
        return Range(start, min(self.num_samples or available, available))
