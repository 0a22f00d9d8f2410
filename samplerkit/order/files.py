"""Orders of files and of blocks: samples file after file, rows shuffled within blocks, blocks cut apart."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from samplerkit.order.caching import Latest, cached_property
from samplerkit.order.intervals import Shifts, distinct, edges_of, groups, interval_of
from samplerkit.order.keys import Key
from samplerkit.order.layout import Layout
from samplerkit.order.order import Located, Order, OrderView, Read
from samplerkit.order.sequences import Permuted, make_tables, permuted_each
from samplerkit.order.typing import Ids

_ROWS_WORTH_A_CALL = 256
"""With more rows than this per block, on average, the blocks of ascending rows are cut apart as slices."""

_ROWS_WORTH_A_NETWORK = 4096
"""With fewer rows than this per block, on average, the networks of all blocks are evaluated together."""

_MAX_CACHED = 1024
"""Blocks whose permutations are cached; their tables have 32 MiB at most."""


class BlockCache:
    """The permutations of blocks of rows. They are cached, since a block is read in many calls.

    Args:
        key: block j of run r is permuted by the words of (r, j).
    """

    def __init__(self, key: Key) -> None:
        self._key = key
        self._cache = Latest[Permuted](_MAX_CACHED)

    def block(self, run: int, number: int, size: int) -> Permuted:
        """Returns the permutation of a block of `size` rows: block `number` of a run, a file or a lane."""
        return self._cache.get((run, number), lambda: Permuted(size, self._key, run, number))


def permuted_within(blocks: list[Permuted], block_of: Ids, rows: Ids, *, inverse: bool = False) -> Ids:
    """Permutes rows[i] by blocks[block_of[i]].

    If each block has few of the rows, all networks of 32-bit words are evaluated together.

    Args:
        blocks: their permutations.
        block_of: the index of the block of each row; shape (m,).
        rows: each below the size of its block; shape (m,).
        inverse: whether to apply the inverses.

    Returns:
        int64 array of shape (m,).
    """
    if len(blocks) == 1:
        return blocks[0].permuted(rows, inverse=inverse)
    is_small = rows.size < _ROWS_WORTH_A_NETWORK * len(blocks)
    together = np.array([is_small and block.is_narrow for block in blocks], dtype=np.bool_)
    if blocks and together.all():
        return permuted_each(blocks, block_of, rows, inverse=inverse)
    make_tables(blocks)
    result = np.empty_like(rows)
    for number, at in groups(block_of):
        if not together[number]:
            result[at] = blocks[number].permuted(rows[at], inverse=inverse)
    at = np.flatnonzero(together[block_of])
    if at.size:
        chosen = [block for block, is_together in zip(blocks, together, strict=True) if is_together]
        result[at] = permuted_each(chosen, (np.cumsum(together) - 1)[block_of[at]], rows[at], inverse=inverse)
    return result


@dataclass(eq=False, repr=False)
class FileSequence(Order):
    """The samples of files, file after file, in storage order within each.

    Args:
        file_layout: the layout of all files; a layout without files counts as one file.
        files: the numbers of the files that are read, in the order in which they are; int64 of shape (m,).
        counts: how many samples of each of these files are read; None for all.
        stride: the distance of the samples that are read in a file.
        keeps_files: whether `layout`, for a sampler that draws from this order, has these files.

    Example:
        >>> FileSequence(Layout([3, 4, 2]), files=np.array([1, 0]))[:]
        array([3, 4, 5, 6, 0, 1, 2])
    """

    file_layout: Layout
    files: Ids
    counts: Ids | None = None
    stride: int = 1
    keeps_files: bool = False

    def __post_init__(self) -> None:
        self._counts = self.file_layout.sizes[self.files] if self.counts is None else self.counts
        self._begins = edges_of(self._counts)
        self._firsts = self.file_layout.starts[self.files]
        self._shifts = Shifts(self._begins, self._firsts - self._begins[:-1])

    def __len__(self) -> int:
        return int(self._begins[-1])

    @cached_property
    def layout(self) -> Layout:
        return Layout(self._counts if self.keeps_files else len(self))

    def ids_at(self, positions: Ids) -> Ids:
        if self.stride == 1:
            return self._shifts.moved(positions)
        at = interval_of(self._begins, positions)
        return self._firsts[at] + (positions - self._begins[at]) * self.stride

    def locate(self, ids: Ids) -> Located:
        which = np.flatnonzero((ids >= 0) & (ids < len(self.file_layout)))
        file = self.file_layout.file_of(ids[which])
        place = self._places[file]
        row, between = np.divmod(ids[which] - self.file_layout.starts[file], self.stride)
        is_read = (between == 0) & (row < np.append(self._counts, 0)[place])
        return which[is_read], (self._begins[place] + row)[is_read]

    @cached_property
    def _places(self) -> Ids:
        """The index in `files` of each file of the layout, -1 for one that is not read."""
        places = np.full(self.file_layout.sizes.size, -1)
        places[self.files] = np.arange(self.files.size)
        return places


@dataclass(eq=False, repr=False)
class BlockShuffle(Order):
    """Rows that are shuffled within blocks. Blocks are consecutive rows of one run: a file or a lane.

    Args:
        starts: the first row of each run and the number of rows at the end; int64 of shape (runs + 1,).
        block_size: rows in a block; the last block of a run may be shorter. None for one block per run.
        key: block j of run r is shuffled by the words of (r, j).
        first_size: rows in the first block of each run, at most `block_size`; None for `block_size`.

    Example:
        >>> key = Key(seed=7, epoch=0, depth=0, role="partial")
        >>> BlockShuffle(np.array([0, 5, 9]), 3, key)[:]  # blocks 0-2, 3-4, 5-7 and 8
        array([0, 2, 1, 3, 4, 7, 6, 5, 8])
    """

    starts: Ids
    block_size: int | None
    key: Key
    first_size: int | None = None

    def __post_init__(self) -> None:
        longest = int(np.diff(self.starts).max(initial=1))
        # No block is longer than the longest run, so that sums fit into 64 bits.
        self._block_size = min(self.block_size or longest, longest)
        # A shorter first block is a block whose first rows are missing.
        self._missing = self._block_size - min(self.first_size or self._block_size, self._block_size)
        self._blocks_per_run = -(-(longest + self._missing) // self._block_size)
        self._blocks = BlockCache(self.key)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def ids_at(self, positions: Ids) -> Ids:
        return self._permuted(positions, inverse=False)

    def locate(self, ids: Ids) -> Located:
        which = np.flatnonzero((ids >= 0) & (ids < len(self)))
        return which, self._permuted(ids[which], inverse=True)

    def _permuted(self, rows: Ids, *, inverse: bool) -> Ids:
        if rows.size == 0:
            return rows
        first, last = self._block_at(int(rows.min())), self._block_at(int(rows.max()))
        if first == last:
            return self._permuted_in(first, rows, inverse=inverse)
        if (last - first) * _ROWS_WORTH_A_CALL < rows.size and (rows[1:] >= rows[:-1]).all():
            # The usual case, an epoch read in order: the rows of each block are a slice.
            ends = [self._block_start(number + 1) for number in range(first, last)]
            parts = np.split(rows, np.searchsorted(rows, ends))
            numbered = zip(range(first, last + 1), parts, strict=True)
            return np.concatenate(
                [self._permuted_in(number, part, inverse=inverse) for number, part in numbered if part.size]
            )
        run = interval_of(self.starts, rows)
        block = (rows - self.starts[run] + self._missing) // self._block_size
        start = block * self._block_size
        if self._missing:
            start = np.maximum(start - self._missing, 0)
        start += self.starts[run]
        numbers, which = distinct(run * self._blocks_per_run + block)
        blocks = [self.block(number) for number in numbers.tolist()]
        moved = permuted_within(blocks, which, rows - start, inverse=inverse)
        moved += start
        return moved

    def _permuted_in(self, number: int, rows: Ids, *, inverse: bool) -> Ids:
        start = self._block_start(number)
        moved = self.block(number).permuted(rows - start, inverse=inverse)
        moved += start
        return moved

    def _block_at(self, row: int) -> int:
        run = int(np.searchsorted(self.starts, row, side="right")) - 1
        block = (row - int(self.starts[run]) + self._missing) // self._block_size
        return run * self._blocks_per_run + block

    def _block_start(self, number: int) -> int:
        """Returns the first row of a block; the end of its run, if that is too short for the block."""
        run, block = divmod(number, self._blocks_per_run)
        start = int(self.starts[run]) + max(0, block * self._block_size - self._missing)
        return min(start, int(self.starts[run + 1]))

    def block(self, number: int) -> Permuted:
        """Returns the permutation of a block, by its number among the blocks of all runs."""
        run, block = divmod(number, self._blocks_per_run)
        rows = int(self.starts[run + 1] - self.starts[run])
        end = (block + 1) * self._block_size - self._missing
        return self._blocks.block(run, block, min(end, rows) - max(0, end - self._block_size))


@dataclass(frozen=True, eq=False, repr=False)
class CutBlocks(OrderView):
    """The windows of an order of blocks, block after block.

    Args:
        blocks: the order of the blocks.
        pieces: windows in a block.
    """

    blocks: Order
    pieces: int

    def __len__(self) -> int:
        return len(self.blocks) * self.pieces

    @property
    def viewed(self) -> Sequence[Order]:
        return (self.blocks,)

    def read(self, positions: Ids, getter: Read) -> Ids:
        return getter(self.blocks, positions // self.pieces)

    def ids_at(self, positions: Ids) -> Ids:
        block, piece = np.divmod(positions, self.pieces)
        return self.blocks.ids_at(block) * self.pieces + piece

    def locate(self, ids: Ids) -> Located:
        block, piece = np.divmod(ids, self.pieces)
        which, positions = self.blocks.locate(block)
        return which, positions * self.pieces + piece[which]
