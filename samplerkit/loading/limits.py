"""A batch of real samples, held against the limit that its plan kept by the lengths said of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from samplerkit.batches.measure import Measure
from samplerkit.batches.segments import Segments
from samplerkit.errors import DatasetError
from samplerkit.loading.padded_fields import SequenceField
from samplerkit.order.typing import Ids

_NAMED = 8
_COUNT_AGAIN = "count them as they come from the dataset, with all that it adds to a sample"


def require_within(
    measure: Measure, fields: list[SequenceField], lengths: Ids, longest: Ids, ids: Ids | None
) -> None:
    """Refuses a batch above its limit.

    Args:
        measure: what the plan knows of the samples.
        fields: those of which it knows the lengths: one, or two for pairs.
        lengths: in the samples, int64 of shape (samples, fields).
        longest: to which each field is padded, int64 of shape (fields,).
        ids: of the samples; None where they are not known.

    Raises:
        DatasetError: it is above; the value names the samples that are longer than what was said.
    """
    count, pairs = len(lengths), len(fields) > 1
    if measure.most is None or count <= int(measure.most(longest[None, :] if pairs else longest)[0]):
        return
    shape = "x".join(map(str, (count, *longest.tolist())))
    of = " and ".join(field.path for field in fields if field.path) or "the samples"
    problem = f"a batch of {shape} ({of}) is above its limit"
    found: dict[Any, str]
    if ids is None:
        places = np.argsort(-lengths.max(axis=1), kind="stable")[:_NAMED]
        found = {f"place {place}": _shown(lengths[place]) for place in places.tolist()}
        raise DatasetError("lengths", f"{problem}; the longest of it", found, mend=_COUNT_AGAIN)
    said = measure.counted(ids).reshape(count, -1)
    longer = np.flatnonzero((lengths > said).any(axis=1))[:_NAMED]
    if not longer.size:
        mend = "say length_multiple= to the recipe in place of PadCollate"
        raise DatasetError("length_multiple", problem, longest.tolist(), mend=mend)
    found = {
        int(ids[place]): f"{_shown(lengths[place])}, not {_shown(said[place])}" for place in longer.tolist()
    }
    problem = f"{problem}; samples, by id, are longer than was said"
    raise DatasetError("lengths", problem, found, mend=_COUNT_AGAIN)


def require_packs_within(
    measure: Measure, segments: Segments, lengths: Ids, taken: Ids, ids: Ids | None
) -> None:
    """Refuses a pack that its parts do not fit into.

    Args:
        measure: what the plan knows of the samples.
        segments: what the parts should be.
        lengths: what they are, int64 of shape (parts,).
        taken: the same rounded up, int64 of shape (parts,).
        ids: of their samples; None where they are not known.

    Raises:
        DatasetError: one is above its limit; the value names the samples that are longer than what was said.
    """
    limit = measure.pack or 0
    sums = np.bincount(segments.rows, weights=taken).astype(np.int64)
    above = np.flatnonzero(sums > limit)
    if not above.size:
        return
    row = int(above[0])
    there = np.flatnonzero(segments.rows == row)
    problem = f"a pack of {int(sums[row])} tokens is above its limit of {limit}"
    if ids is None:
        found = {f"place {place}": _shown(lengths[[place]]) for place in there[:_NAMED].tolist()}
        raise DatasetError("lengths", f"{problem}; the parts of it", found, mend=_COUNT_AGAIN)
    longer = there[lengths[there] > segments.lengths[there]][:_NAMED]
    said = {
        int(ids[place]): f"{lengths[place]}, not {segments.lengths[place]}"
        + (f", from token {segments.starts[place]} on" if segments.starts[place] else "")
        for place in longer.tolist()
    }
    problem = f"{problem}; samples, by id, are longer than was said"
    raise DatasetError("lengths", problem, said, mend=_COUNT_AGAIN)


def _shown(lengths: Ids) -> str:
    return " and ".join(map(str, lengths.tolist()))
