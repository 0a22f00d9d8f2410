"""Whole batches that are read before they are asked for, one ahead: where a batch has parts of many files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.cache import ReadAheadCache
from samplerkit.storage.ahead.cache_entries import CacheLimits, FileStats
from samplerkit.storage.ahead.uses import MOST_MISTAKES, MOST_OVERTAKEN
from samplerkit.storage.threads import weakly

MOST_BYTES = 256 << 20
"""Bytes of a batch from which on none is read ahead."""


@dataclass(frozen=True, eq=False)
class SampleBatch:
    """Samples that were read together.

    Args:
        samples: of the batch; None where they were too large to be read ahead.
        num_bytes: that were read for it.
        path: nothing: a batch has no name.
    """

    samples: list[Any] | None
    num_bytes: int
    path: str = ""


@final
class BatchesAhead:
    """The batches that come next: while one is worked on, the next one is read in a thread.

    Args:
        read: reads a batch; called from that thread, too.
        upcoming: the ids of each batch to come; iterated over a bounded way ahead.
    """

    def __init__(self, read: Callable[[Ids], SampleBatch], upcoming: Iterable[Any]) -> None:
        self._read_now = read
        self._turn = threading.Lock()
        self._expected: dict[int, Ids] = {}
        self._begun: set[int] = set()
        self._last = -1
        self._mistakes = 0
        self._num_bytes = 0
        # To the cache each batch is a file that is used once.
        limits = CacheLimits(max_files=3, max_bytes=None, read_ahead=1, threads=1, keeps_unneeded=False)
        self._cache = ReadAheadCache(weakly(self._read), 1, limits, FileStats())
        self._cache.expect(self._numbered(upcoming), lambda numbers: numbers)

    @property
    def is_right(self) -> bool:
        """Whether what is read is still what was expected."""
        return self._mistakes < MOST_MISTAKES

    def read(self, ids: Ids) -> list[Any]:
        """Returns the samples of a batch; one that was not expected is read now."""
        number = self._found(ids)
        if number is None:
            return self._now(ids)
        self._cache.begin(_as_file(number, ids))
        try:
            with self._cache.using(number) as batch:
                samples = batch.samples
        finally:
            self._cache.end()
            with self._turn:
                self._begun.discard(number)
                self._expected.pop(number, None)
        return self._now(ids) if samples is None else samples

    def close(self, *, waits: bool = True) -> None:
        """Ends the thread when it has read what it reads now; `waits` for that, for a second at most."""
        self._cache.close(waits=waits)

    def _found(self, ids: Ids) -> int | None:
        """Returns the number of an expected batch: the next one, or one beside it where threads read."""
        # Of several threads that want the same batch, one gets what was read ahead.
        with self._turn:
            for number in range(self._last - MOST_OVERTAKEN, self._last + MOST_OVERTAKEN):
                expected = None if number in self._begun else self._expected.get(number)
                if expected is not None and np.array_equal(expected, ids):
                    self._begun.add(number)
                    self._last = max(self._last, number)
                    self._expected.pop(number - 2 * MOST_OVERTAKEN, None)
                    self._mistakes = 0
                    return number
            self._mistakes += 1
            return None

    def _now(self, ids: Ids) -> list[Any]:
        batch = self._read_now(ids)
        return [] if batch.samples is None else batch.samples

    def _read(self, number: int) -> SampleBatch:
        expected = self._expected.get(number)
        if expected is None or (number not in self._begun and self._num_bytes > MOST_BYTES):
            return SampleBatch(None, 0)
        batch = self._read_now(expected)
        self._num_bytes = batch.num_bytes
        return batch

    def _numbered(self, upcoming: Iterable[Any]) -> Iterator[Ids]:
        for number, ids in enumerate(upcoming):
            self._expected[number] = np.asarray(ids, dtype=np.int64)
            yield _as_file(number, self._expected[number])


def _as_file(number: int, ids: Ids) -> Ids:
    return np.full(max(1, ids.size), number)
