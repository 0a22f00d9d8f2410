"""Iteration over samples in any order, some at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from samplerkit.errors import ArgumentTypeError, OutOfDatasetError, SamplerkitError
from samplerkit.order.typing import Ids
from samplerkit.storage.tar.pipeline import View
from samplerkit.storage.tar.present import Present, log_missing

AT_ONCE = 256
"""Samples that are read at a time, unless they are large."""


def samples_in_order(view: View, ids: Iterable[int], checked: Callable[[Any], Ids]) -> Iterator[Any]:
    """Yields samples in the order of some ids; a source that wants to know is told what comes next.

    Args:
        view: of the samples.
        ids: anything that yields integers.
        checked: makes an array of some of them.

    Raises:
        OutOfDatasetError: there is no such sample.
    """
    remaining = iter(ids)
    ahead: deque[Ids | SamplerkitError] = deque()

    def upcoming() -> Iterator[Ids]:
        while chunk := list(islice(remaining, AT_ONCE)):
            try:
                numbers = checked(chunk)
            except SamplerkitError as error:  # raised where the reading has come to it
                ahead.append(error)
                return
            ahead.append(numbers)
            yield view.source_ids(numbers)

    following = upcoming()
    if view.source.wants_to_know:
        view.source.expect(following, len(view.layout))
    while ahead or next(following, None) is not None or ahead:
        numbers = ahead.popleft()
        if isinstance(numbers, SamplerkitError):
            raise numbers
        if view.source.is_large(view.source_ids(numbers)):
            yield from map(view.sample, numbers.tolist())
        else:
            found = Present(view.samples(numbers))
            log_missing(found.missing, view.source.logged)
            yield from found


def checked_ids(ids: Any, total: int) -> Ids:
    """Takes the ids of samples.

    Raises:
        ArgumentTypeError: no flat list of integers.
        OutOfDatasetError: one lies outside of a dataset of `total` samples.
    """
    numbers = np.asarray(ids)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise ArgumentTypeError("ids", "must be integers", ids)
    numbers = numbers.astype(np.int64, copy=False)
    if numbers.size and (numbers.min() < 0 or numbers.max() >= total):
        outside = int(numbers[(numbers < 0) | (numbers >= total)][0])
        raise OutOfDatasetError("id", f"outside of a dataset of {total} samples", outside)
    return numbers
