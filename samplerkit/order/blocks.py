"""Rows shuffled within blocks, of which many may be asked for at once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any, final

import numpy as np

from samplerkit.order.algebra import groups
from samplerkit.order.keys import Key
from samplerkit.order.permutation import (
    NARROW_LIMIT,
    TABLE_LIMIT,
    Network,
    backward,
    forward,
    stacked_constants,
    table,
    word_count,
)
from samplerkit.order.typing import Ids

ROWS_WORTH_A_CALL = 256
"""Rows of a block that are worth a call of its own."""

_ROWS_WORTH_A_NETWORK = 4096
"""Rows of a block from which on its network is evaluated for itself, and not with those of other blocks."""

_ROWS_AT_ONCE = 16_384
"""Rows whose networks are laid side by side: 19 words a row, that fit the second-level cache."""

_MOST_KEPT = 1024


@dataclass(frozen=True)
class Block:
    """Rows that are shuffled among themselves.

    Args:
        run: names the key of the block: the file or the lane.
        number: names the key of the block: which block of the run.
        size: the number of rows.
    """

    run: int
    number: int
    size: int

    def words(self, key: Key) -> Any:
        """Gives the words of the block's permutation."""
        return key.words(word_count(self.size), self.run, self.number)


@final
class KeptBlocks:
    """Permutes rows within blocks, and keeps what a block takes to be set up: it is asked for many times.

    Args:
        key: a block is shuffled by the words of its run and number.
    """

    def __init__(self, key: Key) -> None:
        self._key = key
        self._kept: dict[tuple[int, int, bool], Any] = {}
        self._stacked: tuple[dict[tuple[int, int], int], Any] = ({}, None)

    def __reduce__(self) -> Any:
        # What can be made again does not travel to other processes.
        return KeptBlocks, (self._key,)

    def permuted(self, block: Block, rows: Ids, *, inverse: bool = False) -> Ids:
        """Permutes rows within one block."""
        is_table = block.size <= TABLE_LIMIT
        # A network is evaluated both ways, a table is inverted once.
        name = (block.run, block.number, inverse and is_table)
        made = self._kept.get(name)
        if made is None:
            made = self._made(block, inverse=inverse)
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[name] = made
        if isinstance(made, Network):
            return (backward if inverse else forward)(made, rows)
        permuted: Ids = made[rows].astype(np.int64)
        return permuted

    def _made(self, block: Block, *, inverse: bool) -> Any:
        words = block.words(self._key)
        if block.size > TABLE_LIMIT:
            return Network.of(block.size, words)
        values = table(block.size, words)
        # Sixteen bits hold a place in a table, and a thousand tables stay below 8 MiB.
        return (np.argsort(values) if inverse else values).astype(np.uint16)

    def permuted_within(self, blocks: list[Block], which: Ids, rows: Ids, *, inverse: bool) -> Ids:
        """Permutes rows[i] within blocks[which[i]]: block after block, or, if each has few rows, at once."""
        if len(blocks) == 1:
            return self.permuted(blocks[0], rows, inverse=inverse)
        together = np.array([TABLE_LIMIT < block.size < NARROW_LIMIT for block in blocks])
        if rows.size >= _ROWS_WORTH_A_NETWORK * len(blocks):
            together[:] = False
        if blocks and together.all():
            return self._together(blocks, which, rows, inverse=inverse)
        result = np.empty_like(rows)
        for number, at in groups(which):
            if not together[number]:
                result[at] = self.permuted(blocks[number], rows[at], inverse=inverse)
        at = np.flatnonzero(together[which])
        if at.size:
            chosen = [block for block, is_together in zip(blocks, together, strict=True) if is_together]
            which = (np.cumsum(together) - 1)[which[at]]
            result[at] = self._together(chosen, which, rows[at], inverse=inverse)
        return result

    def _together(self, blocks: list[Block], which: Ids, rows: Ids, *, inverse: bool) -> Ids:
        """Permutes within blocks that all have networks of 32 bits."""
        constants, evaluate = self._constants(blocks), backward if inverse else forward
        result = np.empty_like(rows)
        for start in range(0, rows.size, _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            result[part] = evaluate(Network.each(constants, which[part]), rows[part])
        return result

    def _constants(self, blocks: list[Block]) -> Any:
        """Gives the columns of `stacked_constants` for blocks, all of them of networks of 32 bits."""
        columns, constants = self._stacked
        new = [block for block in blocks if (block.run, block.number) not in columns]
        if new:
            if len(columns) + len(new) > _MOST_KEPT:
                columns, new = {}, blocks
            made = stacked_constants([block.size for block in new], [block.words(self._key) for block in new])
            constants = np.concatenate([constants, made], axis=1) if columns else made
            numbered = ((block.run, block.number) for block in new)
            columns = {**columns, **dict(zip(numbered, count(len(columns)), strict=False))}
            # Both at once: another thread may look at the same moment.
            self._stacked = columns, constants
        return constants[:, [columns[block.run, block.number] for block in blocks]]
