"""The ids that a dataset is asked for: integers, and within it."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

import numpy as np

from samplerkit.errors import ArgumentTypeError, OutOfDatasetError
from samplerkit.order import arguments
from samplerkit.order.typing import Ids

_FEW = 16


def checked_index(index: Any, dataset: Sized, of: str = "samples") -> int:
    """Takes the index of one sample of a dataset, which counts from the end where it is negative.

    Raises:
        ArgumentTypeError: no integer.
        OutOfDatasetError: there is no such sample.
    """
    number, size = arguments.integer("index", index), len(dataset)
    if not -size <= number < size:
        raise OutOfDatasetError("index", f"outside of a dataset of {size} {of}", number)
    return number % size


def checked_ids(ids: Any, total: int) -> Ids:
    """Takes the ids of samples.

    Raises:
        ArgumentTypeError: no flat list of integers.
        OutOfDatasetError: one lies outside of a dataset of `total` samples.
    """
    numbers = np.asarray(ids)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise ArgumentTypeError("ids", "must be integers", ids)
    return require_within("id", numbers.astype(np.int64, copy=False), total)


def require_within(place: str, ids: Ids, total: int) -> Ids:
    """Gives ids, all of which lie in [0, total).

    Raises:
        OutOfDatasetError: one does not; the error is about the place.
    """
    if not ids.size:
        return ids
    # Few are sooner looked at in a list; seen without a sign, a negative one is the largest.
    few = ids.tolist() if ids.size <= _FEW else None
    if (min(few) < 0 or max(few) >= total) if few else int(ids.view(np.uint64).max()) >= total:
        outside = int(ids[(ids < 0) | (ids >= total)][0])
        raise OutOfDatasetError(place, f"outside of a dataset of {total} samples", outside)
    return ids
