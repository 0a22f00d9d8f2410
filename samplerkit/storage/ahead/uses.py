"""The upcoming uses of files by a process, computed from its upcoming ids within a bounded lookahead."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, final

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

Mark = tuple[int, ...]
"""Identifies a batch: its size, first and last id."""


@final
class Uses:
    """The uses of files by upcoming batches.

    It looks ahead until it knows the next `num_files` files, or `MAX_USES` uses. Each batch that is read
    extends the lookahead by at most a multiple of its size, so that no step waits for a long lookahead. If
    `upcoming` is a `Share`, the lookahead also pauses when `try_next` returns None.

    Several threads may read batches, which they begin nearly in order.

    Args:
        upcoming: the ids of each upcoming batch, computed lazily.
        file_of: returns the file of each id.
        num_files: the number of distinct upcoming files to know.
    """

    def __init__(self, upcoming: Iterable[Any], file_of: Callable[[Ids], Ids], num_files: int) -> None:
        self._upcoming: Iterator[Any] | None = iter(upcoming)
        self._is_paused = False
        self._file_of = file_of
        self._num_files = num_files
        self._batches: deque[tuple[int, Mark, list[int]]] = deque()
        self._uses: dict[int, deque[int]] = {}
        self._num_batches = 0  # batches taken from `upcoming`
        self._current: dict[int, tuple[int, list[int]]] = {}  # the batch of each thread, and its files
        self._num_uses = 0
        self._mistakes = 0
        self._extend(_MIN_IDS)

    @property
    def is_valid(self) -> bool:
        """Whether the batches that are read are still the expected ones."""
        return self._mistakes < MAX_MISTAKES

    def begin(self, ids: Ids) -> list[int]:
        """Starts a batch of this thread, and returns its files; none if the batch was not expected."""
        while not self._batches and self._upcoming is not None:
            self._extend(_MIN_IDS)
        current, candidates = _mark(ids), enumerate(islice(self._batches, MAX_OVERTAKEN))
        place = next((place for place, (_, mark, _) in candidates if mark == current), None)
        if place is None:
            self._mistakes += 1
            return []
        self._mistakes = 0
        self.end()
        number, _, files = self._batches[place]
        del self._batches[place]
        self._current[threading.get_ident()] = number, files
        while self._batches and self._batches[0][0] <= number - MAX_OVERTAKEN:
            late, _, overtaken = self._batches.popleft()
            self._remove_uses(late, overtaken)
        self._extend(max(_MIN_IDS, _IDS_AHEAD_PER_ID * ids.size))
        return files

    def used(self, file: int) -> None:
        """Notes that the current batch of this thread no longer needs a file."""
        if (current := self._current.get(threading.get_ident())) is not None:
            self._remove_uses(current[0], (file,))

    def end(self) -> None:
        """Ends the current batch of this thread."""
        if (current := self._current.pop(threading.get_ident(), None)) is not None:
            self._remove_uses(*current)

    def _remove_uses(self, number: int, files: Iterable[int]) -> None:
        """Removes the uses of some files by a batch."""
        for file in files:
            uses = self._uses.get(file)
            if not uses or uses[0] > number:
                continue
            place = 0 if uses[0] == number else bisect_left(uses, number)
            if place == len(uses) or uses[place] != number:
                continue
            del uses[place]
            self._num_uses -= 1
            if not uses:
                del self._uses[file]

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

    def upcoming_files(self, cached: Iterable[Any] = ()) -> list[tuple[int, int]]:
        """Returns pairs of next batch and file for the used files that are not in `cached`, in no order."""
        # Called at each use of a file, when mostly all files are cached, so sets are compared first.
        return [(self._uses[file][0], file) for file in self._uses.keys() - cached]

    def _extend(self, max_ids: int) -> None:
        self._is_paused = False
        while (
            self._upcoming is not None
            and not self._is_paused
            and max_ids > 0
            and (not self._batches or (len(self._uses) < self._num_files and self._num_uses < MAX_USES))
        ):
            max_ids -= self._take(min(max_ids, _MIN_IDS))

    def _take(self, num_ids: int) -> int:
        """Takes more batches from `upcoming`; returns the number of their ids."""
        batches: list[Ids] = []
        count = 0
        try_next = getattr(self._upcoming, "try_next", None)
        while count < num_ids and self._upcoming is not None:
            try:
                ids = next(self._upcoming) if try_next is None else try_next()
            except StopIteration:
                self._upcoming = None
                break
            if ids is None:
                self._is_paused = True
                break
            batches.append(np.asarray(ids, dtype=np.int64))
            count += max(1, batches[-1].size)
        for ids, files in zip(batches, self._files_of(batches), strict=True):
            self._batches.append((self._num_batches, _mark(ids), files))
            for file in files:
                self._uses.setdefault(file, deque()).append(self._num_batches)
            self._num_uses += len(files)
            self._num_batches += 1
        return count

    def _files_of(self, batches: list[Ids]) -> list[list[int]]:
        """Returns the distinct files of each batch."""
        if not batches:
            return []
        sizes = [ids.size for ids in batches]
        file = self._file_of(np.concatenate(batches))
        if not file.size:
            return [[] for _ in batches]
        # Neighbours mostly share a file, so after removing repeats there is little to sort.
        label = np.repeat(np.arange(len(batches)), sizes) * (int(file.max()) + 1) + file
        # `np.unique` would import numpy's masked arrays, which takes as long as reading hundreds of samples.
        label = _without_repeats(np.sort(_without_repeats(label)))
        batch, file = np.divmod(label, int(file.max()) + 1)
        borders = np.searchsorted(batch, np.arange(1, len(batches)))
        return [part.tolist() for part in np.split(file, borders)]


def _without_repeats(labels: Ids) -> Ids:
    return labels[np.flatnonzero(np.diff(labels, prepend=-1))]


def _mark(ids: Ids) -> Mark:
    return (ids.size, int(ids[0]), int(ids[-1])) if ids.size else (0,)
