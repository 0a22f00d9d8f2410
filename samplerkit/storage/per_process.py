"""The state of a dataset in each process: open files or shards, and threads, created at first use."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from samplerkit.closing import Closing
from samplerkit.storage.file_stats import FileStats
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.urls import is_remote


class OpenFiles(Protocol):
    """The open files or shards of a dataset in one process."""

    @property
    def stats(self) -> FileStats:
        """Its counters."""

    def close(self, *, waits: bool = True) -> None:
        """Closes everything; threads end after their current task.

        Args:
            waits: whether to wait for the threads, for a second or two.
        """


Opened = TypeVar("Opened", bound=OpenFiles)


class Process(Generic[Opened]):
    """The state of a dataset in one process.

    Attributes:
        lock: held while files are counted, and while `open_files` is created or closed.
        open_files: the open files or shards; None before the first use and after `close`.
        earlier: the counters of earlier `open_files`.
    """

    _finalizer: weakref.finalize[Any, Any]

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.open_files: Opened | None = None
        self.earlier = FileStats()

    @property
    def stats(self) -> FileStats:
        """The counters so far."""
        open_files = self.open_files
        return self.earlier if open_files is None else open_files.stats

    def open(self, owner: object, make: Callable[[FileStats], Opened]) -> Opened:
        """Returns the open files or shards; opens them first if needed.

        Args:
            owner: the dataset; `open_files` is closed when it is garbage collected, and at interpreter exit.
            make: creates `open_files` from the initial counters. The result must not refer to the owner.
        """
        with self.lock:
            if self.open_files is None:
                open_files = make(self.earlier)
                self._finalizer = weakref.finalize(owner, open_files.close, waits=False)
                self.open_files = open_files
            return self.open_files

    def close(self, storage: RemoteStorage | None = None) -> None:
        """Ends the threads, and closes the open files or shards.

        Args:
            storage: the storage from which the threads read; it is closed before waiting for them.
        """
        with self.lock:
            open_files, self.open_files = self.open_files, None
            if open_files is not None:
                open_files.close(waits=False)
            # Closed now, so that threads do not wait for running requests.
            if storage is not None:
                storage.close()
            if open_files is not None:
                open_files.close()
                self.earlier = open_files.stats
                self._finalizer.detach()
                if storage is not None:  # a thread may have opened it again meanwhile
                    storage.close()


class PerProcess(Generic[Opened]):
    """The state of a dataset for each process: a child has its own, since threads do not survive a fork."""

    def __init__(self) -> None:
        self._processes: dict[int, Process[Opened]] = {}

    def current(self) -> Process[Opened]:
        """Returns the state of this process."""
        pid = os.getpid()
        if pid not in self._processes:
            self._processes = {pid: self._processes.setdefault(pid, Process())}
        return self._processes[pid]


class OpenPerProcess(Closing, Generic[Opened]):
    """A dataset that each process opens for itself: open files, locks and threads are not pickled.

    Args:
        storage: reads remote files; None if there are none.
    """

    def __init__(self, storage: RemoteStorage | None = None) -> None:
        self._processes: PerProcess[Opened] = PerProcess()
        self._storage: Final = storage

    @property
    def _stats(self) -> FileStats:
        """The counters of this process, and of its remote storage."""
        own = self._processes.current().stats
        return own if self._storage is None else own + self._storage.stats

    def close(self) -> None:
        """Ends the threads and closes what is open. The dataset can be used again."""
        self._processes.current().close(self._storage)

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
