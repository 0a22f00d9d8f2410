"""Streams made of streams: mixtures, streams without some rows, and runs with edits and caps."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np

from samplerkit.errors import ArgumentRangeError
from samplerkit.order.arguments import LARGEST
from samplerkit.order.caching import cached_property
from samplerkit.order.intervals import distinct, groups, interval_of
from samplerkit.order.mixing.removed_positions import RemovedPositions, no_positions, rows_before
from samplerkit.order.mixing.source_counts import SourceCounts
from samplerkit.order.mixing.source_draws import MAX_AHEAD
from samplerkit.order.mixing.streams import DrawnPositions, Part, Passes, Piece, Stream
from samplerkit.order.mixing.weights import thresholds
from samplerkit.order.order import Located
from samplerkit.order.typing import Ids


class Mix(Stream):
    """Several streams mixed by draws: each position reads the next sample of one of them.

    Position P is row k of lane l. If its draw selects stream s, which lane l read `turn` times in the rows
    before, it reads row `turn` of lane l of that stream: position turn * lanes + l. So each lane mixes one
    lane of every stream, whatever other lanes read.

    Args:
        counts: which stream each row reads, and how often its lane read that before.
        lanes: into how many lanes the mixture is woven.
        streams: the sources.
        starts: what is added to the ids of each source, ascending, and the end of the last: shape (sources +
            1,). Sources do not overlap: ids of source s are in [starts[s], starts[s + 1]).

    Example:
        >>> from samplerkit.order.keys import Key
        >>> from samplerkit.order.mixing.source_draws import SourceDraws
        >>> from samplerkit.order.sequences import Range
        >>> counts = SourceCounts(SourceDraws(Key(1, 0, 0, "sources")), thresholds([3, 1])[None])
        >>> streams = [Passes(lambda number, size=size: Range(0, size), lanes=1) for size in (4, 9)]
        >>> mix = Mix(counts, 1, streams, np.array([0, 4, 13]))
        >>> mix.ids_at(np.arange(10))  # 0 to 3 are read again and again, and between them 4, 5, 6, ...
        array([0, 1, 4, 2, 3, 5, 0, 1, 2, 6])
    """

    def __init__(
        self, counts: SourceCounts, lanes: int, streams: Sequence[Passes | Mix], starts: Ids
    ) -> None:
        self.counts: Final = counts
        self.lanes = lanes
        self.streams: Final = tuple(streams)
        self.starts: Final = starts

    @property
    def recipe(self) -> tuple[object, ...]:
        return (*self.counts.recipe, self.lanes, self.starts, *self.streams)

    def reweighted(self, weights: Sequence[Sequence[float]], firsts: Callable[[int], Ids]) -> Mix:
        """Returns the mixture whose weights change: the same draws, and each source continues where it is.

        Args:
            weights: of each segment after the first, one for each source.
            firsts: returns for a lane the first row of each of these segments: int64, ascending. A segment
                that begins where the next one does has no rows.
        """
        ends = np.stack([self.counts.ends[0], *map(thresholds, weights)])
        return Mix(SourceCounts(self.counts.draws, ends, firsts), self.lanes, self.streams, self.starts)

    def without(self, ids: Ids, drawn: DrawnPositions) -> Mix:
        """Returns the mixture of streams without some ids; arguments as for `Passes.without`."""
        streams = list(self.streams)
        for source, at in groups(interval_of(self.starts, ids)):
            own_ids = ids[at] - int(self.starts[source])
            streams[source] = streams[source].without(own_ids, self.drawn_of(source, drawn))
        return Mix(self.counts, self.lanes, streams, self.starts)

    def reads_in(self, drawn: DrawnPositions) -> Ids:
        """Returns how often each stream is read at the drawn positions: int64 of shape (sources,)."""
        between, _, _ = self._read_between(drawn)
        reads: Ids = self._reads_below(drawn.low).sum(axis=0)
        return reads + np.bincount(between, minlength=len(self.streams))

    def drawn_of(self, source: int, drawn: DrawnPositions) -> DrawnPositions:
        """Returns which positions of one of the streams are read at the drawn positions."""
        lanes, turns = np.arange(self.lanes), self._reads_below(drawn.low)[:, source]
        read, turn, lane = self._read_between(drawn)
        last = np.append(turns - 1, turn[read == source]) * self.lanes
        last += np.append(lanes, lane[read == source])
        low, high = int((turns * self.lanes + lanes).min()), int(last.max()) + 1
        return DrawnPositions(low, high, lambda inner: drawn.has(self.positions_of(source, inner)))

    def _reads_below(self, position: int) -> Ids:
        """Returns how often each lane reads each stream before a position: shape (lanes, sources)."""
        lanes = np.arange(self.lanes)
        return self.counts.reads_of_all_before(lanes, rows_before(position, lanes, self.lanes))

    def _read_between(self, drawn: DrawnPositions) -> tuple[Ids, Ids, Ids]:
        """Returns stream, turn and lane of the drawn positions between those drawn by all lanes or none."""
        # Lanes are nearly at the same row, so these are few.
        between = np.arange(drawn.low, drawn.high)
        rows, lane = np.divmod(between[drawn.has(between)], self.lanes)
        return *self.counts.read(lane, rows), lane

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
        """Returns where positions of one of the streams are read; 2^62 for those that are not reached."""
        turns, lanes = np.divmod(inner, self.lanes)
        rows = self.counts.row_of(source, lanes, turns)
        is_unreached = rows >= LARGEST // self.lanes
        return np.where(is_unreached, LARGEST, np.where(is_unreached, 0, rows) * self.lanes + lanes)

    def pieces(self, positions: Ids) -> Iterator[Piece]:
        rows, lanes = np.divmod(positions, self.lanes)
        source, turns = self.counts.read(lanes, rows)
        # One group for each source and pass: of many sources, each has few of the positions.
        passes, places = np.divmod(turns * self.lanes + lanes, self._lengths[source])
        numbers, index = distinct(passes)
        for label, at in groups(source * numbers.size + index):
            source_number, pass_index = divmod(label, numbers.size)
            stream, start = self.streams[source_number], int(self.starts[source_number])
            if isinstance(stream, Passes) and stream.is_uniform:
                number = int(numbers[pass_index])
                yield Piece(at, stream.order(number), places[at], start, number)
                continue
            for part, order, inside, shift, number in stream.pieces(places[at]):
                yield Piece(at[part], order, inside, shift + start, number)

    @cached_property
    def _widths(self) -> list[int]:
        """How many of the 2^60 draws are of each source, at most."""
        widths: list[int] = np.diff(self.counts.ends, axis=1).max(axis=0).tolist()
        return widths

    @cached_property
    def _lengths(self) -> Ids:
        """The length of the passes over each source; 2^62 if they are not equal, or it is not read."""
        return np.array(
            [
                stream.length if width and isinstance(stream, Passes) and stream.is_uniform else LARGEST
                for stream, width in zip(self.streams, self._widths, strict=True)
            ]
        )

    def num_passes(self, end: int) -> int:
        passes = 1
        for stream, width in zip(self.streams, self._widths, strict=True):
            if width:
                reads = -(-end * width >> 60) if len(self.counts.ends) == 1 else end
                reads = min(end, reads + MAX_AHEAD * self.lanes)
                passes = max(passes, stream.num_passes(reads + self.lanes))
        return passes

    def locate(self, ids: Ids, begin: int, end: int) -> Located:
        which = np.flatnonzero((ids >= self.starts[0]) & (ids < self.starts[-1]))
        matches = [(which[:0],) * 2]
        lanes = np.arange(self.lanes)
        # In [begin, end), a lane reads the turns [first, past_last) of a source.
        bounds = [rows_before(bound, lanes, self.lanes) for bound in (begin, end)]
        for source, at in groups(interval_of(self.starts, ids[which])):
            first, past_last = (self.counts.reads_before(source, lanes, rows) for rows in bounds)
            active = np.flatnonzero(past_last > first)
            if not active.size:
                continue
            low = int((first * self.lanes + lanes)[active].min())
            high = int(((past_last - 1) * self.lanes + lanes)[active].max()) + 1
            local, inner = self.streams[source].locate(ids[which[at]] - self.starts[source], low, high)
            turn, lane = np.divmod(inner, self.lanes)
            inside = (turn >= first[lane]) & (turn < past_last[lane])
            row = self.counts.row_of(source, lane[inside], turn[inside])
            matches.append((which[at[local[inside]]], row * self.lanes + lane[inside]))
        return np.concatenate([which for which, _ in matches]), np.concatenate([p for _, p in matches])


@dataclass(eq=False)
class WithoutRows(Stream):
    """A stream from which some rows of its lanes are removed.

    Args:
        source: the stream with all rows.
        removed: which of its positions are removed.
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
        # Rows of a lane keep their order, so its last row is the last one in the source too.
        last = self.removed.in_stream(np.arange(max(begin, end - self.lanes), end))
        which, inner = self.source.locate(ids, begin, int(last.max()) + 1)
        positions, is_kept = self.removed.kept(inner)
        is_kept &= (positions >= begin) & (positions < end)
        return which[is_kept], positions[is_kept]


