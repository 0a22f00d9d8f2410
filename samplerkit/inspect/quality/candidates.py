"""The modes and block sizes that a recommendation chooses from, and what each holds at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np

from samplerkit.inspect.quality.figure import shown
from samplerkit.inspect.quality.subject import Plain
from samplerkit.order.layout import Layout
from samplerkit.order.modes import FILE_AWARE, Mode
from samplerkit.order.shuffle import Shuffle
from samplerkit.order.typing import Ids

FACTORS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0)
"""Block sizes on the grid, in files of mean size; the first ones are for files that are large."""

BATCHES = tuple(4**power for power in range(1, 9))
"""Block sizes on the grid of a layout without files, in batches."""

EPOCHS = 4
"""How many epochs' sequences of files are looked at for the most files of a block."""


@final
@dataclass(frozen=True)
class Candidate:
    """One shuffle mode, how well it mixes, and what a rank holds at a time to read it.

    Args:
        shuffle: the mode.
        partial_size: samples in a block of PARTIAL; None for other modes.
        mixing: the figure.
        standard_error: of the figure.
        files: the most files that the samples of one block lie in; 1 for FALSE and FILES.
        samples: the most samples that are shuffled among themselves; 1 for FALSE and FILES.
        meets: whether the wanted mixing is met.
        fits: whether files and samples are within the cache budget.

    Example:
        >>> print(Candidate(Shuffle.PARTIAL, 300, 0.5, 0.0, 4, 300, True, False))
        partial of 300: mixing .500, holds 4 files and 300 samples
    """

    shuffle: Shuffle
    partial_size: int | None
    mixing: float
    standard_error: float
    files: int
    samples: int
    meets: bool
    fits: bool

    @property
    def arguments(self) -> dict[str, Any]:
        """What a sampler takes for it, and a config."""
        if self.partial_size is None:
            return {"shuffle": self.shuffle.value}
        return {"shuffle": self.shuffle.value, "partial_size": self.partial_size}

    def to_dict(self) -> dict[str, Any]:
        """Gives plain data, for JSON."""
        return {**asdict(self), "shuffle": self.shuffle.value}

    def __str__(self) -> str:
        block = "" if self.partial_size is None else f" of {self.partial_size}"
        files = f"{self.files} file{'s' if self.files != 1 else ''}"
        samples = f"{self.samples} sample{'s' if self.samples != 1 else ''}"
        return f"{self.shuffle.value}{block}: mixing {shown(self.mixing)}, holds {files} and {samples}"


def modes_on_the_grid(layout: Layout, batch_size: int, lanes: int, seed: int) -> Iterator[Plain]:
    """Gives every mode that fits a layout, PARTIAL with each block size of the grid."""
    modes = [Mode(Shuffle.FALSE), Mode(Shuffle.GLOBAL)]
    if layout.num_files > 1:
        modes += [Mode(Shuffle.FILES), Mode(Shuffle.INFILE)]
    modes += [Mode(Shuffle.PARTIAL, size) for size in block_sizes(layout, batch_size, lanes)]
    for mode in modes:
        yield Plain(mode, layout, lanes if mode.shuffle in FILE_AWARE else 1, seed)


def block_sizes(layout: Layout, batch_size: int, lanes: int) -> list[int]:
    """Gives the block sizes of the grid: at least two samples, and at most half of a lane.

    Example:
        >>> block_sizes(Layout([100] * 8), 32, lanes=1)
        [10, 25, 50, 75, 100, 125, 150, 200, 300, 400]
    """
    files = int(np.count_nonzero(layout.sizes)) if layout.has_files else 0
    unit, factors = (len(layout) / files, FACTORS) if files > 1 else (float(batch_size), BATCHES)
    sizes = {round(unit * factor) for factor in factors}
    return sorted(size for size in sizes if 2 <= size <= len(layout) // lanes // 2)


def held(plain: Plain) -> tuple[int, int]:
    """Tells how many files and samples a rank holds at a time, to read one lane.

    A block of PARTIAL holds its samples, in files that are read one after another; INFILE a file; GLOBAL
    all there is.
    """
    layout = plain.layout
    files = int(np.count_nonzero(layout.sizes)) if layout.has_files else 1
    if plain.shuffle is Shuffle.GLOBAL:
        return files, len(layout)
    if plain.shuffle is Shuffle.INFILE:
        return 1, int(layout.sizes.max())
    if plain.shuffle is not Shuffle.PARTIAL:
        return 1, 1
    size = min(plain.mode.partial_size, int(np.diff(plain.lane_starts).max()))
    # Files of one size are the same sequence in every epoch.
    is_uniform = bool(layout.sizes.min() == layout.sizes.max())
    epochs = range(EPOCHS if plain.shuffles_files and not is_uniform else 1)
    return max(_most_files(plain.file_sizes(epoch), plain.lane_starts, size) for epoch in epochs), size


def _most_files(file_sizes: Ids, lane_starts: Ids, size: int) -> int:
    """Counts the files in each block that holds the end of one, and takes the most."""
    ends = np.cumsum(file_sizes[file_sizes > 0])
    inner = ends[:-1]
    lane = np.searchsorted(lane_starts, inner, side="right") - 1
    within = inner - lane_starts[lane]
    # A file that ends where a block does is in no block with the next one.
    cuts = within % size != 0
    lane, block = lane[cuts], within[cuts] // size
    if block.size == 0:
        return 1
    # Files end in the order of lanes and blocks: those of one block stand together.
    begins = np.flatnonzero(np.append(True, (np.diff(lane) != 0) | (np.diff(block) != 0)))
    return int(np.diff(np.append(begins, block.size)).max()) + 1
