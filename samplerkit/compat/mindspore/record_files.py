"""The orders of MindSpore's MindDataset, whose rows are in files, and of its ConcatDataset.

Every shuffle over files uses `std::minstd_rand0` with the same seed: of all rows, of the files, or within
each file or block.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np

from samplerkit.compat.mindspore.generators import MinstdRand0, Mt19937, canonical
from samplerkit.compat.mindspore.shuffle import shuffle
from samplerkit.order.intervals import numbers_in
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids


def global_order(size: int, seed: int) -> Ids:
    """Shuffles all rows."""
    return shuffle(size, MinstdRand0(seed % 2**32))


def files_order(layout: Layout, seed: int) -> Ids:
    """Shuffles the files; the rows in each file stay in order."""
    files = global_order(layout.num_files, seed)
    return numbers_in(layout.starts[files], layout.sizes[files])


def infile_order(layout: Layout, seed: int) -> Ids:
    """Shuffles the rows of each file; files of the same size are shuffled in the same way."""
    rows = np.arange(len(layout))
    by_size = {size: global_order(size, seed) for size in np.unique(layout.sizes).tolist()}
    for start, size in zip(layout.starts.tolist(), layout.sizes.tolist(), strict=False):
        rows[start : start + size] = by_size[size]
        rows[start : start + size] += start
    return rows


def blocks_order(num_rows: int, block_size: int, seed: int) -> Ids:
    """Shuffles the rows within consecutive blocks, all in the same way; the last block may be shorter."""
    size = max(1, min(block_size, num_rows))
    blocks = np.arange(0, num_rows - size + 1, size)[:, None] + global_order(size, seed)
    rest = np.arange(blocks.size, num_rows)
    return np.append(blocks, rest[global_order(rest.size, seed)])


def partial_order(
    layout: Layout, seed: int, block_size: int, num_shards: int, num_samples: int | None
) -> Ids:
    """Shuffles the files, deals the rows to shards, and shuffles within blocks of each shard's rows.

    Args:
        layout: the files.
        seed: the seed of all shuffles.
        block_size: the number of rows in a block.
        num_shards: the number of shards; each has ceil(n / num_shards) rows, the last ones repeat the first.
        num_samples: how many rows of a shard are kept, before they are shuffled; None for all.

    Returns:
        The rows of all shards, interleaved: one row of each shard in turn.
    """
    rows = -(-len(layout) // num_shards)
    rows = min(num_samples or rows, rows)
    dealt = blocks_order(rows, block_size, seed)
    if num_shards > 1:
        # One row of the table is one row of each shard.
        dealt = np.arange(rows * num_shards).reshape(rows, num_shards)[dealt].reshape(-1)
    if dealt.size > len(layout):
        dealt %= len(layout)
    return np.take(files_order(layout, seed), dealt, out=dealt, mode="clip")


def contiguous_blocks(size: int, num_shards: int, offset: int) -> Ids:
    """Returns rows that give each shard a contiguous block if dealt in turn from shard `offset` on."""
    position = np.arange(size)
    shard = (position + offset) % num_shards
    lengths = np.bincount(shard, minlength=num_shards)
    return (np.cumsum(lengths) - lengths)[shard] + position // num_shards


_TIE = 1e-12
_CHUNK = 1 << 16

Numbers = np.ndarray[Any, np.dtype[np.float64]]


def random_concat(sizes: Ids, seed: int, epoch: int) -> Ids:
    """Draws, for each position, the part to read next, in proportion to the remaining samples of each part.

    The samples of a part are read in order. One generator is used for all epochs; in each epoch it draws once
    more than there are samples.

    Args:
        sizes: the number of samples in each part, int64 of shape (parts,).
        seed: the seed of the generator.
        epoch: the epoch, from 0.

    Returns:
        The sample ids, int64 of shape (sum of sizes,). Time: proportional to samples times parts.
    """
    total = int(sizes.sum())
    if sizes.size < 2:
        return np.arange(total)
    generator = Mt19937(seed)
    generator.skip(2 * (total + 1) * epoch)
    parts = np.empty(total, dtype=np.int32)
    remaining = sizes.tolist()
    for start in range(0, total, _CHUNK):
        numbers = canonical(generator, min(_CHUNK, total - start))
        parts[start : start + numbers.size] = _parts(remaining, total - start, numbers)
    ids = np.empty(total, dtype=np.int64)
    ids[np.argsort(parts, kind="stable")] = np.arange(total)
    return ids


def _parts(remaining: list[int], total: int, numbers: Numbers) -> list[int]:
    """Draws parts; updates `remaining`, the remaining samples of each part, which are `total` together."""
    # The end of each part but the last one, which is known.
    ends = np.cumsum(remaining[:-1]).tolist()
    last = len(ends)
    totals = np.arange(total, total - numbers.size, -1)
    targets = numbers * totals
    rounded = np.ceil(targets).astype(np.int64)
    # All ends are integers: rounding matters only if a number is close to an integer.
    rounded[np.abs(targets - np.rint(targets)) < _TIE * total] = -1
    parts: list[int] = []
    for number in rounded.tolist():
        part = bisect_left(ends, number)
        if number < 0:
            place = len(parts)
            part = _draw_in_doubles([*ends, int(totals[place])], float(numbers[place]))
        parts.append(part)
        for later in range(part, last):
            ends[later] -= 1
    remaining[:] = np.diff([*ends, total - numbers.size], prepend=0).tolist()
    return parts


def _draw_in_doubles(ends: list[int], number: float) -> int:
    """Draws one part with the same rounding as `std::discrete_distribution`, which matters near borders."""
    remaining = np.diff(np.array(ends, dtype=np.float64), prepend=0.0)
    borders = np.cumsum(remaining / ends[-1])
    borders[-1] = 1.0
    part = int(np.searchsorted(borders, number, side="left"))
    # MindSpore never reads an exhausted part; only the number 0 could select one.
    while not remaining[part]:
        part += 1
    return part
