"""The shares that several datasets have of a batch, put back in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order.typing import Ids
from samplerkit.storage.files.content import FileContent, gathered_columns
from samplerkit.storage.tar.present import Present

Columns = dict[Any, np.ndarray[Any, Any]]


@final
@dataclass(frozen=True, eq=False)
class LeafSamples:
    """What one dataset gave of a batch.

    Args:
        place: what errors call the dataset.
        start: its first id.
        samples: a list of samples, one with `missing` and `stand_in`, or a mapping of columns.
        places: of the samples in the batch.
    """

    place: str
    start: int
    samples: Any
    places: Ids


def joined(shares: Sequence[LeafSamples], size: int) -> Present | Columns:
    """Puts the shares of a batch together.

    Args:
        shares: of all datasets that have some of it.
        size: the samples of the whole batch.

    Raises:
        DatasetError: one gives columns and another one samples, or other columns than the one before.

    Example:
        >>> shares = [LeafSamples("a", 0, ["x"], np.array([1])), LeafSamples("b", 9, ["y"], np.array([0]))]
        >>> joined(shares, 2)
        ['y', 'x']
    """
    of_columns = [share for share in shares if isinstance(share.samples, Mapping)]
    if not of_columns:
        return _joined_samples(shares, size)
    if len(of_columns) < len(shares):
        other = next(share for share in shares if share not in of_columns)
        mend = "say the same as_columns for all parts"
        raise DatasetError(
            of_columns[0].place, f"gives columns, and {other.place} a list of samples", mend=mend
        )
    contents = ((FileContent.of(share.samples, share.place), share.places) for share in of_columns)
    return gathered_columns(((content, np.arange(places.size), places) for content, places in contents), size)


def _joined_samples(shares: Sequence[LeafSamples], size: int) -> Present:
    samples: list[Any] = [None] * size
    missing: list[tuple[int, str, str]] = []
    stand_ins: list[tuple[int, Any]] = []
    for share in shares:
        lost = getattr(share.samples, "missing", ())
        missing += [(int(share.places[at]), file, f"{text} ({share.place})") for at, file, text in lost]
        stand_in = getattr(share.samples, "stand_in", None)
        if stand_in is not None:
            stand_ins.append((share.start + stand_in, share.samples[0]))
            continue
        here = np.delete(share.places, [at for at, _, _ in lost])
        for place, sample in zip(here.tolist(), share.samples, strict=True):
            samples[place] = sample
    gone = {place for place, _, _ in missing}
    found = Present(sample for place, sample in enumerate(samples) if place not in gone)
    found.missing = sorted(missing)
    if not found and stand_ins:  # where other parts gave some, the step has its batch
        found.stand_in, sample = stand_ins[0]
        found.append(sample)
    return found
