"""Remote files: their versions, parts of them, and whole ones in the cache of this machine."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, final

from samplerkit.errors import ArgumentTypeError, DatasetError, OutOfDatasetError
from samplerkit.storage.remote.access import Access
from samplerkit.storage.remote.address import shown
from samplerkit.storage.remote.cache import Wanted
from samplerkit.storage.remote.digests import digest_of
from samplerkit.storage.remote.download import Download
from samplerkit.storage.remote.faults import Absent, changed
from samplerkit.storage.remote.local_file import LocalFile
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.part_file import PartFile
from samplerkit.storage.remote.process import Process
from samplerkit.storage.remote.retry import plainly, retried
from samplerkit.storage.remote.stats import RemoteStats
from samplerkit.storage.remote.stopping import Stop
from samplerkit.storage.remote.version import UNKNOWN_SIZE, Span, Version

__all__ = ["LocalFile", "RemoteStorage", "Span", "Version"]

Result = TypeVar("Result")


@final
class RemoteStorage:
    """Reads remote files, by HTTP or through fsspec, and is certain of each byte.

    A version is asked once; all that is read later is held against it: a file that changes while it is in
    use is an error, never a mixture. It may be used by several threads, be forked, and be copied to other
    processes, with the versions that are known, so that workers agree; each process has its own connections.

    Args:
        options: how files are reached, retried and kept.

    Example:
        >>> import fsspec, tempfile
        >>> _ = fsspec.filesystem("memory").pipe("/shards/0.tar", b"0123456789")
        >>> url = "memory://shards/0.tar"
        >>> with RemoteStorage(RemoteOptions(cache=tempfile.mkdtemp())) as storage:
        ...     storage.version(url).size, storage.read([Span(url, 7, 2), Span(url, 0, 3)])
        ...     with storage.fetch(url) as local:
        ...         Path(local.path).read_bytes()
        (10, [b'78', b'012'])
        b'0123456789'
    """

    def __init__(self, options: RemoteOptions) -> None:
        if not isinstance(options, RemoteOptions):
            raise ArgumentTypeError("options", "must be RemoteOptions", type(options).__name__)
        self.options: Final = options
        self._versions: dict[str, Version] = {}
        self._processes: dict[int, Process] = {}
        self._inherited: list[Access | None] = []

    @property
    def stats(self) -> RemoteStats:
        """What this process has asked so far."""
        return self._process().counts.stats

    def version(self, url: str) -> Version:
        """Gives the size and tag that a file had when it was first asked; one request, or two.

        Raises:
            DatasetError: there is no such file, it may not be read, or the server does not answer.
        """
        process = self._process()
        return plainly(url, lambda: self._version(process, url, process.stop))

    def exists(self, url: str) -> bool:
        """Tells whether there is a file that may be read: "not found" and "forbidden" are no.

        Raises:
            DatasetError: the server does not answer.
        """
        process = self._process()

        def ask() -> bool:
            try:
                self._version(process, url, process.stop)
            except Absent:
                return False
            return True

        return plainly(url, ask)

    def read(self, spans: Sequence[Span]) -> list[bytes]:
        """Reads parts of files, `threads` at a time, each by one request.

        A server without range requests is noticed: then the whole file is fetched into the cache.

        Returns:
            The bytes of each part, in the order asked for.

        Raises:
            OutOfDatasetError: a part lies outside of its file.
            DatasetError: a part cannot be read, or its file was changed.
        """
        process, wanted = self._process(), list(spans)
        with process.counts.waiting():
            urls = list(dict.fromkeys(span.url for span in wanted))
            unknown = [url for url in urls if url not in self._versions]
            self._on_the_way(process, self._version, unknown, str)
            for span in wanted:
                _check(span, self._versions[span.url].size)
            whole = {url for url in urls if self._has_no_ranges(process, url)}
            parts = list(dict.fromkeys(span for span in wanted if span.url not in whole and span.length))
            found = dict(zip(parts, self._on_the_way(process, self._part, parts, _url), strict=True))
            read = [url for url in urls if url not in whole]
            self._on_the_way(process, self._confirm, read, str)
            for url in whole:
                mine = [span for span in wanted if span.url == url]
                found.update(zip(mine, self._parts_of_whole(process, url, mine), strict=True))
        return [found.get(span, b"") for span in wanted]

    def read_small(self, url: str, most_bytes: int = 1 << 24) -> bytes | None:
        """Reads a small file as a whole by one request, past the cache: such as an index beside a shard.

        Returns:
            Its bytes; None if there is none, or it may not be read.

        Raises:
            DatasetError: the server does not answer, or the file is larger than `most_bytes`.
        """
        process = self._process()

        def ask() -> bytes | None:
            access = process.access(url)
            try:
                data, version = self._tried(
                    process, url, process.stop, lambda: access.small(url, most_bytes, process.stop)
                )
            except Absent:
                return None
            if self._versions.setdefault(url, version) != version:
                raise changed()
            return data

        with process.counts.waiting():
            return plainly(url, ask)

    def fetch(self, url: str) -> LocalFile:
        """Brings a whole file into the cache of this machine, unless it lies there.

        One process of the machine downloads it, the others wait for that; if it dies, another one takes over.

        Returns:
            The local file, pinned until it is closed: eviction does not take it.

        Raises:
            DatasetError: the file cannot be downloaded, has another size or digest than it must, or does not
                fit into the cache.
        """
        process = self._process()
        with process.counts.waiting():
            return plainly(url, lambda: self._fetched(process, url))

    def cached(self, url: str) -> LocalFile | None:
        """Gives a whole file if it lies in the cache of this machine; nothing is downloaded.

        Returns:
            The local file, pinned as by `fetch`; None if it is not there.

        Raises:
            DatasetError: its version is not known yet, and the server does not tell it.
        """
        process = self._process()
        version = self.version(url)
        return process.cache.find(Wanted.of_url(url, version, digest_of(self.options.digests, url), _nothing))

    def close(self) -> None:
        """Ends threads and connections; what is on its way in other threads fails. It can be used again."""
        process = self._processes.pop(os.getpid(), None)
        if process is not None:
            process.finalizer.detach()
            process.end()
            self._processes[os.getpid()] = self._new_process(process.counts.stats)

    def __enter__(self) -> RemoteStorage:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        # Neither connections and threads nor figures travel to another process.
        return {**self.__dict__, "_versions": dict(self._versions), "_processes": {}, "_inherited": []}

    def __repr__(self) -> str:
        return f"RemoteStorage({self.options!r})"

    def _process(self) -> Process:
        """What belongs to this process. A child gets its own: locks and threads do not survive a fork."""
        pid = os.getpid()
        process = self._processes.get(pid)
        if process is None:
            # A filesystem of s3fs that is garbage waits a second for the event loop of the parent.
            self._inherited += [other.filesystems for other in self._processes.values()]
            self._processes = {pid: self._processes.setdefault(pid, self._new_process(RemoteStats()))}
            process = self._processes[pid]
        return process

    def _new_process(self, stats: RemoteStats) -> Process:
        process = Process(self.options, stats)
        process.finalizer = weakref.finalize(self, process.end)
        return process

    def _tried(self, process: Process, url: str, stop: Stop, attempt: Callable[[], Result]) -> Result:
        return retried(url, attempt, self.options, process.counts, stop)

    def _version(self, process: Process, url: str, stop: Stop) -> Version:
        known = self._versions.get(url)
        if known is not None:
            return known
        access = process.access(url)
        found = self._tried(process, url, stop, lambda: access.version(url, stop))
        return self._versions.setdefault(url, found)

    def _part(self, process: Process, span: Span, stop: Stop) -> bytes:
        url, access, version = span.url, process.access(span.url), self._versions[span.url]
        return self._tried(
            process, url, stop, lambda: access.part(url, version, span.offset, span.length, stop)
        )

    def _confirm(self, process: Process, url: str, stop: Stop) -> None:
        access, version = process.access(url), self._versions[url]
        self._tried(process, url, stop, lambda: access.confirm(url, version, stop))

    def _on_the_way(
        self,
        process: Process,
        call: Callable[[Process, Any, Stop], Result],
        items: Sequence[Any],
        url: Callable[[Any], str],
    ) -> list[Result]:
        """Makes requests at the same time."""

        def one(item: Any, stop: Stop) -> Result:
            return plainly(url(item), lambda: call(process, item, stop))

        return plainly(url(items[0]), lambda: process.pool.map(one, items)) if items else []

    def _has_no_ranges(self, process: Process, url: str) -> bool:
        return self._versions[url].size == UNKNOWN_SIZE or url in process.access(url).without_ranges

    def _parts_of_whole(self, process: Process, url: str, spans: Sequence[Span]) -> list[bytes]:
        with plainly(url, lambda: self._fetched(process, url)) as local, Path(local.path).open("rb") as file:
            for span in spans:
                _check(span, local.size)
            return [os.pread(file.fileno(), span.length, span.offset) for span in spans]

    def _fetched(self, process: Process, url: str) -> LocalFile:
        version = self._version(process, url, process.stop)
        digest = digest_of(self.options.digests, url)
        download = Download(process.access(url), self.options, process.counts, process.stop)
        wanted = Wanted.of_url(url, version, digest, lambda part: download.into(part, url, version, digest))
        local, is_made = process.cache.get(wanted)
        process.counts.add(**{"downloads" if is_made else "cache_hits": 1})
        return local


def _nothing(part: PartFile) -> None:
    """Downloads nothing."""


def _url(span: Span) -> str:
    return span.url


def _check(span: Span, size: int) -> None:
    if span.offset < 0 or span.length < 0:
        raise OutOfDatasetError(
            shown(span.url), "has no part that begins or is so long", (span.offset, span.length)
        )
    if size != UNKNOWN_SIZE and span.offset + span.length > size:
        last = span.offset + span.length
        problem = f"has {size} bytes, but those from {span.offset} to {last} were asked for"
        raise DatasetError(shown(span.url), problem, mend="it may have been cut: see whether it is whole")
