"""Recommends the cheapest shuffle mode that reaches a required mixing."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np

from samplerkit.errors import ArgumentRangeError
from samplerkit.inspect.quality.closed import Blocks
from samplerkit.inspect.quality.figure import shown
from samplerkit.inspect.quality.mixing import Observation
from samplerkit.inspect.quality.order_source import OrderSource, PlainMode
from samplerkit.order import arguments
from samplerkit.order.layout import Layout
from samplerkit.order.modes import FILE_AWARE, Mode, Shuffle

FACTORS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0)
"""Block sizes on the grid, in files of mean size; the first ones are for large files."""

BATCHES = tuple(4**power for power in range(1, 9))
"""Block sizes on the grid of a layout without files, in batches."""

SEQUENCES = 4
"""The number of epochs whose sequences of files are examined for the most files in a block."""


@final
@dataclass(frozen=True)
class Candidate:
    """A shuffle mode, its mixing, and the files and samples that a rank holds at a time.

    Args:
        shuffle: the mode.
        partial_size: samples in a block of PARTIAL; None for other modes.
        mixing: the value of the mixing.
        standard_error: the standard error of the mixing.
        files: the most files that have samples in one block; 1 for FALSE and FILES.
        samples: the most samples that are shuffled together; 1 for FALSE and FILES.
        meets: whether it reaches the required mixing.
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
        """The arguments of a sampler, or of its section in a config."""
        if self.partial_size is None:
            return {"shuffle": self.shuffle.value}
        return {"shuffle": self.shuffle.value, "partial_size": self.partial_size}

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data, for JSON."""
        return {**asdict(self), "shuffle": self.shuffle.value}

    def __str__(self) -> str:
        block = "" if self.partial_size is None else f" of {self.partial_size}"
        files = f"{self.files} file{'s' if self.files != 1 else ''}"
        samples = f"{self.samples} sample{'s' if self.samples != 1 else ''}"
        return f"{self.shuffle.value}{block}: mixing {shown(self.mixing)}, holds {files} and {samples}"


def modes_on_the_grid(layout: Layout, batch_size: int, lanes: int) -> Iterator[PlainMode]:
    """Yields every mode that fits a layout, PARTIAL with each block size of the grid."""
    modes = [Mode(Shuffle.FALSE), Mode(Shuffle.GLOBAL)]
    if layout.num_files > 1:
        modes += [Mode(Shuffle.FILES), Mode(Shuffle.INFILE)]
    modes += [Mode(Shuffle.PARTIAL, size) for size in block_sizes(layout, batch_size, lanes)]
    for mode in modes:
        yield PlainMode(mode, layout, lanes if mode.shuffle in FILE_AWARE else 1, 0)


def block_sizes(layout: Layout, batch_size: int, lanes: int) -> list[int]:
    """Returns the block sizes of the grid: at least two samples, and at most half of a lane.

    Example:
        >>> block_sizes(Layout([100] * 8), 32, lanes=1)
        [10, 25, 50, 75, 100, 125, 150, 200, 300, 400]
    """
    files = int(np.count_nonzero(layout.sizes))
    unit, factors = (len(layout) / files, FACTORS) if files > 1 else (float(batch_size), BATCHES)
    sizes = {round(unit * factor) for factor in factors}
    return sorted(size for size in sizes if 2 <= size <= len(layout) // lanes // 2)


def held_at_once(plain: PlainMode) -> tuple[int, int]:
    """Returns the files and samples that a rank holds at a time, to read one lane.

    PARTIAL holds the samples of a block, in files that follow one another; INFILE a file; GLOBAL the whole
    dataset.
    """
    layout = plain.layout
    files = int(np.count_nonzero(layout.sizes))
    if plain.shuffle is Shuffle.GLOBAL:
        return files, len(layout)
    if plain.shuffle is Shuffle.INFILE:
        return 1, int(layout.sizes.max())
    if plain.shuffle is not Shuffle.PARTIAL:
        return 1, 1
    size = min(plain.mode.partial_size, int(np.diff(plain.lane_starts).max()))
    # Files of one size have the same sequence of sizes in every epoch.
    is_uniform = bool(layout.sizes.min() == layout.sizes.max())
    epochs = range(SEQUENCES if plain.shuffles_files and not is_uniform else 1)
    cut = (Blocks.of(*plain.first_blocks(epoch, size), size) for epoch in epochs)
    # A cell is the part of one file in a block.
    return max(int(np.unique(blocks.block_starts, return_counts=True)[1].max()) for blocks in cut), size


EPOCHS = 16
"""The number of epochs that are sampled for each candidate without a closed form; four for many files."""


@final
@dataclass(frozen=True)
class Recommendation:
    """The cheapest shuffle mode that reaches a required mixing, or the reason why there is none.

    Args:
        wanted: the required mixing.
        batch_size: samples in a batch of all ranks together.
        chosen: the recommended candidate, or None.
        reason: the candidate, or why there is none, in a sentence.
        candidates: all candidates of the grid, the cheapest first.
    """

    wanted: float
    batch_size: int
    chosen: Candidate | None
    reason: str
    candidates: tuple[Candidate, ...]

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data, for JSON."""
        chosen = None if self.chosen is None else self.chosen.to_dict()
        candidates = [candidate.to_dict() for candidate in self.candidates]
        return {**vars(self), "chosen": chosen, "candidates": candidates}

    def __str__(self) -> str:
        return self.reason


