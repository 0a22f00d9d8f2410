"""What a remote storage holds in one process: connections, threads, figures."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, final

from samplerkit.storage.remote.access import Access, filesystem_access, web_access
from samplerkit.storage.remote.cache import DiskCache
from samplerkit.storage.remote.counts import Counts
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.stats import RemoteStats
from samplerkit.storage.threads import Pool, Stop
from samplerkit.storage.urls import is_web


@final
class RemoteResources:
    """What a remote storage holds in one process; a child gets its own.

    Attributes:
        stop: ends all that is on its way.
        counts: the figures.
        pool: the threads that read parts.
        cache: the whole files.
        filesystems: the way to URLs that are not of HTTP, once there was one.
        finalizer: ends it when the storage is garbage, and at the interpreter's end.

    Args:
        options: how files are reached.
        stats: the figures to begin with.
    """

    finalizer: weakref.finalize[Any, Any]

    def __init__(self, options: RemoteOptions, stats: RemoteStats) -> None:
        self._options = options
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._web: Access | None = None
        self.filesystems: Access | None = None
        self.stop = Stop()
        self.counts = Counts(stats)
        self.pool = Pool(options.threads, "samplerkit-remote", self.stop)
        self.cache = DiskCache.of(options, self.stop)

    def access(self, url: str) -> Access:
        """Gives the way to a URL.

        Raises:
            DatasetError: the package for it is not there.
        """
        with self._lock:
            if is_web(url):
                self._web = self._web or web_access(self._options, self.counts)
                return self._web
            self.filesystems = self.filesystems or filesystem_access(self._options, self.counts)
            return self.filesystems

    def end(self) -> None:
        """Ends what is on its way, the threads and the connections."""
        if self._pid != os.getpid():  # locks may have been held when this process was forked
            return
        self.stop.set()
        self.pool.end()
        with self._lock:
            for access in (self._web, self.filesystems):
                if access is not None:
                    access.close()
