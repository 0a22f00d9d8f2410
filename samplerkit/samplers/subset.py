"""All samples from one on, or chosen ones: as stored, as listed, as an iterable yields them, or shuffled.

Windows of consecutive samples are read by the first of each.
"""

from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Final, final

import numpy as np

from samplerkit.errors import (
    ArgumentRangeError,
    ArgumentTypeError,
    CompositionError,
    DatasetError,
    OutOfDatasetError,
)
from samplerkit.order import arguments
from samplerkit.order.algebra import compose, limited
from samplerkit.order.files import FileSequence
from samplerkit.order.keys import ALGORITHM
from samplerkit.order.layout import Layout
from samplerkit.order.order import Order
from samplerkit.order.sequences import Permuted, Range, Table
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.chain import Context
from samplerkit.samplers.iteration import checked_ids, read_ids, seeded_generators


@final
class SequentialSampler(Sampler):
    """Reads samples in storage order.

    Args:
        start_index: the first sample; None means 0.
        num_samples: how many samples, at most all; None and 0 mean all.

    Raises:
        ArgumentTypeError: an argument is not an integer.
        ArgumentRangeError: `start_index` is negative or above 2^63 - 1.
        ArgumentValueError: `num_samples` is negative.
        OutOfDatasetError: when the order is made: `start_index` is outside of a dataset without
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


@dataclass(eq=False, repr=False)
class ListedSampler(Sampler):
    """A sampler that has a list of ids.

    Attributes:
        indices: the list.
    """

    indices: Sequence[int] | Ids
    num_samples: int | None = None

    def __post_init__(self) -> None:
        self._check(indices=arguments.indices)

    def _own_num_samples(self) -> int:
        size = len(self.indices)
        return size if self.num_samples is None else min(self.num_samples, size)

    def _listed(self, layout: Layout) -> Table:
        """Returns the ids in the order in which they are listed."""
        ids = self.indices[: self.num_samples or None]
        return Table(checked_ids(ids, len(layout), f"{type(self).__name__}: indices"))


@final
class SubsetSampler(ListedSampler):
    """Reads the listed samples in the order of the list, repeats included.

    Args:
        indices: ids of samples: a list, tuple or array of integers, not empty and none negative.
        num_samples: how many of them, from the first; None and 0 mean all.

    Raises:
        ArgumentTypeError: `indices` holds something else than integers.
        ArgumentRangeError: `indices` is empty or holds a negative id.
        ArgumentValueError: `num_samples` is negative.
        OutOfDatasetError: when the order is made: an id is outside of the dataset.

    Source: `mindspore.dataset.SubsetSampler`.

    Example:
        >>> list(SubsetSampler([7, 2, 7]).order(10))
        [7, 2, 7]
    """

    is_fixed: ClassVar[bool] = True

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout."""
        return self._listed(layout)


@final
@dataclass(eq=False, repr=False)
class SubsetRandomSampler(ListedSampler):
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
        OutOfDatasetError: when the order is made: an id is outside of the dataset.

    Source: `mindspore.dataset.SubsetRandomSampler`, whose order is the same in every epoch.

    Example:
        >>> sorted(SubsetRandomSampler([7, 2, 5], seed=1).order(10))
        [2, 5, 7]
    """

    _: KW_ONLY
    seed: int = 0
    algorithm: str = ALGORITHM

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout."""
        listed = self._listed(layout)
        return compose(Permuted(len(listed), context.key(self.seed, "subset")), listed)


@final
class IterSampler(Sampler):
    """Reads the samples whose ids an iterable yields, for instance a torch sampler or a list.

    The iterable is read once for each order. If it has `set_epoch`, that is called before. While it is read,
    the random generators of torch, numpy and Python, and those in its attributes, are seeded by `seed` and
    the epoch; then their states are restored. So each rank, and a job that resumes, reads the same ids. A
    digest of the ids is part of a state, and ranks compare it.

    Args:
        sampler: yields integers. It must be iterable more than once.
        num_samples: how many ids to read, from the first; None and 0 mean all. An iterable without `__len__`
            that yields more than 2^24 ids needs it, since it might never end.
        seed: of the random draws of the iterable, in [0, 2^64).

    Raises:
        ArgumentTypeError: `sampler` cannot be iterated, or only once, as a generator; or, when the order is
            made, it yields something else than integers.
        ArgumentValueError: `num_samples` is negative, or `seed` is out of range.
        OutOfDatasetError: when the order is made: an id is outside of the dataset.
        DatasetError: when the order is made: it yields no id, or too many without `num_samples`.

    Source: `mindspore.dataset.IterSampler`.

    Example:
        >>> list(IterSampler([5, 1, 8], num_samples=2).order(10))
        [5, 1]
    """

    is_foreign = True
    _counts_alone = True

    def __init__(self, sampler: Iterable[int], num_samples: int | None = None, *, seed: int = 0) -> None:
        super().__init__(num_samples)
        self.seed: Final = arguments.seed("seed", seed)
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
        with seeded_generators(self.sampler, self.seed, context.epoch):
            if callable(getattr(self.sampler, "set_epoch", None)):
                self.sampler.set_epoch(context.epoch)
            ids = read_ids(self.sampler, self.num_samples, "sampler")
        if ids.size == 0 and len(layout):
            raise DatasetError("sampler", "yields nothing", self.sampler)
        return Table(checked_ids(ids, len(layout), "sampler"))


@final
class WindowSampler(Sampler):
    """Reads the first samples of windows of consecutive ones: clips of videos, parts of episodes or series.

    The files of the layout are episodes, and a dataset without files is one. An episode of n samples has (n -
    size) div stride + 1 windows, none if it is shorter than one. An id is that of the window that begins
    there: the dataset reads `size` samples from it on. A sampler that draws from this one sees windows as the
        samples of its files, so that a `RandomSampler` of any shuffle mode may be its parent, PARTIAL too.

    Args:
        size: samples in a window.
        stride: samples from the beginning of a window to that of the next one.
        num_samples: how many windows, from the first; None and 0 mean all.

    Raises:
        ArgumentTypeError: an argument is not an integer.
        ArgumentRangeError: `size` or `stride` is not positive.
        ArgumentValueError: `num_samples` is negative.
        DatasetError: when the order is made: all episodes are shorter than a window.
        CompositionError: when the order is made: the child does not yield whole files, in which samples
            follow one another.

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
            problem = "has a child that yields no whole files, so that its windows are not known"
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
