"""The orders of all epochs, from which figures are computed, and estimates from samples of them.

`OrderSource` has the orders, and their shuffle mode if it is a plain one. `WindowSamples` has samples of
windows at random places of some epochs. Windows are placed as in the closed forms: at any place, also across
the ends, and each pair of samples counts once for each window that holds it. Epochs differ more than windows
of one epoch, so the standard error is clustered by epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from samplerkit.errors import ArgumentTypeError
from samplerkit.inspect.quality.figure import Estimate
from samplerkit.inspect.quality.pairs import Numbers, runs_of
from samplerkit.order.deal import World
from samplerkit.order.intervals import edges_of
from samplerkit.order.keys import ALGORITHM, Key
from samplerkit.order.layout import Layout
from samplerkit.order.modes import Mode, Shuffle
from samplerkit.order.order import Order
from samplerkit.order.sequences import LaneWeave, Permuted, Table
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.chain import RunConstants
from samplerkit.samplers.shuffled import (
    DistributedSampler,
    ModedSampler,
    RandomSampler,
    WeightedRandomSampler,
)
from samplerkit.samplers.subset import SequentialSampler, SubsetRandomSampler

MAX_FILES = 1 << 14
"""The most files, in random order, that are examined, if they fill at least `MIN_BLOCKS` blocks."""

MIN_BLOCKS = 64
"""The fewest blocks that `MAX_FILES` files must fill."""


@dataclass(frozen=True)
class PlainMode:
    """One shuffle mode over a whole layout, for which there may be closed forms.

    Args:
        mode: the mode with its arguments; it may be ADAPTIVE, which `shuffle` resolves.
        layout: the samples.
        lanes: the number of lanes of the order.
        seed: the seed of the sampler.
    """

    mode: Mode
    layout: Layout
    lanes: int
    seed: int

    @property
    def shuffle(self) -> Shuffle:
        """The shuffle mode, never ADAPTIVE."""
        return self.mode.resolve(self.layout)

    @property
    def shuffles_files(self) -> bool:
        """Whether the files are read in a different order in each epoch."""
        return self.shuffle in (Shuffle.FILES, Shuffle.PARTIAL) and self.layout.num_files > 1

    @property
    def lane_starts(self) -> Ids:
        """The first row of each lane, and the number of rows at the end."""
        return LaneWeave(len(self.layout), self.lanes).starts

    def file_sizes(self, epoch: int, most: int | None = None) -> Ids:
        """Returns the sizes of the files, or of the first ones, in the order in which an epoch reads them."""
        sizes = self.layout.sizes
        if not self.shuffles_files:
            return sizes[:most]
        key = Key(self.seed, epoch, 0, "files")
        return sizes[Permuted(sizes.size, key).ids_at(np.arange(sizes.size)[:most])]

    def first_blocks(self, epoch: int, block_size: int) -> tuple[Ids, Ids]:
        """Returns the files that an epoch reads, and the starts of its lanes.

        If there are very many files, only those of the first blocks are returned: files are in random order,
        so that more of them would not change the figures.

        Returns:
            The sizes of the files; and the first row of each lane, and the number of rows.
        """
        lanes = self.lane_starts
        size = min(block_size, int(np.diff(lanes).max()))
        if self.shuffles_files and self.layout.sizes.size > MAX_FILES:
            sizes = self.file_sizes(epoch, MAX_FILES)
            rows = int(sizes.sum())
            starts = lanes[lanes <= rows]
            end = rows - (rows - int(starts[-1])) % size
            if end >= MIN_BLOCKS * size:
                return np.diff(np.minimum(edges_of(sizes), end)), np.append(starts[starts < end], end)
        return self.file_sizes(epoch), lanes

    def order(self, epoch: int) -> Order:
        """Returns the undealt order of an epoch."""
        mode = replace(self.mode, lanes=self.lanes)
        return mode.order(self.layout, lambda role: Key(self.seed, epoch, 0, role), self.lanes)


@dataclass(frozen=True)
class OrderSource:
    """The orders of all epochs of a run.

    Args:
        layout: the layout of the dataset.
        length: samples in an epoch.
        order: returns the order of an epoch.
        plain: the mode, if each epoch reads all samples of the layout once in this mode; otherwise None.
        is_shuffled: whether any two samples of an epoch are equally likely at any two positions.
    """

    layout: Layout
    length: int
    order: Callable[[int], Order]
    plain: PlainMode | None = None
    is_shuffled: bool = False

    @classmethod
    def of(cls, order: Sampler | Order, dataset: Any, world: World | None) -> OrderSource:
        """Makes the source of a sampler or an order.

        Args:
            order: a sampler, or one order, which is used for every epoch.
            dataset: a dataset, a layout or a number of samples.
            world: the ranks of the first start; None takes them from the sampler, then from the running job.

        Raises:
            ArgumentTypeError: `order` is neither.
        """
        if isinstance(order, Order):
            return cls(Layout.of(dataset), len(order), lambda _: order)
        if not isinstance(order, Sampler):
            raise ArgumentTypeError("order", "must be a sampler or an order", order)
        layout, constants = Layout.of(dataset), order.chain.constants(world)
        reader = _reader(order)
        plain = None if reader is None else _plain(reader, layout, constants)
        undealt = partial(order.undealt_order, dataset, constants=constants)
        # Built once here, so that errors show before figures are computed.
        length = len(undealt(0))
        is_shuffled = reader is not None and _is_shuffled(reader, layout)
        return cls(layout, length, undealt, plain, is_shuffled)


def _reader(sampler: Sampler) -> Sampler | None:
    """Returns the sampler that decides the order, below distributed samplers that only deal its samples.

    Returns:
        The sampler; None if the deal is below the root, so that each shard is drawn from separately, and for
        the algorithms of other libraries, whose modes have other rules.
    """
    if sampler.chain.algorithm != ALGORITHM:
        return None
    child = sampler.get_child()
    while child is not None and isinstance(sampler, DistributedSampler) and child.chain.deal is None:
        if sampler.shuffle is not Shuffle.FALSE or (sampler.lanes or 1) > 1:
            return sampler
        sampler, child = child, child.get_child()
    return None if child is not None and child.chain.deal is not None else sampler


def _is_shuffled(reader: Sampler, layout: Layout) -> bool:
    if isinstance(reader, SubsetRandomSampler):
        return True
    if isinstance(reader, RandomSampler | WeightedRandomSampler) and reader.replacement:
        return True
    if not isinstance(reader, RandomSampler | DistributedSampler):
        return False
    # With a child, the mode is always GLOBAL or FALSE.
    return reader.mode.resolve(layout) is Shuffle.GLOBAL


def _plain(reader: Sampler, layout: Layout, constants: RunConstants) -> PlainMode | None:
    size = len(layout)
    # A limit for each shard selects nothing if the shards together read all samples.
    reads_all = isinstance(reader, DistributedSampler) or selector_of(reader, size) is None
    if reader.get_child() is not None or not reads_all or (constants.limit or size) < size:
        return None
    if isinstance(reader, ModedSampler):
        return PlainMode(reader.mode, layout, reader.mode.lane_count(layout, constants.lanes), reader.seed)
    return PlainMode(Mode(Shuffle.FALSE), layout, 1, 0)


def selector_of(sampler: Sampler, size: int) -> Sampler | None:
    """Returns the sampler of a chain that selects or repeats samples; None if each sample is read once.

    Args:
        sampler: the chain. Pads of a deal to ranks do not count as repeats.
        size: samples in the dataset.

    Example:
        >>> import samplerkit as sk
        >>> chain = sk.DistributedSampler(shuffle=False)
        >>> chain.add_child(sk.SubsetSampler([4, 2]))
        >>> selector_of(chain, 9), selector_of(sk.RandomSampler(), 9)
        (SubsetSampler(indices=[4, 2]), None)
    """
    deals = 0
    for link in sampler._links():
        reads_all = (link.num_samples or size) >= size and (
            (isinstance(link, SequentialSampler) and not link.start_index)
            or (isinstance(link, RandomSampler) and not link.replacement)
            or isinstance(link, DistributedSampler)
        )
        deals += link.deal is not None
        if not reads_all or deals > 1:
            return link
    return None


WINDOWS = 8
"""The number of windows of each size in an epoch."""

READ_WHOLE = 256
"""The largest window of which all samples are read."""

READ_OF_A_WINDOW = 64
"""The number of random samples of a larger window: they vary less than windows do."""

READ_OF_AN_EPOCH = 2048
"""The number of random samples of an epoch, for statistics of the whole epoch."""

MAX_BUILT = 1 << 25
"""The most ids that are built in all for orders that are tables, such as a user's own."""

