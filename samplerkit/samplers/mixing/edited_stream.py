"""A stream with edits and caps: rows and ids are removed, a mixture draws by other weights."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from types import MappingProxyType
from typing import Any, NamedTuple, final

import numpy as np

from samplerkit.errors import ArgumentRangeError, NotSupportedError
from samplerkit.order.arguments import LARGEST
from samplerkit.order.mixing.removed_positions import RemovedPositions, rows_before
from samplerkit.order.mixing.stream_algebra import Mix, WithoutRows
from samplerkit.order.mixing.streams import DrawnPositions, Part, Passes
from samplerkit.order.typing import Ids
from samplerkit.samplers.mixing.edit import Edit


@final
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
        """Gives an epoch; arguments as for `Part`.

        Raises:
            ArgumentRangeError: it reads on where all sources are read as often as they may be.
        """
        if begin + length > self.end:
            problem = f"leaves nothing to read from position {self.end} of the run on, and the epoch ends at"
            hint = "leave a source without a cap, or read fewer epochs"
            raise ArgumentRangeError("max_passes", problem, begin + length, hint=hint)
        stream = WithoutRows(self.source, self.removed) if self.removed else self.source
        return Part(stream, begin, length, runs_on=runs_on)


def edited(
    source: Passes | Mix,
    edits: Sequence[Edit] = (),
    weights: Mapping[int, Sequence[float]] = MappingProxyType({}),
    caps: Mapping[int, int] = MappingProxyType({}),
    first: Sequence[float] = (),
) -> RunStream:
    """Gives a stream with edits, and the position from which on nothing is read because of caps.

    A cap is an edit whose position is computed: where the first of all lanes would read a source once more
    than it may be, its weight becomes 0.

    Args:
        source: without edits.
        edits: in the order of their positions.
        weights: by the positions of edits that have some, one for each source of the stream: from `shares`.
        caps: how often a run may read some sources of a mixture, by their numbers.
        first: the weights of all sources where the run begins, if there are caps.

    Raises:
        NotSupportedError: an edit says what this stream cannot do.
    """
    if weights and not isinstance(source, Mix):
        problem = "says weights, and the passes of this mixture begin again in each epoch"
        raise NotSupportedError(f"edit at {min(weights)}", problem, hint="say passes='run_on'")
    changes = [
        _Change(edit.at, None if edit.weights is None else weights[edit.at], edit.skip, edit.without)
        for edit in edits
    ]
    made = _changed(source, changes)
    left = dict(caps)
    while left:
        at, number = min((_first_beyond(made, *capped), capped[0]) for capped in left.items())
        if at >= made.end:
            break
        del left[number]
        changes = _stopped(changes, at, number, first)
        # Where no source has a weight, the run ends, and later edits are ignored.
        end = next((one.at for one in changes if one.weights is not None and not any(one.weights)), LARGEST)
        changes = [one for one in changes if one.at < end]
        made = _changed(source, changes)._replace(end=end)
    return made


class _Change(NamedTuple):
    """An edit of a stream with the weights of all its sources; or a cap."""

    at: int
    weights: Sequence[float] | None = None
    skip: int | None = None
    without: Any = None


def _changed(source: Passes | Mix, changes: Sequence[_Change]) -> RunStream:
    """Gives a stream with the weights and passes after changes, and the rows that are removed from it."""
    weights = [one.weights for one in changes if one.weights is not None]
    removed, begins, have_left = RemovedPositions(source.lanes), tuple[int, ...](), False
    for at, group in groupby(changes, key=lambda change: change.at):
        changed = list(group)
        weighed = [at for change in changed if change.weights is not None]
        begins += tuple(weighed)
        if weighed and have_left:
            # Which rows the rest of a pass loses depends on the weights there, in all lanes: none of a source
            # that is not read, until it is read again.
            source = _reweighed(source, weights, removed, begins)
            removed = replace(removed, positions=source.removed)
        skips = [(at, change.skip) for change in changed if change.skip is not None]
        removed = replace(removed, skips=(*removed.skips, *skips))
        for ids in (np.asarray(change.without) for change in changed if change.without is not None):
            source = _reweighed(source, weights, removed, begins)
            source = source.without(ids, DrawnPositions.of_lanes(removed.first_kept(at)))
            removed, have_left = replace(removed, positions=source.removed), True
    return RunStream(_reweighed(source, weights, removed, begins), removed)


def _first_beyond(made: RunStream, number: int, passes: int) -> int:
    """Gives the first position that would read a source one pass more; 2^62 if none would."""
    mix: Any = made.source  # only mixtures have caps, for sources that are read in passes
    begin = mix.streams[number].pass_begin(passes)
    beyond = mix.positions_of(number, np.arange(begin, begin + mix.lanes))
    return int(made.removed.kept(beyond[beyond < LARGEST])[0].min(initial=LARGEST))


def _stopped(changes: Sequence[_Change], at: int, source: int, first: Sequence[float]) -> list[_Change]:
    """Gives changes with one more, from which on a source has no weight; `first` are those of the begin."""
    number = bisect_right(changes, at, key=lambda change: change.at)
    changed = [first, *(one.weights for one in changes[:number] if one.weights is not None)]
    later = [
        one
        if one.weights is None
        else one._replace(weights=[*one.weights[:source], 0.0, *one.weights[source + 1 :]])
        for one in (_Change(at, changed[-1]), *changes[number:])
    ]
    return [*changes[:number], *later]


@dataclass(frozen=True)
class _FirstRows:
    """Gives the first row of a lane after each of some positions."""

    removed: RemovedPositions
    begins: tuple[int, ...]

    def __call__(self, lane: int) -> Ids:
        # After the last row read before the edit: rows that are skipped at its position count as drawn.
        before = rows_before(np.array(self.begins, dtype=np.int64), lane, self.removed.lanes)
        return self.removed.of_lane(lane).drawn(before) if self.removed else before


def _reweighed(
    source: Passes | Mix,
    weights: Sequence[Sequence[float]],
    removed: RemovedPositions,
    begins: tuple[int, ...],
) -> Passes | Mix:
    if not begins or isinstance(source, Passes):
        return source
    return source.reweighed(weights[: len(begins)], _FirstRows(removed, begins))