def recommend(
    dataset: Any,
    batch_size: int,
    *,
    mixing: float = 0.5,
    cache_files: int | None = None,
    cache_samples: int | None = None,
    lanes: int = 1,
    block_files: int = 0,
) -> Recommendation:
    """Finds the cheapest shuffle mode, and block size of PARTIAL, that reaches a required mixing.

    A mode is cheap if it holds few samples at a time. Modes and block sizes are scored on a grid, since a
    larger block may mix less: a `partial_size` equal to the size of equal files mixes no files at all.

    Args:
        dataset: a dataset, a `Layout`, or a number of samples.
        batch_size: samples in a batch of all ranks together.
        mixing: the required mixing, in (0, 1].
        cache_files: the most files that a rank can hold at a time; None for no limit.
        cache_samples: the most samples that a rank can hold at a time; None for no limit.
        lanes: the number of lanes of the file-aware modes, usually the number of ranks.
        block_files: if above 0, PARTIAL is chosen with blocks of at least this many files of mean size, as
            for files that are fetched whole; if no such block fits the budget, any mode may be chosen.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: a number is out of its range.

    Example:
        >>> import samplerkit as sk
        >>> print(recommend(sk.Layout([1437] * 64), 32, mixing=0.4))
        partial of 1796: mixing .462, holds 3 files and 1796 samples
    """
    layout = Layout.of(dataset)
    batch_size = arguments.positive("batch_size", batch_size)
    required = checked_minimum("mixing", mixing)
    most_files = arguments.limit("cache_files", cache_files) or math.inf
    most_samples = arguments.limit("cache_samples", cache_samples) or math.inf
    lanes = arguments.positive("lanes", lanes, arguments.MAX_LANES)
    scored = []
    for plain in modes_on_the_grid(layout, batch_size, lanes):
        is_shuffled = plain.shuffle is Shuffle.GLOBAL
        source = OrderSource(layout, len(layout), plain.order, plain, is_shuffled)
        figure = Observation.on(source, batch_size, EPOCHS).mixing()
        files, samples = held_at_once(plain)
        size = plain.mode.partial_size if plain.shuffle is Shuffle.PARTIAL else None
        meets, fits = figure.value >= required, files <= most_files and samples <= most_samples
        scored.append(
            Candidate(plain.shuffle, size, figure.value, figure.standard_error, files, samples, meets, fits)
        )
    scored.sort(key=lambda candidate: (candidate.samples, candidate.files, -candidate.mixing))
    least = arguments.integer("block_files", block_files) * len(layout) // max(1, layout.num_files)
    good = [candidate for candidate in scored if candidate.meets and candidate.fits]
    in_blocks = [candidate for candidate in good if least and (candidate.partial_size or 0) >= least]
    chosen = next(iter(in_blocks or good), None)
    reason = str(chosen) if chosen is not None else _why_none(scored, required, cache_files, cache_samples)
    return Recommendation(required, batch_size, chosen, reason, tuple(scored))


def checked_minimum(place: str, value: Any) -> float:
    """Checks a required value of a figure: a number in (0, 1].

    Raises:
        ArgumentTypeError: the value is not a number.
        ArgumentRangeError: the value is outside of (0, 1].
    """
    if not 0 < arguments.number(place, value) <= 1:
        raise ArgumentRangeError(place, "must be above 0 and at most 1", value)
    return float(value)


def _why_none(
    scored: list[Candidate], required: float, cache_files: int | None, cache_samples: int | None
) -> str:
    limits = [
        f"{limit} {noun}"
        for limit, noun in ((cache_files, "files"), (cache_samples, "samples"))
        if limit is not None
    ]
    meeting = next(candidate for candidate in scored if candidate.meets)
    # FALSE holds one file and one sample: it fits any budget.
    best = max((candidate for candidate in scored if candidate.fits), key=lambda candidate: candidate.mixing)
    return (
        f"nothing mixes {shown(required)} within {' and '.join(limits)}; "
        f"the best that fits is {best}; the cheapest that meets it is {meeting}"
    )
