"""Shuffled runs of rows that follow one another as they lie, and how far apart a window's samples are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from samplerkit.inspect.quality.pairs import Numbers, pair_distance, pair_weight

MOST_RUNS = 1_000_000
"""How many runs in a window are told apart; more are as good as single rows."""


@final
@dataclass(frozen=True)
class Runs:
    """Runs of rows, each shuffled in itself, that stand in the order of their ids.

    Args:
        sizes: rows in each run; shape (runs,).
        repeats: how often all of them come, one round after another.
        rest: rows in one more run at the end.

    Example:
        >>> round(Runs(np.array([4]), 2).distance(8), 1), Runs(np.array([8]), 1).distance(8)
        (382.7, 420.0)
    """

    sizes: Any
    repeats: int
    rest: int = 0

    def distance(self, window: int) -> float:
        """Sums weight times distance of ids, as it is expected, over all pairs of rows.

        Pairs in one run are a third of its length apart, pairs in different runs as far as the middles. The
        latter sum up to what rows in their order give, but for runs near the ends, which have fewer
        neighbours on one side.
        """
        sizes = np.asarray(self.sizes, dtype=np.float64)
        length = float(sizes.sum()) * self.repeats + self.rest
        rest = np.array([self.rest], dtype=np.float64)
        within = self.repeats * float(_within(sizes, window).sum()) + float(_within(rest, window).sum())
        between = float(pair_distance(length, window))
        if sizes.max() > 1:
            between -= _lost_at_the_start(self._first(sizes, rest, window), window)
            between -= _lost_at_the_start(self._first(sizes[::-1], rest, window, backwards=True), window)
        else:
            return between
        return within + between

    def _first(self, sizes: Numbers, rest: Numbers, window: int, *, backwards: bool = False) -> Numbers:
        """Lists the runs from one end, as many as a window may touch."""
        rounds = int(min(self.repeats, window // sizes.sum() + 1, MOST_RUNS))
        listed = np.tile(sizes, rounds)
        return np.concatenate([rest, listed] if backwards else [listed, rest])


def _within(sizes: Numbers, window: int) -> Numbers:
    return pair_weight(sizes, window) * (sizes + 1) / 3


def _lost_at_the_start(sizes: Numbers, window: int) -> float:
    sizes = sizes[sizes > 0]
    ends = np.cumsum(sizes)
    return float(lost_by_runs(ends - sizes, ends, window).sum())


def lost_by_runs(starts: Numbers, ends: Numbers, window: int, lanes: int = 1) -> Numbers:
    """Sums, over the rows of each run, the distance to the run's middle times the weight lost at the start.

    Row p lacks the earlier neighbours that would lie before row 0: those further away than p, and nearer than
    a window.

    Args:
        starts: the first row of each run, counted from where the neighbours end.
        ends: the row after each run.
        window: in positions.
        lanes: how many positions lie between two rows.
    """
    reach = (window - 1) // lanes
    high, low = np.maximum(0, reach - starts), np.maximum(0, reach - ends)
    # Row p = reach - u lacks u neighbours, of which the furthest has the weight `least`, and each nearer one
    # `lanes` more: least * u + lanes * u * (u - 1) / 2.
    least = window - lanes * reach
    linear, square = least - lanes / 2, lanes / 2
    middle = (starts + ends - 1) / 2 - reach
    ones, twos, threes = (above - below for above, below in zip(_powers(high), _powers(low), strict=True))
    lost: Numbers = middle * (linear * ones + square * twos) + linear * twos + square * threes
    return lost


def _powers(count: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Gives the sums of u, u^2 and u^3 for u from 1 to each count."""
    first = count * (count + 1) / 2
    return first, first * (2 * count + 1) / 3, first * first