class RunStream(NamedTuple):
    """The samples that a run reads, epoch after epoch.

    Args:
        source: with all its rows.
        removed: those that are not read.
        end: the position from which on nothing is read, since all caps are reached.
    """

    source: Passes | Mix
    removed: RemovedPositions
    end: int = LARGEST

    def epoch(self, begin: int, length: int, *, runs_on: bool = True) -> Part:
        """Returns an epoch; arguments as for `Part`.

        Raises:
            ArgumentRangeError: it reads on where all sources are read as often as they may be.
        """
        if begin + length > self.end:
            problem = f"is reached by all sources at position {self.end} of the run, before the epoch ends at"
            hint = "raise a cap, leave one source without, or read fewer epochs"
            raise ArgumentRangeError("max_passes", problem, begin + length, hint=hint)
        stream = WithoutRows(self.source, self.removed) if self.removed else self.source
        return Part(stream, begin, length, runs_on=runs_on)


class Change(NamedTuple):
    """A change of a stream from a position on: an edit, or a cap.

    Args:
        at: the position.
        weights: of a mixture, one for each of its sources.
        skip: how many positions are removed.
        without: the ids that are removed.
    """

    at: int
    weights: Sequence[float] | None = None
    skip: int | None = None
    without: Any = None


def edited(
    source: Passes | Mix,
    changes: Sequence[Change] = (),
    caps: Mapping[int, int] = MappingProxyType({}),
    first: Sequence[float] = (),
) -> RunStream:
    """Returns a stream with changes, and the position from which on nothing is read because of caps.

    A cap is a change whose position is computed: where the first of all lanes would read a source once more
    than it may be, its weight becomes 0.

    Args:
        source: without changes.
        changes: in the order of their positions.
        caps: how often a run may read some sources of a mixture, by their numbers.
        first: the weights of all sources where the run begins, if there are caps.
    """
    run = _with_changes(source, changes)
    remaining = dict(caps)
    while remaining:
        at, number = min((_cap_position(run, *capped), capped[0]) for capped in remaining.items())
        if at >= run.end:
            break
        del remaining[number]
        changes = _with_stop(changes, at, number, first)
        # Where no source has a weight, the run ends, and later changes are ignored.
        end = next((c.at for c in changes if c.weights is not None and not any(c.weights)), LARGEST)
        changes = [change for change in changes if change.at < end]
        run = _with_changes(source, changes)._replace(end=end)
    return run


