"""Orders that read no other order: ranges, woven lanes, permutations, tables, folds, independent draws."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from samplerkit.errors import InverseTooLargeError
from samplerkit.order.caching import cached_property
from samplerkit.order.intervals import Offsets, numbers_in
from samplerkit.order.keys import Key, keyed_hash, scaled
from samplerkit.order.order import Located, Order, located
from samplerkit.order.permutation import (
    NARROW_LIMIT,
    TABLE_LIMIT,
    Network,
    network_constants,
    permuted,
    table,
    tables,
    word_count,
)
from samplerkit.order.typing import Ids, Words

SCAN_LIMIT = 1 << 26
"""The longest order that `positions_of` scans if positions cannot be computed."""


class Occurrences:
    """An index of where each id is in an array of ids that may repeat.

    Args:
        ids: int64 array of shape (n,).
    """

    def __init__(self, ids: Ids) -> None:
        self._positions = np.argsort(ids, kind="stable")
        self._sorted = ids[self._positions]

    def locate(self, ids: Ids) -> Located:
        """Finds the positions of ids, as `Order.locate`."""
        first = np.searchsorted(self._sorted, ids, side="left")
        counts = np.searchsorted(self._sorted, ids, side="right") - first
        return np.repeat(np.arange(ids.size), counts), self._positions[numbers_in(first, counts)]

    @cached_property
    def repeats(self) -> Ids:
        """How often the id at each position occurs before that position: int64 array of shape (n,)."""
        first = np.searchsorted(self._sorted, self._sorted, side="left")
        repeats = np.empty_like(self._positions)
        repeats[self._positions] = np.arange(first.size) - first
        return repeats


@dataclass(frozen=True, eq=False, repr=False)
class Range(Order):
    """The ids start, start + 1, ..., start + length - 1."""

    start: int
    length: int

    def __len__(self) -> int:
        return self.length

    def ids_at(self, positions: Ids) -> Ids:
        return positions + self.start if self.start else positions

    def locate(self, ids: Ids) -> Located:
        positions = ids - self.start
        return located(positions, (positions >= 0) & (positions < self.length))


@dataclass(frozen=True, eq=False, repr=False)
class LaneWeave(Order):
    """A sequence that is cut into lanes and read one row of each lane in turn.

    Lanes are contiguous runs of the sequence; the first ones may be one row longer. Row k of lane l is at
    position k * num_lanes + l.

    Args:
        num_rows: the length of the sequence.
        num_lanes: the number of lanes.

    Example:
        >>> weave = LaneWeave(10, 4)
        >>> weave.starts, weave.ids_at(np.arange(10))
        (array([ 0,  3,  6,  8, 10]), array([0, 3, 6, 8, 1, 4, 7, 9, 2, 5]))
    """

    num_rows: int
    num_lanes: int

    def __len__(self) -> int:
        return self.num_rows

    @property
    def starts(self) -> Ids:
        """The first row of each lane, and the number of rows at the end: shape (lanes + 1,)."""
        return self.start_of(np.arange(self.num_lanes + 1))

    def start_of(self, lane: Ids) -> Ids:
        """Returns the first row of each of some lanes."""
        length, longer = divmod(self.num_rows, self.num_lanes)
        return lane * length + np.minimum(lane, longer).astype(np.int64, copy=False)

    def lane_of(self, rows: Ids) -> Ids:
        """Returns the lane of each row."""
        length, longer = divmod(self.num_rows, self.num_lanes)
        border = longer * (length + 1)
        late = longer + (rows - border) // max(1, length)
        return np.where(rows < border, rows // (length + 1), late)

    def ids_at(self, positions: Ids) -> Ids:
        count = self.num_lanes
        if count & (count - 1):
            # In numpy, dividing by a scalar is several times as fast as `divmod`.
            row = positions // count
            lane = positions - row * count
        else:
            row, lane = positions >> (count.bit_length() - 1), positions & (count - 1)
        # With as many shards as lanes, or a multiple, a shard reads one lane.
        is_single = lane.size and lane.min() == lane.max()
        row += self.start_of(lane[:1] if is_single else lane)
        return row

    def locate(self, ids: Ids) -> Located:
        lane = self.lane_of(ids)
        positions = (ids - self.start_of(lane)) * self.num_lanes + lane
        return located(positions, (ids >= 0) & (ids < self.num_rows))


@dataclass(eq=False, repr=False)
class Permuted(Order):
    """All ids of [0, size) in the order of a keyed permutation, evaluated on demand.

    Args:
        size: n, from 0 to 2^62.
        key: where its randomness comes from.
        run: for a block of rows, the number of its file or lane.
        number: for a block of rows, its number in that file or lane.

    Example:
        >>> shuffle = Permuted(10**12, Key(seed=7, epoch=0, depth=0, role="global"))
        >>> ids = shuffle.ids_at(np.array([0, 1, 999_999_999_999]))
        >>> shuffle.locate(ids)[1]
        array([           0,            1, 999999999999])
    """

    size: int
    key: Key
    run: int = 0
    number: int = 0

    def __len__(self) -> int:
        return self.size

    def ids_at(self, positions: Ids) -> Ids:
        return self.permuted(positions)

    def locate(self, ids: Ids) -> Located:
        which = np.flatnonzero((ids >= 0) & (ids < self.size))
        return which, self.permuted(ids[which], inverse=True)

    def permuted(self, rows: Ids, *, inverse: bool = False) -> Ids:
        """Returns the id at each position; with `inverse`, the position of each id. All are in [0, size)."""
        if self.size > TABLE_LIMIT:
            return permuted(self._network, rows, inverse=inverse)
        return self._inverse[rows] if inverse else self._table[rows]

    @property
    def is_narrow(self) -> bool:
        """Whether this is a network of 32-bit words, as `permuted_each` requires."""
        return TABLE_LIMIT < self.size < NARROW_LIMIT

    @property
    def words(self) -> Words:
        """The random words that define the table or the network."""
        return self.key.words(word_count(self.size), self.run, self.number)

    @cached_property
    def _table(self) -> Ids:
        return table(self.size, self.words)

    @cached_property
    def _inverse(self) -> Ids:
        return np.argsort(self._table)

    @cached_property
    def constants(self) -> Any:
        """The parameters of the network: a column of `network_constants`."""
        return network_constants([self.size], self.words[:, None])[:, 0]

    @cached_property
    def _network(self) -> Network:
        return Network.of(self.constants)


_TABLES_AT_ONCE = 256

_ROWS_AT_ONCE = 16_384
"""Rows that `permuted_each` evaluates at a time: 19 words per row, which fit the second-level cache."""


def make_tables(permutations: list[Permuted]) -> None:
    """Computes the missing tables of some permutations, many of them in one call."""
    new = [p for p in permutations if p.size <= TABLE_LIMIT and "_table" not in vars(p)]
    for part in (new[start : start + _TABLES_AT_ONCE] for start in range(0, len(new), _TABLES_AT_ONCE)):
        ids_of = tables([p.size for p in part], np.stack([p.words for p in part], axis=1))
        for p, ids in zip(part, ids_of, strict=True):
            vars(p)["_table"] = ids


def permuted_each(permutations: list[Permuted], index: Ids, rows: Ids, *, inverse: bool = False) -> Ids:
    """Evaluates many networks in one call: rows[i] is permuted by permutations[index[i]].

    Args:
        permutations: `is_narrow` is true of each.
        index: of the permutation of each row; shape (m,).
        rows: each below the size of its permutation; shape (m,).
        inverse: whether to apply the inverses.

    Returns:
        int64 array of shape (m,).
    """
    new = [p for p in permutations if "constants" not in vars(p)]
    if new:
        # In one call, which is many times as fast.
        columns = network_constants([p.size for p in new], np.stack([p.words for p in new], axis=1))
        for p, constants in zip(new, columns.T.copy(), strict=True):
            vars(p)["constants"] = constants
    # One row per parameter, contiguous in memory: `of_columns` reads row by row.
    constants = np.concatenate([p.constants for p in permutations]).reshape(len(permutations), -1).T.copy()
    result = np.empty_like(rows)
    for start in range(0, rows.size, _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        result[part] = permuted(Network.of_columns(constants, index[part]), rows[part], inverse=inverse)
    return result


class Table(Order):
    """An array of ids as an order. The array is copied, unless it is read-only."""

    def __init__(self, ids: Ids) -> None:
        self.ids: Final = (np.array if ids.flags.writeable else np.asarray)(ids, dtype=np.int64)
        self.ids.flags.writeable = False

    @property
    def recipe(self) -> tuple[object, ...]:
        return (self.ids,)

    def __len__(self) -> int:
        return self.ids.size

    def ids_at(self, positions: Ids) -> Ids:
        return self.ids[positions]

    @cached_property
    def num_passes(self) -> int:
        return int(self._occurrences.repeats.max(initial=0)) + 1

    def passes_at(self, positions: Ids) -> Ids:
        return self._occurrences.repeats[positions]

    def locate(self, ids: Ids) -> Located:
        return self._occurrences.locate(ids)

    @cached_property
    def _occurrences(self) -> Occurrences:
        return Occurrences(self.ids)


@dataclass(frozen=True, eq=False, repr=False)
class FoldRows(Order):
    """The rows of one fold, or those of all others, in ascending order.

    Each row of a block of `num_folds` rows belongs to another fold. A row stays in its fold when rows are
    added behind it. Nothing is kept in memory.

    Args:
        size: the number of rows.
        num_folds: how many.
        key: of the random shift of the folds within a block.
        fold: the number of the fold.
        held_out: the rows of the fold; else the others.

    Example:
        >>> key = Key(seed=7, epoch=0, depth=0, role="fold")
        >>> [FoldRows(7, 3, key, fold, held_out=True)[:].tolist() for fold in range(3)]
        [[2, 5], [0, 3, 6], [1, 4]]
    """

    size: int
    num_folds: int
    key: Key
    fold: int
    held_out: bool

    def __len__(self) -> int:
        return self._length

    @cached_property
    def _length(self) -> int:
        blocks, rest = divmod(self.size, self.num_folds)
        in_fold = blocks + (int(self._place(np.array([blocks]))[0]) < rest)
        return in_fold if self.held_out else self.size - in_fold

    def ids_at(self, positions: Ids) -> Ids:
        if self.held_out:
            return positions * self.num_folds + self._place(positions)
        block, row = np.divmod(positions, self.num_folds - 1)
        return block * self.num_folds + row + (row >= self._place(block))

    def locate(self, ids: Ids) -> Located:
        is_row = (ids >= 0) & (ids < self.size)
        block, place = np.divmod(np.where(is_row, ids, 0), self.num_folds)
        target = self._place(block)
        if self.held_out:
            return located(block, is_row & (place == target))
        return located(block * (self.num_folds - 1) + place - (place > target), is_row & (place != target))

    def _place(self, blocks: Ids) -> Ids:
        """The place of the fold's row within each block."""
        return (scaled(self.key.hashes(blocks), self.num_folds) + self.fold) % self.num_folds


