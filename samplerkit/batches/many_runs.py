"""Thousands of runs, each permuted within itself, and a few places of many of them looked up at once."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from samplerkit.order.files import distinct
from samplerkit.order.intervals import edges_of, interval_of, numbers_in
from samplerkit.order.keys import Key, keyed_hash
from samplerkit.order.permutation import (
    NARROW_LIMIT,
    ROUNDS,
    Network,
    backward,
    forward,
    half_modular_domain,
)
from samplerkit.order.typing import Ids

IN_A_TABLE = 128
"""Runs up to this size are permuted by a table. Networks of that size pass the tests of the larger ones."""

_HASH_BITS = 40
_KEY_WORDS = 3


@final
class ManyRuns:
    """Permutes the places of runs, each run within itself, by one key.

    `BlockShuffle` takes the words of a block from a digest, one block after another. Lengths that are packed
    make a run each, and a pack has places of a dozen of them: so here all words are one hash of many numbers.

    Args:
        starts: the first place of each run and the number of places at the end; int64 of shape (runs + 1,).
        key: where the randomness comes from.

    Example:
        >>> runs = ManyRuns(np.array([0, 3, 500]), Key(seed=1, epoch=0, depth=0, role="batch members"))
        >>> places = runs.forward(np.arange(500))
        >>> sorted(places[:3].tolist()), runs.backward(places).tolist() == list(range(500))
        ([0, 1, 2], True)
    """

    def __init__(self, starts: Ids, key: Key) -> None:
        self._starts = starts
        sizes = np.diff(starts)
        self._is_small = sizes <= IN_A_TABLE
        # The places of small runs stand in one table, one run after another.
        self._small_starts = edges_of(np.where(self._is_small, sizes, 0))
        self._tables: dict[bool, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = {}
        self._words = key.words(2 * _KEY_WORDS)

    def forward(self, places: Ids) -> Ids:
        """Gives where each place is moved to."""
        return self._permuted(places, inverse=False)

    def backward(self, places: Ids) -> Ids:
        """Gives what is moved to each place: the inverse of `forward`."""
        return self._permuted(places, inverse=True)

    def _permuted(self, places: Ids, *, inverse: bool) -> Ids:
        run = interval_of(self._starts, places)
        first = self._starts[run]
        moved = np.empty_like(places)
        is_small = self._is_small[run]
        at = np.flatnonzero(is_small)
        if at.size:
            moved[at] = self._by_table(run[at], places[at] - first[at], inverse=inverse)
        at = np.flatnonzero(~is_small)
        if at.size:
            is_wide = self._starts[run[at] + 1] - first[at] >= NARROW_LIMIT
            for part in (at[~is_wide], at[is_wide]):
                if part.size:
                    evaluate = backward if inverse else forward
                    moved[part] = evaluate(self._network(run[part]), places[part] - first[part])
        moved += first
        return moved

    def _by_table(self, run: Ids, rows: Ids, *, inverse: bool) -> Ids:
        if inverse not in self._tables:
            size = int(self._small_starts[-1])
            self._tables[inverse] = np.empty(size, np.uint8), np.zeros(self._is_small.size, dtype=bool)
        table, is_made = self._tables[inverse]
        missing = run[~is_made[run]]
        if missing.size:
            missing = np.unique(missing)
            self._make(table, missing, inverse=inverse)
            # Last: another thread may look at the same moment.
            is_made[missing] = True
        found: Ids = table[self._small_starts[run] + rows].astype(np.int64)
        return found

    def _make(self, table: np.ndarray[Any, Any], runs: Ids, *, inverse: bool) -> None:
        """Sorts the rows of runs by keyed hashes of their places, all in one go."""
        sizes = self._starts[runs + 1] - self._starts[runs]
        which = np.repeat(np.arange(runs.size), sizes)
        begins = np.cumsum(sizes) - sizes
        hashes = keyed_hash(self._words[:_KEY_WORDS], numbers_in(self._starts[runs], sizes))
        shift = np.uint64(64 - _HASH_BITS)
        by_run = (which.astype(np.uint64) << np.uint64(_HASH_BITS)) | (hashes >> shift)
        rows = np.argsort(by_run, kind="stable") - begins[which]
        if inverse:
            back = np.empty_like(rows)
            back[begins[which] + rows] = np.arange(rows.size) - begins[which]
            rows = back
        table[numbers_in(self._small_starts[runs], sizes)] = rows

    def _network(self, run: Ids) -> Network:
        """Makes the networks of places in runs that are all below `NARROW_LIMIT`, or all above."""
        runs, which = distinct(run)
        sizes = self._starts[runs + 1] - self._starts[runs]
        word = np.uint32 if int(sizes[0]) < NARROW_LIMIT else np.uint64
        domains = np.array([half_modular_domain(size) for size in sizes.tolist()]).astype(word)[which]
        counters = runs * (2 * ROUNDS) + np.arange(2 * ROUNDS)[:, None]
        constants: Any = keyed_hash(self._words[_KEY_WORDS:], counters).astype(word)
        constants[:ROUNDS] |= word(1)
        constants = constants[:, which]
        return Network(
            sizes.astype(word)[which],
            domains[:, 0],
            domains[:, 1],
            tuple(constants[:ROUNDS]),
            tuple(constants[ROUNDS:]),
        )
