"""What a remote storage holds in one process: clients, threads, figures."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, TypeVar, final

from samplerkit.storage.remote.filesystem import Filesystems, has_filesystem
from samplerkit.storage.remote.http import Http
from samplerkit.storage.remote.object_stores import ObjectStores
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.retries import Client, Counts, RemoteStats, retried
from samplerkit.storage.threads import Pool, Stop, is_worker
from samplerkit.storage.urls import is_web

Result = TypeVar("Result")

_QUESTIONS, _QUESTIONS_A_FILE, _SAMPLES_BYTES = 64, 8, 64 << 20
"""A process that has asked, or read, more than this reads data for training."""


@final
class RemoteResources:
    """What a remote storage holds in one process; a child gets its own.

    Attributes:
        stop: ends all that is on its way.
        counts: the figures.
        pool: the threads that read parts.
        finalizer: ends it when the storage is garbage, and at the interpreter's end.
    """

    finalizer: weakref.finalize[Any, Any]

    def __init__(self, options: RemoteOptions, stats: RemoteStats) -> None:
        self.counts = Counts(stats)
        self._pid = os.getpid()
        self._web = Http(options, self.counts)
        self._filesystems = Filesystems(options, self.counts)
        self._stores = ObjectStores(options, self.counts)
        self._reads_much = is_worker()
        self.stop = Stop()
        self.pool = Pool(options.threads, "samplerkit-remote", self.stop)

    def client(self, url: str) -> Client:
        """Gives the way to a URL.

        Args:
            url: of a file.

        Raises:
            DatasetError: its store needs credentials, and has none.
        """
        if is_web(url):
            return self._web
        is_fast = self._reads_much or not has_filesystem(url)
        return self._stores if is_fast and self._stores.serves(url) else self._filesystems

    def tried(self, url: str, attempt: Callable[[Client], Result], stop: Stop) -> Result:
        """Makes a request by the way to its URL, until it goes well.

        Raises:
            DatasetError: it does not; `AbsentError` where there is no such file, or it may not be read.
        """
        return retried(url, self.client(url), attempt, stop)

    def notice(self, files: int) -> None:
        """Finds out, before data are read, whether this process does so much that obstore is worth it.

        Workers forked from a process that has used obstore cannot use it. So a process that may still fork
        workers asks what a dataset asks when it is made, and reads a first sample, through fsspec.

        Args:
            files: that are known: a dataset asks a few questions of each.
        """
        if not self._reads_much:
            done = self.counts.stats
            questions = _QUESTIONS + _QUESTIONS_A_FILE * files
            self._reads_much = done.requests > questions or done.bytes > _SAMPLES_BYTES

    def end(self) -> None:
        """Ends what is on its way, the threads and the connections."""
        if self._pid != os.getpid():  # locks may have been held when this process was forked
            return
        self.stop.set()
        self.pool.end()
        for client in (self._web, self._filesystems, self._stores):
            client.close()
