"""An in-memory cache of files that prefetches, and evicts by the known upcoming uses."""

import os
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.limits import CacheLimits, Content
from samplerkit.storage.ahead.uses import NEVER, Uses
from samplerkit.storage.file_stats import FileStats
from samplerkit.storage.threads import join


class ReadAheadCache(Generic[Content]):
    """A cache of files in one process: their content in memory, or open shards.

    After `expect`, the upcoming uses are known: the file whose next use is furthest in the future is evicted
    (Belady 1966), and the files that are used next are prefetched. Otherwise the least recently used file is
    evicted, and none is prefetched.

    A file that a thread uses is not evicted; if all room is taken by such files, further threads wait in a
    queue until another thread is done. Waiting threads use no file, so none blocks another.

    Args:
        read: reads a file by its number; called from several threads.
        limits: limits of the cache.
        stats: the initial counters.

    Attributes:
        rereads: the number of reads of files that had been read before, since the last `expect`.
    """

    def __init__(self, read: Callable[[int], Content], limits: CacheLimits, stats: FileStats) -> None:
        self._read = read
        self._limits = limits
        self._counts: dict[str, Any] = {**vars(stats)}  # the fields of `FileStats`
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._contents: dict[int, Content] = {}  # the least recently used file first
        self._num_bytes = self._largest = 0
        self._loading: set[int] = set()
        self._in_use: dict[int, int] = {}  # by file, how many threads use it
        self._ahead: set[int] = set()  # prefetched, also those being read, and not used yet
        self._failures: dict[int, BaseException] = {}  # of prefetching
        self._waiting: dict[int, None] = {}  # the threads that wait for room, in their order
        self._threads: list[threading.Thread] = []
        self._is_stopped = False
        self._change_uses()

    @property
    def stats(self) -> FileStats:
        """The counters so far."""
        return FileStats(**self._counts)

    @property
    def is_too_small(self) -> bool:
        """Whether the cache is certainly too small for the order given to `expect`.

        True if more files were read again than were ever in the cache at a time; a few at the borders of
        lanes are normal.
        """
        return self.rereads > int(self._counts["peak_files"])

    def expect(self, upcoming: Iterable[Any], file_of: Callable[[Ids], Ids]) -> None:
        """Receives the upcoming ids of this process, batch by batch; replaces those received before."""
        with self._changed:
            self._change_uses(upcoming, file_of)
            self._read_ahead()

    def begin(self, ids: Ids) -> None:
        """Starts a batch; after many that were not expected, upcoming uses are no longer known."""
        with self._changed:
            self._uses.begin(ids)
            if not self._uses.is_valid:
                self._change_uses()

    def end(self) -> None:
        """Ends the batch of this thread: its files may be evicted."""
        with self._changed:
            self._uses.end()
            if self._uses.is_valid and not self._limits.keeps_unneeded:
                for file in list(self._contents):
                    if self._uses.next_use(file) == NEVER and file not in self._in_use:
                        self._drop(file)
            self._read_ahead()

    def each(self, parts: dict[int, tuple[Ids, Ids]]) -> Generator[tuple[Content, Ids, Ids], None, None]:
        """Iterates over the files of a batch, those that are available first; then ends the batch.

        Args:
            parts: by file, rows in it and their positions in the batch, which are yielded with its content.
                The dict is emptied.

        Raises:
            DatasetError: as `using`.
        """
        try:
            # Not sorted in advance: while one file is processed, another one may become available.
            while parts:
                number = self._first_available(parts)
                part = parts.pop(number)
                with self.using(number) as content:
                    yield content, *part
                    del content  # else it would stay in memory while the next one is read
        finally:
            self.end()

    @contextmanager
    def using(self, file: int) -> Iterator[Content]:
        """Returns a file for the duration of a `with` block; reads it now if it was not prefetched.

        Raises:
            DatasetError: the file cannot be read, now or when it was prefetched; the next call tries again.
        """
        try:
            yield self._get(file)
        finally:
            with self._changed:
                users = self._in_use.pop(file, 1) - 1
                if users:
                    self._in_use[file] = users
                self._keep_within_limits()
                self._stop_waiting()

    def close(self, *, waits: bool = True) -> None:
        """Drops all files; threads end after their current read.

        Args:
            waits: whether to wait for the threads, at most a second.
        """
        if os.getpid() != self._pid:  # the lock may have been held when this process was forked
            return
        with self._changed:
            self._is_stopped = True
            self._change_uses()
            self._contents.clear()
            self._num_bytes = 0
            self._changed.notify_all()
        if waits:
            join(self._threads)

    def _get(self, file: int) -> Content:
        with self._changed:
            self._in_use[file] = self._in_use.get(file, 0) + 1
            self._uses.used(file)
            content = self._contents.get(file)
            if content is None:
                content = self._wait_for(file)
            else:
                self._counts["hits"] += 1
            if file in self._contents:
                self._contents[file] = self._contents.pop(file)  # the most recently used one is the last
            self._ahead.discard(file)
            self._read_ahead()
            return content

    def _first_available(self, files: Collection[int]) -> int:
        """Returns the file that is available first: one in memory, else one that is being read, else any."""
        with self._changed:
            groups = (self._contents, self._loading, files)
            return next(file for group in groups for file in files if file in group)

    # All methods below are called with the lock held.

    def _wait_for(self, file: int) -> Content:
        """Returns a file that is not in memory."""
        started = time.monotonic()
        try:
            while file not in self._contents:
                if file in self._failures:
                    raise self._failures.pop(file)
                # A file that is waited for no longer counts as prefetched, so another one can be started.
                self._ahead.discard(file)
                if file not in self._loading and self._is_first() and self._make_room(self._victim):
                    self._stop_waiting()
                    return self._load(file)
                # It is being read, or all room is taken by files that are being read or used.
                self._read_ahead()
                self._changed.wait()
            return self._contents[file]
        finally:
            self._stop_waiting()
            self._counts["waits"] += 1
            self._counts["wait_seconds"] += time.monotonic() - started

    def _load(self, file: int) -> Content:
        """Reads a file for which there is room; the lock is released while reading."""
        self._loading.add(file)
        self._counts["files_read"] += 1
        in_memory = len(self._contents) + len(self._loading)
        self._counts["peak_files"] = max(self._counts["peak_files"], in_memory)
        self._read_ahead()
        self._changed.release()
        try:
            content = self._read(file)
        finally:
            self._changed.acquire()
            self._loading.discard(file)
            self._changed.notify_all()
        if not self._is_stopped:
            self._admit(file, content)
        return content

    def _admit(self, file: int, content: Content) -> None:
        """Adds a file that was read.

        Raises:
            DatasetError: the file alone exceeds the limit of bytes.
        """
        limit, size = self._limits.max_bytes, content.num_bytes
        if limit is not None and size > limit:
            raise DatasetError(
                content.path,
                f"takes {size} bytes in memory, more than max_bytes={limit}",
                hint="allow more bytes, or split the file",
            )
        self._contents[file] = content
        self._num_bytes += size
        self._largest = max(self._largest, size)
        if self._uses.is_valid:
            self.rereads += file in self._read_files
            self._read_files.add(file)
        self._counts["bytes_read"] += size
        self._counts["peak_bytes"] = max(self._counts["peak_bytes"], self._num_bytes)
        self._keep_within_limits()

    def _keep_within_limits(self) -> None:
        """Drops files while there are more bytes than allowed; files in use are dropped after their use."""
        limit = self._limits.max_bytes
        while limit is not None and self._num_bytes > limit and (victim := self._victim()) is not None:
            self._drop(victim)

    def _is_first(self) -> bool:
        """Adds this thread to the queue, and returns whether it is the first one."""
        me = threading.get_ident()
        self._waiting.setdefault(me)
        return next(iter(self._waiting)) == me

    def _stop_waiting(self) -> None:
        """Removes this thread from the queue, and wakes the threads that still wait for room."""
        self._waiting.pop(threading.get_ident(), None)
        if self._waiting:
            self._changed.notify_all()

    @property
    def _is_full(self) -> bool:
        """Whether there is no place for one more file."""
        num_files = len(self._contents) + len(self._loading)
        if num_files >= self._limits.max_files:
            return True
        if self._limits.max_bytes is None or not num_files:
            return False
        # The size of a file is unknown until it is read; before, the largest size so far is assumed.
        return self._num_bytes + (len(self._loading) + 1) * self._largest > self._limits.max_bytes

    def _make_room(self, choose: Callable[[], int | None]) -> bool:
        """Drops files until another one fits; returns whether it does."""
        while self._is_full:
            victim = choose()
            if victim is None:
                return False
            self._drop(victim)
        return True

    def _victim(self) -> int | None:
        """Returns the file to evict: the one used furthest in the future, then the least recently used."""
        files = (file for file in self._contents if file not in self._in_use)
        return max(files, key=self._uses.next_use, default=None)

    def _victim_for(self, file: int) -> int | None:
        """Returns the file to evict for one that is prefetched; None if it is needed until that is used.

        Only files are dropped that would have to be evicted anyway when the new file is used, after their
        last use before that. So no file is read more often than without prefetching (Cao et al. 1995 call
        this conservative).
        """
        next_use = self._uses.next_use
        batch = next_use(file)
        files = [*self._contents, *self._loading]
        victim = max(files, key=lambda file: (next_use(file, batch), next_use(file) > batch))
        is_needed = victim in self._loading or victim in self._in_use or victim in self._ahead
        return None if is_needed or next_use(victim) <= batch else victim

    def _drop(self, file: int) -> None:
        self._num_bytes -= self._contents.pop(file).num_bytes
        self._ahead.discard(file)

    def _change_uses(
        self, upcoming: Iterable[Any] | None = None, file_of: Callable[[Ids], Ids] = np.asarray
    ) -> None:
        # With so many known files, Belady's choice between the files in memory is exact.
        num_files = self._limits.max_files + self._limits.read_ahead + 1
        self._uses = Uses(upcoming, file_of, num_files)
        self.rereads = 0
        self._read_files: set[int] = set()
        self._ahead.clear()
        self._failures.clear()

    def _read_ahead(self) -> None:
        """Lets another thread prefetch, if there is a file to prefetch and room for it."""
        if self._next_ahead() is None:
            return
        if len(self._threads) < self._limits.threads:
            name = f"samplerkit-read-ahead-{len(self._threads)}"
            self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
            self._threads[-1].start()
        self._changed.notify_all()

    def _next_ahead(self) -> int | None:
        """Returns the file to prefetch now, for which room was made; None if there is none."""
        if self._is_stopped or self._waiting:
            return None
        if len(self._ahead) >= self._limits.read_ahead:
            return None
        upcoming = self._uses.upcoming_files(self._contents.keys())
        missing = [each for each in upcoming if each[1] not in self._loading | self._failures.keys()]
        if not missing:
            return None
        file = min(missing)[1]
        return file if self._make_room(partial(self._victim_for, file)) else None

    def _work(self) -> None:
        """Prefetches files until the cache is closed; the body of each thread."""
        with self._changed:
            while not self._is_stopped:
                file = self._next_ahead()
                if file is None:
                    self._changed.wait()
                    continue
                self._ahead.add(file)
                try:
                    self._load(file)
                except BaseException as error:  # raised again when the file is used
                    self._ahead.discard(file)
                    if not self._is_stopped:  # else a reference cycle would keep this cache alive
                        self._failures[file] = error
