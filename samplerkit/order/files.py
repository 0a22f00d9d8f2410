"""Orders that know files and blocks: file after file, each block shuffled within itself, lanes woven."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from samplerkit.order.blocks import ROWS_WORTH_A_CALL, Block, KeptBlocks
from samplerkit.order.intervals import Moves, edges_of, interval_of
from samplerkit.order.keys import Key
from samplerkit.order.layout import Layout
from samplerkit.order.located import Located
from samplerkit.order.order import Order
from samplerkit.order.permutation import Permutation
from samplerkit.order.sequences import found
from samplerkit.order.typing import Ids

_DENSE_SPAN = 1 << 16


@final
class FileSequence(Order):
    """The samples of shuffled files: file after file, in order within each."""

    def __init__(self, layout: Layout, key: Key) -> None:
        self._layout = layout
        self._files = Permutation(layout.num_files, key).forward(np.arange(layout.num_files))
        self._rank_of_file = np.argsort(self._files)
        self._starts = edges_of(layout.sizes[self._files])
        self._moves = Moves(self._starts, layout.starts[self._files] - self._starts[:-1])

    @property
    def recipe(self) -> tuple[object, ...]:
        return self._layout, self._files

    def __len__(self) -> int:
        return len(self._layout)

    def ids_at(self, positions: Ids) -> Ids:
        return self._moves.moved(positions)

    def locate(self, ids: Ids) -> Located:
        which = np.flatnonzero((ids >= 0) & (ids < len(self)))
        file = self._layout.file_of(ids[which])
        within = ids[which] - self._layout.starts[file]
        return which, within + self._starts[self._rank_of_file[file]]


@dataclass(frozen=True)
class Lanes:
    """A sequence of rows cut into contiguous runs, one a lane, the first ones one row longer.

    Args:
        num_rows: the length of the sequence.
        count: the number of lanes.

    Example:
        >>> Lanes(10, 4).starts.tolist()
        [0, 3, 6, 8, 10]
    """

    num_rows: int
    count: int

    @property
    def starts(self) -> Ids:
        """The first row of each lane, and the number of rows at the end: shape (count + 1,)."""
        return self.start_of(np.arange(self.count + 1))

    def start_of(self, lane: Ids) -> Ids:
        """Gives the first row of each lane."""
        length, longer = divmod(self.num_rows, self.count)
        return lane * length + np.minimum(lane, longer).astype(np.int64, copy=False)

    def lane_of(self, rows: Ids) -> Ids:
        """Gives the lane in which each row lies."""
        length, longer = divmod(self.num_rows, self.count)
        border = longer * (length + 1)
        late = longer + (rows - border) // max(1, length)
        return np.where(rows < border, rows // (length + 1), late)


@final
class LaneWeave(Order):
    """The rows of a sequence, one of each lane in turn: position k * lanes + l is row k of lane l."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    @property
    def recipe(self) -> tuple[object, ...]:
        return (self._lanes,)

    def __len__(self) -> int:
        return self._lanes.num_rows

    def ids_at(self, positions: Ids) -> Ids:
        count = self._lanes.count
        if count & (count - 1):
            # numpy divides by one number several times as fast as it gives quotient and remainder.
            row = positions // count
            lane = positions - row * count
        else:
            row, lane = positions >> (count.bit_length() - 1), positions & (count - 1)
        # A shard of as many as there are lanes, or of a multiple of them, reads one lane.
        one = lane.size and lane.min() == lane.max()
        row += self._lanes.start_of(lane[:1] if one else lane)
        return row

    def locate(self, ids: Ids) -> Located:
        lane = self._lanes.lane_of(ids)
        positions = (ids - self._lanes.start_of(lane)) * self._lanes.count + lane
        return found(positions, (ids >= 0) & (ids < len(self)))


