"""A stream with edits and caps: rows and ids are removed, a mixture draws by other weights."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from types import MappingProxyType
from typing import Any, NamedTuple, final

import numpy as np

from samplerkit.errors import ArgumentRangeError
from samplerkit.order.arguments import LARGEST
from samplerkit.order.mixing.removed_positions import RemovedPositions
from samplerkit.order.mixing.stream_algebra import Mix, WithoutRows
from samplerkit.order.mixing.streams import DrawnPositions, Part, Passes
from samplerkit.order.typing import Ids


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
        """Returns an epoch; arguments as for `Part`.

        Raises:
            ArgumentRangeError: it reads on where all sources are read as often as they may be.
        """
        if begin + length > self.end:
            problem = f"leaves nothing to read from position {self.end} of the run on, but the epoch ends at"
            hint = "leave a source without a cap, or read fewer epochs"
            raise ArgumentRangeError("max_passes", problem, begin + length, hint=hint)
        stream = WithoutRows(self.source, self.removed) if self.removed else self.source
        return Part(stream, begin, length, runs_on=runs_on)


@final
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
