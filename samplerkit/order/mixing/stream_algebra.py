"""Streams made of streams: mixtures, and streams without some rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from samplerkit.order.arguments import LARGEST
from samplerkit.order.caching import cached_property
from samplerkit.order.intervals import groups, interval_of
from samplerkit.order.mixing.removed_positions import RemovedPositions, no_positions, rows_before
from samplerkit.order.mixing.source_counts import SourceCounts
from samplerkit.order.mixing.streams import DrawnPositions, Passes, Piece, Stream
from samplerkit.order.mixing.weights import thresholds
from samplerkit.order.order import Located
from samplerkit.order.typing import Ids

_FEW_EACH = 512
"""Positions a source, up to which the passes of all sources are distinguished at once."""


@final
class Mix(Stream):
    """Several streams mixed by independent draws: a position reads one of them, at its lane's next row.

    Position P, row k of lane l, reads stream s at turn * lanes + l, where lane l read s `turn` times before
    row k. So a mixture of woven orders is the weave of mixtures of lanes.

    Args:
        turns: which stream each row reads, and how often that was read before.
        lanes: into how many lanes the mixture is woven.
        streams: the sources.
        starts: what is added to the ids of each source, ascending, and the end of the last: shape (sources +
            1,). Sources do not overlap: ids of source s are in [starts[s], starts[s + 1]).
    """

    def __init__(self, turns: SourceCounts, lanes: int, streams: Sequence[Passes | Mix], starts: Ids) -> None:
        self.turns: Final = turns
        self.lanes = lanes
        self.streams: Final = tuple(streams)
        self.starts: Final = starts

    @property
    def recipe(self) -> tuple[object, ...]:
        return (*self.turns.recipe, self.lanes, self.starts, *self.streams)

    def reweighted(self, weights: Sequence[Sequence[float]], firsts: Callable[[int], Ids]) -> Mix:
        """Returns the mixture whose weights change: the same draws, and each source continues where it is.

        Args:
            weights: of each segment after the first, one for each source.
            firsts: returns for a lane the first row of each of these segments: int64, ascending. A segment
                that begins where the next one does has no rows.
        """
        ends = np.stack([self.turns.ends[0], *map(thresholds, weights)])
        return Mix(SourceCounts(self.turns.draws, ends, firsts), self.lanes, self.streams, self.starts)

    def without(self, ids: Ids, drawn: DrawnPositions) -> Mix:
        """Returns the mixture of streams whose passes to come lack some ids; as for these."""
        streams = list(self.streams)
        for source, at in groups(interval_of(self.starts, ids)):
            own_ids = ids[at] - int(self.starts[source])
            streams[source] = streams[source].without(own_ids, self._drawn_within(source, drawn))
        return Mix(self.turns, self.lanes, streams, self.starts)

    def _drawn_within(self, source: int, drawn: DrawnPositions) -> DrawnPositions:
        """Returns what of one of the streams was drawn, where the mixture was drawn so far."""
        lanes = np.arange(self.lanes)
        turns = self.turns.drawn(source, lanes, rows_before(np.array(drawn.low), lanes, self.lanes))
        # Lanes are nearly at the same row, so there are few positions that only some have read.
        between = np.arange(drawn.low, drawn.high)
        rows, lane = np.divmod(between[drawn.has(between)], self.lanes)
        read, turn = self.turns.read(lane, rows)
        last = np.append(turns - 1, turn[read == source]) * self.lanes
        last += np.append(lanes, lane[read == source])
        high = int(last.max(initial=-1)) + 1
        low = min(int((turns * self.lanes + lanes).min()), high)
        return DrawnPositions(low, max(0, high), lambda inner: drawn.has(self.positions_of(source, inner)))

    @property
    def removed(self) -> Ids:
        """The positions that are no longer read, in passes that were under way when ids were removed."""
        parts = [no_positions()]
        for source, stream in enumerate(self.streams):
            if (removed := stream.removed).size:
                positions = self.positions_of(source, removed)
                parts.append(positions[positions < LARGEST])
        return np.concatenate(parts)

    def positions_of(self, source: int, inner: Ids) -> Ids:
        """Returns where positions of one of the streams are read; 2^62 for what is not reached."""
        turns, lanes = np.divmod(inner, self.lanes)
        rows = self.turns.row(source, lanes, turns)
        is_unreached = rows >= LARGEST // self.lanes
        return np.where(is_unreached, LARGEST, np.where(is_unreached, 0, rows) * self.lanes + lanes)

    def pieces(self, positions: Ids) -> Iterator[Piece]:
        rows, lanes = np.divmod(positions, self.lanes)
        source, turns = self.turns.read(lanes, rows)
        label, places, span = source, turns * self.lanes + lanes, 0
        if positions.size <= _FEW_EACH * len(self.streams):
            # A call a source takes longer than its few positions: passes are distinguished in all at once.
            length = self._lengths[source]
            span = int((places // length).max(initial=0)) + 1
        if 0 < span < LARGEST // len(self.streams):
            label, places = source * span + places // length, places % length
        for value, at in groups(label):
            number, turn = divmod(value, span) if label is not source else (value, 0)
            stream, start = self.streams[number], int(self.starts[number])
            if label is not source and isinstance(stream, Passes) and stream.is_uniform:
                yield Piece(at, stream.order(turn), places[at], start, turn)
                continue
            for part, order, inside, shift, turn in stream.pieces(places[at]):
                yield Piece(at[part], order, inside, shift + start, turn)

    @cached_property
    def _lengths(self) -> Ids:
        """How long a pass over each source is; of what is not read, or no passes, longer than all."""
        pairs = zip(self.streams, np.diff(self.turns.ends, axis=1).max(axis=0), strict=True)
        return np.array(
            [
                stream.length if draws and isinstance(stream, Passes) and stream.is_uniform else LARGEST
                for stream, draws in pairs
            ]
        )

    def num_passes(self, end: int) -> int:
        passes = 1
        for number, stream in enumerate(self.streams):
            if (width := int(np.diff(self.turns.ends[:, number : number + 2], axis=1).max())) > 0:
                # A lane is never further from its share than this.
                share = -(-end * width >> 60) if len(self.turns.ends) == 1 else end
                passes = max(passes, stream.num_passes(min(end, share + 150 * self.lanes) + self.lanes))
        return passes

    def locate(self, ids: Ids, begin: int, end: int) -> Located:
        which = np.flatnonzero((ids >= self.starts[0]) & (ids < self.starts[-1]))
        matches = [(which[:0],) * 2]
        lanes = np.arange(self.lanes)
        # How many rows of each lane are before the bounds, and how often these read each source.
        rows = [rows_before(np.array(bound), lanes, self.lanes) for bound in (begin, end)]
        for source, at in groups(interval_of(self.starts, ids[which])):
            first, last = (self.turns.drawn(source, lanes, before) for before in rows)
            active = np.flatnonzero(last > first)
            if not active.size:
                continue
            low = int((first * self.lanes + lanes)[active].min())
            high = int(((last - 1) * self.lanes + lanes)[active].max()) + 1
            local, inner = self.streams[source].locate(ids[which[at]] - self.starts[source], low, high)
            turn, lane = np.divmod(inner, self.lanes)
            inside = (turn >= first[lane]) & (turn < last[lane])
            row = self.turns.row(source, lane[inside], turn[inside])
            matches.append((which[at[local[inside]]], row * self.lanes + lane[inside]))
        return np.concatenate([which for which, _ in matches]), np.concatenate([p for _, p in matches])


@final
@dataclass(eq=False)
class WithoutRows(Stream):
    """A stream without some rows of its lanes.

    Args:
        source: what they leave.
        removed: its positions that leave.
    """

    source: Stream
    removed: RemovedPositions

    def __post_init__(self) -> None:
        self.lanes = self.source.lanes

    def pieces(self, positions: Ids) -> Iterator[Piece]:
        return self.source.pieces(self.removed.in_stream(positions))

    def num_passes(self, end: int) -> int:
        last = self.removed.in_stream(np.arange(max(0, end - self.lanes), end))
        return self.source.num_passes(int(last.max(initial=0)) + 1)

    def locate(self, ids: Ids, begin: int, end: int) -> Located:
        # Rows only move up, so the last row of each lane was last below too.
        last = self.removed.in_stream(np.arange(max(begin, end - self.lanes), end))
        which, inner = self.source.locate(ids, begin, int(last.max()) + 1)
        positions, is_kept = self.removed.kept(inner)
        is_kept &= (positions >= begin) & (positions < end)
        return which[is_kept], positions[is_kept]