class DrawsWithReplacement(Order):
    """Independent draws with replacement: the id at position p follows from a hash of p alone.

    Args:
        length: the number of draws.
        key: where the randomness comes from.
        population: the number of ids to draw from, with equal probability.
        cumulative: for draws by weight instead: the cumulative integer weights of the ids, int64 of shape
            (ids,).
    """

    def __init__(self, length: int, key: Key, population: int = 0, cumulative: Ids | None = None) -> None:
        self._length = length
        self._words: Words = key.words(3)
        self._cumulative = None if cumulative is None else Offsets(cumulative)
        self._total = population if cumulative is None else int(cumulative[-1])

    @property
    def recipe(self) -> tuple[object, ...]:
        cumulative = None if self._cumulative is None else self._cumulative.borders
        return self._length, self._words, self._total, cumulative

    def __len__(self) -> int:
        return self._length

    def ids_at(self, positions: Ids) -> Ids:
        drawn = scaled(keyed_hash(self._words, positions), self._total)
        if self._cumulative is None:
            return drawn
        return self._cumulative.passed(drawn)

    def locate(self, ids: Ids) -> Located:
        return self._occurrences.locate(ids)

    @cached_property
    def _occurrences(self) -> Occurrences:
        if self._length > SCAN_LIMIT:
            problem = f"draws with replacement have no inverse but a scan, limited to {SCAN_LIMIT} draws"
            hint = "use replacement=False, or ask about a shorter num_samples"
            raise InverseTooLargeError("positions_of", problem, self._length, hint=hint)
        return Occurrences(np.asarray(self))
