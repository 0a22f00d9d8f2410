"""Mixing of files and of labels, relative to a full shuffle, and the effective batch size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from samplerkit.errors import ArgumentRangeError, ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.inspect.quality.closed import ClosedForms
from samplerkit.inspect.quality.figure import Estimate, Figure, Point
from samplerkit.inspect.quality.order_source import OrderSource, Statistic, WindowSamples, differing, distance
from samplerkit.inspect.quality.pairs import different_pairs, random_distance
from samplerkit.order import arguments
from samplerkit.order.caching import cached_property
from samplerkit.order.deal import World
from samplerkit.order.order import Order
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.groups import checked_labels
from samplerkit.samplers.subset import SequentialSampler

DOUBLINGS = 7
"""The number of windows: the batch size times 2^0 to 2^6."""

MIN_SAMPLES = 4
"""The fewest samples for which a window is meaningful."""

EPOCHS = 64
"""The number of epochs that are sampled if there is no closed form; a standard error needs at least two."""

MANY_FILES = 10_000
"""For more files, whose cost grows with their number, four epochs are sampled."""


@dataclass(frozen=True, eq=False)
class Observation:
    """The orders, windows and epochs from which figures are computed.

    Args:
        source: the orders.
        windows: the sizes of the windows.
        epochs: the number of epochs that are sampled if there is no closed form.
    """

    source: OrderSource
    windows: tuple[int, ...]
    epochs: int = EPOCHS

    @classmethod
    def on(cls, source: OrderSource, batch_size: int, epochs: int = EPOCHS) -> Observation:
        """Makes an observation of windows of a batch and larger."""
        sizes = window_sizes(source.length, arguments.positive("batch_size", batch_size))
        return cls(source, sizes, epochs if source.layout.num_files <= MANY_FILES else 4)

    @property
    def has_files(self) -> bool:
        """Whether there are files that could be mixed."""
        return int(np.count_nonzero(self.source.layout.sizes)) > 1

    def mixing(self) -> Figure:
        """Returns the mixing, with its parts."""
        parts = (self.file_mixing(), self.spread()) if self.has_files else (self.spread(),)
        return replace(min(parts, key=lambda part: part.value), name="mixing", parts=parts)

    def file_mixing(self) -> Figure:
        """Returns the file mixing."""
        layout = self.source.layout
        estimate = None if self._closed is None else self._closed.file_mixing()
        estimate = estimate or self._sampled(differing(layout.file_of), different_pairs(layout.sizes))
        return estimate.figure("file_mixing", self.windows)

    def spread(self) -> Figure:
        """Returns the spread."""
        estimate = None if self._closed is None else self._closed.spread()
        estimate = estimate or self._sampled(distance, random_distance(len(self.source.layout)))
        return estimate.figure("spread", self.windows)

    def label_mixing(self, labels: Any, name: str = "label_mixing") -> Figure:
        """Returns the mixing of labels."""
        group, sizes = _classes(labels, len(self.source.layout))
        estimate = self._sampled(differing(group.__getitem__), different_pairs(sizes))
        return estimate.figure(name, self.windows)

    def effective_batch(self, labels: Any = None) -> Figure:
        """Returns the effective batch: by labels, or as if all samples of a file were alike."""
        figure = self.file_mixing() if labels is None else self.label_mixing(labels)
        mixed, batch = figure.curve[0], self.windows[0]
        per_share = (batch - 1) / (1 - batch / self.source.length)
        # A batch that is more balanced than a random one is worth more, but never more than all samples.
        effect = max(1 + (1 - mixed.value) * per_share, batch / self.source.length)
        value = batch / effect
        error = value / effect * per_share * mixed.standard_error
        return Figure("effective_batch", value, error, figure.exact, (Point(batch, value, error),))

    @cached_property
    def _closed(self) -> ClosedForms | None:
        plain = None if self.source.is_shuffled else self.source.plain
        return None if plain is None else ClosedForms(plain, self.windows)

    @cached_property
    def _samples(self) -> WindowSamples:
        return WindowSamples(self.source, self.windows, self.epochs)

    def _sampled(self, statistic: Statistic, reference: float) -> Estimate:
        """Estimates a statistic of two samples of a window, divided by that of two samples of the epoch.

        Args:
            statistic: the statistic.
            reference: its value for two random samples of the dataset.
        """
        if self.source.is_shuffled:
            return Estimate(np.ones((1, len(self.windows))))
        windows, epoch_mean = self._samples.mean(statistic)
        return windows.over(epoch_mean or Estimate(np.array([[reference]])))


def window_sizes(num_samples: int, batch_size: int) -> tuple[int, ...]:
    """Returns the sizes of the windows, in samples.

    They are the batch size times 1, 2, 4, up to 64, as far as they hold at least two samples and at most half
    of the order. If a batch holds more than half, the only window is half of the order.

    Raises:
        ArgumentRangeError: the order has fewer than four samples, too few for a window.

    Example:
        >>> window_sizes(1000, 100), window_sizes(1000, 1), window_sizes(100, 64)
        ((100, 200, 400), (2, 4, 8, 16, 32, 64), (50,))
    """
    if num_samples < MIN_SAMPLES:
        raise ArgumentRangeError("dataset", "has too few samples to measure mixing", num_samples)
    half = num_samples // 2
    doubled = (batch_size << doubling for doubling in range(DOUBLINGS))
    return tuple(window for window in doubled if 2 <= window <= half) or (half,)


def mixing(
    order: Sampler | Order,
    dataset: Any,
    batch_size: int,
    *,
    world: World | None = None,
) -> Figure:
    """Computes how well an order mixes the storage order: 1 for a full shuffle, 0 for none.

    It is the smaller of two figures: `file_mixing` measures whether the samples of a window come from as many
    files as those of a full shuffle, `spread` whether they are as far apart. Both are means over windows of
    1, 2, 4, up to 64 batches, as long as a window is at most half of the epoch. A layout of fewer than two
    files has only the spread.

    Args:
        order: a sampler, whose order of all shards together is measured, or an `Order`.
        dataset: a dataset, a `Layout`, or a number of samples.
        batch_size: samples in a batch of all ranks together.
        world: the ranks of the first start, for lanes; None takes them from the sampler, then from the
            running job.

    Returns:
        The figure, with the two figures in `parts`.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: `batch_size` is not positive, or there are fewer than four samples.
        ShuffleModeError: the mode needs files, and the dataset has none.

    Example:
        >>> import samplerkit as sk
        >>> layout = sk.Layout([1437] * 8)
        >>> for size in (1000, 1437, 1500):
        ...     sampler = sk.RandomSampler(shuffle="partial", partial_size=size)
        ...     print(size, mixing(sampler, layout, batch_size=32))
        1000 mixing .329 (exact; weakest .244 in windows of 32)
        1437 mixing .138 (exact; weakest .008 in windows of 32)
        1500 mixing .364 (exact; weakest .282 in windows of 32)
    """
    return _observe(order, dataset, batch_size, world).mixing()


def file_mixing(
    order: Sampler | Order,
    dataset: Any,
    batch_size: int,
    *,
    world: World | None = None,
) -> Figure:
    """Computes whether the samples of a window come from as many files as those of a full shuffle.

    It is the probability that two samples of one window are in different files, divided by the same
    probability for two samples of the epoch. Above 1, windows hold more files than at random. Arguments as
    for `mixing`.

    Raises:
        DatasetError: the dataset has fewer than two files.

    Example:
        >>> import samplerkit as sk
        >>> print(file_mixing(sk.RandomSampler(shuffle="files"), sk.Layout([1000] * 64), 32))
        file_mixing .182 (exact; weakest .011 in windows of 32)
    """
    observation = _observe(order, dataset, batch_size, world)
    if not observation.has_files:
        layout = observation.source.layout
        raise DatasetError("dataset", "has fewer than two files to mix", layout, hint="ask for spread")
    return observation.file_mixing()


def spread(
    order: Sampler | Order,
    dataset: Any,
    batch_size: int,
    *,
    world: World | None = None,
) -> Figure:
    """Computes whether the samples of a window are as far apart in storage as those of a full shuffle.

    It is the mean distance of the ids of two samples of one window, divided by that of two samples of the
    epoch. Arguments as for `mixing`.

    Example:
        >>> import samplerkit as sk
        >>> round(spread(sk.SequentialSampler(), 10_000, 100).value, 2)
        0.1
    """
    return _observe(order, dataset, batch_size, world).spread()


def _observe(order: Sampler | Order, dataset: Any, batch_size: int, world: World | None) -> Observation:
    return Observation.on(OrderSource.of(order, dataset, world), batch_size)


ALREADY_MIXED = 0.95
"""From this label mixing of the storage order on, every mode is about as good as a full shuffle."""


def label_mixing(
    order: Sampler | Order,
    dataset: Any,
    batch_size: int,
    labels: Any,
    *,
    world: World | None = None,
) -> Figure:
    """Computes how well an order mixes labels: 1 for a full shuffle, 0 if each window holds one label.

    It is the probability that two samples of one window have different labels, divided by the same
    probability for two samples of the epoch.

    Args:
        order: as for `mixing`.
        dataset: as for `mixing`.
        batch_size: samples in a batch of all ranks together.
        labels: the label of each sample of the dataset: integers or strings, shape (n,).
        world: as for `mixing`.

    Raises:
        DatasetError: there is not one label for each sample.
        ArgumentTypeError: the labels are not a flat list of integers or strings.
        ArgumentValueError: all labels are the same.

    Example:
        >>> import samplerkit as sk
        >>> labels = np.repeat(np.arange(10), 100)
        >>> sorted_by_label = label_mixing(sk.SequentialSampler(), 1000, 32, labels)
        >>> round(sorted_by_label.value, 1), label_mixing(sk.RandomSampler(), 1000, 32, labels).value
        (0.4, 1.0)
    """
    return _observe(order, dataset, batch_size, world).label_mixing(labels)


def storage_mixing(dataset: Any, batch_size: int, labels: Any) -> Figure:
    """Computes how well labels are mixed in storage order: the label mixing without a shuffle.

    Near 1, every shuffle mode mixes labels as well as a full shuffle. Arguments and errors as for
    `label_mixing`.

    Example:
        >>> round(storage_mixing(1000, 32, np.arange(1000) % 10).value, 2)
        1.01
    """
    observation = _observe(SequentialSampler(), dataset, batch_size, World())
    return observation.label_mixing(labels, "storage_mixing")


def effective_batch(
    order: Sampler | Order,
    dataset: Any,
    batch_size: int,
    labels: Any = None,
    *,
    world: World | None = None,
) -> Figure:
    """Computes the size of a random batch that has as much information as one of this order.

    For any quantity that depends only on the label, its mean over a batch varies as much as over this many
    random samples. It is the batch size divided by Kish's design effect 1 + (1 - q) (w - 1) / (1 - w / n),
    where q is the mixing at the window w of one batch. Without labels, all samples of a file are taken to be
    alike, which is the worst case. Arguments as for `label_mixing`.

    Raises:
        DatasetError: there are neither labels nor at least two files, or not one label for each sample.

    Source: Kish, "Survey Sampling" (1965).

    Example:
        >>> import samplerkit as sk
        >>> labels = np.repeat(np.arange(10), 1000)
        >>> unshuffled = effective_batch(sk.SequentialSampler(), 10_000, 100, labels)
        >>> round(unshuffled.value), round(effective_batch(sk.RandomSampler(), 10_000, 100, labels).value)
        (1, 100)
    """
    observation = _observe(order, dataset, batch_size, world)
    if labels is None and not observation.has_files:
        raise DatasetError("labels", "are needed for a dataset of fewer than two files", hint="give labels")
    return observation.effective_batch(labels)


def _classes(labels: Any, size: int) -> tuple[Ids, Ids]:
    """Returns the class number of each sample, and the size of each class."""
    array = checked_labels(labels, "labels")
    if array.dtype.kind == "f":  # no classes
        raise ArgumentTypeError("labels", "must be a flat list of integers or strings", labels)
    if array.size != size:
        raise DatasetError("labels", f"must be one for each of the {size} samples", array.size)
    classes, group, sizes = np.unique(array, return_inverse=True, return_counts=True)
    if classes.size < 2:
        raise ArgumentValueError("labels", "are all the same, so that nothing can be mixed", classes.tolist())
    return group, sizes
