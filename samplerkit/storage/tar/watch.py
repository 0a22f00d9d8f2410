"""Notices that a shuffled dataset is read from front to back."""

from __future__ import annotations

import warnings
from typing import final

from samplerkit.storage.workers import this_worker

ENOUGH = 16
"""Ascending ids by which reading from front to back is recognised: by chance once in 2 * 10^13."""


@final
class OrderWatch:
    """Warns once if a plain DataLoader reads a shuffled dataset in the order in which it lies.

    The window of `.shuffle(n)` is the default of samplerkit's own loader and samplers. A plain DataLoader
    does not know of it.
    """

    def __init__(self) -> None:
        self._last = -1
        self._ascending = 0
        self._is_over = False

    def stop(self) -> None:
        """Says that the order was chosen, whatever it is."""
        self._is_over = True

    def see(self, ids: list[int]) -> None:
        """Looks at ids that are read; of the workers of a loader, one is enough."""
        if self._is_over or this_worker()[0] != 0:
            return
        for id in ids:
            if id <= self._last:
                self._is_over = True
                return
            self._last = id
            self._ascending += 1
            if self._ascending >= ENOUGH:
                self._is_over = True
                warnings.warn(
                    "a dataset with .shuffle(...) is read from front to back: a plain DataLoader does not "
                    "know of the window; use samplerkit.Loader, or sampler=samplerkit.TorchSampler(...)",
                    stacklevel=4,
                )
                return
