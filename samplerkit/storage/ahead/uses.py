"""The upcoming uses of files, known from the upcoming ids within a bounded lookahead."""

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from samplerkit.order.typing import Ids

NEVER = float("inf")
"""The next use of a file without a known next use."""

MAX_USES = 1 << 15
"""The most uses of the lookahead; a use is one file in one batch."""

MAX_MISTAKES = 8
"""Consecutive unexpected batches after which the plan counts as wrong."""

MAX_OVERTAKEN = 16
"""By how many batches a batch may be late if several threads read; later, it is not expected any more."""

_MIN_IDS = 8192
_IDS_AHEAD_PER_ID = 16
_IDS_PER_EMPTY_BATCH = 1024

Mark = tuple[int, ...]
"""Identifies a batch: its size, first and last id."""


class Uses:
    """The uses of files by upcoming batches.

    It looks ahead until it knows the next `num_files` files, or `MAX_USES` uses. Each batch that is read
    extends the lookahead by at most a multiple of its size, so that no step waits for a long lookahead.

    Several threads may read batches, which they begin nearly in order.

    Args:
        upcoming: the ids of each upcoming batch, computed lazily; batches without ids are skipped. None if
            they are not known.
        file_of: returns the file of each id.
        num_files: the number of distinct upcoming files to know.
    """

    def __init__(self, upcoming: Iterable[Any] | None, file_of: Callable[[Ids], Ids], num_files: int) -> None:
        self._upcoming: Iterator[Any] | None = None if upcoming is None else iter(upcoming)
        self._file_of = file_of
        self._num_files = num_files
        self._batches: deque[tuple[int, Mark, set[int]]] = deque()
        self._uses: dict[int, deque[int]] = {}
        self._num_batches = 0  # batches taken from `upcoming`
        self._current: dict[int, tuple[int, set[int]]] = {}  # the batch of each thread, and its files
        self._num_uses = 0
        self._mistakes = MAX_MISTAKES if upcoming is None else 0
        self._extend(_MIN_IDS)

    @property
    def is_valid(self) -> bool:
        """Whether the batches that are read are still the expected ones."""
        return self._mistakes < MAX_MISTAKES

    def begin(self, ids: Ids) -> None:
        """Starts a batch of this thread."""
        while not self._batches and self._upcoming is not None:
            self._extend(_MIN_IDS)
        current, candidates = _mark(ids), enumerate(islice(self._batches, MAX_OVERTAKEN))
        place = next((place for place, (_, mark, _) in candidates if mark == current), None)
        if place is None:
            self._mistakes += 1
            return
        self._mistakes = 0
        self.end()
        number, _, files = self._batches[place]
        del self._batches[place]
        self._current[threading.get_ident()] = number, files
        while self._batches and self._batches[0][0] <= number - MAX_OVERTAKEN:
            late, _, overtaken = self._batches.popleft()
            self._remove(late, overtaken)
        self._extend(max(_MIN_IDS, _IDS_AHEAD_PER_ID * ids.size))

    def used(self, file: int) -> None:
        """Notes that the current batch of this thread no longer needs a file."""
        current = self._current.get(threading.get_ident())
        if current is not None and file in current[1]:
            current[1].remove(file)
            self._remove(current[0], (file,))

    def end(self) -> None:
        """Ends the current batch of this thread."""
        self._remove(*self._current.pop(threading.get_ident(), (0, ())))

    def next_use(self, file: int, after: float = -1) -> float:
        """Returns the number of the next batch that uses a file, `NEVER` if none is known.

        Args:
            file: the number of the file.
            after: the number of a batch; only later batches count.
        """
        uses = self._uses.get(file)
        if not uses or uses[-1] <= after:
            return NEVER
        return uses[0] if uses[0] > after else uses[bisect_right(uses, after)]

    def upcoming_files(self, cached: Iterable[int] = ()) -> list[tuple[int, int]]:
        """Returns pairs of next batch and file for the used files that are not in `cached`, in no order."""
        # Called at each use of a file, when mostly all files are cached, so sets are compared first.
        return [(self._uses[file][0], file) for file in self._uses.keys() - cached]

    def _remove(self, number: int, files: Collection[int]) -> None:
        """Removes the uses of some files by a batch."""
        for file in files:
            uses = self._uses[file]
            uses.remove(number)  # nearly always the first one
            if not uses:
                del self._uses[file]
        self._num_uses -= len(files)

    def _extend(self, max_ids: int) -> None:
        """Takes batches with some `max_ids` ids, until enough files or uses are known."""
        while self._upcoming is not None and max_ids > 0:
            if self._batches and (len(self._uses) >= self._num_files or self._num_uses >= MAX_USES):
                return
            ids = next(self._upcoming, None)
            if ids is None:
                self._upcoming = None  # it may refer to a dataset that is dropped
                return
            max_ids -= ids.size or _IDS_PER_EMPTY_BATCH
            if ids.size:
                self._add(np.asarray(ids, dtype=np.int64))

    def _add(self, ids: Ids) -> None:
        """Adds an upcoming batch."""
        files = set(self._file_of(ids).tolist())
        self._batches.append((self._num_batches, _mark(ids), files))
        for file in files:
            self._uses.setdefault(file, deque()).append(self._num_batches)
        self._num_uses += len(files)
        self._num_batches += 1


def _mark(ids: Ids) -> Mark:
    return (ids.size, int(ids[0]), int(ids[-1])) if ids.size else (0,)
