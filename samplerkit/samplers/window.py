"""Windows of consecutive samples, none over the border of an episode."""

from __future__ import annotations

from typing import ClassVar, Final, final

import numpy as np

from samplerkit.errors import CompositionError, DatasetError
from samplerkit.order import arguments
from samplerkit.order.algebra import limited
from samplerkit.order.files import FileSequence
from samplerkit.order.layout import Layout
from samplerkit.order.order import Order
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.chain import Context


@final
class WindowSampler(Sampler):
    """Reads the first samples of windows of consecutive ones: clips of videos, parts of episodes or series.

    The files of the layout are episodes, and a dataset without files is one. An episode of n samples has
    (n - size) div stride + 1 windows, none if it is shorter than one. An id stands for the window that begins
    there: the dataset reads `size` samples from it on. What draws from this sampler sees windows as the
    samples of its files, so that a `RandomSampler` of any shuffle mode may be its parent, PARTIAL too.

    Args:
        size: samples in a window.
        stride: samples from the beginning of a window to that of the next one.
        num_samples: how many windows, from the first; None and 0 mean all.

    Raises:
        ArgumentTypeError: an argument is no integer.
        ArgumentRangeError: `size` or `stride` is not positive.
        ArgumentValueError: `num_samples` is negative.
        DatasetError: when the order is asked for: all episodes are shorter than a window.
        CompositionError: when the order is asked for: what the child yields are not whole files, in which
            samples follow one another.

    Example:
        >>> episodes = Layout([5, 2, 4])
        >>> list(WindowSampler(3).order(episodes)), list(WindowSampler(2, stride=2).order(episodes))
        ([0, 1, 2, 7, 8], [0, 2, 5, 7, 9])
    """

    is_fixed: ClassVar[bool] = True
    yields_files = True

    def __init__(self, size: int, stride: int = 1, num_samples: int | None = None) -> None:
        super().__init__(num_samples)
        self.size: Final = arguments.positive("size", size)
        self.stride: Final = arguments.positive("stride", stride)

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout."""
        if context.child is not None and not layout.has_files:
            problem = "has a child that yields no whole files, so that no window is known to be one"
            hint = "use FoldSampler(by_files=True) below it, and any other sampler above it"
            raise CompositionError("WindowSampler", problem, hint=hint)
        sizes = layout.sizes
        counts = np.where(sizes >= self.size, (sizes - self.size) // self.stride + 1, 0)
        if len(layout) and not counts.any():
            problem = f"is more than the {int(sizes.max())} samples of the longest episode"
            raise DatasetError("size", problem, self.size)
        files = np.arange(sizes.size)
        windows = FileSequence(layout, files, counts, self.stride, keeps_files=layout.has_files)
        return limited(windows, self.num_samples or None)
