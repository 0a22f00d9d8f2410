"""Rows of files cut into lanes and blocks: which pairs of rows share a file, and with what weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from samplerkit.inspect.quality.pairs import (
    Numbers,
    cross_distance,
    cross_weight,
    lost_by_runs,
    pair_distance,
    pair_weight,
)
from samplerkit.order.caching import cached_property
from samplerkit.order.intervals import edges_of, interval_of
from samplerkit.order.typing import Ids

MOST_BLOCKS = 1_000_000
"""How many blocks of one size in a window are distinguished."""


@final
@dataclass(frozen=True)
class Blocks:
    """A sequence of rows, file after file, cut into lanes and then into blocks that are shuffled.

    A cell is a piece of one file in one lane: the part of it in one block, or all the whole blocks that it
    fills. So there are at most four cells a file and lane, however many blocks there are.

    Args:
        starts: the first row of each cell, and the number of rows; shape (cells + 1,).
        group: the file and lane of each cell, as one number that does not fall; shape (cells,).
        block_starts: the first row of the block in which each cell lies, or of the whole blocks.
        block_ends: the row after it.
        block_size: rows in a whole block.
    """

    starts: Ids
    group: Ids
    block_starts: Ids
    block_ends: Ids
    block_size: int

    @classmethod
    def of(cls, file_sizes: Ids, lane_starts: Ids, block_size: int) -> Blocks:
        """Cuts rows.

        Args:
            file_sizes: in the sequence in which the files are read.
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

    def same_file(self, window: int, lanes: int) -> tuple[float, float]:
        """Sums over all pairs of rows of one file and lane.

        Returns:
            Their weights, and their weights times the distance of their ids, as they are expected.
        """
        weight, distance = self._inside(window, lanes)
        for apart in range(1, 4):
            more_weight, more_distance = self._across(apart, window, lanes)
            weight, distance = weight + more_weight, distance + more_distance
        return weight, distance

    @cached_property
    def _sizes(self) -> Numbers:
        return np.diff(self.starts).astype(np.float64)

    @cached_property
    def _blocks(self) -> Numbers:
        return (self.block_ends - self.block_starts).astype(np.float64)

    @cached_property
    def _neighbours(self) -> list[tuple[Ids, Numbers]]:
        """Cells with one of the same file and lane one, two and three on, and the rows between the two."""
        found = []
        for apart in range(1, 4):
            one = np.flatnonzero(self.group[:-apart] == self.group[apart:])
            gap = (self.block_starts[one + apart] - self.block_ends[one]).astype(np.float64)
            found.append((one, gap))
        return found

    def _inside(self, window: int, lanes: int) -> tuple[float, float]:
        """Sums over the pairs in one block, and in the whole blocks that one file fills."""
        sizes, blocks = self._sizes, self._blocks
        share = sizes * (sizes - 1) / np.maximum(1, blocks * (blocks - 1))
        weight = pair_weight(blocks, window, lanes) * share
        distance = weight * (sizes + 1) / 3
        whole = sizes >= self.block_size
        if whole.any():
            distance[whole] = self._in_whole_blocks(sizes[whole], window, lanes)
        return float(weight.sum()), float(distance.sum())

    def _in_whole_blocks(self, sizes: Numbers, window: int, lanes: int) -> Numbers:
        size = self.block_size
        between = pair_distance(sizes, window, lanes)
        count = (sizes / size).astype(np.int64)
        within = count * pair_weight(size, window, lanes) * (size + 1) / 3
        # At both ends of the blocks: as in `Runs`, but summed up once for all files.
        listed = int(min(count.max(), window // (lanes * size) + 1, MOST_BLOCKS))
        starts: Numbers = np.arange(listed, dtype=np.float64) * size
        lost = np.cumsum(lost_by_runs(starts, starts + size, window, lanes))
        distance: Numbers = within + between - 2 * lost[np.minimum(count, listed) - 1]
        return distance

    def _across(self, apart: int, window: int, lanes: int) -> tuple[float, float]:
        """Sums over the pairs of one file and lane in cells that lie `apart` cells apart."""
        one, gap = self._neighbours[apart - 1]
        near = gap * lanes < window
        if not near.any():
            return 0.0, 0.0
        one, gap = one[near], gap[near]
        other = one + apart
        sizes, blocks = self._sizes, self._blocks
        share = sizes[one] * sizes[other] / (blocks[one] * blocks[other])
        weight = cross_weight(blocks[one], gap, blocks[other], window, lanes) * share
        middles = (self.starts[:-1] + self.starts[1:] - 1) / 2
        distance = weight * (middles[other] - middles[one])
        # In whole blocks, a window reaches those at the near end only.
        filled = sizes > self.block_size
        reaches = filled[one] | filled[other]
        if reaches.any():
            rows = cross_distance(blocks[one], gap, blocks[other], window, lanes) * share
            near_end = min(self.block_size / 2, window / (4 * lanes))
            left = np.where(filled[one], self.block_ends[one] - self.block_size / 2, middles[one])
            right = np.where(filled[other], self.block_starts[other] + self.block_size / 2, middles[other])
            moved = (self.block_ends[one] - near_end - left) + (right - self.block_starts[other] - near_end)
            distance = np.where(reaches, rows + weight * moved, distance)
        return float(weight.sum()), float(distance.sum())


def _sorted(*runs: Ids) -> Ids:
    """Merges sorted runs, each number once: many times as fast as `numpy.unique`, which hashes."""
    merged = np.concatenate(runs)
    merged.sort(kind="stable")
    distinct: Ids = merged[np.append(True, merged[1:] != merged[:-1])]
    return distinct
