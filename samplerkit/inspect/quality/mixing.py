"""Mixing: how close an order comes to a full shuffle, without labels."""

from __future__ import annotations

from typing import Any

from samplerkit.errors import DatasetError
from samplerkit.inspect.quality.figure import Figure
from samplerkit.inspect.quality.observation import Observation
from samplerkit.inspect.quality.order_source import OrderSource
from samplerkit.order.deal import World
from samplerkit.order.order import Order
from samplerkit.samplers.base import Sampler


def mixing(
    order: Sampler | Order,
    dataset: Any,
    batch_size: int,
    *,
    world: World | None = None,
    epochs: int = 64,
    windows: int = 8,
    seed: int = 0,
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
        epochs: how many epochs are looked at where there is no closed form.
        windows: how many windows of each size in each of them.
        seed: of the places of these windows.

    Returns:
        The figure, with `parts`: the two of which it is the smaller one.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: `batch_size` or `windows` is not positive, `epochs` is below 2, or there are fewer
            than four samples.
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
    return _look(order, dataset, world, batch_size, epochs, windows, seed).mixing()


def file_mixing(
    order: Sampler | Order,
    dataset: Any,
    batch_size: int,
    *,
    world: World | None = None,
    epochs: int = 64,
    windows: int = 8,
    seed: int = 0,
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
    look = _look(order, dataset, world, batch_size, epochs, windows, seed)
    if not look.has_files:
        layout = look.subject.layout
        raise DatasetError("dataset", "has fewer than two files to mix", layout, hint="ask for spread")
    return look.figures("file_mixing")[0]


def spread(
    order: Sampler | Order,
    dataset: Any,
    batch_size: int,
    *,
    world: World | None = None,
    epochs: int = 64,
    windows: int = 8,
    seed: int = 0,
) -> Figure:
    """Returns whether the samples of a window lie as far apart in storage as those of a full shuffle would.

    It is the mean distance of the ids of two samples of one window, over that of two samples of the epoch.
    Arguments as for `mixing`.

    Example:
        >>> import samplerkit as sk
        >>> round(spread(sk.SequentialSampler(), 10_000, 100).value, 2)
        0.1
    """
    return _look(order, dataset, world, batch_size, epochs, windows, seed).figures("spread")[0]


def _look(order: Sampler | Order, dataset: Any, world: World | None, *how_much: int) -> Observation:
    return Observation.on(OrderSource.of(order, dataset, world), *how_much)
