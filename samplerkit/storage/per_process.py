"""What a dataset has in one process: threads and what is open, from the first use on."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar, final

from samplerkit.closing import Closing
from samplerkit.storage.ahead.cache_entries import FileStats
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.urls import is_remote


class Open(Protocol):
    """What is open: files in memory, or shards."""

    @property
    def stats(self) -> FileStats:
        """Its figures."""

    def close(self, *, waits: bool = True) -> None:
        """Lets everything go; threads end when they are done with what they do now.

        Args:
            waits: for the threads, for a second or two.
        """


Held = TypeVar("Held", bound=Open)


@final
class Process(Generic[Held]):
    """What a dataset has in one process.

    Attributes:
        lock: held while files are counted, and while what is open is made or let go.
        held: what is open, from the first use on.
        before: the figures of what was before that.
        of_workers: tell the figures of the workers that read for loaders of this process.
    """

    _finalizer: weakref.finalize[Any, Any]

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.held: Held | None = None
        self.before = FileStats()
        self.of_workers: list[Callable[[], FileStats | None]] = []

    @property
    def stats(self) -> FileStats:
        """The figures so far."""
        held = self.held
        return self.before if held is None else held.stats

    def with_workers(self, own: FileStats) -> FileStats:
        """Adds the figures of workers to those of this process."""
        return sum(filter(None, (told() for told in self.of_workers)), own)

    def opened(self, owner: object, make: Callable[[FileStats], Held]) -> Held:
        """Returns what is open, made now if there is nothing.

        Args:
            owner: the dataset; what is open is stopped when it is garbage, and at the interpreter's end.
            make: makes it, with the figures to begin with. What it makes must not hold the owner.
        """
        with self.lock:
            if self.held is None:
                held = make(self.before)
                self._finalizer = weakref.finalize(owner, held.close, waits=False)
                self.held = held
            return self.held

    def close(self, storage: RemoteStorage | None = None) -> None:
        """Ends the threads and lets go of what is open.

        Args:
            storage: what the threads read from; it is closed before they are waited for.
        """
        with self.lock:
            held, self.held = self.held, None
            if held is not None:
                held.close(waits=False)
            # Now, so that threads do not wait for what is on its way.
            if storage is not None:
                storage.close()
            if held is not None:
                held.close()
                self.before = held.stats
                self._finalizer.detach()


@final
class PerProcess(Generic[Held]):
    """What a dataset has in each process. A child gets its own: locks and threads do not survive a fork."""

    def __init__(self) -> None:
        self._processes: dict[int, Process[Held]] = {}

    def here(self) -> Process[Held]:
        """Returns what belongs to this process."""
        pid = os.getpid()
        process = self._processes.get(pid)
        if process is None:
            self._processes = {pid: self._processes.setdefault(pid, Process())}
            process = self._processes[pid]
        return process


class OpenPerProcess(Closing, Generic[Held]):
    """A dataset that each process opens for itself: what is open, locks and threads do not travel."""

    def __init__(self) -> None:
        self._processes: PerProcess[Held] = PerProcess()

    def count_workers(self, told: Callable[[], FileStats | None]) -> None:
        """Receives what reports the figures of the workers of a loader; a `Loader` calls it."""
        self._processes.here().of_workers.append(told)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_processes": PerProcess()}


def storage_for(has_urls: bool, lengths: Any, options: RemoteOptions | None) -> RemoteStorage | None:
    """Gives what fetches the files of a dataset; None where nothing is to be fetched.

    Args:
        has_urls: whether a file is remote.
        lengths: as the user told them: they may lie at a URL too.
        options: None where URLs are left to the reader.
    """
    if options is None or not (has_urls or (isinstance(lengths, str) and is_remote(lengths))):
        return None
    return RemoteStorage(options)


def with_requests(stats: FileStats, storage: RemoteStorage | None) -> FileStats:
    """Adds what was asked of remote storage to the figures of a dataset."""
    if storage is None:
        return stats
    asked = storage.stats
    return replace(
        stats,
        requests=asked.requests,
        retries=asked.retries,
        downloads=asked.downloads,
        bytes_downloaded=asked.bytes,
    )
