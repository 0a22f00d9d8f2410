"""What edits make of a stream: rows and ids leave, and a mixture reads its dice by other weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, repeat
from typing import Any

import numpy as np

from samplerkit.errors import ArgumentValueError, NotSupportedError
from samplerkit.order.lacking import DrawnSoFar, gone_from, without
from samplerkit.order.layout import Layout
from samplerkit.order.removal import Holes, Removed, rows_before, skipped
from samplerkit.order.streams import Mix, Passes, Stream
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.edit import Edit
from samplerkit.samplers.one_set import require_one_set


def edited(stream: Stream, edits: Sequence[Edit], weights: Sequence[Sequence[float]]) -> Stream:
    """Gives a stream as edits make it.

    Args:
        stream: without edits.
        edits: in the order of their positions.
        weights: of each edit that has some, one for each source of the stream: from `shares`.

    Raises:
        NotSupportedError: an edit says what this stream cannot do.
    """
    if weights and not isinstance(stream, Mix):
        at = next(edit.at for edit in edits if edit.weights is not None)
        problem = "says weights, and the passes of this mixture begin anew in each epoch"
        raise NotSupportedError(f"edit at {at}", problem, mend="say passes='run_on'")
    if isinstance(stream, Mix):
        _require_samples(stream, edits, weights)
    if any(edit.without is not None for edit in edits):
        return _ByPositions(stream, edits, weights).edited()
    lanes = stream.lanes
    skips = tuple((edit.at, edit.skip) for edit in edits if edit.skip is not None)
    holes = _Skipped(lanes, skips)
    if isinstance(stream, Mix) and weights:
        begins = tuple(edit.at for edit in edits if edit.weights is not None)
        stream = stream.reweighed(weights, _FirstRows(holes, begins))
    return Removed(stream, holes, skips) if skips else stream


@dataclass(frozen=True)
class _Skipped:
    """Gives the holes of a lane that skips make: positions, and how many each takes."""

    lanes: int
    skips: tuple[tuple[int, int], ...]

    def __call__(self, lane: int) -> Holes:
        ats, counts = np.array(self.skips, dtype=np.int64).reshape(-1, 2).T
        return Holes().and_kept(*skipped(lane, self.lanes, ats, counts))


@dataclass(frozen=True)
class _FirstRows:
    """Gives the first row of a lane behind each of some positions."""

    holes: _Skipped
    begins: tuple[int, ...]

    def __call__(self, lane: int) -> Ids:
        # Behind the last row read before the edit: what is skipped at its position is drawn by it already.
        before = rows_before(np.array(self.begins, dtype=np.int64), lane, self.holes.lanes)
        return np.where(before, self.holes(lane).rows(np.maximum(before - 1, 0)) + 1, 0)


@dataclass(frozen=True)
class _KnownRows:
    """Gives the first row of a lane in each segment, where those of all lanes are known."""

    rows: tuple[tuple[int, ...], ...]

    def __call__(self, lane: int) -> Ids:
        return np.array([of_segment[lane] for of_segment in self.rows], dtype=np.int64)


def _require_samples(mix: Mix, edits: Sequence[Edit], weights: Sequence[Sequence[float]]) -> None:
    """Refuses a share of a source that holds nothing."""
    read = np.any(np.array(weights), axis=0) if weights else np.zeros(0, dtype=np.bool_)
    said = [edit for edit in edits if edit.weights is not None]
    for source in np.flatnonzero(read).tolist():
        stream = mix.streams[source]
        if isinstance(stream, Passes) and not stream.length:
            at = next(edit.at for edit, shares in zip(said, weights, strict=True) if shares[source])
            raise ArgumentValueError(f"edit at {at}", "gives a share to what holds nothing", stream.name)


class _ByPositions:
    """Makes edits one position after another, in all lanes: needed where ids leave.

    In which pass over its source a run stands follows from all lanes; and which rows the rest of a pass loses
    from the weights behind, so that they are looked for anew after each change of these.
    """

    def __init__(self, stream: Stream, edits: Sequence[Edit], weights: Sequence[Sequence[float]]) -> None:
        self._stream = stream
        self._edits = edits
        self._waiting = iter(weights)
        self._weights: list[Sequence[float]] = []
        self._firsts: list[Ids] = []
        self._skips: list[tuple[Ids, Ids]] = []
        self._lanes = np.arange(stream.lanes)
        self._holes = [Holes()] * stream.lanes

    def edited(self) -> Stream:
        """Gives the stream behind all edits."""
        for at, said in groupby(self._edits, key=lambda edit: edit.at):
            self._make(at, list(said))
        holes = self._holes
        return Removed(self._stream, holes.__getitem__, tuple(edit.digest for edit in self._edits))

    def _make(self, at: int, edits: list[Edit]) -> None:
        before = rows_before(np.array(at), self._lanes, self._lanes.size)
        for _ in (edit for edit in edits if edit.weights is not None):
            self._weights.append(next(self._waiting))
            self._firsts.append(np.where(before, self._rows(np.maximum(before - 1, 0)) + 1, 0))
        if any(edit.weights is not None for edit in edits) and isinstance(self._stream, Mix):
            firsts = _KnownRows(tuple(tuple(of_segment.tolist()) for of_segment in self._firsts))
            self._stream = self._stream.reweighed(list(self._weights), firsts)
            self._look()
        for edit in edits:
            if edit.skip is not None:
                end = rows_before(np.array(at + edit.skip), self._lanes, self._lanes.size)
                begins, ends = self._rows(before), self._rows(np.maximum(end - 1, 0)) + 1
                self._skips.append((begins, np.where(end > before, ends, begins)))
                self._look()
        for edit in edits:
            if edit.without is not None:
                # What lies between the last row read and the next one kept was skipped: it counts as drawn.
                drawn = DrawnSoFar.of_lanes(self._rows(before))
                self._stream = without(self._stream, np.asarray(edit.without), drawn)
                self._look()

    def _rows(self, kept: Ids) -> Ids:
        """Gives in each lane the row that is kept as that of a number."""
        pairs = zip(self._holes, kept[:, None], strict=True)
        return np.array([holes.rows(one)[0] for holes, one in pairs], dtype=np.int64)

    def _look(self) -> None:
        """Looks for the rows that leave each lane."""
        rows, lane = np.divmod(gone_from(self._stream), self._lanes.size)
        begins = np.array([begins for begins, _ in self._skips], dtype=np.int64).reshape(-1, self._lanes.size)
        ends = np.array([ends for _, ends in self._skips], dtype=np.int64).reshape(begins.shape)
        self._holes = []
        for number in self._lanes.tolist():
            mine = rows[lane == number]
            first, behind = begins[:, number], ends[:, number]
            self._holes.append(Holes().and_rows(np.append(first, mine), np.append(behind, mine + 1)))


def shares(edits: Sequence[Edit], sampler: Any, layout: Layout) -> list[list[float]]:
    """Gives the weights of each edit that has some, one for each part of a tree in the order of ids.

    Raises:
        NotSupportedError: the sampler mixes no parts with names.
        ArgumentValueError: an edit names no source of the sampler, or lacks one; or it adds a source that
            is there, or is no part of the dataset.
    """
    found = []
    known, parts = set(getattr(sampler, "sources", None) or {}), layout.parts
    for edit in edits:
        if edit.weights is None:
            continue
        if edit.source is None and known and edit.weights.keys() == known:
            found.append([*map(edit.weights.get, parts, repeat(0.0))])
            continue
        place = f"edit at {edit.at}"
        if not known:
            raise NotSupportedError(place, "says weights, and this mixes no sources with names", sampler)
        for name in edit.new_sources:
            if name in known:
                raise ArgumentValueError(place, "adds a source that is there", name)
            if name not in parts:
                mend = f"parts: {', '.join(parts)}"
                raise ArgumentValueError(place, "adds what is no part of the dataset", name, mend=mend)
            known.add(name)
        if edit.weights.keys() == known:
            found.append([edit.weights.get(name, 0.0) for name in parts])
            continue
        unknown, missing = sorted(edit.weights.keys() - known), sorted(known - edit.weights.keys())
        if unknown:
            mend = f"sources: {', '.join(sorted(known))}"
            raise ArgumentValueError(place, "names no source of the mixture", unknown[0], mend=mend)
        raise ArgumentValueError(place, "lacks a source", missing[0], mend="say 0 to leave it out")
    return found


def added(edits: Sequence[Edit]) -> dict[str, Sampler | None]:
    """Gives the sources that edits add to a mixture, and the sampler of each."""
    said = (edit.new_sources for edit in edits if edit.source is not None)
    return {name: sampler for of_edit in said for name, sampler in of_edit.items()}


def require_removable(edits: Sequence[Edit], sampler: Any, dataset: Any) -> None:
    """Refuses to take out ids that are not there, or of what reads other samples in each pass.

    Raises:
        NotSupportedError: the sampler does that.
        ArgumentValueError: the dataset has no such id.
    """
    size = len(Layout.of(dataset))
    for edit in edits:
        if edit.without is None:
            continue
        ids = np.asarray(edit.without)
        if ids.size and ids[-1] >= size:
            problem = f"says without an id that is not in a dataset of {size}"
            raise ArgumentValueError(f"edit at {edit.at}", problem, int(ids[-1]))
        require_one_set(f"edit at {edit.at}", sampler, dataset, ids, added(edits))