_EXACT_FLOATS = 2.0**-53

Statistic = Callable[[Ids, Ids, int], Numbers]
"""A mean over the pairs of samples of each segment; a function of the samples' segments, their ids, and the
number of segments."""


class WindowSamples:
    """Samples of windows of some epochs, from which statistics are estimated.

    Args:
        source: the orders of the epochs.
        windows: the sizes of the windows.
        epochs: the number of epochs, from epoch 0; for orders that are built as tables, fewer epochs, with
            more windows each.
    """

    def __init__(self, source: OrderSource, windows: tuple[int, ...], epochs: int) -> None:
        order = source.order(0)
        built = sum(len(part) for part in getattr(order, "parts", (order,)) if isinstance(part, Table))
        affordable = min(epochs, max(2, MAX_BUILT // max(1, built)))
        self._shape = (len(windows), -(-epochs * WINDOWS // affordable))
        # If each epoch holds all samples once, the statistic of the whole epoch is known.
        self._reads_whole = source.plain is None
        self._read = [
            self._places(source.order(epoch), windows, Key(0, epoch, 0, "quality"))
            for epoch in range(affordable)
        ]

    def _places(self, order: Order, windows: tuple[int, ...], key: Key) -> tuple[Ids, Ids, Numbers]:
        """Returns the segment and the id of each sample of an epoch, sorted, and the pairs of each window.

        A segment is a window; if the whole epoch is sampled, it is the last segment.
        """
        per_epoch, length = self._shape[1], len(order)
        segments = len(windows) * per_epoch
        uniform = _uniform(key, 0, segments * (READ_OF_A_WINDOW + 1)).reshape(segments, -1)
        window = np.repeat(windows, per_epoch)
        turn = np.tile(np.arange(per_epoch), len(windows))
        # Windows are spread evenly over an epoch: each is in a part of its own.
        place = (turn + uniform[:, 0]) / per_epoch
        start = 2 - window + (place * (length + window - 3)).astype(np.int64)
        first, end = np.maximum(0, start), np.minimum(length, start + window)
        chosen = [_choose(*row) for row in zip(first.tolist(), end.tolist(), uniform[:, 1:], strict=True)]
        if self._reads_whole:
            chosen.append(_choose(0, length, _uniform(key, 1, READ_OF_AN_EPOCH)))
        segment = np.repeat(np.arange(len(chosen)), [part.size for part in chosen])
        size = (end - first).astype(np.float64)
        ids = _sorted_within(segment, order.ids_at(np.concatenate(chosen)))
        return segment, ids, size * (size - 1) / 2

    def mean(self, statistic: Statistic) -> tuple[Estimate, Estimate | None]:
        """Estimates the mean of a statistic over the pairs of samples in a window.

        Returns:
            The means in windows of each size, and over the pairs of a whole epoch if that was sampled.
        """
        above, below, epochs = [], [], []
        for segment, ids, pairs in self._read:
            means = statistic(segment, ids, pairs.size + self._reads_whole)
            above.append((means[: pairs.size] * pairs).reshape(self._shape).sum(axis=1))
            below.append(pairs.reshape(self._shape).sum(axis=1))
            epochs.append(means[pairs.size :])
        windows = Estimate.ratio(np.stack(above), np.stack(below))
        return windows, Estimate(np.stack(epochs)) if self._reads_whole else None


def _uniform(key: Key, index: int, count: int) -> Numbers:
    """Returns numbers in [0, 1)."""
    words = key.hashes(np.arange(count), index)
    uniform: Numbers = (words >> np.uint64(11)).astype(np.float64) * _EXACT_FLOATS
    return uniform


def _choose(first: int, end: int, uniform: Any) -> Ids:
    """Returns positions of [first, end): all of them, or distinct random ones."""
    if end - first <= max(READ_WHOLE, uniform.size):
        return np.arange(first, end)
    chosen = np.minimum((uniform * (end - first)).astype(np.int64), end - first - 1)
    return np.unique(chosen) + first


def _sorted_within(segment: Ids, values: Any) -> Any:
    """Sorts the values of each segment."""
    return values[np.lexsort((values, segment))]


def differing(group_of: Callable[[Ids], npt.NDArray[Any]]) -> Statistic:
    """Returns the statistic that is 0 for two samples of one group, and 1 for samples of different groups."""

    def mean(segment: Ids, ids: Ids, count: int) -> Numbers:
        group = _sorted_within(segment, group_of(ids))
        first, sizes = runs_of(group, segment)
        shared = np.bincount(segment[first], sizes * (sizes - 1), minlength=count)
        return 1 - shared / _ordered_pairs(segment, count)

    return mean


def distance(segment: Ids, ids: Ids, count: int) -> Numbers:
    """The statistic that is the distance of two ids; ids must be sorted within segments."""
    sizes = np.bincount(segment, minlength=count)
    starts = np.cumsum(sizes) - sizes
    rank = np.arange(segment.size) - starts[segment]
    # Relative to the smallest id of the segment, so that differences are exact in float64.
    offsets = (ids - ids[starts[segment]]).astype(np.float64)
    summed = np.bincount(segment, (2.0 * rank - sizes[segment] + 1) * offsets, minlength=count)
    return 2 * summed / _ordered_pairs(segment, count)


def _ordered_pairs(segment: Ids, count: int) -> Numbers:
    sizes = np.bincount(segment, minlength=count).astype(np.float64)
    return sizes * (sizes - 1)