def _with_changes(source: Passes | Mix, changes: Sequence[Change]) -> RunStream:
    """Returns a stream with the weights and passes after changes, and the rows that are removed from it."""
    segments = list[tuple[int, Sequence[float]]]()
    removed, has_removed = RemovedPositions(source.lanes), False
    for at, group in groupby(changes, key=lambda change: change.at):
        batch = list(group)
        weighted = [(at, change.weights) for change in batch if change.weights is not None]
        segments += weighted
        if weighted and has_removed:
            # Which rows the rest of a pass loses depends on the weights there, in all lanes: none of a source
            # that is not read, until it is read again.
            source = _reweighted(source, segments, removed)
            removed = replace(removed, positions=source.removed)
        skips = [(at, change.skip) for change in batch if change.skip is not None]
        removed = replace(removed, skips=(*removed.skips, *skips))
        for ids in (np.asarray(change.without) for change in batch if change.without is not None):
            source = _reweighted(source, segments, removed)
            source = source.without(ids, DrawnPositions.of_lanes(removed.first_kept(at)))
            removed, has_removed = replace(removed, positions=source.removed), True
    return RunStream(_reweighted(source, segments, removed), removed)


def _reweighted(
    source: Any, segments: Sequence[tuple[int, Sequence[float]]], removed: RemovedPositions
) -> Any:
    """Returns a mixture with the weights from some positions on; without such positions, any stream."""
    if not segments:
        return source
    begins, weights = zip(*segments, strict=True)
    return source.reweighted(weights, _FirstRows(removed, begins))


def _cap_position(run: RunStream, number: int, passes: int) -> int:
    """Returns the first position that would read a source one pass more; 2^62 if none would."""
    mix: Any = run.source  # only mixtures have caps, for sources that are read in passes
    begin = mix.streams[number].pass_begin(passes)
    positions = mix.positions_of(number, np.arange(begin, begin + mix.lanes))
    return int(run.removed.kept(positions[positions < LARGEST])[0].min(initial=LARGEST))


def _with_stop(changes: Sequence[Change], at: int, source: int, first: Sequence[float]) -> list[Change]:
    """Returns changes with one more, from which on a source has no weight; `first` are those of the begin."""
    number = bisect_right(changes, at, key=lambda change: change.at)
    weights = [first, *(change.weights for change in changes[:number] if change.weights is not None)]
    later = [
        change
        if change.weights is None
        else change._replace(weights=[*change.weights[:source], 0.0, *change.weights[source + 1 :]])
        for change in (Change(at, weights[-1]), *changes[number:])
    ]
    return [*changes[:number], *later]


@dataclass(frozen=True)
class _FirstRows:
    """Returns the first row of a lane after each of some positions."""

    removed: RemovedPositions
    begins: tuple[int, ...]

    def __call__(self, lane: int) -> Ids:
        # After the last row read before the edit: rows that are skipped at its position count as drawn.
        return self.removed.drawn_before(np.array(self.begins, dtype=np.int64), lane)
