"""What counts as an integer: Python's and numpy's, tensors of them, and no bool."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import numpy as np

from samplerkit.errors import ArgumentTypeError


def integer(place: str, value: Any) -> int:
    """Takes an int or a numpy integer; a bool is none.

    Raises:
        ArgumentTypeError: it is no integer.

    Example:
        >>> integer("seed", np.uint8(7))
        7
    """
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        raise ArgumentTypeError(place, "must be an integer", value)
    try:
        return operator.index(value)
    except TypeError:
        raise ArgumentTypeError(place, "must be an integer", value) from None


def holds_bool(entries: Iterable[Any]) -> bool:
    """Tells whether one of the entries is a bool, which numpy takes for an integer beside others."""
    return not {bool, np.bool_}.isdisjoint(map(type, entries))


def integers(place: str, value: Any) -> np.ndarray[Any, Any]:
    """Takes an integer, or integers in a list, a tensor or an array of any shape.

    Returns:
        An array of that shape: of any integer dtype, of float64 if it is empty, or of Python's integers
        where no dtype holds them.

    Raises:
        ArgumentTypeError: something in it is no integer.

    Example:
        >>> integers("ids", [[1, 2]])
        array([[1, 2]])
    """
    if hasattr(value, "__index__") and not hasattr(value, "__array__"):
        return np.asarray(integer(place, value))
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # lists of different lengths, tensors of other libraries' numbers
        raise ArgumentTypeError(place, "must be an integer or integers", value) from None
    is_wide = array.dtype == object and all(type(number) is int for number in array.flat)
    if array.dtype == bool or (array.dtype.kind not in "iu" and array.size and not is_wide):
        raise ArgumentTypeError(place, "must be an integer or integers", value)
    return array
