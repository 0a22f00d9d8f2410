"""`RemoteStorage`: versions of remote files, parts of them, and whole files in the cache of this machine."""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, final

from samplerkit.closing import Closing
from samplerkit.errors import DatasetError
from samplerkit.storage.file_stats import FileStats
from samplerkit.storage.open_files import AbsentError
from samplerkit.storage.remote.access import Refused, Requests, Span, Transient, Version, changed
from samplerkit.storage.remote.cache_entries import Entry, entry_of
from samplerkit.storage.remote.disk_cache import DiskCache, LocalFile, PartFile
from samplerkit.storage.remote.filesystem import Filesystems
from samplerkit.storage.remote.http import Http
from samplerkit.storage.remote.http_parallel import ParallelHttp
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.retries import MAX_BYTES, Client, Counts, final_error, retry
from samplerkit.storage.threads import Pool, Stop
from samplerkit.storage.urls import digest_of, identity, shown

__all__ = ["LocalFile", "RemoteStorage", "Span", "Version"]

Result = TypeVar("Result")


@final
class RemoteStorage(Closing):
    """Reads remote files by HTTP or fsspec, and checks everything against one version of each file.

    The version is requested once, and all later reads are checked against it: a file that changes while it is
    in use raises an error, and versions are never mixed. It is thread-safe, may be forked, and may be pickled
    together with the known versions, so that workers agree. Each process has its own connections.

    Args:
        options: options for access, retries and the cache.

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
        self.options: Final = options
        self._versions: dict[str, Version] = {}
        self._resources_by_pid: dict[int, RemoteResources] = {}

    @property
    def stats(self) -> FileStats:
        """The counters of requests by this process."""
        return self._resources().counts.stats

    def version(self, url: str) -> Version:
        """Returns the size and tag that a file had at its first request; takes at most one request.

        Raises:
            DatasetError: the file does not exist, may not be read, or the server does not answer.
        """
        resources = self._resources()
        return resources.version(url, resources.stop)

    def set_version(self, url: str, version: Version) -> None:
        """Sets the version of a file, so that it is not requested; all reads are checked against it.

        Raises:
            DatasetError: another version is known already.
        """
        if self._versions.setdefault(url, version) != version:
            raise final_error(url, changed())

    def read(self, spans: Sequence[Span]) -> list[bytes]:
        """Reads parts of files, with `threads` requests in parallel.

        Parts that are close together share a request, and long ones are split. If a server does not support
        range requests, the whole file is fetched into the cache.

        Returns:
            The bytes of each part, in the given order.

        Raises:
            DatasetError: a part cannot be read or ends beyond its file, or the file was changed.
        """
        parts = list(spans)
        return self._resources().read(parts) if parts else []

    def read_small(self, url: str) -> bytes | None:
        """Reads a whole small file by one request, without the cache, such as an index next to a shard.

        Returns:
            Its bytes; None if the file does not exist or may not be read.

        Raises:
            DatasetError: the server does not answer, or the file is larger than 1 GiB or has a wrong digest.
        """
        resources, digest = self._resources(), digest_of(self.options.digests, url)
        stop = resources.stop

        def attempt(client: Client) -> tuple[bytes, Version]:
            data, version = client.small(url, stop)
            if digest is not None:
                _require_digest(digest, _hasher(digest, data))
            return data, version

        try:
            data, version = resources.request(url, attempt, stop)
        except AbsentError:
            return None
        self.set_version(url, version)
        return data

    def read_shared(self, url: str) -> bytes | None:
        """Reads a whole file that all processes of this machine need; one of them fetches it into the cache.

        Each process requests the version. If the cache cannot be used, each process fetches the file.

        Returns:
            Its bytes; None if the file does not exist or may not be read.

        Raises:
            DatasetError: the server does not answer, or the file is larger than 1 GiB or has a wrong digest.
        """
        try:
            size = self.version(url).size
        except AbsentError:
            return None
        if size <= MAX_BYTES:
            with suppress(DatasetError), self.fetch(url) as local:
                return Path(local.path).read_bytes()
        return self.read_small(url)

    def fetch(self, url: str) -> LocalFile:
        """Fetches a whole file into the cache of this machine, unless it is there.

        One process of the machine downloads it, and others wait; if it dies, another one takes over.

        Returns:
            The local file, pinned: it is not evicted until it is closed.

        Raises:
            DatasetError: the file cannot be downloaded, has a wrong size or digest, or does not fit into the
                cache.
        """
        return self._resources().fetch(url)

    def cached(self, url: str) -> LocalFile | None:
        """Returns a whole file if it is in the cache of this machine; does not download it.

        Returns:
            The local file, pinned as by `fetch`; None if it is not in the cache.

        Raises:
            DatasetError: its version is not known yet and cannot be requested.
        """
        resources = self._resources()
        return resources.cache.find(resources.entry(url))

    def close(self) -> None:
        """Ends threads and connections; reads in other threads fail. The storage can be used again."""
        resources = self._resources_by_pid.pop(os.getpid(), None)
        if resources is not None:
            resources.finalizer()
            self._resources_by_pid[os.getpid()] = RemoteResources(self, self._versions, resources.counts)

    def __getstate__(self) -> dict[str, Any]:
        # Connections, threads and counters are not pickled.
        return {**self.__dict__, "_versions": dict(self._versions), "_resources_by_pid": {}}

    def _resources(self) -> RemoteResources:
        """Returns the resources of this process; a child has its own, since threads do not survive a fork."""
        pid = os.getpid()
        resources = self._resources_by_pid.get(pid)
        if resources is None:  # another thread may make them at the same time
            resources = RemoteResources(self, self._versions, Counts())
            resources = self._resources_by_pid.setdefault(pid, resources)
            self._resources_by_pid = {pid: resources}
        return resources


def _hasher(digest: str | None, data: bytes = b"") -> Any:
    return hashlib.new((digest or "sha256").partition(":")[0], data, usedforsecurity=False)


def _require_digest(digest: str | None, hasher: Any) -> None:
    """Compares the digest of a received file with the given one; another attempt may receive another file."""
    actual = f"{hasher.name}:{hasher.hexdigest()}"
    if digest not in {None, actual}:
        raise Transient(f"the digest is {actual}, but {digest} was given")


def _check(span: Span, size: int) -> None:
    if not 0 <= span.offset <= span.offset + span.length <= size:
        last = span.offset + span.length
        problem = f"has {size} bytes, but those from {span.offset} to {last} were requested"
        raise DatasetError(shown(span.url), problem, hint="it may have been truncated: check the file")


class RemoteResources:
    """The clients, threads and counters of a remote storage in one process; a child has its own.

    Args:
        storage: the storage, with its options; no reference to it is kept.
        versions: the known versions by URL; new ones are added.
        counts: the counters.

    Attributes:
        stop: stops all requests.
        cache: the cache of this machine.
        counts: the counters.
        finalizer: calls `end` when the storage is garbage collected, and at interpreter exit.
    """

    def __init__(self, storage: RemoteStorage, versions: dict[str, Version], counts: Counts) -> None:
        options = storage.options
        self.counts = counts
        self._versions = versions
        self._digests = options.digests
        self._pid = os.getpid()
        self._http = Http(options, counts)
        self._filesystems = Filesystems(options, counts)
        self.stop = Stop()
        self.cache = DiskCache(options, self.stop)
        self._pool = Pool(options.threads, "samplerkit-remote", self.stop)
        self._parallel = ParallelHttp(self._http, self._pool)
        self.finalizer = weakref.finalize(storage, self.end)

    def request(self, url: str, attempt: Callable[[Client], Result], stop: Stop) -> Result:
        """Makes a request with retries: by HTTP, also for S3, or by fsspec.

        Raises:
            DatasetError: the request failed; an `AbsentError` if the file does not exist or may not be read.
        """
        client = self._http if self._http.serves(url) else self._filesystems
        return retry(url, client, attempt, stop)

    def version(self, url: str, stop: Stop) -> Version:
        """Returns the version of a file; requests it if it is not known."""
        cached = self._versions.get(url)
        if cached is not None:
            return cached
        version = self.request(url, lambda client: client.version(url, stop), stop)
        return self._versions.setdefault(url, version)

    def read(self, spans: Sequence[Span]) -> list[bytes]:
        """Reads parts of files: see `RemoteStorage.read`."""
        urls = list(dict.fromkeys(span.url for span in spans))
        self._pool.map(self.version, [url for url in urls if url not in self._versions])
        for span in spans:
            _check(span, self._versions[span.url].size)
        without_ranges = self._http.without_ranges
        requests = Requests.of(span for span in spans if span.url not in without_ranges and span.length)
        answers = self._parts(requests.spans)
        parts: dict[Span, bytes] = {}
        for url in without_ranges.intersection(urls):  # including those detected just now
            with self.fetch(url) as local, Path(local.path).open("rb") as file:
                for span in (span for span in spans if span.url == url):
                    file.seek(span.offset)
                    parts[span] = file.read(span.length)
        return [parts[span] if span in parts else requests.extract(span, answers) for span in spans]

    def fetch(self, url: str) -> LocalFile:
        """Fetches a whole file into the cache: see `RemoteStorage.fetch`."""
        local, is_new = self.cache.get(self.entry(url), partial(self._download, url))
        self.counts.add(downloads=is_new)
        return local

    def entry(self, url: str) -> Entry:
        """Returns the entry of a file in the cache; requests its version if it is not known."""
        version, digest = self.version(url, self.stop), digest_of(self._digests, url)
        return entry_of(self.cache.folder, shown(url), identity(url), version, digest)

    def _parts(self, spans: Sequence[Span]) -> list[bytes]:
        """Reads parts of files whose versions are known, by `ParallelHttp` as far as possible.

        Parts of files whose servers turn out not to support ranges are empty: see `Http.without_ranges`.
        """
        answers = self._parallel.read(spans, self._versions, self.stop)
        parts = {number: data for number, data in answers.items() if isinstance(data, bytes)}
        failures = {number: error for number, error in answers.items() if isinstance(error, Exception)}
        self.counts.add(requests=len(answers), bytes_downloaded=sum(map(len, parts.values())))

        def read_part(number: int, stop: Stop) -> bytes:
            url, offset, length = spans[number]
            version = self._versions[url]

            def attempt(client: Client) -> bytes:
                if number in failures:  # the first attempt was made already
                    raise failures.pop(number)
                return client.part(url, version, offset, length, stop)

            return self.request(url, attempt, stop)

        for number, failure in failures.items():
            if isinstance(failure, Refused):  # the other parts were stopped
                raise final_error(spans[number].url, failure)
        remaining = [number for number in range(len(spans)) if number not in parts]
        parts.update(zip(remaining, self._pool.map(read_part, remaining), strict=True))
        urls = dict.fromkeys(spans[number].url for number in remaining)
        self._pool.map(self._confirm, [url for url in urls if not self._http.serves(url)])
        return [parts[number] for number in range(len(spans))]

    def _confirm(self, url: str, stop: Stop) -> None:
        """Checks that parts that were read are of the known version; by HTTP, each response is checked."""
        version = self._versions[url]
        retry(url, self._filesystems, lambda client: client.confirm(url, version, stop), stop)

    def _download(self, url: str, part: PartFile) -> None:
        """Downloads a whole file of a known version, resuming broken downloads if possible.

        Raises:
            DatasetError: the file cannot be read, was changed, does not fit on the disk, or has a wrong
                digest.
            Stopped: the storage was closed.
        """
        digest, version = digest_of(self._digests, url), self._versions[url]
        hasher: Any = None

        def attempt(client: Client) -> None:
            nonlocal hasher
            if hasher is None or not version.may_resume:
                part.restart()
                hasher = _hasher(digest)
            for piece in client.rest(url, version, part.written, self._pool, self.stop):
                part.write(piece)
                if digest is not None:
                    hasher.update(piece)
            complete, hasher = hasher, None
            _require_digest(digest, complete)

        self.request(url, attempt, self.stop)

    def end(self) -> None:
        """Stops all requests, and ends the threads and the connections."""
        if self._pid != os.getpid():  # at the fork, locks may have been held
            return
        self.stop.set()
        self._pool.end()
        self._http.connections.close()
