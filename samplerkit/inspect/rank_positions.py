"""The inverse of a delivery: which rank reads a position, in which step, at which place. Arithmetic only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from samplerkit.loading.run.delivery import Delivery
from samplerkit.order.typing import Ids


@final
@dataclass(frozen=True, eq=False)
class RankPositions:
    """Where positions are read: four int64 arrays of one length.

    Args:
        positions: those that are read; from the length of the order on, they are pads.
        ranks: who reads each.
        steps: in which step, counted from the start of the delivery.
        places: at which place of the rank's batch.
    """

    positions: Ids
    ranks: Ids
    steps: Ids
    places: Ids

    def rows(self) -> Iterator[tuple[int, ...]]:
        """Gives the rank, the step, the place and the position of each."""
        columns = (self.ranks, self.steps, self.places, self.positions)
        return zip(*(column.tolist() for column in columns), strict=True)


class StepsOf(NamedTuple):
    """Some steps, as int64 arrays of one length.

    Args:
        steps: their numbers.
        firsts: the positions at which they begin.
        sizes: how many positions they cover.
    """

    steps: Ids
    firsts: Ids
    sizes: Ids


def pads_of(delivery: Delivery, positions: Ids) -> Ids:
    """Gives the pads that repeat what stands at some positions.

    Args:
        delivery: how the rest of an epoch is dealt.
        positions: int64 of shape (m,), each in [0, total).

    Returns:
        Positions from `total` on, int64.

    Example:
        >>> delivery = Delivery(total=10, start=0, num_shards=4, batch_size=3, tail="pad")
        >>> pads_of(delivery, np.array([0, 1, 2])).tolist()
        [10, 11]
    """
    left = delivery.size - delivery.start
    if delivery.tail != "pad" or left == 0:
        return np.zeros(0, dtype=np.int64)
    end = delivery.size + -left % delivery.num_shards
    times = np.maximum(0, -((positions - end) // delivery.size) - 1)
    # The n-th time that the order wraps around, for each position as often as it fits.
    turns = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times) + 1
    pads: Ids = np.repeat(positions, times) + turns * delivery.size
    return pads


def rank_positions_of(delivery: Delivery, positions: Ids) -> RankPositions:
    """Finds out who reads some positions, and when: the inverse of `Delivery.positions`.

    Args:
        delivery: how the rest of an epoch is dealt.
        positions: int64 of shape (m,), none negative.

    Returns:
        The seats of those that are read; positions before the start, and those that the tail drops, are not.

    Example:
        >>> delivery = Delivery(total=10, start=0, num_shards=2, batch_size=3, tail="pad")
        >>> delivery.positions(shard=1, step=0).tolist()
        [1, 3, 5]
        >>> seats = rank_positions_of(delivery, np.array([5]))
        >>> seats.ranks.tolist(), seats.steps.tolist(), seats.places.tolist()
        ([1], [0], [2])
    """
    positions = positions[positions >= delivery.start]
    # Pads are dealt in the step of the last sample, wherever their positions lie.
    found = _steps_of(delivery, np.minimum(positions, max(delivery.start, delivery.size - 1)))
    if delivery._fits_lanes:
        place, seat = np.divmod(positions - found.firsts, delivery.num_shards)
    else:
        seat, place = _in_lane_order(delivery, positions, found)
    rank = (seat + delivery.rotation) % delivery.num_shards
    before = (found.firsts - delivery.start) // delivery.num_shards
    read = before + place < _samples(delivery, seat)
    return RankPositions(positions[read], rank[read], found.steps[read], place[read])


def _steps_of(delivery: Delivery, positions: Ids) -> StepsOf:
    """Returns in which steps positions are, where these begin, and how many positions they cover."""
    begins, steps, sizes = np.array(delivery.stages, dtype=np.int64).T
    which = np.maximum(np.searchsorted(begins, positions, side="right") - 1, 0)
    step = (positions - begins[which]) // sizes[which]
    return StepsOf(steps[which] + step, begins[which] + step * sizes[which], sizes[which])


def _samples(delivery: Delivery, seat: Ids) -> Ids:
    """How many samples the ranks on some seats get, pads included."""
    first = delivery.rotation % delivery.num_shards
    most = delivery.samples(first)
    if delivery.tail != "ragged":
        return np.full(seat.shape, most)
    whole, rest = divmod(delivery.size - delivery.start, delivery.num_shards)
    return whole + (seat < rest)


def _in_lane_order(delivery: Delivery, positions: Ids, found: StepsOf) -> tuple[Ids, Ids]:
    """Finds seats and places where each step is dealt in the order of lanes, pads last."""
    ranks, lanes, total, first = delivery.num_shards, delivery.lanes, delivery.size, found.firsts
    covered = np.minimum(total - first, found.sizes)
    lane = positions % lanes
    before = _in_earlier_lanes(first + covered, lane, lanes) - _in_earlier_lanes(first, lane, lanes)
    in_lane = (positions - first - (lane - first) % lanes) // lanes
    turn = np.where(positions < total, before + in_lane, covered + positions - total)
    if delivery.tail == "pad":
        smaller, larger = -(-covered // ranks), np.zeros_like(covered)
    else:
        smaller, larger = np.divmod(covered, ranks)
    # The first seats get one more than the others, where there is a rest.
    border = larger * (smaller + 1)
    seat = np.where(turn < border, turn // (smaller + 1), larger + (turn - border) // np.maximum(1, smaller))
    place = turn - seat * smaller - np.minimum(seat, larger)
    return seat, place


def _in_earlier_lanes(end: Ids, lane: Ids, lanes: int) -> Ids:
    """How many of the positions in [0, end) lie in lanes before this one."""
    rounds, rest = np.divmod(end, lanes)
    return rounds * lane + np.minimum(rest, lane)
