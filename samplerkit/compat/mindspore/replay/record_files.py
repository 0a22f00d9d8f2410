"""The orders of MindSpore's MindDataset, whose rows lie in files.

Every shuffle is one of `std::minstd_rand0` of the same seed: of all rows, of the files, or within each file
or block.
"""

from __future__ import annotations

import numpy as np

from samplerkit.compat.mindspore.replay.generators import MinstdRand0, Mt19937, first_words
from samplerkit.compat.mindspore.replay.shuffle import shuffle
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids

_SEEDS = 2**32


def global_order(size: int, seed: int) -> Ids:
    """Shuffles all rows."""
    return shuffle(size, MinstdRand0(seed % _SEEDS))


def files_order(layout: Layout, seed: int) -> Ids:
    """Shuffles the files; the rows in each stay in order."""
    files = global_order(layout.num_files, seed)
    sizes = layout.sizes[files]
    moves = layout.starts[files] - (np.cumsum(sizes) - sizes)
    rows = np.arange(len(layout))
    rows += np.repeat(moves, sizes)
    return rows


def infile_order(layout: Layout, seed: int) -> Ids:
    """Shuffles the rows of each file; files of one size all in the same way."""
    rows = np.arange(len(layout))
    of_size = {size: global_order(size, seed) for size in np.unique(layout.sizes).tolist()}
    for start, size in zip(layout.starts.tolist(), layout.sizes.tolist(), strict=False):
        rows[start : start + size] = of_size[size]
        rows[start : start + size] += start
    return rows


def blocks_order(num_rows: int, block_size: int, seed: int) -> Ids:
    """Shuffles consecutive blocks of rows, all in the same way, the last one by its own size."""
    rows = np.empty(num_rows, dtype=np.int64)
    block_size = max(1, min(block_size, num_rows))
    whole = num_rows // block_size * block_size
    rows[:whole].reshape(-1, block_size)[:] = global_order(block_size, seed)
    rows[:whole].reshape(-1, block_size)[:] += np.arange(0, whole, block_size)[:, None]
    rows[whole:] = global_order(num_rows - whole, seed)
    rows[whole:] += whole
    return rows


def partial_order(
    layout: Layout, seed: int, block_size: int, num_shards: int, num_samples: int | None
) -> Ids:
    """Shuffles the files, deals the rows to shards, and shuffles blocks of each shard's own rows.

    Args:
        layout: the files.
        seed: of all the shuffles.
        block_size: rows in a block.
        num_shards: each gets ceil(n / num_shards) rows, the last ones repeat the first.
        num_samples: the rows of a shard that are kept, before they are shuffled; None for all.

    Returns:
        The rows of all shards, one of each in turn.
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


def drawn_rows(size: int, count: int, seed: int) -> Ids:
    """Draws rows with replacement: each draw by a `std::mt19937` of its own, of seed, seed + 1, ..."""
    seeds = (seed + np.arange(count)) % _SEEDS
    words = first_words(seeds)
    scale = Mt19937.span // size
    for rejected in np.flatnonzero(words >= scale * size).tolist():
        generator = Mt19937(int(seeds[rejected]))
        while words[rejected] >= scale * size:
            words[rejected] = generator.peek(1)[0]
            generator.skip(1)
    words //= scale
    return words


def contiguous_blocks(size: int, num_shards: int, offset: int) -> Ids:
    """Returns the rows which, dealt like cards from shard `offset` on, give each shard a contiguous block."""
    position = np.arange(size)
    shard = (position + offset) % num_shards
    lengths = np.bincount(shard, minlength=num_shards)
    first = (shard - offset) % num_shards
    return (np.cumsum(lengths) - lengths)[shard] + (position - first) // num_shards
