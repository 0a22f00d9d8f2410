"""Keys of samples, such as shapes: each kind of them gets a number."""

from __future__ import annotations

from typing import Any, Final, final

import numpy as np

from samplerkit.batches.lengths import SampleLengths
from samplerkit.errors import ArgumentTypeError, ArgumentValueError


@final
class SampleKeys:
    """The key of each sample, as the number of its kind.

    Args:
        given: an array of shape (n,) or (n, k), or a list of hashable values.

    Raises:
        ArgumentTypeError: no list, or a key that cannot be hashed.
        ArgumentValueError: an array of another shape, or of floats that hold NaN.

    Example:
        >>> keys = SampleKeys([(64, 64), (64, 96), (64, 64)])
        >>> keys.values, keys.numbers.at(np.arange(3))
        (((64, 64), (64, 96)), array([0, 1, 0]))
    """

    def __init__(self, given: Any) -> None:
        if isinstance(given, str | bytes | dict | set | frozenset) or not hasattr(given, "__len__"):
            raise ArgumentTypeError("keys", "must be a list or an array, one key a sample", given)
        values, numbers = _of_array(np.asarray(given)) if hasattr(given, "__array__") else _of_list(given)
        self.values: Final = values
        self.numbers: Final = SampleLengths(numbers, "keys")


def _of_array(array: np.ndarray[Any, Any]) -> tuple[tuple[Any, ...], np.ndarray[Any, Any]]:
    if array.ndim not in {1, 2} or array.dtype.kind not in "iubUSf":
        raise ArgumentValueError(
            "keys", "must be numbers or strings of shape (n,) or (n, k)", (array.dtype.name, array.shape)
        )
    if array.dtype.kind == "f" and np.isnan(array).any():
        first = int(np.argwhere(np.isnan(array))[0][0])
        raise ArgumentValueError(f"keys[{first}]", "must not be NaN", float("nan"))
    values, numbers = np.unique(array, axis=0, return_inverse=True)
    listed = values.tolist()
    kinds = tuple(tuple(key) if isinstance(key, list) else key for key in listed)
    return kinds, numbers.reshape(-1)


def _of_list(given: Any) -> tuple[tuple[Any, ...], np.ndarray[Any, Any]]:
    seen: dict[Any, int] = {}
    numbers = np.empty(len(given), dtype=np.int64)
    for place, key in enumerate(given):
        try:
            numbers[place] = seen.setdefault(key, len(seen))
        except TypeError:
            raise ArgumentTypeError(
                f"keys[{place}]", "cannot be hashed", key, mend="give a tuple in place of a list"
            ) from None
    return tuple(seen), numbers
