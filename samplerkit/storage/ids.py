"""Checks of requested ids: that they are integers within the dataset; and ids by file."""

from collections.abc import Sized
from typing import Any

import numpy as np

from samplerkit.errors import ArgumentTypeError, OutOfDatasetError
from samplerkit.order import arguments
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids

_FEW = 16


def checked_index(index: Any, dataset: Sized, of: str = "samples") -> int:
    """Checks the index of one sample of a dataset, and returns it; negative ones count from the end.

    Raises:
        ArgumentTypeError: the index is not an integer.
        OutOfDatasetError: the index is out of range.
    """
    number, size = arguments.integer("index", index), len(dataset)
    if not -size <= number < size:
        raise OutOfDatasetError("index", f"outside of a dataset of {size} {of}", number)
    return number % size


def checked_ids(ids: Any, total: int) -> Ids:
    """Checks the ids of a batch, a list or an array, and returns them as an int64 array.

    Raises:
        ArgumentTypeError: the ids are not a flat list of integers.
        OutOfDatasetError: an id is not in [0, `total`).
    """
    try:
        numbers = np.asarray(ids)
    except (ValueError, TypeError, RuntimeError):  # lists of different lengths; tensors that numpy refuses
        numbers = np.array(None)
    if not numbers.size:
        return np.zeros(0, dtype=np.int64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise ArgumentTypeError("ids", "must be a flat list of integers", ids)
    checked: Ids = numbers.astype(np.int64, copy=False)
    # For few ids a list is faster; as unsigned integers, negative ids are the largest.
    few = checked.tolist() if checked.size <= _FEW else None
    if (min(few) < 0 or max(few) >= total) if few else int(checked.view(np.uint64).max()) >= total:
        outside = int(checked[(checked < 0) | (checked >= total)][0])
        raise OutOfDatasetError("ids", f"outside of a dataset of {total} samples", outside)
    return checked


def checked_segments(segments: Any, total: int) -> Ids:
    """Checks segments of samples: for each the id of the sample, its first token, and the number of tokens.

    Raises:
        ArgumentTypeError: the segments are not integers of shape (m, 3).
        OutOfDatasetError: an id is not in [0, `total`).
    """
    checked = arguments.integers("segments", segments)
    if checked.ndim != 2 or checked.shape[1] != 3:
        raise ArgumentTypeError("segments", "must be of shape (m, 3): id, start, length", checked.shape)
    checked_ids(checked[:, 0], total)
    return checked


def by_file(layout: Layout, ids: Ids) -> dict[int, tuple[Ids, Ids]]:
    """Groups ids by file: returns for each file the indices within it, and their positions among the ids.

    Example:
        >>> by_file(Layout([3, 4]), np.array([5, 1, 3]))
        {0: (array([1]), array([1])), 1: (array([2, 0]), array([0, 2]))}
    """
    file = layout.file_of(ids)
    in_order = np.argsort(file, kind="stable")
    numbers, heads = np.unique(file[in_order], return_index=True)
    parts = zip(numbers.tolist(), np.split(in_order, heads[1:]), strict=False)
    return {number: (ids[places] - layout.starts[number], places) for number, places in parts}
