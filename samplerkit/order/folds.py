"""Folds: rows parted once and for all, one of each k consecutive rows for each of k folds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from samplerkit.order.keys import Key, keyed_hash, scaled
from samplerkit.order.located import Located
from samplerkit.order.order import Order
from samplerkit.order.sequences import found
from samplerkit.order.typing import Ids

_HASH_WORDS = 3


@final
@dataclass(frozen=True)
class Folds:
    """Which fold each row belongs to: the rows of a block of `count` belong to one fold each.

    A row stays in its fold when rows are added behind it. Nothing is kept in memory.

    Args:
        count: how many folds.
        key: of the turn by which the folds of a block are shifted.

    Example:
        >>> folds = Folds(3, Key(seed=7, epoch=0, depth=0, role="fold"))
        >>> folds.fold_of(np.arange(7)).tolist()
        [1, 2, 0, 1, 2, 0, 1]
    """

    count: int
    key: Key

    def place(self, blocks: Ids, fold: int) -> Ids:
        """Gives the place of a fold's row within each block."""
        turns = scaled(keyed_hash(self.key.words(_HASH_WORDS), blocks), self.count)
        return (turns + fold) % self.count

    def fold_of(self, rows: Ids) -> Ids:
        """Gives the fold of each row."""
        blocks, place = np.divmod(rows, self.count)
        return (place - self.place(blocks, 0)) % self.count


@final
class FoldRows(Order):
    """The rows of one fold, or those of all others, in ascending order.

    Args:
        size: the number of rows.
        folds: to which fold each belongs.
        fold: the number of the fold.
        held_out: the rows of the fold; else the others.
    """

    def __init__(self, size: int, folds: Folds, fold: int, *, held_out: bool) -> None:
        self._size = size
        self._folds = folds
        self._fold = fold
        self._held_out = held_out
        whole, left = divmod(size, folds.count)
        held = whole + (int(folds.place(np.array([whole]), fold)[0]) < left)
        self._length = held if held_out else size - held

    @property
    def recipe(self) -> tuple[object, ...]:
        return self._size, self._folds, self._fold, self._held_out

    def __len__(self) -> int:
        return self._length

    def ids_at(self, positions: Ids) -> Ids:
        count = self._folds.count
        if self._held_out:
            return positions * count + self._folds.place(positions, self._fold)
        block, row = np.divmod(positions, count - 1)
        return block * count + row + (row >= self._folds.place(block, self._fold))

    def locate(self, ids: Ids) -> Located:
        is_row = (ids >= 0) & (ids < self._size)
        block, place = np.divmod(np.where(is_row, ids, 0), self._folds.count)
        held = self._folds.place(block, self._fold)
        if self._held_out:
            return found(block, is_row & (place == held))
        return found(block * (self._folds.count - 1) + place - (place > held), is_row & (place != held))
