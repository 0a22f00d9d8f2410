"""What edits and caps make of a stream: rows and ids leave, a mixture reads its draws by other weights."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from samplerkit.errors import ArgumentRangeError, ArgumentValueError, NotSupportedError
from samplerkit.order.arguments import LARGEST
from samplerkit.order.intervals import groups
from samplerkit.order.mixing.exclusion import DrawnPositions, gone_from, pass_begin, positions_above, without
from samplerkit.order.mixing.removed_positions import RemovedRows, WithoutRows, rows_before, skipped
from samplerkit.order.mixing.streams import Mix, Passes, Stream
from samplerkit.order.typing import Ids
from samplerkit.samplers.mixing.edit import Edit


@dataclass(frozen=True)
class PassCaps:
    """How often a run may read some sources of a mixture.

    Args:
        weights: of all sources, where the run begins.
        passes: at most so many, by the number of the source.
    """

    weights: Sequence[float]
    passes: Mapping[int, int]


def edited(
    stream: Stream, edits: Sequence[Edit], weights: Sequence[Sequence[float]], caps: PassCaps | None = None
) -> tuple[Stream, int]:
    """Gives a stream as edits make it, and the position from which on caps leave it nothing to read.

    A cap is an edit whose position is computed: where the first of all lanes would read a source once more
    than it may be, its weight becomes 0.

    Args:
        stream: without edits.
        edits: in the order of their positions.
        weights: of each edit that has some, one for each source of the stream: from `shares`.
        caps: of a mixture; None for none.

    Raises:
        NotSupportedError: an edit says what this stream cannot do.
    """
    if weights and not isinstance(stream, Mix):
        at = next(edit.at for edit in edits if edit.weights is not None)
        problem = "says weights, and the passes of this mixture begin again in each epoch"
        raise NotSupportedError(f"edit at {at}", problem, hint="say passes='run_on'")
    if isinstance(stream, Mix):
        _require_samples(stream, edits, weights)
    said = iter(weights)
    changes = [
        _Change(edit.at, None if edit.weights is None else next(said), edit.skip, edit.without)
        for edit in edits
    ]
    made, rows = _changed(stream, changes)
    end, left = LARGEST, {} if caps is None else dict(caps.passes)
    while caps is not None and left and isinstance(made, Mix):
        mix, kept = made, rows
        at, source = min((_first_beyond(mix, kept, *capped), capped[0]) for capped in left.items())
        if at >= end:
            break
        del left[source]
        changes = _stopped(changes, at, source, caps.weights)
        # Where no source has a weight, the run ends, and what edits say behind it is not looked at.
        end = next((one.at for one in changes if one.weights is not None and not any(one.weights)), LARGEST)
        changes = [one for one in changes if one.at < end]
        made, rows = _changed(stream, changes)
    return WithoutRows(made, rows) if rows.takes_some else made, end


def require_uncapped(position: int, end: int) -> None:
    """Refuses an epoch that reads on where all sources are read as often as they may be.

    Raises:
        ArgumentRangeError: it ends behind that position.
    """
    if position > end:
        problem = f"leaves nothing to read from position {end} of the run on, and the epoch ends at"
        hint = "leave a source without a cap, or read fewer epochs"
        raise ArgumentRangeError("max_passes", problem, position, hint=hint)


class _Change(NamedTuple):
    """What an edit says of a stream, with the weights of all its sources; or what a cap says."""

    at: int
    weights: Sequence[float] | None = None
    skip: int | None = None
    without: Any = None


def _changed(stream: Stream, changes: Sequence[_Change]) -> tuple[Stream, _KeptRows]:
    """Gives a stream with the weights and passes that changes make, and the rows that are left of it."""
    weights = [one.weights for one in changes if one.weights is not None]
    rows, begins = _KeptRows(stream.lanes), tuple[int, ...]()
    for at, group in groupby(changes, key=lambda change: change.at):
        said = list(group)
        weighed = [at for change in said if change.weights is not None]
        begins += tuple(weighed)
        if weighed and rows.gone.size:
            # Which rows the rest of a pass loses depends on the weights there, in all lanes.
            stream = _reweighed(stream, weights, rows, begins)
            rows = replace(rows, gone=gone_from(stream))
        skips = [(at, change.skip) for change in said if change.skip is not None]
        rows = replace(rows, skips=(*rows.skips, *skips))
        for ids in (np.asarray(change.without) for change in said if change.without is not None):
            stream = _reweighed(stream, weights, rows, begins)
            stream = without(stream, ids, DrawnPositions.of_lanes(rows.first_kept(at)))
            rows = replace(rows, gone=gone_from(stream))
    return _reweighed(stream, weights, rows, begins), rows


def _first_beyond(mix: Mix, rows: _KeptRows, source: int, passes: int) -> int:
    """Gives the first position that would read a source for one pass more; 2^62 where none would."""
    begin = pass_begin(mix.streams[source], passes)
    beyond = positions_above(mix, source, np.arange(begin, begin + mix.lanes))
    beyond = beyond[beyond < LARGEST]
    return int(rows.kept_at(beyond).min(initial=LARGEST))


def _stopped(changes: Sequence[_Change], at: int, source: int, first: Sequence[float]) -> list[_Change]:
    """Gives changes with one more, from which on a source has no weight; `first` are those of the begin."""
    number = bisect_right(changes, at, key=lambda change: change.at)
    said = [first, *(one.weights for one in changes[:number] if one.weights is not None)]
    later = [
        one
        if one.weights is None
        else one._replace(weights=[*one.weights[:source], 0.0, *one.weights[source + 1 :]])
        for one in (_Change(at, said[-1]), *changes[number:])
    ]
    return [*changes[:number], *later]


@dataclass(frozen=True)
class _KeptRows:
    """Gives the rows that leave a lane; those that one edit takes are behind all that the edits before took.

    Args:
        lanes: of the stream.
        skips: positions of what is kept, and how many each takes.
        gone: the positions of the stream without edits whose ids left; they follow from that stream.
    """

    lanes: int
    skips: tuple[tuple[int, int], ...] = ()
    gone: Ids = field(default_factory=lambda: np.zeros(0, dtype=np.int64), compare=False)

    def __call__(self, lane: int) -> RemovedRows:
        ats, counts = np.array(self.skips, dtype=np.int64).reshape(-1, 2).T
        gone = self.gone[self.gone % self.lanes == lane] // self.lanes
        return RemovedRows().and_rows(gone, gone + 1).and_kept(*skipped(lane, self.lanes, ats, counts))

    @property
    def takes_some(self) -> bool:
        """Whether any row leaves."""
        return bool(self.skips or self.gone.size)

    def kept_at(self, positions: Ids) -> Ids:
        """Gives where positions of the stream are in what is kept; for one that left, what follows it."""
        rows, lane = np.divmod(positions, self.lanes)
        for number, at in groups(lane) if self.takes_some else ():
            rows[at] = self(number).kept(rows[at])[0]
        kept: Ids = rows * self.lanes + lane
        return kept

    def first_kept(self, position: int) -> Ids:
        """Gives the first row of each lane that is kept at or behind a position.

        What lies between the last row read before it and that one was skipped: it counts as drawn.
        """
        lanes = np.arange(self.lanes)
        before = rows_before(np.array(position), lanes, self.lanes)
        pairs = zip(lanes.tolist(), before[:, None], strict=True)
        return np.array([self(lane).rows(one)[0] for lane, one in pairs], dtype=np.int64)


@dataclass(frozen=True)
class _FirstRows:
    """Gives the first row of a lane behind each of some positions."""

    rows: _KeptRows
    begins: tuple[int, ...]

    def __call__(self, lane: int) -> Ids:
        # Behind the last row read before the edit: what is skipped at its position is drawn by it already.
        before = rows_before(np.array(self.begins, dtype=np.int64), lane, self.rows.lanes)
        if not self.rows.takes_some:
            return before
        return np.where(before, self.rows(lane).rows(np.maximum(before - 1, 0)) + 1, 0)


def _reweighed(
    stream: Stream, weights: Sequence[Sequence[float]], rows: _KeptRows, begins: tuple[int, ...]
) -> Stream:
    if not begins or not isinstance(stream, Mix):
        return stream
    return stream.reweighed(weights[: len(begins)], _FirstRows(rows, begins))


def _require_samples(mix: Mix, edits: Sequence[Edit], weights: Sequence[Sequence[float]]) -> None:
    """Refuses a share of a source that holds nothing."""
    read = np.any(np.array(weights), axis=0) if weights else np.zeros(0, dtype=np.bool_)
    said = [edit for edit in edits if edit.weights is not None]
    for source in np.flatnonzero(read).tolist():
        stream = mix.streams[source]
        if isinstance(stream, Passes) and not stream.length:
            at = next(edit.at for edit, shares in zip(said, weights, strict=True) if shares[source])
            raise ArgumentValueError(f"edit at {at}", "gives a share to what holds nothing", stream.name)
