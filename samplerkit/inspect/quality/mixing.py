"""Mixing: how close an order comes to a full shuffle, of files and of labels; what a batch is worth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from samplerkit.errors import ArgumentRangeError, ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.inspect.quality.closed import ClosedForms
from samplerkit.inspect.quality.figure import Estimate, Figure, Point
from samplerkit.inspect.quality.order_source import OrderSource
from samplerkit.inspect.quality.pairs import different_pairs, random_distance
from samplerkit.inspect.quality.sampled import Statistic, WindowSamples, differing, distance
from samplerkit.order import arguments
from samplerkit.order.caching import cached_property
from samplerkit.order.deal import World
from samplerkit.order.order import Order
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.pk import checked_labels
from samplerkit.samplers.subset import SequentialSampler

DOUBLINGS = 7
"""How many windows there are: the batch size times 2^0 to 2^6."""

LEAST_SAMPLES = 4
"""Of fewer, no window says anything."""

EPOCHS = 64
"""How many epochs are looked at where there is no closed form, for a standard error at least two."""

MANY_FILES = 10_000
"""Of more files, each of which costs something in each epoch, four are looked at."""


@final
@dataclass(frozen=True, eq=False)
class Observation:
    """What is looked at, and how much of it.

    Args:
        source: the orders.
        windows: the sizes of the windows.
        epochs: how many epochs are looked at where there is no closed form.
    """

    source: OrderSource
    windows: tuple[int, ...]
    epochs: int = EPOCHS

    @classmethod
    def on(cls, source: OrderSource, batch_size: int, epochs: int = EPOCHS) -> Observation:
        """Looks at windows of a batch and more."""
        sizes = window_sizes(source.length, arguments.positive("batch_size", batch_size))
        return cls(source, sizes, epochs if source.layout.num_files <= MANY_FILES else 4)

    @property
    def has_files(self) -> bool:
        """Whether there are files that could be mixed."""
        return int(np.count_nonzero(self.source.layout.sizes)) > 1

    def mixing(self) -> Figure:
        """Gives the mixing, with its parts."""
        parts = (self.file_mixing(), self.spread()) if self.has_files else (self.spread(),)
        return replace(min(parts, key=lambda part: part.value), name="mixing", parts=parts)

    def file_mixing(self) -> Figure:
        """Gives the file mixing."""
        layout = self.source.layout
        found = None if self._closed is None else self._closed.file_mixing()
        found = found or self._sampled(differing(layout.file_of), different_pairs(layout.sizes))
        return found.figure("file_mixing", self.windows)

    def spread(self) -> Figure:
        """Gives the spread."""
        found = None if self._closed is None else self._closed.spread()
        found = found or self._sampled(distance, random_distance(len(self.source.layout)))
        return found.figure("spread", self.windows)

    def label_mixing(self, labels: Any, name: str = "label_mixing") -> Figure:
        """Gives the mixing of labels."""
        group, sizes = _classes(labels, len(self.source.layout))
        found = self._sampled(differing(group.__getitem__), different_pairs(sizes))
        return found.figure(name, self.windows)

    def effective_batch(self, labels: Any = None) -> Figure:
        """Gives the effective batch: by labels, or as if all samples of a file were alike."""
        figure = self.file_mixing() if labels is None else self.label_mixing(labels)
        mixed, batch = figure.curve[0], self.windows[0]
        per_share = (batch - 1) / (1 - batch / self.source.length)
        # A batch that is more even than a random one is worth more, but never more than all samples.
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

    def _sampled(self, statistic: Statistic, known: float) -> Estimate:
        """Estimates a statistic of two samples of a window, over that of two samples of the epoch.

        Args:
            statistic: which one.
            known: what it is for two samples of the dataset.
        """
        if self.source.is_shuffled:
            return Estimate(np.ones((1, len(self.windows))))
        windows, whole = self._samples.mean(statistic)
        return windows.over(whole or Estimate(np.array([[known]])))


def window_sizes(num_samples: int, batch_size: int) -> tuple[int, ...]:
    """Gives the sizes of the windows, in samples.

    They are the batch size times 1, 2, 4, up to 64, as far as they hold at least two samples and at most half
    of the order. Where already a batch holds more than half, half of the order is the only window.

    Raises:
        ArgumentRangeError: the order has fewer than four samples, so that no window says anything.

    Example:
        >>> window_sizes(1000, 100), window_sizes(1000, 1), window_sizes(100, 64)
        ((100, 200, 400), (2, 4, 8, 16, 32, 64), (50,))
    """
    if num_samples < LEAST_SAMPLES:
        raise ArgumentRangeError("dataset", "has too few samples to speak of mixing", num_samples)
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
    """Reports how well an order mixes the samples as they lie: 1 for a full shuffle, 0 for none.

    It is the smaller of two figures. `file_mixing` asks whether the samples of a window come from as many
    files as those of a full shuffle would; `spread` whether they lie as far apart. Both are means over
    windows of a batch, two batches, up to 64 batches, as far as half of the epoch goes. A layout of fewer
    than two files has the spread alone.

    Args:
        order: a sampler, of which the order of all shards together is looked at, or an `Order`.
        dataset: what is drawn from: a dataset, a `Layout`, or a number of samples.
        batch_size: samples in a batch of all ranks together.
        world: of the first start, for lanes; None for what the sampler says, or the running job.

    Returns:
        The figure, with `parts`: the two of which it is the smaller one.

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
    return _look(order, dataset, batch_size, world).mixing()


