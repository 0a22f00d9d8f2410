"""What labels tell: how well an order mixes classes, and whether they lay mixed already."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.inspect.quality.figure import Estimate, Figure, Point
from samplerkit.inspect.quality.observation import Observation
from samplerkit.inspect.quality.order_source import OrderSource
from samplerkit.inspect.quality.pairs import different_pairs
from samplerkit.inspect.quality.sampled import differing
from samplerkit.order.deal import World
from samplerkit.order.order import Order
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler

ALREADY_MIXED = 0.95
"""The label mixing of storage from which on every mode is about as good as a full shuffle."""


def label_mixing(
    order: Sampler | Order,
    dataset: Any,
    batch_size: int,
    labels: Any,
    *,
    world: World | None = None,
    epochs: int = 64,
    windows: int = 8,
    seed: int = 0,
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
        epochs: how many epochs are looked at.
        windows: how many windows of each size in each of them.
        seed: of the places of these windows.

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
    look = Observation.on(OrderSource.of(order, dataset, world), batch_size, epochs, windows, seed)
    return _mixed(look, labels).figure("label_mixing", look.plan.windows)


def storage_mixing(
    dataset: Any, batch_size: int, labels: Any, *, epochs: int = 64, windows: int = 8, seed: int = 0
) -> Figure:
    """Reports how well labels are mixed as the samples lie: the label mixing of no shuffle at all.

    Near 1, every shuffle mode is as good as a full shuffle, as far as labels go. Arguments and errors as for
    `label_mixing`.

    Example:
        >>> round(storage_mixing(1000, 32, np.arange(1000) % 10).value, 2)
        1.01
    """
    look = Observation.on(OrderSource.of_storage(dataset), batch_size, epochs, windows, seed)
    return _mixed(look, labels).figure("storage_mixing", look.plan.windows)


def effective_batch(
    order: Sampler | Order,
    dataset: Any,
    batch_size: int,
    labels: Any = None,
    *,
    world: World | None = None,
    epochs: int = 64,
    windows: int = 8,
    seed: int = 0,
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
    subject = OrderSource.of(order, dataset, world)
    look = Observation.on(subject, batch_size, epochs, windows, seed)
    batch = look.plan.windows[0]
    look = replace(look, plan=replace(look.plan, windows=(batch,)))
    if labels is not None:
        figure = _mixed(look, labels).figure("label_mixing", look.plan.windows)
    elif look.has_files:
        figure = look.figures("file_mixing")[0]
    else:
        raise DatasetError("labels", "are needed for a dataset of fewer than two files", hint="give labels")
    size = subject.length
    per_share = (batch - 1) / (1 - batch / size)
    # A batch that is more even than a random one is worth more, but never more than all samples.
    effect = max(1 + (1 - figure.value) * per_share, batch / size)
    value = batch / effect
    error = value / effect * per_share * figure.standard_error
    return Figure("effective_batch", value, error, figure.exact, (Point(batch, value, error),))


def _mixed(look: Observation, labels: Any) -> Estimate:
    """Estimates the label mixing at each window."""
    group, sizes = _classes(labels, len(look.subject.layout))
    return look.estimates((differing(group.__getitem__), different_pairs(sizes)))[0]


def _classes(labels: Any, size: int) -> tuple[Ids, Ids]:
    """Numbers the labels, and counts each."""
    if isinstance(labels, str | bytes) or not (hasattr(labels, "__array__") or hasattr(labels, "__len__")):
        raise ArgumentTypeError("labels", "must be a list of labels", labels)
    try:
        array = np.asarray(labels)
    except ValueError:
        array = np.zeros((0, 0))
    if array.ndim != 1 or array.dtype.kind not in "iubUS":
        raise ArgumentTypeError("labels", "must be a flat list of integers or strings", labels)
    if array.size != size:
        raise DatasetError("labels", f"must be one for each of the {size} samples", array.size)
    found, group, sizes = np.unique(array, return_inverse=True, return_counts=True)
    if found.size < 2:
        raise ArgumentValueError("labels", "are all the same, so that nothing can be mixed", found.tolist())
    return group, sizes
