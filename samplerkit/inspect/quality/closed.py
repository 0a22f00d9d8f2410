"""Closed forms of mixing, from the pairs of rows that share a file, a lane and a block."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from samplerkit.inspect.quality.figure import Estimate
from samplerkit.inspect.quality.order_source import PlainMode
from samplerkit.inspect.quality.pairs import (
    Numbers,
    across,
    different_pairs,
    distance_between_files,
    lost_by_runs,
    moved_in_runs,
    pair_distance,
    pair_weight,
    random_distance,
)
from samplerkit.order.caching import cached_property
from samplerkit.order.intervals import edges_of, interval_of
from samplerkit.order.modes import Shuffle
from samplerkit.order.typing import Ids

MAX_BLOCKS = 1_000_000
"""The most blocks of one size in a window that are distinguished."""


@dataclass(frozen=True)
class Blocks:
    """A sequence of rows, file after file, cut into lanes and then into blocks that are shuffled.

    A cell is a piece of one file in one lane: its part in one block, or all the whole blocks that it fills.
    So there are at most three cells per file and lane, for any number of blocks.

    Args:
        starts: the first row of each cell, and the number of rows; shape (cells + 1,).
        group: the file and lane of each cell, as one nondecreasing number; shape (cells,).
        block_starts: the first row of the block of each cell, or of the whole blocks that it fills.
        block_ends: the row after this block, or these blocks.
        block_size: rows in a whole block.
    """

    starts: Ids
    group: Ids
    block_starts: Ids
    block_ends: Ids
    block_size: int

    @classmethod
    def of(cls, file_sizes: Ids, lane_starts: Ids, block_size: int) -> Blocks:
        """Cuts rows into cells.

        Args:
            file_sizes: the sizes of the files, in the order in which they are read.
            lane_starts: the first row of each lane, and the number of rows.
            block_size: rows in a block, counted from the start of each lane.
        """
        size = min(block_size, int(np.diff(lane_starts).max()))
        files = edges_of(file_sizes)
        pieces = _sorted(files, lane_starts)
        first, end = pieces[:-1], pieces[1:]
        lane_start = lane_starts[interval_of(lane_starts, first)]
        first_border = lane_start - (lane_start - first) // size * size
        last_border = lane_start + (end - lane_start) // size * size
        inner = [border[(first < border) & (border < end)] for border in (first_border, last_border)]
        starts = _sorted(pieces, *inner)
        first, end = starts[:-1], starts[1:]
        lane = interval_of(lane_starts, first)
        block_starts = lane_starts[lane] + (first - lane_starts[lane]) // size * size
        fills = (first == block_starts) & (end - first >= size)
        block_ends = np.where(fills, end, np.minimum(block_starts + size, lane_starts[lane + 1]))
        group = interval_of(pieces, first)
        return cls(starts, group, block_starts, block_ends, size)

    @cached_property
    def _sizes(self) -> Numbers:
        return np.diff(self.starts).astype(np.float64)

    @cached_property
    def _blocks(self) -> Numbers:
        return (self.block_ends - self.block_starts).astype(np.float64)

    @cached_property
    def _neighbours(self) -> tuple[Ids, Ids, Numbers]:
        """The pairs of cells of one file and lane, and the rows between their blocks."""
        pairs = []
        for distance in (1, 2):
            first = np.flatnonzero(self.group[:-distance] == self.group[distance:])
            pairs.append((first, first + distance))
        first, other = np.concatenate(pairs, axis=1)
        return first, other, (self.block_starts[other] - self.block_ends[first]).astype(np.float64)

    def inside(self, window: int, lanes: int) -> tuple[float, float]:
        """Sums over the pairs of rows of one file within a cell.

        Returns:
            The expected sums of their weights, and of their weights times the distance of their ids.
        """
        sizes, blocks = self._sizes, self._blocks
        share = sizes * (sizes - 1) / np.maximum(1, blocks * (blocks - 1))
        weight = pair_weight(blocks, window, lanes) * share
        distance = weight * (sizes + 1) / 3
        is_whole = sizes >= self.block_size
        if is_whole.any():
            distance[is_whole] = self._in_whole_blocks(sizes[is_whole], window, lanes)
        return float(weight.sum()), float(distance.sum())

    def _in_whole_blocks(self, sizes: Numbers, window: int, lanes: int) -> Numbers:
        size = self.block_size
        between = pair_distance(sizes, window, lanes)
        count = (sizes / size).astype(np.int64)
        within = count * pair_weight(size, window, lanes) * (size + 1) / 3
        # At both ends of the blocks, as in `moved_in_runs`, but summed once for all files.
        most = int(min(count.max(), window // (lanes * size) + 1, MAX_BLOCKS))
        starts: Numbers = np.arange(most, dtype=np.float64) * size
        lost = np.cumsum(lost_by_runs(starts, starts + size, window, lanes))
        distance: Numbers = within + between - 2 * lost[np.minimum(count, most) - 1]
        return distance

    def across(self, window: int, lanes: int) -> tuple[float, float]:
        """Returns the same sums over the pairs of rows of one file and lane in different cells."""
        near = self._neighbours[2] * lanes < window
        first, other, gap = (part[near] for part in self._neighbours)
        sizes, blocks = self._sizes, self._blocks
        share = sizes[first] * sizes[other] / (blocks[first] * blocks[other])
        weight = across(pair_weight, blocks[first], gap, blocks[other], window, lanes) * share
        middles = (self.starts[:-1] + self.starts[1:] - 1) / 2
        distance = weight * (middles[other] - middles[first])
        # Of a cell of whole blocks, a window reaches only the rows at the near end.
        filled = sizes > self.block_size
        reaches = filled[first] | filled[other]
        if reaches.any():
            rows = across(pair_distance, blocks[first], gap, blocks[other], window, lanes) * share
            near_end = min(self.block_size / 2, window / (4 * lanes))
            left = np.where(filled[first], self.block_ends[first] - self.block_size / 2, middles[first])
            right = np.where(filled[other], self.block_starts[other] + self.block_size / 2, middles[other])
            moved = (self.block_ends[first] - near_end - left) + (right - self.block_starts[other] - near_end)
            distance = np.where(reaches, rows + weight * moved, distance)
        return float(weight.sum()), float(distance.sum())


def _sorted(*runs: Ids) -> Ids:
    """Merges sorted arrays without duplicates; many times faster than `numpy.unique`, which hashes."""
    merged = np.concatenate(runs)
    merged.sort(kind="stable")
    distinct: Ids = merged[np.append(True, merged[1:] != merged[:-1])]
    return distinct


EPOCHS = 64
"""The number of epochs over which file sequences are averaged; fewer if the sequence matters little."""

MANY_FILES = 1000
"""For more files, an eighth of `EPOCHS` is used; for ten times as many, one epoch."""

SIMILAR_SIZES = 0.05
"""The relative deviation of file sizes below which their sequence matters little."""

MAX_DEVIATION = 0.04
"""The largest relative deviation of file sizes, over the root of their number, for a closed spread."""


@dataclass(frozen=True, eq=False)
class ClosedForms:
    """Figures of a mode at some windows; None if there is no closed form."""

    plain: PlainMode
    windows: tuple[int, ...]

    def file_mixing(self) -> Estimate | None:
        """Returns the file mixing."""
        if self._same_file is None:
            return None
        chance = different_pairs(self.plain.layout.sizes)
        weights, _ = self._same_file
        return Estimate((1 - weights / self._total) / chance)

    def spread(self) -> Estimate | None:
        """Returns the spread.

        If files are shuffled, two samples of different files in a window are taken to be, on average over
        epochs, as far apart as any two samples of different files. This is exact for files of one size, and
        close if sizes are similar.
        """
        plain, sizes, total = self.plain, self.plain.layout.sizes, self._total
        at_random = random_distance(len(plain.layout))
        if not plain.shuffles_files and (plain.lanes > 1 or plain.mode.pools > 1):
            return None
        if not plain.shuffles_files and plain.shuffle is not Shuffle.PARTIAL:
            # In other modes each row keeps its place.
            runs = sizes if plain.shuffle is Shuffle.INFILE else np.ones(1)
            moved = [moved_in_runs(runs, window) for window in self.windows]
            in_sequence = [float(pair_distance(len(plain.layout), window)) for window in self.windows]
            return Estimate(np.add(in_sequence, moved)[None] / total / at_random)
        # Sizes differ too much, for so few files, for the assumption about different files.
        if _deviation(sizes) > MAX_DEVIATION * math.sqrt(sizes.size) or self._same_file is None:
            return None
        weights, distances = self._same_file
        return Estimate((distances + (total - weights) * distance_between_files(sizes)) / total / at_random)

    @cached_property
    def _total(self) -> Numbers:
        return np.array([float(pair_weight(len(self.plain.layout), window)) for window in self.windows])

    @cached_property
    def _same_file(self) -> tuple[Numbers, Numbers] | None:
        """Sums over pairs of rows of one file: weights, and weights times distances; for each epoch."""
        plain = self.plain
        is_partial = plain.shuffle is Shuffle.PARTIAL
        if (is_partial and plain.mode.pools > 1) or not _lanes_share_no_file(plain, max(self.windows)):
            return None
        # Without shuffled blocks, each row is a block of its own.
        block, sums = plain.mode.partial_size if is_partial else 1, []
        for epoch in range(_epochs(plain)):
            rows = plain.first_blocks(epoch, block)
            blocks = Blocks.of(*rows, block)
            windows = [(window, plain.lanes) for window in self.windows]
            pair_sums = np.array([np.add(blocks.inside(*at), blocks.across(*at)) for at in windows])
            # The remaining rows are taken to be like these.
            sums.append(pair_sums * (len(plain.layout) / int(rows[1][-1])))
        weights, distances = np.stack(sums).transpose(2, 0, 1)
        return weights, distances


def _deviation(sizes: Ids) -> float:
    return float(sizes.std() / sizes.mean())


def _epochs(plain: PlainMode) -> int:
    """Returns the number of epochs over which the sequences of files are averaged."""
    sizes = plain.layout.sizes
    runs_only = plain.shuffle is Shuffle.FILES and plain.lanes == 1
    if not plain.shuffles_files or runs_only or sizes.min() == sizes.max() or sizes.size > 10 * MANY_FILES:
        return 1
    return EPOCHS // 8 if sizes.size > MANY_FILES or _deviation(sizes) < SIMILAR_SIZES else EPOCHS


def _lanes_share_no_file(plain: PlainMode, window: int) -> bool:
    """Returns whether no window holds rows of one file from two lanes: from an end and the next start."""
    if plain.lanes == 1:
        return True
    moved = 2 * plain.mode.partial_size if plain.shuffle is Shuffle.PARTIAL else 0
    between = len(plain.layout) // plain.lanes - int(plain.layout.sizes.max()) - moved
    return between * plain.lanes >= window + plain.lanes
