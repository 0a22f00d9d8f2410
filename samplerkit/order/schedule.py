"""Schedules: which of several sources each position reads, by weights, repeating after a period."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, final

import numpy as np

from samplerkit.order.typing import Ids

LONGEST_TABLE = 1 << 20
"""The longest period that is kept as a table; longer ones are computed by a tree."""

LONGEST_PERIOD = 1 << 31
"""The longest period of all: products of two numbers below it fit into 63 bits."""


class Schedule(Protocol):
    """Which source each slot of a period reads."""

    @property
    def weights(self) -> Ids:
        """How often each source is read in a period, int64 of shape (sources,)."""

    @property
    def period(self) -> int:
        """The number of slots, the sum of the weights."""

    def read(self, slots: Ids) -> tuple[Ids, Ids]:
        """Gives the source that each slot reads, and how often that was read in earlier slots."""

    def slots(self, sources: Ids, turns: Ids) -> Ids:
        """Gives the slots in which sources of positive weight are read for the turn-th time, from 0."""


def schedule_of(weights: list[int]) -> Schedule:
    """Makes the schedule of non-negative integer weights whose sum is at most `LONGEST_PERIOD`.

    The last ones are kept: every epoch of a run asks for the same one, and a long table takes seconds.
    """
    return _schedule(tuple(weights))


@lru_cache(maxsize=2)
def _schedule(weights: tuple[int, ...]) -> Schedule:
    return table_of(list(weights)) if sum(weights) <= LONGEST_TABLE else TreeSchedule(list(weights))


@final
@dataclass(frozen=True)
class TableSchedule:
    """A schedule as a table: after any number of slots, each source is within less than one of its share.

    Args:
        weights: as for `Schedule`.
        sources: the source of each slot, int64 of shape (period,).
        turns: how often it was read before, likewise.
        by_source: the slots of the first source, then those of the second, and so on, likewise.

    Source: the schedule is earliest deadline first over the windows of proportional fairness, Baruah et al.,
    "Proportionate progress: a notion of fairness in resource allocation" (1996).

    Example:
        >>> table_of([3, 1]).sources.tolist()
        [0, 0, 0, 1]
    """

    weights: Ids
    sources: Ids
    turns: Ids
    by_source: Ids

    @property
    def period(self) -> int:
        """The number of slots."""
        return self.sources.size

    def read(self, slots: Ids) -> tuple[Ids, Ids]:
        """Gives the source that each slot reads, and how often that was read in earlier slots."""
        return self.sources[slots], self.turns[slots]

    def slots(self, sources: Ids, turns: Ids) -> Ids:
        """Gives the slots in which sources of positive weight are read for the turn-th time, from 0."""
        starts = np.cumsum(self.weights) - self.weights
        slots: Ids = self.by_source[starts[sources] + turns]
        return slots


def table_of(weights: list[int]) -> TableSchedule:
    """Makes the table of integer weights."""
    period = sum(weights)
    waiting = [(0, source) for source, weight in enumerate(weights) if weight]
    turns = [0] * len(weights)
    ready: list[tuple[int, int]] = []
    sources = np.empty(period, dtype=np.int64)
    for slot in range(period):
        while waiting and waiting[0][0] <= slot:
            _, source = heapq.heappop(waiting)
            heapq.heappush(ready, (-(-(turns[source] + 1) * period // weights[source]), source))
        _, source = heapq.heappop(ready)
        sources[slot] = source
        turns[source] += 1
        heapq.heappush(waiting, (turns[source] * period // weights[source], source))
    by_source = np.argsort(sources, kind="stable")
    turn = np.empty(period, dtype=np.int64)
    turn[by_source] = np.arange(period) - np.repeat(np.cumsum(weights) - weights, weights)
    return TableSchedule(np.array(weights, dtype=np.int64), sources, turn, by_source)


@final
class TreeSchedule:
    """A schedule as a tree of choices between two: no table, for periods of any length.

    A node hands a slot to its first branch if that brings the branch's count to its share, rounded to the
    nearest integer. So counts of two sources are within half a sample of their shares, and of three within
    one. A node is off by half a sample plus its share of what the node above is off, and in Huffman's tree no
    inner node has a share above two thirds: so the counts of any number of sources are within two.

    Args:
        weights: non-negative integers, of which one is positive; their sum is at most `LONGEST_PERIOD`.

    Example:
        >>> sources, turns = TreeSchedule([3, 1]).read(np.arange(4))
        >>> sources.tolist(), turns.tolist()
        ([0, 0, 1, 0], [0, 1, 0, 2])
    """

    def __init__(self, weights: list[int]) -> None:
        self.weights = np.array(weights, dtype=np.int64)
        self.period = sum(weights)
        # A node is (its weight, its first branch's, the branches); leaves are the first nodes, one a source.
        nodes: list[tuple[int, int, int, int]] = [(weight, 0, -1, -1) for weight in weights]
        heap = [(weight, number) for number, weight in enumerate(weights) if weight]
        heapq.heapify(heap)
        while len(heap) > 1:
            second, first = heapq.heappop(heap), heapq.heappop(heap)
            heapq.heappush(heap, (first[0] + second[0], len(nodes)))
            nodes.append((first[0] + second[0], first[0], first[1], second[1]))
        self._root = heap[0][1]
        self._whole, self._part, self._first, self._second = np.array(nodes, dtype=np.int64).T
        self._parent = np.full(len(nodes), -1)
        for branch in (self._first, self._second):
            inner = np.flatnonzero(branch >= 0)
            self._parent[branch[inner]] = inner

    def read(self, slots: Ids) -> tuple[Ids, Ids]:
        """Gives the source that each slot reads, and how often that was read in earlier slots."""
        node, turn = np.full(slots.shape, self._root), slots.astype(np.int64)
        going = np.arange(slots.size)[self._first[node] >= 0]
        while going.size:
            here, slot = node[going], turn[going]
            before, after = self._count(here, slot), self._count(here, slot + 1)
            takes = after > before
            node[going] = np.where(takes, self._first[here], self._second[here])
            turn[going] = np.where(takes, before, slot - before)
            going = going[self._first[node[going]] >= 0]
        return node, turn

    def slots(self, sources: Ids, turns: Ids) -> Ids:
        """Gives the slots in which sources of positive weight are read for the turn-th time, from 0."""
        node, turn = sources.astype(np.int64), turns.astype(np.int64)
        going = np.flatnonzero(node != self._root)
        while going.size:
            here, before = node[going], turn[going]
            parent = self._parent[here]
            whole, part = self._whole[parent], self._part[parent]
            # The earliest number of slots by which the branch was read before + 1 times.
            by_first = -(-((before + 1) * whole - whole // 2) // part)
            by_second = -(-(before * whole + 1 + whole // 2) // (whole - part))
            turn[going] = np.where(here == self._first[parent], by_first, by_second) - 1
            node[going] = parent
            going = going[parent != self._root]
        return turn

    def _count(self, node: Ids, slots: Ids) -> Ids:
        """How often the first branch of each node is read in the node's first slots."""
        whole = self._whole[node]
        counts: Ids = (self._part[node] * slots + whole // 2) // whole
        return counts


def first_reads(schedule: Schedule, sources: Ids, draws: Ids) -> list[int]:
    """Gives the positions at which sources of positive weight are read for the draws-th time, from 0."""
    rounds, turns = np.divmod(draws, schedule.weights[sources])
    slots = schedule.slots(sources, turns).tolist()
    # Python's integers: a large source of a small weight ends beyond 64 bits.
    return [number * schedule.period + slot for number, slot in zip(rounds.tolist(), slots, strict=True)]


def reads_before(schedule: Schedule, sources: Ids, length: int) -> Ids:
    """Gives how often each of some sources of positive weight is read in the first positions."""
    rounds, left = divmod(length, schedule.period)
    weights = schedule.weights[sources]
    low, high = np.zeros_like(weights), weights.copy()
    while (going := np.flatnonzero(low < high)).size:
        middle = (low[going] + high[going]) // 2
        is_read = schedule.slots(sources[going], middle) < left
        low[going] = np.where(is_read, middle + 1, low[going])
        high[going] = np.where(is_read, high[going], middle)
    counts: Ids = rounds * weights + low
    return counts
