"""Where samples stand: what the inverse of an order, or of a plan, gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from samplerkit.order.arguments import LARGEST, integers
from samplerkit.order.typing import Ids

Located = tuple[Ids, Ids]
"""Which of the ids asked for, and a position of it: two arrays of one length."""


def sought(ids: Any, locate: Callable[[Ids], Located]) -> Ids | Located:
    """Looks up what a user names: one id, or an array of them.

    Args:
        ids: what was given.
        locate: finds all places of ids, as `Order.locate` does.

    Returns:
        For one id its places, ascending; for an array the pair (which, places), sorted by both.

    Raises:
        ArgumentTypeError: an id is no integer.
    """
    wanted = integers("ids", ids)
    flat = wanted.reshape(-1)
    if flat.dtype == object:
        # Integers that no dtype holds: they occur nowhere, like those just outside.
        flat = np.clip(flat, -1, LARGEST)
    which, places = locate(flat.astype(np.int64))
    sequence = np.lexsort((places, which))
    if wanted.ndim == 0:
        return places[sequence]
    return which[sequence], places[sequence]
