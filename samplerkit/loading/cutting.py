"""Parts of samples, for packs: asked of the dataset, or cut out of whole samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from samplerkit.batches.segments import Segments
from samplerkit.errors import DatasetError
from samplerkit.loading.padded_fields import is_sequence


def require_parts(parts: Any, segments: Segments) -> list[Any]:
    """Takes what `__getsegments__` gave: one part for each that was asked for.

    Raises:
        DatasetError: more or fewer.
    """
    if not hasattr(parts, "__len__") or len(parts) != len(segments):
        raise DatasetError(
            "__getsegments__",
            f"must give one part for each of {len(segments)} segments",
            len(parts) if hasattr(parts, "__len__") else parts,
            mend="give a list of them, in the order of the rows",
        )
    return list(parts)


def cut(samples: Any, segments: Segments) -> list[Any]:
    """Cuts parts out of whole samples.

    A sample that is wanted whole stays as it is, and what ends a sample goes on to its end, whatever was said
    of its length: so no token is lost without a word.

    Args:
        samples: one for each segment: sequences, or dicts or tuples of them; or a mapping of columns.
        segments: which part of each.

    Raises:
        DatasetError: a sample holds no sequence that could be cut.

    Example:
        >>> nothing = np.zeros(2, dtype=np.int64)
        >>> segments = Segments(np.array([2, 0]), np.array([2, 3]), nothing, np.array([False, True]))
        >>> cut([[5, 6, 7, 8, 9], {"text": [1, 2, 3]}], segments)
        [[7, 8], {'text': [1, 2, 3]}]
    """
    if isinstance(samples, Mapping):
        samples = [{key: column[at] for key, column in samples.items()} for at in range(len(segments))]
    parts = []
    bounds = zip(
        samples, segments.starts.tolist(), segments.lengths.tolist(), segments.is_last.tolist(), strict=True
    )
    for sample, start, length, is_last in bounds:
        end = None if is_last else start + length
        parts.append(sample if start == 0 and is_last else _part(sample, slice(start, end)))
    return parts


def beginning(sample: Any, segments: Segments) -> tuple[list[Any], Segments]:
    """Gives the beginning of a sample that stands in for all of a batch, as long as its longest part."""
    nothing = np.zeros(1, dtype=np.int64)
    longest = segments.lengths.max(keepdims=True)
    one = Segments(nothing, longest, nothing, np.zeros(1, dtype=bool))
    return cut([sample], one), one


def _part(sample: Any, part: slice) -> Any:
    if isinstance(sample, str | bytes):
        return sample[part]
    length = next(_lengths(sample), None)
    if length is None:
        raise DatasetError(
            "samples",
            "hold no sequence of which a part could be cut",
            sample,
            mend="give tokens as an array, or write __getsegments__(segments)",
        )
    return _cut(sample, part, length)


def _lengths(item: Any) -> Iterator[int]:
    """Gives the lengths of the sequences in a sample, the first one first."""
    if is_sequence(item):
        yield len(item)
    elif isinstance(item, Mapping):
        for below in item.values():
            yield from _lengths(below)
    elif isinstance(item, tuple):
        for below in item:
            yield from _lengths(below)


def _cut(item: Any, part: slice, length: int) -> Any:
    """Cuts all sequences that are as long as the first one: labels beside tokens, for instance."""
    if is_sequence(item):
        return item[part] if len(item) == length else item
    if isinstance(item, Mapping):
        return {key: _cut(below, part, length) for key, below in item.items()}
    if isinstance(item, tuple):
        parts = [_cut(below, part, length) for below in item]
        return item._make(parts) if hasattr(item, "_make") else tuple(parts)
    return item
