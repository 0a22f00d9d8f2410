"""An in-memory cache of files that prefetches, and evicts by the known upcoming uses."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Generic, final

from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.cache_entries import CacheEntries, CacheLimits, Content, FileStats
from samplerkit.storage.ahead.uses import Uses
from samplerkit.storage.threads import join


@final
class ReadAheadCache(Generic[Content]):
    """A cache of files in one process: their content in memory, or open shards.

    After `expect`, the upcoming reads are known. `CacheEntries` chooses which files are evicted and which
    are prefetched. A file that a thread uses is not evicted; if all room is taken by such files, further
    threads wait in a queue until another thread is done. Waiting threads use no file, so none blocks another.

    Args:
        read: reads a file by its number; called from several threads.
        num_files: the number of files.
        limits: limits of the cache.
        stats: the initial counters.

    Attributes:
        rereads: the number of reads of files that had been read before, since the last `expect`.
    """

    def __init__(
        self, read: Callable[[int], Content], num_files: int, limits: CacheLimits, stats: FileStats
    ) -> None:
        self._read = read
        self._limits = limits
        self._stats = stats
        self._hits = 0  # apart from the stats, since it changes for each file of each batch
        self.rereads = 0
        self._read_files: set[int] = set()
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._entries: CacheEntries[Content] = CacheEntries(limits, num_files)
        self._failures: dict[int, BaseException] = {}
        self._unused: set[int] = set()  # prefetched, and not used yet
        self._queue: deque[int] = deque()
        self._waiting: dict[int, None] = {}  # the threads that wait for room, in their order
        self._threads: list[threading.Thread] = []
        self._is_stopped = False

    @property
    def stats(self) -> FileStats:
        """The counters so far."""
        return replace(self._stats, hits=self._stats.hits + self._hits)

    @property
    def is_too_small(self) -> bool:
        """Whether the cache is certainly too small for the order given to `expect`.

        True if more files were read again than were ever in the cache at a time; a few at the borders of
        lanes are normal.
        """
        return self.rereads > self._stats.peak_files

    def expect(self, upcoming: Iterable[Any], file_of: Callable[[Ids], Ids]) -> None:
        """Receives the upcoming ids of this process, batch by batch; replaces those received before."""
        limits = self._limits
        with self._changed:
            # With so many known files, Belady's choice between the files in memory is exact.
            self._change_plan(Uses(upcoming, file_of, limits.max_files + limits.read_ahead + 1))
            self._read_ahead()

    @property
    def is_expecting(self) -> bool:
        """Whether the batches that are read are still those given to `expect`."""
        return self._entries.uses is not None

    def begin(self, ids: Ids) -> list[int]:
        """Starts a batch; returns its files, or none if the batch was not expected."""
        with self._changed:
            uses = self._entries.uses
            if uses is None:
                return []
            files = uses.begin(ids)
            if not uses.is_valid:
                self._change_plan(None)
            return files

    def end(self) -> None:
        """Ends the batch of this thread: its files may be evicted."""
        with self._changed:
            if self._entries.uses is not None:
                self._entries.uses.end()
                for file in [] if self._limits.keeps_unneeded else self._entries.unneeded():
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
                self._entries.release(file)
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
            self._change_plan(None)
            self._entries.clear()
            self._changed.notify_all()
        if waits:
            join(self._threads)

    def _get(self, file: int) -> Content:
        with self._changed:
            self._entries.hold(file)
            if self._entries.note_access(file):
                self._unused.clear()
            content = self._entries.contents.get(file)
            if content is None:
                content = self._wait_for(file)
            else:
                self._hits += 1
            self._entries.touch(file)
            self._unused.discard(file)
            if self._entries.uses is not None:
                self._entries.uses.used(file)
            self._read_ahead()
            return content

    def _first_available(self, files: Collection[int]) -> int:
        """Returns the file that is available first: one in memory, else one that is being read, else any."""
        with self._changed:
            for group in (self._entries.contents, self._entries.loading):
                available = next((file for file in files if file in group), None)
                if available is not None:
                    return available
            return next(iter(files))

    # All methods below are called with the lock held.

    def _wait_for(self, file: int) -> Content:
        """Returns a file that is not in memory."""
        started = time.monotonic()
        try:
            while True:
                if file in self._failures:
                    raise self._failures.pop(file)
                if file in self._entries.contents:
                    return self._entries.contents[file]
                # A file that is waited for no longer counts as prefetched, so another one can be started.
                self._unused.discard(file)
                if file in self._queue:  # no thread has started to read it
                    self._queue.remove(file)
                    return self._load(file)
                if file not in self._entries.loading and self._is_first() and self._make_room():
                    self._stop_waiting()
                    return self._load(file)
                # It is being read, or all room is taken by files that are being read or used.
                self._read_ahead()
                self._changed.wait()
        finally:
            self._stop_waiting()
            waited = self._stats.wait_seconds + time.monotonic() - started
            self._stats = replace(self._stats, waits=self._stats.waits + 1, wait_seconds=waited)

    def _load(self, file: int) -> Content:
        """Reads a file for which there is room; the lock is released while reading."""
        self._entries.loading.add(file)
        in_memory = max(self._stats.peak_files, self._entries.num_files)
        self._stats = replace(self._stats, files_read=self._stats.files_read + 1, peak_files=in_memory)
        self._read_ahead()
        self._changed.release()
        try:
            content = self._read(file)
        finally:
            self._changed.acquire()
            self._entries.loading.discard(file)
            self._changed.notify_all()
        self._admit(file, content)
        return content

    def _admit(self, file: int, content: Content) -> None:
        """Adds a file that was read."""
        if self._is_stopped:
            return
        self._entries.put(file, content)
        if self._entries.uses is not None:
            self.rereads += file in self._read_files
            self._read_files.add(file)
        peak = max(self._stats.peak_bytes, self._entries.num_bytes)
        num_bytes = self._stats.bytes_read + content.num_bytes
        self._stats = replace(self._stats, bytes_read=num_bytes, peak_bytes=peak)
        self._keep_within_limits()

    def _keep_within_limits(self) -> None:
        """Drops files while there are more bytes than allowed; files in use are dropped after their use."""
        while self._entries.is_too_large and (victim := self._entries.victim()) is not None:
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

    def _make_room(self) -> bool:
        """Drops files until a file that is needed now fits; returns whether it does."""
        while self._entries.is_full:
            victim = self._entries.victim()
            if victim is not None:
                self._drop(victim)
            elif self._queue:
                self._forget(self._queue.pop())
            else:
                return False
        return True

    def _make_room_ahead(self, file: int) -> bool:
        """Drops files until a file that is prefetched fits; returns whether it does.

        Only files are dropped that would have to be evicted anyway when the new file is used, after their
        last use before that. So no file is read more often than without prefetching (Cao et al. 1995 call
        this conservative).
        """
        while self._entries.is_full:
            victim = self._entries.victim_for(file)
            if victim is None or victim in self._unused:
                return False
            self._drop(victim)
        return True

    def _drop(self, file: int) -> None:
        self._entries.drop(file)
        self._unused.discard(file)

    def _forget(self, file: int) -> None:
        """Frees the place that was reserved for a file to be prefetched."""
        self._entries.loading.discard(file)
        self._unused.discard(file)

    def _change_plan(self, uses: Uses | None) -> None:
        self._entries.uses = uses
        self.rereads, self._read_files = 0, set()
        while self._queue:
            self._forget(self._queue.pop())
        self._unused.clear()
        self._failures.clear()

    def _read_ahead(self) -> None:
        """Queues the files that are needed next for the threads, as far as there is room for them."""
        number = self._limits.read_ahead - len(self._unused)
        if number <= 0 or self._is_stopped or self._waiting:
            return
        for file in self._entries.next_to_read(number, self._failures):
            if not self._make_room_ahead(file):
                return
            self._entries.loading.add(file)
            self._unused.add(file)
            self._queue.append(file)
            self._changed.notify_all()
            if len(self._threads) < self._limits.threads:
                name = f"samplerkit-read-ahead-{len(self._threads)}"
                self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
                self._threads[-1].start()

    def _work(self) -> None:
        """Prefetches files until the cache is closed; the body of each thread."""
        with self._changed:
            while True:
                while not self._queue and not self._is_stopped:
                    self._changed.wait()
                if self._is_stopped:
                    return
                file = self._queue.popleft()
                try:
                    self._load(file)
                except BaseException as error:  # raised again when the file is used
                    self._unused.discard(file)
                    if not self._is_stopped:  # else a reference cycle would keep this cache alive
                        self._failures[file] = error
