"""What a remote storage holds in one process: connections, threads, figures."""

from __future__ import annotations

import os
import threading
import weakref
from importlib import import_module
from typing import Any, final

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.attempt import Access
from samplerkit.storage.remote.counts import Counts, RemoteStats
from samplerkit.storage.remote.disk_cache import DiskCache
from samplerkit.storage.remote.filesystem import Filesystems
from samplerkit.storage.remote.options import RemoteOptions
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
                self._web = self._web or _web_access(self._options, self.counts)
                return self._web
            self.filesystems = self.filesystems or Filesystems(self._options, self.counts)
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


def _web_access(options: RemoteOptions, counts: Counts) -> Access:
    """Gives the way to HTTP URLs.

    Raises:
        DatasetError: `requests` is not there.
    """
    try:
        # An extra: only HTTP URLs need requests.
        http = import_module("samplerkit.storage.remote.http")
    except ImportError as error:
        mend = 'install it with: pip install "samplerkit[remote]"'
        raise DatasetError("remote", "needs requests, which is not installed", mend=mend) from error
    access: Access = http.Http(options, counts)
    return access
