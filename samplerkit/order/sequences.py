"""Orders that stand on their own: a range, a table, and draws with replacement."""

from __future__ import annotations

from typing import Any, Final, final

import numpy as np

from samplerkit.errors import InverseTooLargeError
from samplerkit.order.intervals import Borders, numbers_in
from samplerkit.order.keys import Key, keyed_hash, scaled
from samplerkit.order.located import Located
from samplerkit.order.once import once
from samplerkit.order.order import Order
from samplerkit.order.permutation import Permutation
from samplerkit.order.typing import Ids, Words

SCAN_LIMIT = 1 << 26
"""The longest order that `positions_of` scans where there is no arithmetic."""

_HASH_WORDS = 3


def found(positions: Ids, valid: Any) -> Located:
    """Turns one candidate position for each id, valid or not, into what `Order.locate` returns."""
    which = np.flatnonzero(valid)
    return which, positions[which]


class Occurrences:
    """An index of where each id stands in an array of ids that may repeat.

    Args:
        ids: int64 array of shape (n,).
    """

    def __init__(self, ids: Ids) -> None:
        self._positions = np.argsort(ids, kind="stable")
        self._sorted = ids[self._positions]

    def locate(self, ids: Ids) -> Located:
        """Finds the positions of ids, as `Order.locate`."""
        first = np.searchsorted(self._sorted, ids, side="left")
        counts = np.searchsorted(self._sorted, ids, side="right") - first
        return np.repeat(np.arange(ids.size), counts), self._positions[numbers_in(first, counts)]

    @once
    def turns(self) -> Ids:
        """How often the id of each position stands before it: int64 array of shape (n,)."""
        first = np.searchsorted(self._sorted, self._sorted, side="left")
        turns = np.empty_like(self._positions)
        turns[self._positions] = np.arange(first.size) - first
        return turns


@final
class Range(Order):
    """The ids start, start + 1, ..., start + length - 1."""

    def __init__(self, start: int, length: int) -> None:
        self.start = start
        self._length = length

    @property
    def recipe(self) -> tuple[object, ...]:
        return self.start, self._length

    def __len__(self) -> int:
        return self._length

    def ids_at(self, positions: Ids) -> Ids:
        return positions + self.start if self.start else positions

    def locate(self, ids: Ids) -> Located:
        positions = ids - self.start
        return found(positions, (positions >= 0) & (positions < self._length))


@final
class Permuted(Order):
    """All ids of [0, n) in the order of a keyed permutation."""

    def __init__(self, size: int, key: Key) -> None:
        self.permutation: Final = Permutation(size, key)
        self._key = key

    @property
    def recipe(self) -> tuple[object, ...]:
        return self.permutation.size, self._key

    def __len__(self) -> int:
        return self.permutation.size

    def ids_at(self, positions: Ids) -> Ids:
        return self.permutation.forward(positions)

    def locate(self, ids: Ids) -> Located:
        which = np.flatnonzero((ids >= 0) & (ids < len(self)))
        return which, self.permutation.backward(ids[which])


@final
class Table(Order):
    """Ids that were written down: an array, of which a copy is kept unless it is read-only."""

    def __init__(self, ids: Ids) -> None:
        self._ids = np.array(ids, dtype=np.int64) if ids.flags.writeable else np.asarray(ids, dtype=np.int64)
        self._ids.flags.writeable = False

    @property
    def recipe(self) -> tuple[object, ...]:
        return (self._ids,)

    def __len__(self) -> int:
        return self._ids.size

    def ids_at(self, positions: Ids) -> Ids:
        return self._ids[positions]

    @once
    def num_passes(self) -> int:
        return int(self._occurrences.turns.max(initial=0)) + 1

    def passes_at(self, positions: Ids) -> Ids:
        return self._occurrences.turns[positions]

    def locate(self, ids: Ids) -> Located:
        return self._occurrences.locate(ids)

    @once
    def _occurrences(self) -> Occurrences:
        return Occurrences(self._ids)


@final
class DrawsWithReplacement(Order):
    """Independent draws with replacement: position p draws by the hash of p, so any p can be asked for.

    Args:
        length: the number of draws.
        key: where the randomness comes from.
        population: the number of ids to draw from, each as likely as any other.
        cumulative: instead, the cumulative integer weights of the ids, int64 of shape (ids,).
    """

    def __init__(self, length: int, key: Key, population: int = 0, cumulative: Ids | None = None) -> None:
        self._length = length
        self._words: Words = key.words(_HASH_WORDS)
        self._cumulative = None if cumulative is None else Borders(cumulative)
        self._total = population if cumulative is None else int(cumulative[-1])

    @property
    def recipe(self) -> tuple[object, ...]:
        cumulative = None if self._cumulative is None else self._cumulative.borders
        return self._length, self._words, self._total, cumulative

    def __len__(self) -> int:
        return self._length

    def ids_at(self, positions: Ids) -> Ids:
        drawn = scaled(keyed_hash(self._words, positions), self._total)
        if self._cumulative is None:
            return drawn
        return self._cumulative.passed(drawn)

    def locate(self, ids: Ids) -> Located:
        return self._occurrences.locate(ids)

    @once
    def _occurrences(self) -> Occurrences:
        if self._length > SCAN_LIMIT:
            raise InverseTooLargeError(
                "positions_of",
                f"draws with replacement have no inverse but a scan, limited to {SCAN_LIMIT} draws",
                self._length,
                mend="use replacement=False, or ask about a shorter num_samples",
            )
        return Occurrences(np.asarray(self))
