"""Checks of arguments: each returns the value, or raises an error of the type that MindSpore documents.

Integers are those of Python and numpy, and tensors with one; a bool is not an integer.
"""

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from samplerkit.errors import ArgumentRangeError, ArgumentTypeError, ArgumentValueError
from samplerkit.order.typing import Ids

LARGEST: Final = 1 << 62
"""The largest number of samples."""

INT64_MAX = 2**63 - 1
MAX_LANES = 2**24


def integer(place: str, value: Any) -> int:
    """Returns an integer of any kind as an int.

    Raises:
        ArgumentTypeError: `value` is not an integer.

    Example:
        >>> integer("seed", np.uint8(7))
        7
    """
    if type(value) is int:
        return value
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        raise ArgumentTypeError(place, "must be an integer", value)
    try:
        return operator.index(value)
    except (TypeError, ValueError, RuntimeError):  # a tensor without a number
        raise ArgumentTypeError(place, "must be an integer", value) from None


def optional_integer(place: str, value: Any) -> int | None:
    """Returns an integer or None."""
    return None if value is None else integer(place, value)


def boolean(place: str, value: Any) -> bool:
    """Returns a bool; 0 and 1 are errors."""
    if not isinstance(value, bool | np.bool_):
        raise ArgumentTypeError(place, "must be a bool", value)
    return bool(value)


def num_samples(place: str, value: Any) -> int | None:
    """Returns a number of samples; None and 0 mean all."""
    if value is None:
        return None
    return below(place, value, 2**63, "must be between 0 and 2^63 - 1", hint="None or 0 means all")


def below(place: str, value: Any, end: int, problem: str, hint: str = "") -> int:
    """Returns an integer in [0, end)."""
    number = integer(place, value)
    if not 0 <= number < end:
        raise ArgumentValueError(place, problem, number, hint=hint)
    return number


def at_least(place: str, value: Any, least: int) -> int:
    """Returns an integer of at least `least`: 0 or 1."""
    number = integer(place, value)
    if number < least:
        problem = "must be positive" if least else "must not be negative"
        raise ArgumentRangeError(place, problem, number)
    return number


def positive(place: str, value: Any, largest: int = LARGEST) -> int:
    """Returns a positive integer of at most `largest`."""
    number = at_least(place, value, 1)
    if number > largest:
        raise ArgumentRangeError(place, f"must be at most {largest}", number)
    return number


def lanes(place: str, value: Any) -> int | None:
    """Returns a number of lanes, or None."""
    return None if value is None else positive(place, value, MAX_LANES)


def limit(place: str, value: Any) -> int | None:
    """Returns a positive integer, or None for no limit."""
    return None if value is None else positive(place, value)


def seed(place: str, value: Any) -> int:
    """Returns a seed: an integer in [0, 2^64)."""
    return below(place, value, 2**64, "must be in [0, 2^64)")


def epoch(value: Any) -> int:
    """Returns an epoch: an integer in [0, 2^63)."""
    return below("epoch", value, 2**63, "must be in [0, 2^63)")


def text(place: str, value: Any) -> str:
    """Returns a string."""
    if not isinstance(value, str):
        raise ArgumentTypeError(place, "must be a string", value)
    return value


def word(place: str, value: Any) -> str:
    """Returns a name that a user chose: not empty, and without spaces at its ends."""
    name = text(place, value)
    if not name or name != name.strip():
        raise ArgumentValueError(place, "must be a word", name)
    return name


