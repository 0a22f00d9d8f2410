"""The order of each shuffle mode, from a layout, keys and lanes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from samplerkit.errors import ShuffleModeError
from samplerkit.order.algebra import compose
from samplerkit.order.files import BlockShuffle, FileSequence, Lanes, LaneWeave
from samplerkit.order.keys import Key
from samplerkit.order.layout import Layout
from samplerkit.order.order import Order
from samplerkit.order.sequences import Permuted, Range
from samplerkit.order.shuffle import (
    DEFAULT_ADAPTIVE_THRESHOLD,
    DEFAULT_PARTIAL_SIZE,
    Shuffle,
)

FILE_AWARE = frozenset({Shuffle.FILES, Shuffle.INFILE, Shuffle.PARTIAL})
"""The modes that keep the samples of a file together, and so are cut into lanes by default."""


@dataclass(frozen=True)
class Mode:
    """A shuffle mode with its arguments.

    Args:
        shuffle: the mode.
        partial_size: samples in a block of PARTIAL.
        adaptive_threshold: the largest dataset that ADAPTIVE shuffles GLOBAL.
        lanes: the number of lanes; None for the run's number of shards in the file-aware modes, else 1.
        pools: the passes of PARTIAL. With 2, blocks have twice the size, and a second pass is shifted by half
            a block, so that samples cross the borders of blocks.
        owner: the sampler whose mode it is, as errors name it.
    """

    shuffle: Shuffle
    partial_size: int = DEFAULT_PARTIAL_SIZE
    adaptive_threshold: int = DEFAULT_ADAPTIVE_THRESHOLD
    lanes: int | None = None
    pools: int = 1
    owner: str = field(default="the sampler", compare=False, repr=False)

    def resolve(self, layout: Layout) -> Shuffle:
        """Tells which mode is meant for this layout: ADAPTIVE becomes GLOBAL or PARTIAL.

        Raises:
            ShuffleModeError: the mode needs files, and the layout has none.

        Example:
            >>> Mode(Shuffle.ADAPTIVE).resolve(Layout(100_000_001)).name
            'PARTIAL'
        """
        if self.shuffle is Shuffle.ADAPTIVE:
            small = len(layout) <= self.adaptive_threshold
            return Shuffle.GLOBAL if small else Shuffle.PARTIAL
        if self.shuffle in (Shuffle.FILES, Shuffle.INFILE) and not layout.has_files:
            raise ShuffleModeError(
                "shuffle",
                "not supported with this dataset: it has no files",
                self.shuffle.value,
                mend=f"give {self.owner} GLOBAL or PARTIAL, or a dataset whose layout names its files",
            )
        return self.shuffle

    def lane_count(self, layout: Layout, run_lanes: int) -> int:
        """Tells into how many lanes the order of this layout is woven; arguments as for `order`."""
        if self.lanes is not None:
            return self.lanes
        return run_lanes if self.resolve(layout) in FILE_AWARE else 1

    def order(self, layout: Layout, key: Callable[[str], Key], run_lanes: int) -> Order:
        """Makes the order of the whole dataset.

        Args:
            layout: the samples to be ordered.
            key: gives the key for a role.
            run_lanes: the number of lanes where `lanes` is None and the mode is file-aware.
        """
        shuffle = self.resolve(layout)
        # Lanes beyond the samples are empty, and need no room in the tables.
        lanes = Lanes(len(layout), min(self.lane_count(layout, run_lanes), max(1, len(layout))))
        everything = Range(0, len(layout))
        sequence: Order = everything
        if shuffle is Shuffle.GLOBAL:
            sequence = Permuted(len(layout), key("global"))
        elif shuffle is Shuffle.INFILE:
            sequence = BlockShuffle(layout.starts, None, key("infile"))
        elif shuffle in (Shuffle.FILES, Shuffle.PARTIAL):
            sequence = FileSequence(layout, key("files")) if layout.num_files > 1 else everything
        if shuffle is Shuffle.PARTIAL:
            blocks = BlockShuffle(lanes.starts, self.partial_size * self.pools, key("partial"))
            sequence = compose(blocks, sequence)
            if self.pools == 2:
                across = BlockShuffle(
                    lanes.starts,
                    2 * self.partial_size,
                    key("partial-2"),
                    first_size=self.partial_size,
                )
                sequence = compose(across, sequence)
        woven = LaneWeave(lanes) if lanes.count > 1 else everything
        return compose(woven, sequence)
