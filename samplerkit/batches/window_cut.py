"""How a window is cut: what a recipe is told, and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from samplerkit.batches.segments import Segments
from samplerkit.errors import ArgumentTypeError, ArgumentValueError
from samplerkit.order.keys import Key
from samplerkit.order.typing import Ids


@final
@dataclass(frozen=True)
class WindowContext:
    """Where and when a window is cut.

    Args:
        epoch: the epoch, from 0.
        window: the number of the window, from 0.
        seed: of the sampler.
        abreast: batches in a group.
    """

    epoch: int
    window: int
    seed: int
    abreast: int

    def key(self, role: str) -> Key:
        """Gives the key for a role, at most 16 ASCII characters; its words are `words(count, window)`."""
        return Key(self.seed, self.epoch, 0, role)


@final
@dataclass(frozen=True, eq=False)
class CutSegments:
    """A window that was cut into packs of parts of its samples.

    Args:
        places: the place in the window of the sample of each part, batch after batch.
        edges: where each batch begins and, last, where the last one ends.
        segments: the parts.
    """

    places: Ids
    edges: Ids
    segments: Segments


CutFunction = Callable[[Ids, Ids, WindowContext], Sequence[Ids] | CutSegments]
"""Cuts the samples of a window into batches: a recipe's one method, or what makes packs."""

Even = Callable[[list[Ids], Ids, Ids, int], list[Ids]]
"""Brings the batches of a window to a number, as `BatchRecipe.evened` does."""


def checked_cut(batches: Any, size: int) -> list[Ids]:
    """Checks what a recipe cut: places in the window, none twice, and no empty batch.

    Raises:
        ArgumentTypeError: no arrays of integers.
        ArgumentValueError: a place outside of the window, twice, or a batch without samples.
    """
    if not isinstance(batches, Sequence):
        raise ArgumentTypeError("cut", "must give a list of arrays, one a batch", batches)
    arrays = [np.asarray(batch) for batch in batches]
    for number, batch in enumerate(arrays):
        if batch.ndim != 1 or (batch.dtype.kind not in "iu"):
            raise ArgumentTypeError(f"cut: batch {number}", "must be a flat array of integers", batch)
        if not batch.size:
            raise ArgumentValueError(f"cut: batch {number}", "must not be empty", batch)
    if not arrays:
        return []
    places = np.concatenate(arrays)
    if places.min() < 0 or places.max() >= size:
        outside = places[(places < 0) | (places >= size)]
        raise ArgumentValueError(
            "cut",
            f"gives a place outside of a window of {size}",
            int(outside[0]),
            mend="give places, not ids",
        )
    twice = np.flatnonzero(np.bincount(places, minlength=size) > 1)
    if twice.size:
        raise ArgumentValueError("cut", "gives a place twice", int(twice[0]), mend="give each place once")
    return [batch.astype(np.int64, copy=False) for batch in arrays]
