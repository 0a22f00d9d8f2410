"""The shares that several datasets have of a batch, put back in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order.typing import Ids
from samplerkit.storage.files.content import FileContent, gathered_columns
from samplerkit.storage.missing_file import Present

Array = np.ndarray[Any, Any]

Columns = dict[Any, Array]

BORDERS: Final = "cu_seqlens"
"""The output of windows of tokens that says where documents begin."""


@final
@dataclass(frozen=True, eq=False)
class LeafSamples:
    """What one dataset returned of a batch.

    Args:
        place: what errors call the dataset.
        start: its first id.
        samples: a list of samples, one with `missing` and `stand_in`, or a mapping of columns.
        places: of the samples in the batch.
        has_borders: whether it returns `cu_seqlens`, which have no row a sample.
    """

    place: str
    start: int
    samples: Any
    places: Ids
    has_borders: bool = False


def joined(shares: Sequence[LeafSamples], size: int) -> Present | Columns | Array:
    """Puts the shares of a batch together.

    Args:
        shares: of all datasets that have some of it.
        size: the samples of the whole batch.

    Raises:
        DatasetError: one returns columns and another one samples, or other columns than the one before.

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
        hint = "say the same as_columns for all parts"
        raise DatasetError(
            of_columns[0].place, f"gives columns, and {other.place} a list of samples", hint=hint
        )
    of_borders = [share for share in shares if share.has_borders]
    if not of_borders:
        return _joined_columns(shares, size)
    if len(of_borders) < len(shares):
        other = next(share for share in shares if share not in of_borders)
        hint = "say the same outputs for all parts"
        raise DatasetError(of_borders[0].place, f"gives {BORDERS}, and {other.place} does not", hint=hint)
    return _with_borders(shares, size)


def _joined_columns(shares: Sequence[LeafSamples], size: int) -> Columns:
    contents = ((FileContent.of(share.samples, share.place), share.places) for share in shares)
    return gathered_columns(((content, np.arange(places.size), places) for content, places in contents), size)


def _with_borders(shares: Sequence[LeafSamples], size: int) -> Columns | Array:
    """Puts shares of windows of tokens together; documents begin at positions of the flattened batch."""
    names = list(shares[0].samples)
    found, width = [], int(shares[0].samples[BORDERS][-1]) // shares[0].places.size
    for share in shares:
        borders = share.samples[BORDERS]
        if int(borders[-1]) != width * share.places.size:
            here = int(borders[-1]) // share.places.size
            raise DatasetError(share.place, f"gives windows of another length than {width} tokens", here)
        row, at = np.divmod(borders[:-1], width)
        found.append(share.places[row] * width + at)
    merged = np.append(np.sort(np.concatenate(found)), size * width).astype(shares[0].samples[BORDERS].dtype)
    if names == [BORDERS]:
        return merged
    others = [
        replace(share, samples={name: share.samples[name] for name in share.samples if name != BORDERS})
        for share in shares
    ]
    columns = _joined_columns(others, size)
    return {name: merged if name == BORDERS else columns[name] for name in names}


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
