"""A batch of real samples, held against the limit that its plan kept by the lengths said of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from samplerkit.batches.measure import Measure
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


def _shown(lengths: Ids) -> str:
    return " and ".join(map(str, lengths.tolist()))
