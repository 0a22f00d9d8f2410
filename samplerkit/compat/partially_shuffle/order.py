"""The order of the drop-in, and where an epoch of it stands: files, a run of rows a rank, blocks in it."""

from __future__ import annotations

from dataclasses import dataclass

from samplerkit.compat.torch.epoch_sampler import Cycled
from samplerkit.order.algebra import compose
from samplerkit.order.layout import Layout
from samplerkit.order.order import Order
from samplerkit.samplers.shuffled import DistributedSampler as Recipe


@dataclass(frozen=True)
class LocalShuffle:
    """What is shuffled, and by which seed.

    Args:
        shuffle: whether anything is shuffled at all.
        block_size: samples that are shuffled among themselves.
        pools: 1, or 2 for samples that cross the borders of blocks.
        seed: the same on all ranks.
    """

    shuffle: bool
    block_size: int
    pools: int
    seed: int

    def __str__(self) -> str:
        return f"shuffle_buffer={self.block_size}, pools={self.pools}" if self.shuffle else "shuffle=False"

    def undealt_order(self, layout: Layout, lanes: int, epoch: int) -> Order:
        """Returns the order of all ranks together: position k * lanes + l is row k of lane l.

        The rows of the shuffled files are cut into one run a lane, all of one length: the last one continues
        with the first rows where the samples do not suffice. This is the original's rule. Where the lanes
        divide the samples, it is the order of `samplerkit.DistributedSampler(shuffle="partial")`.

        Args:
            layout: the files.
            lanes: the number of ranks at the first start.
            epoch: from 0.

        Returns:
            An order of ceil(samples / lanes) * lanes positions.

        Example:
            >>> order = LocalShuffle(False, 1, 1, 0).undealt_order(Layout([3, 4]), lanes=2, epoch=0)
            >>> order[::2].tolist(), order[1::2].tolist()
            ([0, 1, 2, 3], [4, 5, 6, 0])
        """
        rows = padded(len(layout), lanes)
        files = Recipe(1, 0, "files" if self.shuffle else False, seed=self.seed, lanes=1)
        blocks = Recipe(
            1,
            0,
            "partial" if self.shuffle else False,
            seed=self.seed,
            partial_size=self.block_size,
            pools=self.pools,
            lanes=lanes,
        )
        sequence = Cycled(files.undealt_order(layout, epoch), rows)
        return compose(blocks.undealt_order(rows, epoch), sequence)


def padded(num_samples: int, lanes: int) -> int:
    """Rounds a number of samples up to a multiple of the lanes."""
    return -(-num_samples // lanes) * lanes


def room_for(layout: Layout, block_size: int, pools: int) -> int:
    """Returns how many files must be in memory for each to be read once.

    These are the files between which the order goes back and forth, and the one that is read ahead.

    Example:
        >>> room_for(Layout([100] * 8), block_size=150, pools=1), room_for(Layout([100] * 8), 150, pools=2)
        (4, 8)
    """
    per_file = max(1, len(layout) // max(1, layout.num_files))
    return -(-block_size * (4 if pools == 2 else 1) // per_file) + 2


def block_within(layout: Layout, room: int, pools: int) -> int:
    """Returns the largest block for which so many files in memory are enough, and at least some of a file."""
    files = max(1, room - 2)
    return max(1, files * len(layout) // max(1, layout.num_files) // (4 if pools == 2 else 1))
