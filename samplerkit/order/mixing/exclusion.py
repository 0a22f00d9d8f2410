"""Orders and streams without some ids: from its next pass on, a source is read as if they were not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, final

import numpy as np

from samplerkit.errors import NotSupportedError
from samplerkit.order.algebra import OrderView, Read
from samplerkit.order.arguments import LARGEST
from samplerkit.order.files import LaneWeave
from samplerkit.order.intervals import groups, interval_of
from samplerkit.order.mixing.removed_positions import RemovedRows
from samplerkit.order.mixing.streams import Mix, Passes, Piece, Stream
from samplerkit.order.order import Located, Order
from samplerkit.order.typing import Ids


@final
@dataclass(eq=False, repr=False)
class WithoutIds(OrderView):
    """An order without some of its ids: what follows moves up.

    Rows leave the sequence that was cut into lanes, and the rest is cut again: so each lane stays one run
    of it, and reads the files that it read.

    Args:
        order: what they leave.
        ids: distinct.
        lanes: into how many lanes the order is woven.
    """

    order: Order
    ids: Ids
    lanes: int

    def __post_init__(self) -> None:
        size, order = len(self.order), self.order
        self._woven = LaneWeave(size, max(1, min(self.lanes, size)))
        rows = np.sort(self._woven.ids_at(order.locate(self.ids)[1]))
        self._removed = RemovedRows(rows, rows + 1)
        left = size - rows.size
        self._woven_again = LaneWeave(left, max(1, min(self.lanes, left)))

    def __len__(self) -> int:
        return len(self._woven_again)

    @property
    def viewed(self) -> Sequence[Order]:
        return (self.order,)

    def read(self, positions: Ids, what: Read) -> Ids:
        rows = self._removed.rows(self._woven_again.ids_at(positions))
        return what(self.order, self._woven.locate(rows)[1])

    def locate(self, ids: Ids) -> Located:
        which, positions = self.order.locate(ids)
        rows, is_kept = self._removed.kept(self._woven.ids_at(positions))
        return which[is_kept], self._woven_again.locate(rows[is_kept])[1]


class DrawnPositions(NamedTuple):
    """Which positions of a stream were drawn: all before `low`, none from `high` on, and some between."""

    low: int
    high: int
    has: Callable[[Ids], np.ndarray[Any, np.dtype[np.bool_]]]

    @classmethod
    def of_lanes(cls, rows: Ids) -> DrawnPositions:
        """Gives it where each lane has drawn some rows, int64 of shape (lanes,)."""
        lanes = rows.size
        ends = (rows - 1) * lanes + np.arange(lanes) + 1
        low = int(ends.min()) + lanes - 1
        high = max(low, int(ends.max()))
        return cls(low, high, lambda positions: positions // lanes < rows[positions % lanes])


@dataclass(frozen=True, eq=False)
class _Passes:
    """Passes from one of them on that lack the same ids.

    Args:
        first: the number of the first one.
        begin: the position at which that begins.
        ids: what they lack.
        passes: themselves.
    """

    first: int
    begin: int
    ids: Ids
    passes: Passes


@dataclass(frozen=True, eq=False)
class _OrderWithoutIds:
    """Gives the order of a pass, counted from some pass on, without some ids."""

    passes: Passes
    first: int
    ids: Ids

    def __call__(self, number: int) -> Order:
        return WithoutIds(self.passes.order(self.first + number), self.ids, self.passes.woven)


@final
class PassesWithoutIds(Stream):
    """Passes over a source, which from some pass on lack ids.

    Args:
        passes: over all of the source.
        later: the passes that lack more and more; ascending.
        gone: the positions of the passes before, which were under way, that nobody reads any more.
    """

    def __init__(self, passes: Passes, later: tuple[_Passes, ...] = (), gone: Ids | None = None) -> None:
        self.lanes = passes.lanes
        self._all = passes
        self._parts = (_Passes(0, 0, np.zeros(0, dtype=np.int64), passes), *later)
        self.gone: Final = np.zeros(0, dtype=np.int64) if gone is None else gone
        self._bounds = np.array([*(part.begin for part in self._parts), LARGEST + 1], dtype=np.int64)

    @property
    def recipe(self) -> tuple[object, ...]:
        changes = ((part.first, part.begin, part.ids) for part in self._parts[1:])
        return self._all, self.gone, *(value for change in changes for value in change)

    def without(self, ids: Ids, drawn: DrawnPositions) -> PassesWithoutIds:
        """Gives the stream whose next pass, and all after it, lack some more ids.

        Raises:
            NotSupportedError: nothing would be left.
        """
        part = self._parts[int(interval_of(self._bounds, np.array([max(0, drawn.high - 1)]))[0])]
        begun = -(-(drawn.high - part.begin) // part.passes.length) if drawn.high > part.begin else 0
        first, begin = part.first + begun, part.begin + begun * part.passes.length
        _, positions = self.locate(ids, drawn.low, begin)
        lacking = np.union1d(self._parts[-1].ids, ids)
        later = Passes(_OrderWithoutIds(self._all, first, lacking), self._all.lanes, self._all.name)
        if not later.length:
            hint = "give it the weight 0 at the same position"
            raise NotSupportedError(self._all.name, "would have no samples left", hint=hint)
        before = tuple(one for one in self._parts[1:] if one.first < first)
        gone = np.union1d(self.gone, positions[~drawn.has(positions)])
        return PassesWithoutIds(self._all, (*before, _Passes(first, begin, lacking, later)), gone)

    def pieces(self, positions: Ids) -> Iterator[Piece]:
        for number, at in groups(interval_of(self._bounds, positions)):
            part = self._parts[number]
            for piece in part.passes.pieces(positions[at] - part.begin):
                yield piece._replace(at=at[piece.at], number=piece.number + part.first)

    def locate(self, ids: Ids, begin: int, end: int) -> Located:
        found = [(ids[:0],) * 2]
        for part, bound in zip(self._parts, self._bounds[1:].tolist(), strict=True):
            low, high = max(begin, part.begin), min(end, bound)
            if low < high:
                which, positions = part.passes.locate(ids, low - part.begin, high - part.begin)
                found.append((which, positions + part.begin))
        return np.concatenate([which for which, _ in found]), np.concatenate([p for _, p in found])

    def pass_begin(self, number: int) -> int:
        """Gives the position at which a pass begins, as the function of that name."""
        part = max((one for one in self._parts if one.first <= number), key=lambda one: one.first)
        return min(part.begin + (number - part.first) * part.passes.length, LARGEST // 2)

    def passes_in(self, count: int) -> float:
        """Gives how many passes the first positions are, as the function of that name."""
        part = max((one for one in self._parts if one.begin <= count), key=lambda one: one.begin)
        return part.first + (count - part.begin) / part.passes.length

    def num_passes(self, end: int) -> int:
        part = self._parts[int(interval_of(self._bounds, np.array([max(0, end - 1)]))[0])]
        each = part.passes.order(0).num_passes
        return part.first * each + part.passes.num_passes(max(0, end - part.begin))


def without(stream: Stream, ids: Ids, drawn: DrawnPositions) -> Stream:
    """Gives a stream that in its passes to come lacks some ids; in those under way they are `gone`.

    Args:
        stream: passes over a source, or a mixture of such streams.
        ids: distinct.
        drawn: what of the stream was drawn.

    Raises:
        NotSupportedError: a source would have nothing left.
    """
    if isinstance(stream, Mix):
        streams = list(stream.streams)
        for source, at in groups(interval_of(stream.starts, ids)):
            mine = ids[at] - int(stream.starts[source])
            streams[source] = without(streams[source], mine, _drawn_of(stream, source, drawn))
        return Mix(stream.turns, stream.lanes, streams, stream.starts)
    if isinstance(stream, Passes):
        stream = PassesWithoutIds(stream)
    if not isinstance(stream, PassesWithoutIds):
        raise NotSupportedError("without", "is said of an order of no passes", stream)
    return stream.without(ids, drawn)


def gone_from(stream: Stream) -> Ids:
    """Gives the positions of a stream that nobody reads any more, of passes that were under way."""
    if isinstance(stream, PassesWithoutIds):
        return stream.gone
    found = [np.zeros(0, dtype=np.int64)]
    if isinstance(stream, Mix):
        for source, inner in enumerate(stream.streams):
            gone = gone_from(inner)
            if gone.size:
                positions = positions_above(stream, source, gone)
                found.append(positions[positions < LARGEST])
    return np.concatenate(found)


def pass_begin(stream: Stream, number: int) -> int:
    """Gives the position at which a pass over a source begins, at most 2^61."""
    if isinstance(stream, PassesWithoutIds):
        return stream.pass_begin(number)
    if not isinstance(stream, Passes):
        raise NotSupportedError("max_passes", "is said of what has no passes", stream)
    return min(number * stream.length, LARGEST // 2)


def passes_in(stream: Stream, count: int) -> float:
    """Gives how many passes over a source its first `count` samples are; of what has no passes, 0."""
    if isinstance(stream, PassesWithoutIds):
        return stream.passes_in(count)
    return count / stream.length if isinstance(stream, Passes) else 0.0


def positions_above(mix: Mix, source: int, inner: Ids) -> Ids:
    """Gives where a mixture reads positions of one of its streams; 2^62 for what it does not reach."""
    turns, lanes = np.divmod(inner, mix.lanes)
    rows = mix.turns.row(source, lanes, turns)
    is_far = rows >= LARGEST // mix.lanes
    return np.where(is_far, LARGEST, np.where(is_far, 0, rows) * mix.lanes + lanes)


def _drawn_of(mix: Mix, source: int, drawn: DrawnPositions) -> DrawnPositions:
    """Gives what of one of its streams was drawn, where a mixture was drawn so far."""
    lanes = np.arange(mix.lanes)
    turns = mix.turns.drawn(source, lanes, np.maximum(0, drawn.low - lanes + mix.lanes - 1) // mix.lanes)
    # Lanes stand nearly side by side, so there are few positions that some have read and others not.
    between = np.arange(drawn.low, drawn.high)
    rows, lane = np.divmod(between[drawn.has(between)], mix.lanes)
    read, turn = mix.turns.read(lane, rows)
    last = np.append(turns - 1, turn[read == source]) * mix.lanes + np.append(lanes, lane[read == source])
    high = int(last.max(initial=-1)) + 1
    low = min(int((turns * mix.lanes + lanes).min()), high)
    return DrawnPositions(low, max(0, high), lambda inner: drawn.has(positions_above(mix, source, inner)))
