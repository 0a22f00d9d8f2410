"""What edits make of a stream: rows and ids leave, and a mixture reads its draws by other weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from types import MappingProxyType
from typing import Any

import numpy as np

from samplerkit.errors import ArgumentValueError, NotSupportedError
from samplerkit.order.layout import Layout
from samplerkit.order.mixing.exclusion import DrawnPositions, gone_from, without
from samplerkit.order.mixing.removed_positions import RemovedRows, WithoutRows, rows_before, skipped
from samplerkit.order.mixing.streams import Mix, Passes, Stream
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.mixing.edit import Edit
from samplerkit.samplers.mixing.mixture import MixtureSampler
from samplerkit.samplers.mixing.sources import mixed_parts, require_shares
from samplerkit.samplers.repeat import RepeatSampler
from samplerkit.samplers.shuffled import RandomSampler
from samplerkit.samplers.subset import SequentialSampler, SubsetRandomSampler


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
        problem = "says weights, and the passes of this mixture begin again in each epoch"
        raise NotSupportedError(f"edit at {at}", problem, hint="say passes='run_on'")
    if isinstance(stream, Mix):
        _require_samples(stream, edits, weights)
    rows, begins = _KeptRows(stream.lanes), tuple[int, ...]()
    for at, group in groupby(edits, key=lambda edit: edit.at):
        said = list(group)
        weighed = [at for edit in said if edit.weights is not None]
        begins += tuple(weighed)
        if weighed and rows.gone.size:
            # Which rows the rest of a pass loses depends on the weights there, in all lanes.
            stream = _reweighed(stream, weights, rows, begins)
            rows = replace(rows, gone=gone_from(stream))
        rows = replace(
            rows, skips=(*rows.skips, *((at, edit.skip) for edit in said if edit.skip is not None))
        )
        for ids in (np.asarray(edit.without) for edit in said if edit.without is not None):
            stream = _reweighed(stream, weights, rows, begins)
            stream = without(stream, ids, DrawnPositions.of_lanes(rows.first_kept(at)))
            rows = replace(rows, gone=gone_from(stream))
    stream = _reweighed(stream, weights, rows, begins)
    return WithoutRows(stream, rows) if rows.skips or rows.gone.size else stream


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


def shares(edits: Sequence[Edit], sampler: Any, layout: Layout) -> list[list[float]]:
    """Gives the weights of each edit that has some, one for each part of a tree in the order of ids.

    Raises:
        NotSupportedError: the sampler mixes no parts with names.
        ArgumentValueError: an edit names no source of the sampler, or lacks one; or it adds a source that
            is there, or is no part of the dataset.
    """
    found = []
    known, parts = dict.fromkeys(getattr(sampler, "sources", None) or ()), layout.parts
    for edit in edits:
        if edit.weights is None:
            continue
        place = f"edit at {edit.at}"
        if not known:
            raise NotSupportedError(place, "says weights, and this mixes no sources with names", sampler)
        for name in edit.new_sources:
            if name in known:
                raise ArgumentValueError(place, "adds a source that is there", name)
            if name not in parts:
                hint = f"parts: {', '.join(parts)}"
                raise ArgumentValueError(place, "adds what is no part of the dataset", name, hint=hint)
            known[name] = None
        require_shares(f"{place}: weights", edit.weights, known)
        found.append([edit.weights.get(name, 0.0) for name in parts])
    return found


def require_removable(
    edits: Sequence[Edit], sampler: Sampler, dataset: Any, added: Mapping[str, Sampler | None]
) -> None:
    """Refuses to take out ids that are not there, or of what reads other samples in each pass.

    Args:
        edits: all of them.
        sampler: the chain that reads the dataset.
        dataset: a dataset, a layout or a number.
        added: the sources that edits add to a mixture.

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
        _require_one_set(f"edit at {edit.at}", sampler, dataset, ids, added)


def _require_one_set(
    place: str,
    sampler: Sampler | None,
    dataset: Any,
    ids: Ids,
    added: Mapping[str, Sampler | None] = MappingProxyType({}),
) -> None:
    if sampler is None or not ids.size:
        return
    if isinstance(sampler, MixtureSampler) and sampler.get_child() is None:
        if sampler.stop == "once" or sampler.passes == "restart":
            problem = "says without, and the passes of this mixture begin again in each epoch"
            raise NotSupportedError(place, problem, sampler, hint="say passes='run_on'")
        start, sources = 0, {**(sampler.sources or {}), **added}
        for name, part in mixed_parts(sampler.sources, Layout.of(dataset), dataset).items():
            end = start + len(Layout.of(part))
            inside = ids[(ids >= start) & (ids < end)] - start
            _require_one_set(f"{place}, source {name}", sources.get(name), part, inside)
            start = end
    elif not _reads_one_set(sampler, dataset):
        problem = "says without, and this reads other samples in each pass"
        hint = "ids can leave what reads all of a fixed set in each pass"
        raise NotSupportedError(place, problem, sampler, hint=hint)


def _reads_one_set(sampler: Sampler, dataset: Any) -> bool:
    """Returns whether each epoch of a chain has the same samples, each as often."""
    below, is_listed = len(Layout.of(dataset)), True
    for link in sampler._links()[::-1]:
        size = len(link.undealt_order(dataset))
        may_read_all = isinstance(link, RandomSampler | RepeatSampler | SequentialSampler)
        reads_all = may_read_all and size == below * getattr(link, "repeats", 1)
        if getattr(link, "replacement", False):
            return False
        if not reads_all and not (is_listed and (link.is_fixed or isinstance(link, SubsetRandomSampler))):
            return False
        below, is_listed = size, is_listed and link.is_fixed
    return True
