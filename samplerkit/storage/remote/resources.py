"""What a remote storage holds in one process: connections, threads, figures."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Protocol, TypeVar, final, runtime_checkable

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.attempt import Version
from samplerkit.storage.remote.filesystem import Filesystems, has_filesystem
from samplerkit.storage.remote.object_stores import ObjectStores
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.retries import Counts, RemoteStats, retried
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
        filesystems: the way to all other URLs, once there was one.
        stores: the faster way to those of clouds.
        finalizer: ends it when the storage is garbage, and at the interpreter's end.
    """

    finalizer: weakref.finalize[Any, Any]

    def __init__(self, options: RemoteOptions, stats: RemoteStats) -> None:
        self._options = options
        self.counts = Counts(stats)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._web: Access | None = None
        self.filesystems: Filesystems | None = None
        self.stores = ObjectStores(options, self.counts)
        self._reads_much = False
        self.stop = Stop()
        self.pool = Pool(options.threads, "samplerkit-remote", self.stop)

    def access(self, url: str, *, is_data: bool = False) -> Access:
        """Gives the way to a URL.

        Args:
            url: of a file.
            is_data: it is read as training does, and not asked for its version.

        Raises:
            DatasetError: the package for it is not there.
        """
        with self._lock:
            if is_web(url):
                self._web = self._web or _web_access(self._options, self.counts)
                return self._web
            self.filesystems = self.filesystems or Filesystems(self._options, self.counts)
        is_fast = (is_data and self._reads_much) or not has_filesystem(url)
        return self.stores if is_fast and self.stores.serves(url) else self.filesystems

    def is_unsure(self, url: str) -> bool:
        """Whether parts of a file are read without comparing its version, which is asked afterwards."""
        return isinstance(self.access(url, is_data=True), Filesystems)

    def tried(
        self, url: str, attempt: Callable[[Access], Result], stop: Stop, *, is_data: bool = False
    ) -> Result:
        """Makes a request by the way to its URL, until it goes well.

        Raises:
            DatasetError: it does not; `AbsentError` where there is no such file, or it may not be read.
        """
        return retried(
            url, lambda: attempt(self.access(url, is_data=is_data)), self._options, self.counts, stop
        )

    def notice(self, files: int) -> None:
        """Finds out, before data are read, whether this process does so much that obstore is worth it.

        Workers forked from a process that has used obstore cannot use it. So a process that may still fork
        workers asks what a dataset asks when it is made, and reads a first sample, through fsspec.

        Args:
            files: that are known: a dataset asks a few questions of each.
        """
        if not self._reads_much:
            done = self.counts.stats
            is_much = done.requests > _QUESTIONS + _QUESTIONS_A_FILE * files or done.bytes > _SAMPLES_BYTES
            self._reads_much = is_much or is_worker()

    def end(self) -> None:
        """Ends what is on its way, the threads and the connections."""
        if self._pid != os.getpid():  # locks may have been held when this process was forked
            return
        self.stop.set()
        self.pool.end()
        with self._lock:
            for access in (self._web, self.filesystems, self.stores):
                if access is not None:
                    access.close()


def _web_access(options: RemoteOptions, counts: Counts) -> Access:
    """Gives the way to HTTP URLs.

    Raises:
        DatasetError: `urllib3` is not there.
    """
    try:
        # An extra: only HTTP URLs need urllib3.
        http = import_module("samplerkit.storage.remote.http")
    except ImportError as error:
        hint = 'install it with: pip install "samplerkit[remote]"'
        raise DatasetError("remote", "needs urllib3, which is not installed", hint=hint) from error
    access: Access = http.Http(options, counts)
    return access


class Access(Protocol):
    """A way to remote files, in one process; each method makes one attempt.

    All may raise `Transient`, `Refused` and `Stopped`, and no exception of another library.
    """

    without_ranges: set[str]
    """URLs of which only the whole file can be had."""

    def version(self, url: str, stop: Stop) -> Version:
        """Asks for the size and the tag of a file."""

    def part(self, url: str, version: Version, offset: int, length: int, stop: Stop) -> bytes:
        """Reads a part of a file, of at least one byte, and of the version that is given."""

    def small(self, url: str, most: int, stop: Stop) -> tuple[bytes, Version]:
        """Reads a whole small file."""

    def close(self) -> None:
        """Lets connections go."""


@runtime_checkable
class Streamed(Access, Protocol):
    """A way to remote files whose answers can be read bit by bit, however long they are."""

    def rest(
        self, url: str, version: Version, offset: int, stop: Stop, *, is_verified: bool = False
    ) -> Iterator[bytes]:
        """Reads a file from a byte on to its end; `is_verified`: against a digest, later."""
