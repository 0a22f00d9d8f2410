"""Closed forms: what the shuffle modes mix, from the sizes of files and blocks alone.

File mixing is (1 - P) / (1 - P0): P is the chance that two samples of one window share a file, P0 the same
for two samples of the whole epoch. Spread is the mean distance of the ids of two samples of one window, over
that of two samples of the epoch. Both are 1 for a full shuffle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from samplerkit.inspect.quality.blocks import Blocks
from samplerkit.inspect.quality.figure import Estimate
from samplerkit.inspect.quality.order_source import Plain
from samplerkit.inspect.quality.pairs import (
    Numbers,
    Runs,
    different_pairs,
    distance_between_files,
    pair_weight,
    random_distance,
)
from samplerkit.order.modes import Shuffle

EPOCHS = 64
"""How many epochs' sequences of files are looked at where they matter; fewer where they hardly do."""

MANY_FILES = 1000
"""Of more files an eighth of these epochs is looked at; of ten times as many, one."""

ALIKE = 0.05
"""The relative deviation of file sizes below which their sequence matters little."""

MOST_UNLIKE = 0.04
"""The largest relative deviation of file sizes, over the root of their number, for a closed spread."""

_Sums = list[tuple[Numbers, Numbers]]


def closed_figures(
    plain: Plain, windows: tuple[int, ...], names: Sequence[str]
) -> dict[str, Estimate | None]:
    """Gives file mixing, spread or both at each window; None where there is no closed form."""
    # Both rest on the pairs that share a file, which take all the time there is.
    sums = _same_file(plain, windows) if "file_mixing" in names or plain.shuffles_files else None
    make = {"file_mixing": _file_mixing, "spread": _spread}
    return {name: make[name](plain, windows, sums) for name in names}


def _file_mixing(plain: Plain, windows: tuple[int, ...], sums: _Sums | None) -> Estimate | None:
    if sums is None:
        return None
    chance = different_pairs(plain.layout.sizes)
    total = _total(plain, windows)
    return Estimate.mean_of([(1 - weight / total) / chance for weight, _ in sums])


def _spread(plain: Plain, windows: tuple[int, ...], sums: _Sums | None) -> Estimate | None:
    """Gives the spread.

    Where the files are shuffled, two samples of different files are, on average over epochs, as far apart as
    any two of different files: right where files are of one size, and close where they are not too unlike.
    """
    if not plain.shuffles_files:
        return (
            None if plain.lanes > 1 or plain.mode.pools > 1 else Estimate(_spread_in_sequence(plain, windows))
        )
    if sums is None or _unlike(plain):
        return None
    apart = distance_between_files(plain.layout.sizes)
    total, at_random = _total(plain, windows), random_distance(len(plain.layout))
    return Estimate.mean_of(
        [(distance + (total - weight) * apart) / total / at_random for weight, distance in sums]
    )


def _unlike(plain: Plain) -> bool:
    """Whether sizes differ so much, for so few files, that two of them are not like any two."""
    return _deviation(plain) > MOST_UNLIKE * math.sqrt(plain.layout.sizes.size)


def _deviation(plain: Plain) -> float:
    sizes = plain.layout.sizes
    return float(sizes.std() / sizes.mean())


def _epochs(plain: Plain) -> int:
    """Reports how many epochs' sequences of files are looked at."""
    sizes = plain.layout.sizes
    runs_only = plain.shuffle is Shuffle.FILES and plain.lanes == 1
    if not plain.shuffles_files or runs_only or sizes.min() == sizes.max():
        return 1
    if sizes.size > 10 * MANY_FILES:
        return 1
    return EPOCHS // 8 if sizes.size > MANY_FILES or _deviation(plain) < ALIKE else EPOCHS


def _total(plain: Plain, windows: tuple[int, ...]) -> Numbers:
    return np.array([float(pair_weight(len(plain.layout), window)) for window in windows])


def _same_file(plain: Plain, windows: tuple[int, ...]) -> _Sums | None:
    """Sums over the pairs that share a file: their weights, and weights times distances; for each epoch."""
    is_partial = plain.shuffle is Shuffle.PARTIAL
    if (is_partial and plain.mode.pools > 1) or not _lanes_stay_apart(plain, max(windows)):
        return None
    # Rows that are not shuffled among themselves are blocks of one.
    block, sums = plain.mode.partial_size if is_partial else 1, []
    for epoch in range(_epochs(plain)):
        rows = plain.first_blocks(epoch, block)
        cut = Blocks.of(*rows, block)
        each = np.array([cut.same_file(window, plain.lanes) for window in windows])
        # What is not looked at is like what is.
        weights, distances = each.T * (len(plain.layout) / int(rows[1][-1]))
        sums.append((weights, distances))
    return sums


def _lanes_stay_apart(plain: Plain, window: int) -> bool:
    """Whether no window holds rows of one file from two lanes: the end of one and the start of the next."""
    if plain.lanes == 1:
        return True
    moved = 2 * plain.mode.partial_size if plain.shuffle is Shuffle.PARTIAL else 0
    between = len(plain.layout) // plain.lanes - int(plain.layout.sizes.max()) - moved
    return between * plain.lanes >= window + plain.lanes


def _spread_in_sequence(plain: Plain, windows: tuple[int, ...]) -> Numbers:
    """The spread where shuffled runs of rows follow one another as they lie: FALSE, INFILE, PARTIAL."""
    size = len(plain.layout)
    runs = Runs(np.ones(1), size)
    if plain.shuffle is Shuffle.INFILE:
        runs = Runs(plain.layout.sizes, 1)
    elif plain.shuffle is Shuffle.PARTIAL:
        whole, rest = divmod(size, plain.mode.partial_size)
        runs = Runs(np.array([plain.mode.partial_size]), whole, rest)
    distances = [runs.distance(window) for window in windows]
    return np.array(distances) / _total(plain, windows) / random_distance(size)
