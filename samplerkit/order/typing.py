"""The array types of orders."""

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
"""Sample ids or positions: int64, at least 0."""

Words = npt.NDArray[np.uint64]
"""Random words."""


def as_array(numbers: range | Ids) -> Ids:
    """Converts numbers that may be a range to an array."""
    return np.arange(numbers.start, numbers.stop, numbers.step) if isinstance(numbers, range) else numbers