def file_mixing(
    order: Sampler | Order,
    dataset: Any,
    batch_size: int,
    *,
    world: World | None = None,
) -> Figure:
    """Returns whether the samples of a window come from as many files as those of a full shuffle would.

    It is the chance that two samples of one window lie in different files, over the same chance for two
    samples of the epoch. Above 1, windows hold more different files than at random. Arguments as for
    `mixing`.

    Raises:
        DatasetError: the dataset has fewer than two files.

    Example:
        >>> import samplerkit as sk
        >>> print(file_mixing(sk.RandomSampler(shuffle="files"), sk.Layout([1000] * 64), 32))
        file_mixing .182 (exact; weakest .011 in windows of 32)
    """
    look = _look(order, dataset, batch_size, world)
    if not look.has_files:
        layout = look.source.layout
        raise DatasetError("dataset", "has fewer than two files to mix", layout, hint="ask for spread")
    return look.file_mixing()


def spread(
    order: Sampler | Order,
    dataset: Any,
    batch_size: int,
    *,
    world: World | None = None,
) -> Figure:
    """Returns whether the samples of a window lie as far apart in storage as those of a full shuffle would.

    It is the mean distance of the ids of two samples of one window, over that of two samples of the epoch.
    Arguments as for `mixing`.

    Example:
        >>> import samplerkit as sk
        >>> round(spread(sk.SequentialSampler(), 10_000, 100).value, 2)
        0.1
    """
    return _look(order, dataset, batch_size, world).spread()


def _look(order: Sampler | Order, dataset: Any, batch_size: int, world: World | None) -> Observation:
    return Observation.on(OrderSource.of(order, dataset, world), batch_size)


ALREADY_MIXED = 0.95
"""The label mixing of storage from which on every mode is about as good as a full shuffle."""


def label_mixing(
    order: Sampler | Order,
    dataset: Any,
    batch_size: int,
    labels: Any,
    *,
    world: World | None = None,
) -> Figure:
    """Reports how well an order mixes labels: 1 for a full shuffle, 0 where windows hold one label each.

    It is the chance that two samples of one window have different labels, over the same chance for two
    samples of the epoch. Other arguments as for `mixing`.

    Args:
        order: a sampler or an order.
        dataset: what is drawn from.
        batch_size: samples in a batch of all ranks together.
        labels: the label of each sample of the dataset: integers or strings, shape (n,).
        world: of the first start.

    Raises:
        DatasetError: there is not one label for each sample.
        ArgumentTypeError: the labels are no flat list of integers or strings.
        ArgumentValueError: all labels are the same.

    Example:
        >>> import samplerkit as sk
        >>> labels = np.repeat(np.arange(10), 100)
        >>> sorted_by_label = label_mixing(sk.SequentialSampler(), 1000, 32, labels)
        >>> round(sorted_by_label.value, 1), label_mixing(sk.RandomSampler(), 1000, 32, labels).value
        (0.4, 1.0)
    """
    return _look(order, dataset, batch_size, world).label_mixing(labels)


def storage_mixing(dataset: Any, batch_size: int, labels: Any) -> Figure:
    """Reports how well labels are mixed as the samples lie: the label mixing of no shuffle at all.

    Near 1, every shuffle mode is as good as a full shuffle, as far as labels go. Arguments and errors as for
    `label_mixing`.

    Example:
        >>> round(storage_mixing(1000, 32, np.arange(1000) % 10).value, 2)
        1.01
    """
    look = _look(SequentialSampler(), dataset, batch_size, World())
    return look.label_mixing(labels, "storage_mixing")


def effective_batch(
    order: Sampler | Order,
    dataset: Any,
    batch_size: int,
    labels: Any = None,
    *,
    world: World | None = None,
) -> Figure:
    """Reports how large a random batch is that says as much as one of this order.

    The mean over a batch of whatever depends on the label alone varies as much as over that many samples
    drawn at random: the batch size over Kish's design effect 1 + (1 - q) (w - 1) / (1 - w / n), q being the
    mixing at the window w of one batch. Without labels, it is what would hold if all samples of a file were
    alike: the worst case. Arguments as for `label_mixing`.

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
    look = _look(order, dataset, batch_size, world)
    if labels is None and not look.has_files:
        raise DatasetError("labels", "are needed for a dataset of fewer than two files", hint="give labels")
    return look.effective_batch(labels)


def _classes(labels: Any, size: int) -> tuple[Ids, Ids]:
    """Numbers the labels, and counts each."""
    array = checked_labels(labels, "labels")
    if array.dtype.kind == "f":  # no classes
        raise ArgumentTypeError("labels", "must be a flat list of integers or strings", labels)
    if array.size != size:
        raise DatasetError("labels", f"must be one for each of the {size} samples", array.size)
    found, group, sizes = np.unique(array, return_inverse=True, return_counts=True)
    if found.size < 2:
        raise ArgumentValueError("labels", "are all the same, so that nothing can be mixed", found.tolist())
    return group, sizes
