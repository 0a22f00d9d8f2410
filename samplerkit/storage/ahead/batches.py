"""Prefetching of whole batches, one ahead, for orders whose batches have samples of many files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.cache import ReadAheadCache
from samplerkit.storage.ahead.cache_entries import CacheLimits, FileStats
from samplerkit.storage.ahead.uses import MAX_OVERTAKEN
from samplerkit.storage.threads import weak_method

MAX_BYTES = 256 << 20
"""Batches with more bytes are not prefetched."""


@dataclass(frozen=True, eq=False)
class SampleBatch:
    """A batch of samples that were read together.

    Args:
        samples: the samples; None if they were too large to be prefetched.
        num_bytes: the bytes read for them.
        path: always empty; the cache requires this attribute.
    """

    samples: list[Any] | None
    num_bytes: int
    path: str = ""


@final
class BatchesAhead:
    """Prefetches upcoming batches: while one is processed, the next one is read in a thread.

    Args:
        read: reads a batch; also called from that thread.
        upcoming: the ids of each upcoming batch; iterated a bounded number of ids ahead.
    """

    def __init__(self, read: Callable[[Ids], SampleBatch], upcoming: Iterable[Any]) -> None:
        self._read_now = read
        self._expected: dict[int, Ids] = {}
        self._new_numbers: list[int] = []
        self._num_bytes = 0
        # For the cache each batch is a file that is used once.
        limits = CacheLimits(max_files=3, max_bytes=None, read_ahead=1, threads=1, keeps_unneeded=False)
        self._cache = ReadAheadCache(weak_method(self._read), 1, limits, FileStats())
        self._cache.expect(self._numbered(upcoming), weak_method(self._numbers))

    @property
    def is_valid(self) -> bool:
        """Whether the batches that are read are still the expected ones."""
        return self._cache.is_expecting

    def read(self, ids: Ids) -> list[Any]:
        """Returns the samples of a batch, read now if it is unexpected; many such batches end prefetching."""
        numbers = self._cache.begin(ids)
        if not numbers:
            if not self.is_valid:
                self.close(waits=False)
            return self._samples_now(ids)
        number, samples = numbers[0], None
        expected = self._expected.get(number)
        try:
            # The cache compared the size, the first and the last id; here all ids are compared.
            if expected is not None and np.array_equal(expected, ids):
                with self._cache.using(number) as batch:
                    samples = batch.samples
        finally:
            self._cache.end()
            for finished in (number, number - 2 * MAX_OVERTAKEN):
                self._expected.pop(finished, None)
        return self._samples_now(ids) if samples is None else samples

    def close(self, *, waits: bool = True) -> None:
        """Ends the thread after its current read; with `waits`, waits for it, at most a second."""
        self._cache.close(waits=waits)

    def _samples_now(self, ids: Ids) -> list[Any]:
        batch = self._read_now(ids)
        self._num_bytes = batch.num_bytes
        return [] if batch.samples is None else batch.samples

    def _read(self, number: int) -> SampleBatch:
        expected = self._expected.get(number)
        if expected is None or self._num_bytes > MAX_BYTES:
            return SampleBatch(None, 0)
        batch = self._read_now(expected)
        self._num_bytes = batch.num_bytes
        return batch

    def _numbered(self, upcoming: Iterable[Any]) -> Iterator[Ids]:
        for number, ids in enumerate(upcoming):
            self._expected[number] = np.asarray(ids, dtype=np.int64)
            self._new_numbers.append(number)
            yield self._expected[number]

    def _numbers(self, _: Ids) -> Ids:
        """Returns for each id the number of its batch, over all batches taken since the last call."""
        numbers, self._new_numbers = self._new_numbers, []
        return np.repeat(numbers, [self._expected[number].size for number in numbers])
