"""What edits make of a stream: rows leave, and a mixture reads its dice by other weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from samplerkit.errors import ArgumentValueError, NotSupportedError
from samplerkit.order.layout import Layout
from samplerkit.order.removal import Holes, Removed, rows_before, skipped
from samplerkit.order.streams import Mix, Stream
from samplerkit.order.typing import Ids
from samplerkit.samplers.edit import Edit


def edited(stream: Stream, edits: Sequence[Edit], weights: Sequence[Sequence[float]]) -> Stream:
    """Gives a stream as edits make it.

    Args:
        stream: without edits.
        edits: in the order of their positions.
        weights: of each edit that has some, one for each source of the stream: from `shares`.

    Raises:
        NotSupportedError: an edit says what this stream, or this version, cannot do.
    """
    for edit in edits:
        for name in ("without", "global_batch"):
            if getattr(edit, name) is not None:
                raise NotSupportedError(f"edit at {edit.at}", f"says {name}, which cannot be done yet", edit)
    lanes = stream.lanes
    skips = [(edit.at, edit.skip) for edit in edits if edit.skip is not None]
    at, counts = np.array(skips, dtype=np.int64).reshape(-1, 2).T
    begins = np.array([edit.at for edit in edits if edit.weights is not None], dtype=np.int64)

    def holes(lane: int) -> Holes:
        return Holes().and_kept(*skipped(lane, lanes, at, counts))

    def firsts(lane: int) -> Ids:
        # Behind the last row read before the edit: what is skipped at its position is drawn by it already.
        before = rows_before(begins, lane, lanes)
        return np.where(before, holes(lane).rows(np.maximum(before - 1, 0)) + 1, 0)

    if weights and not isinstance(stream, Mix):
        problem = "says weights, and the passes of this mixture begin anew in each epoch"
        raise NotSupportedError(f"edit at {begins[0]}", problem, mend="say passes='run_on'")
    if isinstance(stream, Mix) and weights:
        stream = stream.reweighed(weights, firsts)
    return Removed(stream, holes, tuple(skips)) if skips else stream


def shares(edits: Sequence[Edit], sampler: Any, layout: Layout) -> list[list[float]]:
    """Gives the weights of each edit that has some, one for each part of a tree in the order of ids.

    Raises:
        NotSupportedError: the sampler mixes no parts with names.
        ArgumentValueError: an edit names no source of the sampler, or lacks one; or it adds a source that
            is there, or is no part of the dataset.
    """
    found = []
    known = set(getattr(sampler, "sources", None) or {})
    for edit in edits:
        if edit.weights is None:
            continue
        place = f"edit at {edit.at}"
        if not known:
            raise NotSupportedError(place, "says weights, and this mixes no sources with names", sampler)
        if edit.source is not None:
            if edit.source in known:
                raise ArgumentValueError(place, "adds a source that is there", edit.source)
            if edit.source not in layout.parts:
                mend = f"parts: {', '.join(layout.parts)}"
                raise ArgumentValueError(place, "adds what is no part of the dataset", edit.source, mend=mend)
            known.add(edit.source)
        unknown, missing = sorted(edit.weights.keys() - known), sorted(known - edit.weights.keys())
        if unknown:
            mend = f"sources: {', '.join(sorted(known))}"
            raise ArgumentValueError(place, "names no source of the mixture", unknown[0], mend=mend)
        if missing:
            raise ArgumentValueError(place, "lacks a source", missing[0], mend="say 0 to leave it out")
        found.append([edit.weights.get(name, 0.0) for name in layout.parts])
    return found
