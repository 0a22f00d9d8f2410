"""Ids from what a user iterates over."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np

from samplerkit.errors import DatasetError, OutOfDatasetError
from samplerkit.order import arguments
from samplerkit.order.typing import Ids

LONGEST_ITERATION = 1 << 28
"""The most ids that are read from a user's `__iter__`, which might never end."""


def read_ids(ids: Iterable[Any], limit: int | None, place: str) -> Ids:
    """Reads the ids that a user's iterable yields into an array.

    Raises:
        ArgumentTypeError: it yields something else.
        OutOfDatasetError: it yields an integer that can be no id.
        DatasetError: it does not end.
    """
    numbers = (_checked(number, place) for number in ids)
    array = np.fromiter(islice(numbers, limit or LONGEST_ITERATION + 1), dtype=np.int64)
    if not limit and array.size > LONGEST_ITERATION:
        raise DatasetError(place, f"yields more than {LONGEST_ITERATION} ids", mend="say num_samples")
    return array


def read_sampler(sampler: Any, size: int) -> Ids:
    """Reads the ids that the `__iter__` of a sampler yields, where it draws from so many samples."""
    # The copy keeps the recipe as it is, while __iter__ may count on the size and keep state.
    reader = copy.copy(sampler)
    reader.dataset_size = size
    return read_ids(reader, sampler.num_samples, type(sampler).__name__)


def _checked(number: Any, place: str) -> int:
    id = arguments.integer(f"{place}: id", number)
    if not -arguments.INT64_MAX <= id <= arguments.INT64_MAX:
        raise OutOfDatasetError(f"{place}: id", "lies outside of any dataset", id)
    return id
