"""Whether two values are the same, including their types."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


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
