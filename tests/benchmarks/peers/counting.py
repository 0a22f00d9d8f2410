"""Counting what an epoch has lost and repeated. It knows ids only, and imports nothing of ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def lost_and_repeated(size: int, received: Iterable[int]) -> tuple[int, int]:
    """Counts the samples of an epoch that never came, and the arrivals beyond the first of each.

    Args:
        size: the number of samples; their ids are 0 to size - 1.
        received: the ids that the training loops of all ranks received, before and after.

    Raises:
        ValueError: an id is of no sample.
    """
    arrivals = Counter(received)
    strangers = [id for id in arrivals if not 0 <= id < size]
    if strangers:
        raise ValueError(f"ids outside of {size} samples: {strangers[:5]}")
    return size - len(arrivals), arrivals.total() - len(arrivals)
