"""Blocks cut into windows: an order of blocks becomes one of windows, shuffled within pools of blocks.

The windows of block b are b * pieces, b * pieces + 1, and so on. How long a window is decides how many pieces
there are, and not which blocks a pool holds. So the first pools cover the same blocks, whatever the length.
"""

from __future__ import annotations

from typing import Final, final

import numpy as np

from samplerkit.order.algebra import compose
from samplerkit.order.files import BlockShuffle
from samplerkit.order.keys import Key
from samplerkit.order.located import Located
from samplerkit.order.order import Order
from samplerkit.order.typing import Ids


@final
class CutBlocks(Order):
    """The windows of an order of blocks, block after block.

    Args:
        blocks: which block comes when.
        pieces: windows in a block.
    """

    def __init__(self, blocks: Order, pieces: int) -> None:
        self.blocks: Final = blocks
        self._pieces = pieces

    @property
    def recipe(self) -> tuple[object, ...]:
        return self.blocks, self._pieces

    def __len__(self) -> int:
        return len(self.blocks) * self._pieces

    def ids_at(self, positions: Ids) -> Ids:
        block, piece = np.divmod(positions, self._pieces)
        return self.blocks.ids_at(block) * self._pieces + piece

    @property
    def num_passes(self) -> int:
        return self.blocks.num_passes

    def passes_at(self, positions: Ids) -> Ids:
        return self.blocks.passes_at(positions // self._pieces)

    def epochs_at(self, epoch: int, positions: Ids) -> Ids:
        return self.blocks.epochs_at(epoch, positions // self._pieces)

    def locate(self, ids: Ids) -> Located:
        block, piece = np.divmod(ids, self._pieces)
        which, positions = self.blocks.locate(block)
        return which, positions * self._pieces + piece[which]


def cut(blocks: Order, pieces: int, pool: int, key: Key) -> Order:
    """Cuts an order of blocks into windows, and shuffles these within pools.

    Args:
        blocks: which block comes when.
        pieces: windows in a block.
        pool: positions of blocks in a pool; the last pool may have fewer.
        key: of the shuffle.

    Example:
        >>> from samplerkit.order.sequences import Range
        >>> key = Key(seed=7, epoch=0, depth=0, role="blocks-pool")
        >>> order = cut(Range(0, 4), 2, 2, key)
        >>> sorted(order[:4].tolist()), sorted(order[4:].tolist())
        ([0, 1, 2, 3], [4, 5, 6, 7])
    """
    windows = CutBlocks(blocks, pieces)
    return compose(BlockShuffle(np.array([0, len(windows)]), pool * pieces, key), windows)
