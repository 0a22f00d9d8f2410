"""Batches made of what lies in several files: a list of samples, or an array a column."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order.typing import Ids
from samplerkit.storage.files.content import FileContent

FilePart = tuple[FileContent, Ids, Ids]
"""A file, rows of it, and the places in the batch to which they belong."""

Array = np.ndarray[Any, Any]


def gathered_samples(parts: Iterable[FilePart], size: int) -> list[Any]:
    """Gives the samples of a batch.

    Args:
        parts: all files of the batch.
        size: the number of samples.
    """
    samples: list[Any] = [None] * size
    for content, rows, places in parts:
        for place, sample in zip(places.tolist(), content.samples(rows, places, size), strict=True):
            samples[place] = sample
        del content  # it is let go now
    return samples


def gathered_columns(parts: Iterable[FilePart], size: int) -> dict[Any, Array]:
    """Gives an array a column, of shape (size, ...).

    Args:
        parts: all files of the batch.
        size: the number of samples.

    Raises:
        DatasetError: a file is no mapping of columns, or its columns or their shapes or types are not those
            of the file before.
    """
    columns: dict[Any, Array] = {}
    for content, rows, places in parts:
        found = content.columns(rows)
        if not columns:
            columns = {key: np.empty((size, *part.shape[1:]), part.dtype) for key, part in found.items()}
        if found.keys() != columns.keys():
            raise DatasetError(content.path, f"holds other columns than {list(columns)}", list(found))
        for key, part in found.items():
            column = columns[key] = _as_wide(columns[key], part, f"{content.path}: column {key!r}")
            column[places] = part
        del content  # it is let go now
    return columns


def _as_wide(column: Array, part: Array, place: str) -> Array:
    """Gives a column that can hold a part: texts may be longer than those before."""
    if part.shape[1:] != column.shape[1:] or part.dtype.kind != column.dtype.kind:
        before = f"{column.dtype} of shape {column.shape[1:]}"
        raise DatasetError(place, f"differs from the file before, {before}", f"{part.dtype} {part.shape[1:]}")
    return column.astype(np.result_type(column, part), copy=False)
