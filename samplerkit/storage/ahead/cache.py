"""What is at hand of some files: which stay, which go, and which are read ahead."""

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
    """What one process has at hand of some files: their content in memory, or open shards.

    What is read next is known where `expect` was called. `CacheEntries` chooses which file goes, and which
    ones are read ahead. A file that a thread uses stays; who finds all room taken by such files waits in a
    line until another thread is done. A waiting thread uses no file, so the line moves.

    Args:
        read: reads a file, by its number; called from several threads.
        num_files: the number of files.
        limits: what the cache may hold.
        stats: the figures to begin with.

    Attributes:
        read_again: how often a file was read that had been read before, since `expect` told what comes.
    """

    def __init__(
        self, read: Callable[[int], Content], num_files: int, limits: CacheLimits, stats: FileStats
    ) -> None:
        self._read = read
        self._limits = limits
        self._stats = stats
        self._hits = 0  # apart: each file of each batch is one
        self.read_again = 0
        self._read_before: set[int] = set()
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._entries: CacheEntries[Content] = CacheEntries(limits, num_files)
        self._failures: dict[int, BaseException] = {}
        self._unused: set[int] = set()  # read ahead, and not wanted yet
        self._queue: deque[int] = deque()
        self._line: dict[int, None] = {}  # the threads that wait for room, the first one first
        self._threads: list[threading.Thread] = []
        self._is_stopped = False

    @property
    def stats(self) -> FileStats:
        """The figures so far."""
        return replace(self._stats, hits=self._stats.hits + self._hits)

    @property
    def is_too_small(self) -> bool:
        """Whether it is certain that there is too little room for what `expect` told.

        It is when more files were read again than were ever here at a time: a few at the borders of lanes are
        no matter.
        """
        return self.read_again > self._stats.peak_files

    def expect(self, upcoming: Iterable[Any], file_of: Callable[[Ids], Ids]) -> None:
        """Receives what this process will read, batch by batch; forgets what it received before."""
        limits = self._limits
        with self._changed:
            # So far Belady's choice between the files in memory is exact.
            self._change_plan(Uses(upcoming, file_of, limits.max_files + limits.read_ahead + 1))
            self._read_ahead()

    @property
    def is_expecting(self) -> bool:
        """Whether what is read is still what `expect` told."""
        return self._entries.uses is not None

    def begin(self, ids: Ids) -> list[int]:
        """Notes that a batch is read now; returns its files, and none if it was not expected."""
        with self._changed:
            uses = self._entries.uses
            if uses is None:
                return []
            files = uses.begin(ids)
            if not uses.is_right:
                self._change_plan(None)
            return files

    def end(self) -> None:
        """Notes that the batch is over: its files may go."""
        with self._changed:
            if self._entries.uses is not None:
                self._entries.uses.end()
                for file in [] if self._limits.keeps_unneeded else self._entries.unneeded():
                    self._drop(file)
            self._read_ahead()

    def each(self, parts: dict[int, tuple[Ids, Ids]]) -> Generator[tuple[Content, Ids, Ids], None, None]:
        """Goes through the files of a batch, each when it can be had first; then the batch is over.

        Args:
            parts: by file, rows of it and their places in the batch, which come with its content. It is used
                up.

        Raises:
            DatasetError: as `using`.
        """
        try:
            # Not sorted once for all: while one file is gone through, another one arrives.
            while parts:
                number = self._nearest(parts)
                part = parts.pop(number)
                with self.using(number) as content:
                    yield content, *part
                    del content  # else it would stay in memory while the next one is read
        finally:
            self.end()

    @contextmanager
    def using(self, file: int) -> Iterator[Content]:
        """Returns a file for the time of a block, read now if it was not read ahead.

        Raises:
            DatasetError: it cannot be read, also if that was tried ahead; the next call tries again.
        """
        try:
            yield self._wanted(file)
        finally:
            with self._changed:
                self._entries.let_go(file)
                self._keep_within_limits()
                self._leave_line()

    def close(self, *, waits: bool = True) -> None:
        """Lets everything go; threads end when they have read what they read now.

        Args:
            waits: for the threads, for a second at most.
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

    def _wanted(self, file: int) -> Content:
        with self._changed:
            self._entries.hold(file)
            if self._entries.turn_to(file):
                self._unused.clear()
            content = self._entries.contents.get(file)
            if content is None:
                content = self._waited_for(file)
            else:
                self._hits += 1
            self._entries.touch(file)
            self._unused.discard(file)
            if self._entries.uses is not None:
                self._entries.uses.used(file)
            self._read_ahead()
            return content

    def _nearest(self, files: Collection[int]) -> int:
        """Returns the file that can be had first: one in memory, else one that is being read, else any."""
        with self._changed:
            for here in (self._entries.contents, self._entries.loading):
                found = next((file for file in files if file in here), None)
                if found is not None:
                    return found
            return next(iter(files))

    # All below is called with the lock held.

    def _waited_for(self, file: int) -> Content:
        """Returns a file that is not in memory."""
        begun = time.monotonic()
        try:
            while True:
                if file in self._failures:
                    raise self._failures.pop(file)
                if file in self._entries.contents:
                    return self._entries.contents[file]
                # What is waited for is not ahead any more: the one after it can be begun.
                self._unused.discard(file)
                if file in self._queue:  # nobody has begun to read it
                    self._queue.remove(file)
                    return self._load(file)
                if file not in self._entries.loading and self._is_first() and self._make_room():
                    self._leave_line()
                    return self._load(file)
                # It is being read, or all the room is taken by what is being read or used.
                self._read_ahead()
                self._changed.wait()
        finally:
            self._leave_line()
            waited = self._stats.wait_seconds + time.monotonic() - begun
            self._stats = replace(self._stats, waits=self._stats.waits + 1, wait_seconds=waited)

    def _load(self, file: int) -> Content:
        """Reads a file for which there is room; the lock is released meanwhile."""
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
        """Keeps a file that was read."""
        if self._is_stopped:
            return
        self._entries.put(file, content)
        if self._entries.uses is not None:
            self.read_again += file in self._read_before
            self._read_before.add(file)
        peak = max(self._stats.peak_bytes, self._entries.num_bytes)
        num_bytes = self._stats.bytes_read + content.num_bytes
        self._stats = replace(self._stats, bytes_read=num_bytes, peak_bytes=peak)
        self._keep_within_limits()

    def _keep_within_limits(self) -> None:
        """Drops files that are larger than was thought; those that are used go when they are used no more."""
        while self._entries.is_too_large and (victim := self._entries.victim()) is not None:
            self._drop(victim)

    def _is_first(self) -> bool:
        """Returns whether it is this thread's turn; it is in the line from now on."""
        me = threading.get_ident()
        self._line.setdefault(me)
        return next(iter(self._line)) == me

    def _leave_line(self) -> None:
        """Lets those who still wait for room look again."""
        self._line.pop(threading.get_ident(), None)
        if self._line:
            self._changed.notify_all()

    def _make_room(self) -> bool:
        """Drops files until the one that is wanted now fits; returns whether it does."""
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
        """Drops files until one that is used later fits; returns whether it does.

        What goes is what would have to go then, and not before it was used for the last time: so no file is
        read more often than without reading ahead (Cao et al. 1995 call that conservative).
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
        """Gives up the place of a file that was to be read ahead."""
        self._entries.loading.discard(file)
        self._unused.discard(file)

    def _change_plan(self, uses: Uses | None) -> None:
        self._entries.uses = uses
        self.read_again, self._read_before = 0, set()
        while self._queue:
            self._forget(self._queue.pop())
        self._unused.clear()
        self._failures.clear()

    def _read_ahead(self) -> None:
        """Returns the threads to read the files needed next, as far as there is room for it."""
        number = self._limits.read_ahead - len(self._unused)
        if number <= 0 or self._is_stopped or self._line:
            return
        for file in self._entries.wanted_next(number, self._failures):
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
        """What a thread does: it reads ahead until all is over."""
        with self._changed:
            while True:
                while not self._queue and not self._is_stopped:
                    self._changed.wait()
                if self._is_stopped:
                    return
                file = self._queue.popleft()
                try:
                    self._load(file)
                except BaseException as error:  # raised where the file is wanted
                    self._unused.discard(file)
                    if not self._is_stopped:  # else it would hold this cache for ever, which holds it
                        self._failures[file] = error
