"""Prefetching of whole batches, one ahead, for orders whose batches have samples of many files."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np

from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.uses import MAX_OVERTAKEN
from samplerkit.storage.threads import Calls, Stop, join

Batch = TypeVar("Batch")


@dataclass(eq=False)
class _Expected(Generic[Batch]):
    """An upcoming batch; `reading` is None until a thread reads it."""

    number: int
    ids: Ids
    reading: Calls[Batch] | None = None


class BatchesAhead(Generic[Batch]):
    """Prefetches upcoming batches: while one is processed, the next one is read in a thread.

    Several threads may read batches, which they begin nearly in order.

    Args:
        read: reads a batch; also called from other threads.
        upcoming: the ids of each upcoming batch, of which `MAX_OVERTAKEN` are taken in advance; ones without
            ids are skipped.
    """

    def __init__(self, read: Callable[[Ids], Batch], upcoming: Iterable[Any]) -> None:
        self._read = read
        self._upcoming: Iterator[Any] = iter(upcoming)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._expected: deque[_Expected[Batch]] = deque()
        self._num_taken = 0
        self._read_ahead()

    def read(self, ids: Ids) -> Batch:
        """Returns a batch, read now if it was not prefetched."""
        reading = self._begin(ids)
        batch = self._read(ids) if reading is None else reading.next()[1]
        self._read_ahead()
        return batch

    def close(self, *, waits: bool = True) -> None:
        """Ends prefetching after the current read; with `waits`, waits for it, at most a second."""
        if os.getpid() != self._pid:  # the lock may have been held when this process was forked
            return
        with self._lock:
            self._upcoming = iter(())
            readings = [each.reading for each in self._expected if each.reading is not None]
            self._expected.clear()
        for reading in readings:
            reading.end()
        if waits:
            join(thread for reading in readings for thread in reading.threads)

    def _begin(self, ids: Ids) -> Calls[Batch] | None:
        """Begins a batch, and returns its reading, if it is one that is prefetched."""
        with self._lock:
            while self._take_upcoming() and not self._expected:
                pass  # it is needed now, so the search continues
            batch = next((each for each in self._expected if np.array_equal(each.ids, ids)), None)
            if batch is None:
                return None
            self._expected.remove(batch)
            while self._expected and self._expected[0].number <= batch.number - MAX_OVERTAKEN:
                self._expected.popleft()
            return batch.reading

    def _read_ahead(self) -> None:
        """Starts to read the next batch."""
        with self._lock:
            self._take_upcoming()
            if self._expected and self._expected[0].reading is None:
                batch = self._expected[0]
                batch.reading = Calls(Stop())
                batch.reading.start(partial(self._read, batch.ids), "samplerkit-read-ahead")

    def _take_upcoming(self) -> bool:
        """Takes upcoming batches, up to one without ids; returns whether there was such a one."""
        while len(self._expected) < MAX_OVERTAKEN:
            ids = next(self._upcoming, None)
            if ids is None:
                self._upcoming = iter(())  # the other one may refer to a dataset that is dropped
                return False
            if not ids.size:  # it may stand for a long search: see `share_of`
                return True
            self._expected.append(_Expected(self._num_taken, np.asarray(ids, dtype=np.int64)))
            self._num_taken += 1
        return False