@final
class BlockShuffle(Order):
    """Rows shuffled within blocks: consecutive blocks of `block_size` rows of each run, a key for each block.

    Args:
        starts: the first row of each run and the number of rows at the end; int64 of shape (runs + 1,).
        block_size: rows in a block, the last of a run may be shorter; None for one block a run.
        key: block j of run r is shuffled by the words of (r, j).
        first_size: rows in the first block of each run, at most `block_size`; None for as many as in others.
    """

    def __init__(
        self, starts: Ids, block_size: int | None, key: Key, *, first_size: int | None = None
    ) -> None:
        longest = int(np.diff(starts).max(initial=1))
        self._starts = starts
        # No block is longer than its run, and so all sums fit into 64 bits.
        self._block_size = longest if block_size is None else min(block_size, longest)
        first = self._block_size if first_size is None else min(first_size, self._block_size)
        # A first block that is shorter than the others lacks its first rows.
        self._missing = self._block_size - first
        self._blocks_per_run = -(-(longest + self._missing) // self._block_size)
        self._key = key
        self._blocks = KeptBlocks(key)

    @property
    def recipe(self) -> tuple[object, ...]:
        return self._starts, self._block_size, self._missing, self._key

    def __len__(self) -> int:
        return int(self._starts[-1])

    def ids_at(self, positions: Ids) -> Ids:
        return self._permuted(positions, inverse=False)

    def locate(self, ids: Ids) -> Located:
        which = np.flatnonzero((ids >= 0) & (ids < len(self)))
        return which, self._permuted(ids[which], inverse=True)

    def _permuted(self, rows: Ids, *, inverse: bool) -> Ids:
        if rows.size == 0:
            return rows
        first, last = self._number_of(int(rows.min())), self._number_of(int(rows.max()))
        if first == last:
            return self._permuted_in(first, rows, inverse=inverse)
        if (last - first) * ROWS_WORTH_A_CALL < rows.size and (rows[1:] >= rows[:-1]).all():
            # As an epoch is read: the rows of each block are a slice.
            ends = [self._start_of(number + 1) for number in range(first, last)]
            parts = np.split(rows, np.searchsorted(rows, ends))
            numbered = zip(range(first, last + 1), parts, strict=True)
            return np.concatenate(
                [self._permuted_in(number, part, inverse=inverse) for number, part in numbered if part.size]
            )
        run = interval_of(self._starts, rows)
        block = (rows - self._starts[run] + self._missing) // self._block_size
        start = block * self._block_size
        if self._missing:
            start = np.maximum(start - self._missing, 0)
        start += self._starts[run]
        numbers, which = distinct(run * self._blocks_per_run + block)
        blocks = [self._block(number) for number in numbers.tolist()]
        permuted = self._blocks.permuted_within(blocks, which, rows - start, inverse=inverse)
        permuted += start
        return permuted

    def _permuted_in(self, number: int, rows: Ids, *, inverse: bool) -> Ids:
        start = self._start_of(number)
        permuted = self._blocks.permuted(self._block(number), rows - start, inverse=inverse)
        permuted += start
        return permuted

    def _number_of(self, row: int) -> int:
        run = int(np.searchsorted(self._starts, row, side="right")) - 1
        block = (row - int(self._starts[run]) + self._missing) // self._block_size
        return run * self._blocks_per_run + block

    def _start_of(self, number: int) -> int:
        """The first row of a block; of one that its run is too short for, the first row of the next run."""
        run, block = divmod(number, self._blocks_per_run)
        start = int(self._starts[run]) + max(0, block * self._block_size - self._missing)
        return min(start, int(self._starts[run + 1]))

    def _block(self, number: int) -> Block:
        run, block = divmod(number, self._blocks_per_run)
        rows = int(self._starts[run + 1] - self._starts[run])
        end = (block + 1) * self._block_size - self._missing
        return Block(run, block, min(end, rows) - max(0, end - self._block_size))


def distinct(labels: Ids) -> tuple[Ids, Ids]:
    """Gives the distinct labels in ascending order, and for each label the number of its like.

    Args:
        labels: int64 array of shape (m,), not empty.

    Example:
        >>> distinct(np.array([7, 4, 7]))
        (array([4, 7]), array([1, 0, 1]))
    """
    low, high = int(labels.min()), int(labels.max())
    if low == high:
        return labels[:1], np.zeros_like(labels)
    if high - low >= _DENSE_SPAN:
        numbers, which = np.unique(labels, return_inverse=True)
        return numbers, which
    # Neighbouring blocks have neighbouring numbers: marking them in a table is far quicker than sorting.
    present = np.zeros(high - low + 1, dtype=bool)
    present[labels - low] = True
    return np.flatnonzero(present) + low, (np.cumsum(present) - 1)[labels - low]
