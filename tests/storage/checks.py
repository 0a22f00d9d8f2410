"""Checks of all datasets: that one cannot be read, and that samples are equal."""

from typing import Any

import numpy as np
import pytest
import torch

from samplerkit.errors import DatasetError


def assert_refused(dataset: Any, match: str, id: int | None = None) -> None:
    """Reading a sample, or the length where no id is given, is an error with this message."""
    with dataset, pytest.raises(DatasetError, match=match):
        len(dataset) if id is None else dataset[id]


def identical(one: Any, other: Any) -> bool:
    """Compares samples, fields and batches with their types, their dtypes and the order of their keys."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(identical(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(identical, one, other))
    if isinstance(one, np.ndarray | torch.Tensor):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if hasattr(one, "getbands"):
        return (one.mode, one.size, one.tobytes()) == (other.mode, other.size, other.tobytes())
    return one == other
