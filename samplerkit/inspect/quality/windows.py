"""The windows in which an order is looked at: a batch, two batches, four, up to sixty-four."""

from __future__ import annotations

from samplerkit.errors import ArgumentRangeError

DOUBLINGS = 7
"""How many windows there are: the batch size times 2^0 to 2^6."""


def window_sizes(num_samples: int, batch_size: int) -> tuple[int, ...]:
    """Gives the sizes of the windows, in samples.

    They are the batch size times 1, 2, 4, up to 64, as far as they hold at least two samples and at most half
    of the order. Where already a batch holds more than half, half of the order is the only window.

    Raises:
        ArgumentRangeError: the order has fewer than four samples, so that no window tells anything.

    Example:
        >>> window_sizes(1000, 100), window_sizes(1000, 1), window_sizes(100, 64)
        ((100, 200, 400), (2, 4, 8, 16, 32, 64), (50,))
    """
    if num_samples < 4:
        raise ArgumentRangeError("dataset", "has too few samples to speak of mixing", num_samples)
    half = num_samples // 2
    doubled = (batch_size << doubling for doubling in range(DOUBLINGS))
    return tuple(window for window in doubled if 2 <= window <= half) or (half,)
