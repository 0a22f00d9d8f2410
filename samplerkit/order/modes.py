"""The order of each shuffle mode, from a layout, keys and lanes.

To add a mode: a member of `Shuffle` and a line in `Mode.order`; in `FILE_AWARE` if it uses files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from samplerkit.errors import ArgumentTypeError, ShuffleModeError
from samplerkit.order.algebra import compose
from samplerkit.order.files import BlockShuffle, FileSequence
from samplerkit.order.keys import Key
from samplerkit.order.layout import Layout
from samplerkit.order.order import Order
from samplerkit.order.sequences import LaneWeave, Permuted, Range


class Shuffle(str, Enum):
    """How the samples of a dataset are shuffled.

    The values are MindSpore's. An argument that takes a mode also takes its value ("files"), `True` for
    GLOBAL and `False` for FALSE.

    Attributes:
        FALSE: in storage order.
        GLOBAL: all samples, over all files.
        PARTIAL: the files are shuffled, then consecutive blocks of `partial_size` samples of each lane.
        FILES: the files are shuffled, the samples in each file are in storage order.
        INFILE: the files are in storage order, the samples in each file are shuffled.
        ADAPTIVE: GLOBAL up to `adaptive_threshold` samples, PARTIAL above.

    Example:
        >>> Shuffle.parse(True), Shuffle.parse("files")
        (<Shuffle.GLOBAL: 'global'>, <Shuffle.FILES: 'files'>)
    """

    FALSE = "false"
    GLOBAL = "global"
    PARTIAL = "partial"
    FILES = "files"
    INFILE = "infile"
    ADAPTIVE = "adaptive"

    @classmethod
    def parse(cls, value: Any, place: str = "shuffle") -> Shuffle:
        """Converts a mode, the value of a mode, or a bool to a mode.

        Raises:
            ArgumentTypeError: `value` is none of these.
        """
        if isinstance(value, bool | np.bool_):
            return cls.GLOBAL if value else cls.FALSE
        modes = [mode.value for mode in cls]
        if isinstance(value, str) and value in modes:
            return cls(value)
        raise ArgumentTypeError(place, f"must be a bool or one of {', '.join(modes)}", value)


DEFAULT_PARTIAL_SIZE = 1_000_000
"""Samples in a block of PARTIAL, as in MindSpore."""

DEFAULT_ADAPTIVE_THRESHOLD = 100_000_000
"""The largest dataset that ADAPTIVE shuffles GLOBAL, as in MindSpore."""


FILE_AWARE = frozenset({Shuffle.FILES, Shuffle.INFILE, Shuffle.PARTIAL})
"""The modes that keep the samples of a file together; they are cut into lanes by default."""


@dataclass(frozen=True)
class Mode:
    """A shuffle mode with its arguments.

    Args:
        shuffle: the mode.
        partial_size: samples in a block of PARTIAL.
        adaptive_threshold: the largest dataset that ADAPTIVE shuffles GLOBAL.
        lanes: the number of lanes; None for the run's number of shards in the file-aware modes, else 1.
        pools: how many times PARTIAL shuffles blocks, 1 or 2. With 2, blocks have twice the size, and those
            of the second shuffle are shifted by half a block, so that samples cross the borders of blocks.
        owner: the name of the sampler in error messages.
    """

    shuffle: Shuffle
    partial_size: int = DEFAULT_PARTIAL_SIZE
    adaptive_threshold: int = DEFAULT_ADAPTIVE_THRESHOLD
    lanes: int | None = None
    pools: int = 1
    owner: str = field(default="the sampler", compare=False, repr=False)

    def resolve(self, layout: Layout) -> Shuffle:
        """Returns the mode for this layout: ADAPTIVE becomes GLOBAL or PARTIAL.

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
            hint = f"give {self.owner} GLOBAL or PARTIAL, or a dataset whose layout names its files"
            problem = "not supported with this dataset: it has no files"
            raise ShuffleModeError("shuffle", problem, self.shuffle.value, hint=hint)
        return self.shuffle

    def lane_count(self, layout: Layout, run_lanes: int) -> int:
        """Returns the number of lanes of the order of this layout; arguments as for `order`."""
        return self.lanes or (run_lanes if self.resolve(layout) in FILE_AWARE else 1)

    def order(self, layout: Layout, key: Callable[[str], Key], run_lanes: int) -> Order:
        """Makes the order of the whole dataset.

        Args:
            layout: of the dataset.
            key: returns the key for a role.
            run_lanes: the number of lanes if `lanes` is None and the mode is file-aware.
        """
        size, shuffle = len(layout), self.resolve(layout)
        # With more lanes than samples, the further lanes are empty and would only lengthen the tables.
        lanes = LaneWeave(size, min(self.lane_count(layout, run_lanes), max(1, size)))
        sequence: Order = Range(0, size)
        if shuffle is Shuffle.GLOBAL:
            sequence = Permuted(size, key("global"))
        elif shuffle is Shuffle.INFILE:
            sequence = BlockShuffle(layout.starts, None, key("infile"))
        elif shuffle in (Shuffle.FILES, Shuffle.PARTIAL) and layout.num_files > 1:
            files = Permuted(layout.num_files, key("files")).ids_at(np.arange(layout.num_files))
            sequence = FileSequence(layout, files)
        if shuffle is Shuffle.PARTIAL:
            blocks, pool = self.partial_size * self.pools, self.partial_size
            sequence = compose(BlockShuffle(lanes.starts, blocks, key("partial")), sequence)
            if self.pools == 2:
                across = BlockShuffle(lanes.starts, blocks, key("partial-2"), first_size=pool)
                sequence = compose(across, sequence)
        return compose(lanes, sequence) if lanes.num_lanes > 1 else sequence
