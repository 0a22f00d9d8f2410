"""The state of a dataset in each process: open files or shards, and threads, created at first use."""

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
    """The open files or shards of a dataset in one process."""

    @property
    def stats(self) -> FileStats:
        """Its counters."""

    def close(self, *, waits: bool = True) -> None:
        """Closes everything; threads end after their current task.

        Args:
            waits: whether to wait for the threads, for a second or two.
        """


Held = TypeVar("Held", bound=Open)


@final
class Process(Generic[Held]):
    """The state of a dataset in one process.

    Attributes:
        lock: held while files are counted, and while `held` is created or closed.
        held: the open files or shards; None before the first use and after `close`.
        before: the counters of earlier `held` objects.
        of_workers: functions that return the counters of the workers of loaders in this process.
    """

    _finalizer: weakref.finalize[Any, Any]

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.held: Held | None = None
        self.before = FileStats()
        self.of_workers: list[Callable[[], FileStats | None]] = []

    @property
    def stats(self) -> FileStats:
        """The counters so far."""
        held = self.held
        return self.before if held is None else held.stats

    def with_workers(self, own: FileStats) -> FileStats:
        """Adds the counters of workers to those of this process."""
        return sum(filter(None, (stats() for stats in self.of_workers)), own)

    def opened(self, owner: object, make: Callable[[FileStats], Held]) -> Held:
        """Returns the open files or shards; opens them first if needed.

        Args:
            owner: the dataset; `held` is closed when it is garbage collected, and at interpreter exit.
            make: creates `held` from the initial counters. The result must not refer to the owner.
        """
        with self.lock:
            if self.held is None:
                held = make(self.before)
                self._finalizer = weakref.finalize(owner, held.close, waits=False)
                self.held = held
            return self.held

    def close(self, storage: RemoteStorage | None = None) -> None:
        """Ends the threads, and closes the open files or shards.

        Args:
            storage: the storage from which the threads read; it is closed before waiting for them.
        """
        with self.lock:
            held, self.held = self.held, None
            if held is not None:
                held.close(waits=False)
            # Closed now, so that threads do not wait for running requests.
            if storage is not None:
                storage.close()
            if held is not None:
                held.close()
                self.before = held.stats
                self._finalizer.detach()


@final
class PerProcess(Generic[Held]):
    """The state of a dataset for each process: a child has its own, since threads do not survive a fork."""

    def __init__(self) -> None:
        self._processes: dict[int, Process[Held]] = {}

    def current(self) -> Process[Held]:
        """Returns the state of this process."""
        pid = os.getpid()
        process = self._processes.get(pid)
        if process is None:
            self._processes = {pid: self._processes.setdefault(pid, Process())}
            process = self._processes[pid]
        return process


class OpenPerProcess(Closing, Generic[Held]):
    """A dataset that each process opens for itself: open files, locks and threads are not pickled."""

    def __init__(self) -> None:
        self._processes: PerProcess[Held] = PerProcess()

    def count_workers(self, worker_stats: Callable[[], FileStats | None]) -> None:
        """Adds a function that returns the counters of a loader's workers; a `Loader` calls it."""
        self._processes.current().of_workers.append(worker_stats)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_processes": PerProcess()}


def storage_for(has_urls: bool, lengths: Any, options: RemoteOptions | None) -> RemoteStorage | None:
    """Returns the storage that fetches the files of a dataset; None if nothing has to be fetched.

    Args:
        has_urls: whether a file is remote.
        lengths: as the user gave them, possibly a URL.
        options: options of remote storage; None if the reader opens URLs itself.
    """
    if options is None or not (has_urls or (isinstance(lengths, str) and is_remote(lengths))):
        return None
    return RemoteStorage(options)


def with_requests(stats: FileStats, storage: RemoteStorage | None) -> FileStats:
    """Adds the counters of remote storage to those of a dataset."""
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