def number(place: str, value: Any, unit: str = "") -> float:
    """Returns an int or float of Python or numpy as a float.

    Args:
        place: the name of the argument.
        value: the argument.
        unit: for the error, such as seconds.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ArgumentTypeError(place, f"must be a number{unit and ' of '}{unit}", value)
    try:
        return float(value)
    except OverflowError:
        raise ArgumentRangeError(place, "is larger than any float", value) from None


def seconds(place: str, value: Any, *, may_be_zero: bool = True) -> float:
    """Returns a finite number of seconds, not negative.

    Example:
        >>> seconds("timeout", 0)
        0.0
        >>> seconds("timeout", -1)
        Traceback (most recent call last):
        samplerkit.errors.ArgumentRangeError: timeout: must be finite and not negative, got -1
    """
    duration = number(place, value, "seconds")
    if not math.isfinite(duration) or duration < 0 or (duration == 0 and not may_be_zero):
        problem = "must be finite and not negative" if may_be_zero else "must be finite and positive"
        raise ArgumentRangeError(place, problem, value)
    return duration


def choice(place: str, value: Any, names: Sequence[str]) -> str:
    """Returns one of some names."""
    if text(place, value) not in names:
        raise ArgumentValueError(place, f"must be one of {', '.join(names)}", value)
    return str(value)


def function(place: str, value: Any, of: str = "") -> Callable[..., Any]:
    """Returns a function after checking that it can be called.

    Args:
        place: the name of the argument.
        value: the function.
        of: what it is called with, for the message.
    """
    if not callable(value):
        raise ArgumentTypeError(place, f"must be a function of {of}" if of else "must be a function", value)
    checked: Callable[..., Any] = value
    return checked


def is_iterable(value: Any) -> bool:
    """Returns whether a value can be iterated over; arrays and tensors without dimensions cannot."""
    return isinstance(value, Iterable) and getattr(value, "ndim", 1) > 0


def holds_bool(entries: Iterable[Any]) -> bool:
    """Returns whether an entry is a bool: among integers, numpy would convert it to one."""
    return not {bool, np.bool_}.isdisjoint(map(type, entries))


def integers(place: str, value: Any) -> np.ndarray[Any, Any]:
    """Returns one integer, or a list, tensor or array of integers, as an array of the same shape.

    Returns:
        An array of any integer dtype; of float64 if it is empty; of dtype object, with Python's integers, if
        no dtype has room for them.

    Raises:
        ArgumentTypeError: an entry is not an integer.

    Example:
        >>> integers("ids", [[1, 2]])
        array([[1, 2]])
    """
    if hasattr(value, "__index__") and not hasattr(value, "__array__"):
        return np.asarray(integer(place, value))
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):
        # Rows of different lengths, or tensors that numpy cannot read.
        raise ArgumentTypeError(place, "must be an integer or integers", value) from None
    is_wide = array.dtype == object and all(type(number) is int for number in array.flat)
    has_bool = array.dtype == bool or (isinstance(value, list) and array.ndim == 1 and holds_bool(value))
    if not has_bool and (array.dtype.kind in "iu" or not array.size or is_wide):
        return array
    if array.ndim != 1:
        raise ArgumentTypeError(place, "must be an integer or integers", value)
    # The error names the entry that is not an integer. Otherwise they are integers without a common dtype.
    entries = enumerate(value if isinstance(value, list | tuple) else array)
    return np.array([integer(f"{place}[{number}]", entry) for number, entry in entries], dtype=object)


def indices(place: str, value: Any) -> Ids:
    """Returns sample ids, one integer or a sequence or array of them, as a read-only copy.

    Returns:
        int64 array of shape (m,), m positive.

    Raises:
        ArgumentTypeError: `value` has no order, is not flat, or an entry is not an integer.
        ArgumentRangeError: there are no ids, or one is negative or above 2^63 - 1.
    """
    if isinstance(value, str | bytes | dict) or not (
        hasattr(value, "__index__") or hasattr(value, "__array__") or isinstance(value, Iterable)
    ):
        raise ArgumentTypeError(place, "must be integers", value)
    if isinstance(value, set | frozenset):
        raise ArgumentTypeError(place, "must have an order", value, hint="give sorted(...)")
    entries = value if hasattr(value, "__array__") else _listed(value)
    array = np.atleast_1d(integers(place, entries))
    if array.ndim != 1:
        raise ArgumentTypeError(place, "must be a flat list of integers", value)
    if array.size == 0:
        raise ArgumentRangeError(place, "must not be empty", value)
    if array.min() < 0:
        raise ArgumentRangeError(place, "must not hold a negative id", int(array.min()))
    if array.max() > INT64_MAX:
        raise ArgumentRangeError(place, "holds an id above 2^63 - 1", int(array.max()))
    return read_only(array.astype(np.int64))


def weights(place: str, value: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Returns weights, one number or a flat list or array of them, as a read-only copy.

    Raises:
        ArgumentTypeError: an entry is not a number.
        ArgumentRangeError: there are no weights, one is negative, NaN or infinite, or all are zero.
    """
    array = _numbers(value, place)
    if array.size == 0:
        raise ArgumentRangeError(place, "must not be empty", value)
    wrong = np.flatnonzero(~np.isfinite(array) | (array < 0))
    if wrong.size:
        first = int(wrong[0])
        raise ArgumentRangeError(f"{place}[{first}]", "must be finite and not negative", float(array[first]))
    if not array.any():
        raise ArgumentRangeError(place, "must not all be zero", array.tolist())
    return read_only(array)


def _numbers(value: Any, place: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Returns one number, or a flat list or array of them, as a flat array."""
    numbers = int | float | np.integer | np.floating
    entries = value if hasattr(value, "__array__") else [value] if isinstance(value, numbers) else value
    if isinstance(entries, str | bytes | dict | set | frozenset) or not hasattr(entries, "__iter__"):
        raise ArgumentTypeError(place, "must be a list of numbers", value)
    if not hasattr(entries, "__array__"):
        entries = list(entries)
        for number, entry in enumerate(entries):
            if not isinstance(entry, numbers) and not _is_scalar_array(entry):
                raise ArgumentTypeError(f"{place}[{number}]", "must be a number", entry)
    elif not _is_flat(entries):
        raise ArgumentTypeError(place, "must be a flat array of numbers", value)
    try:
        return np.asarray(entries).astype(np.float64)
    except OverflowError:
        raise ArgumentRangeError(place, "holds a number that is too large", value) from None


def _listed(value: Any) -> Any:
    if isinstance(value, range) and max(abs(value.start), abs(value.stop)) <= INT64_MAX:
        return np.arange(value.start, value.stop, value.step)
    return [value] if hasattr(value, "__index__") else list(value)


def _is_flat(entries: Any) -> bool:
    try:
        array = np.asarray(entries)
    except (TypeError, RuntimeError):
        # A tensor on a GPU, with a gradient, or of numbers that numpy lacks.
        return False
    return array.ndim == 1 and array.dtype.kind in "iufb"


def _is_scalar_array(entry: Any) -> bool:
    return hasattr(entry, "__array__") and np.asarray(entry).ndim == 0


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Makes an array read-only."""
    array.flags.writeable = False
    return array
