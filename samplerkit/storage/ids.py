"""The ids that a dataset is asked for: integers, and within it; and whether they are in order."""

from __future__ import annotations

import warnings
from collections.abc import Sized
from itertools import pairwise
from typing import Any, final

import numpy as np

from samplerkit.errors import ArgumentTypeError, OutOfDatasetError
from samplerkit.order import arguments
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.threads import this_worker

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
    """Takes the ids of a batch, as a list or an array.

    Raises:
        ArgumentTypeError: no flat list of integers.
        OutOfDatasetError: one is outside of a dataset of `total` samples.
    """
    try:
        numbers = np.asarray(ids)
    except ValueError:  # lists of different lengths
        numbers = np.array(None)
    if not numbers.size:
        return np.zeros(0, dtype=np.int64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise ArgumentTypeError("ids", "must be a flat list of integers", ids)
    found: Ids = numbers.astype(np.int64, copy=False)
    # Few are sooner looked at in a list; seen without a sign, a negative one is the largest.
    few = found.tolist() if found.size <= _FEW else None
    if (min(few) < 0 or max(few) >= total) if few else int(found.view(np.uint64).max()) >= total:
        outside = int(found[(found < 0) | (found >= total)][0])
        raise OutOfDatasetError("ids", f"outside of a dataset of {total} samples", outside)
    return found


def checked_segments(segments: Any, total: int) -> Ids:
    """Takes parts of samples: for each the id of the sample, the first token in it, and how many.

    Raises:
        ArgumentTypeError: no integers of shape (m, 3).
        OutOfDatasetError: one is of no sample of a dataset of `total` samples.
    """
    asked = arguments.integers("segments", segments)
    if asked.ndim != 2 or asked.shape[1] != 3:
        raise ArgumentTypeError("segments", "must be of shape (m, 3): id, start, length", asked.shape)
    checked_ids(asked[:, 0], total)
    return asked


def by_file(layout: Layout, ids: Ids) -> dict[int, tuple[Ids, Ids]]:
    """Returns for each file the numbers of its samples in it, and their places among the ids.

    Example:
        >>> by_file(Layout([3, 4]), np.array([5, 1, 3]))
        {0: (array([1]), array([1])), 1: (array([2, 0]), array([0, 2]))}
    """
    file = layout.file_of(ids)
    in_order = np.argsort(file, kind="stable")
    numbers, heads = np.unique(file[in_order], return_index=True)
    parts = zip(numbers.tolist(), np.split(in_order, heads[1:]), strict=False)
    return {number: (ids[places] - layout.starts[number], places) for number, places in parts}


ENOUGH = 16
"""Ascending ids by which reading from front to back is recognised: by chance once in 2 * 10^13."""


@final
class OrderWatch:
    """Warns once if a plain DataLoader reads a shuffled dataset in the order in which it lies.

    The window of `.shuffle(n)` is the default of samplerkit's own loader and samplers. A plain DataLoader
    does not know of it.
    """

    def __init__(self) -> None:
        self._last = -1
        self._ascending = 0
        self._is_over = False

    def stop(self) -> None:
        """Says that the order was chosen, whatever it is."""
        self._is_over = True

    def see(self, ids: list[int]) -> None:
        """Looks at ids that are read; of the workers of a loader, one is enough."""
        if self._is_over or this_worker()[0] != 0:
            return
        looked_at = [self._last, *ids][: ENOUGH - self._ascending + 1]
        self._last, self._ascending = looked_at[-1], self._ascending + len(looked_at) - 1
        is_ascending = all(one < other for one, other in pairwise(looked_at))
        self._is_over = not is_ascending or self._ascending == ENOUGH
        if is_ascending and self._is_over:
            warnings.warn(
                "a dataset with .shuffle(...) is read from front to back: a plain DataLoader does not "
                "know of the window; use samplerkit.Loader, or sampler=samplerkit.TorchSampler(...)",
                stacklevel=4,
            )
