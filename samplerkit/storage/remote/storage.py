"""Remote files: their versions, parts of them, and whole ones in the cache of this machine."""

from __future__ import annotations

import hashlib
import logging
import os
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, final

from samplerkit.closing import Closing
from samplerkit.errors import DatasetError, OutOfDatasetError
from samplerkit.storage.opening import AbsentError
from samplerkit.storage.remote.access import UNKNOWN_SIZE, Refused, Requests, Span, Version, changed
from samplerkit.storage.remote.cache_entries import Entry, entry_of
from samplerkit.storage.remote.disk_cache import DiskCache, LocalFile, PartFile
from samplerkit.storage.remote.filesystem import Filesystems
from samplerkit.storage.remote.http import Http
from samplerkit.storage.remote.http_parallel import ParallelHttp
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.retries import Client, Counts, RemoteStats, final_error, retried, unless_closed
from samplerkit.storage.threads import Pool, Stop
from samplerkit.storage.urls import digest_of, identity, shown

__all__ = ["LocalFile", "RemoteStorage", "Span", "Version"]

Result = TypeVar("Result")

_LOG = logging.getLogger(__name__)


@final
class RemoteStorage(Closing):
    """Reads remote files, by HTTP or fsspec, and is certain of each byte.

    A version is asked once; all that is read later is checked against it: a file that changes while it is in
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
        self.options: Final = options
        self._versions: dict[str, Version] = {}
        self._resources_by_pid: dict[int, RemoteResources] = {}

    @property
    def stats(self) -> RemoteStats:
        """What this process has asked so far."""
        return self._resources().counts.stats

    def version(self, url: str) -> Version:
        """Returns the size and tag that a file had when it was first asked, by one request.

        Raises:
            DatasetError: there is no such file, it may not be read, or the server does not answer.
        """
        resources = self._resources()
        return resources.version(url, resources.stop)

    def know(self, url: str, version: Version) -> None:
        """Receives the version of a file, so that it is not asked: all that is read is checked against it.

        Raises:
            DatasetError: another version was met before.
        """
        if self._versions.setdefault(url, version) != version:
            raise final_error(url, changed())

    def read(self, spans: Sequence[Span]) -> list[bytes]:
        """Reads parts of files, `threads` requests at a time.

        Parts that are near one another share a request, and long ones have several. A server without range
        requests is noticed: then the whole file is fetched into the cache.

        Returns:
            The bytes of each part, in the order asked for.

        Raises:
            OutOfDatasetError: a part is outside of its file.
            DatasetError: a part cannot be read, or its file was changed.
        """
        resources, wanted = self._resources(), list(spans)
        if not wanted:
            return []
        return unless_closed(wanted[0].url, partial(self._read, resources, wanted))

    def read_small(self, url: str, most_bytes: int = 1 << 24) -> bytes | None:
        """Reads a small file as a whole by one request, past the cache: such as an index beside a shard.

        Returns:
            Its bytes; None if there is none, or it may not be read.

        Raises:
            DatasetError: the server does not answer, or the file is larger than `most_bytes`.
        """
        resources = self._resources()
        stop = resources.stop

        def attempt(client: Client) -> tuple[bytes, Version]:
            return client.small(url, most_bytes, stop)

        try:
            data, version = resources.tried(url, attempt, stop)
        except AbsentError:
            return None
        self.know(url, version)
        return data

    def read_shared(self, url: str, most_bytes: int) -> bytes | None:
        """Reads a file that all processes of this machine need as a whole: one of them fetches it.

        Each process asks for the version. Where the cache cannot be used, each fetches the file by itself.

        Returns:
            Its bytes; None if there is none, or it may not be read.

        Raises:
            DatasetError: the server does not answer, or the file is larger than `most_bytes`.
        """
        try:
            size = self.version(url).size
        except AbsentError:
            return None
        if size <= most_bytes:
            with suppress(DatasetError), self.fetch(url) as local:
                return Path(local.path).read_bytes()
        return self.read_small(url, most_bytes)

    def fetch(self, url: str) -> LocalFile:
        """Brings a whole file into the cache of this machine, unless it lies there.

        One process of the machine downloads it, the others wait for that; if it dies, another one takes over.

        Returns:
            The local file, pinned until it is closed: eviction does not take it.

        Raises:
            DatasetError: the file cannot be downloaded, has another size or digest than it must, or does not
                fit into the cache.
        """
        resources = self._resources()
        return unless_closed(url, partial(self._fetched, resources, url))

    def cached(self, url: str) -> LocalFile | None:
        """Gives a whole file if it lies in the cache of this machine; nothing is downloaded.

        Returns:
            The local file, pinned as by `fetch`; None if it is not there.

        Raises:
            DatasetError: its version is not known yet, and the server does not tell it.
        """
        cache = DiskCache.of(self.options, self._resources().stop)
        return cache.find(self._entry(cache, url, self.version(url)))

    def close(self) -> None:
        """Ends threads and connections; what is on its way in other threads fails. It can be used again."""
        resources = self._resources_by_pid.pop(os.getpid(), None)
        if resources is not None:
            resources.finalizer()
            self._resources_by_pid[os.getpid()] = self._new_resources(resources.counts.stats)

    def __getstate__(self) -> dict[str, Any]:
        # Neither connections and threads nor figures travel to another process.
        return {**self.__dict__, "_versions": dict(self._versions), "_resources_by_pid": {}}

    def _resources(self) -> RemoteResources:
        """What belongs to this process. A child gets its own: locks and threads do not survive a fork."""
        pid = os.getpid()
        resources = self._resources_by_pid.get(pid)
        if resources is None:
            self._resources_by_pid = {
                pid: self._resources_by_pid.setdefault(pid, self._new_resources(RemoteStats()))
            }
            resources = self._resources_by_pid[pid]
        return resources

    def _new_resources(self, stats: RemoteStats) -> RemoteResources:
        resources = RemoteResources(self.options, self._versions, stats)
        resources.finalizer = weakref.finalize(self, resources.end)
        return resources

    def _read(self, resources: RemoteResources, wanted: list[Span]) -> list[bytes]:
        urls, together = list(dict.fromkeys(span.url for span in wanted)), resources.pool.map
        together(resources.version, [url for url in urls if url not in self._versions])
        for span in wanted:
            _check(span, self._versions[span.url].size)
        whole = set(filter(resources.has_no_ranges, urls))
        requests = Requests.of(span for span in wanted if span.url not in whole and span.length)
        answers = resources.parts(requests.spans)
        found: dict[Span, bytes] = {}
        for url in filter(resources.has_no_ranges, urls):  # also those of which it was noticed now
            mine = [span for span in wanted if span.url == url]
            found.update(zip(mine, self._parts_of_whole(resources, url, mine), strict=True))
        return [found[span] if span in found else requests.taken(span, answers) for span in wanted]

    def _parts_of_whole(self, resources: RemoteResources, url: str, spans: Sequence[Span]) -> list[bytes]:
        with self._fetched(resources, url) as local, Path(local.path).open("rb") as file:
            found = []
            for span in spans:
                _check(span, local.size)
                file.seek(span.offset)
                found.append(file.read(span.length))
            return found

    def _fetched(self, resources: RemoteResources, url: str) -> LocalFile:
        version = resources.version(url, resources.stop)
        cache = DiskCache.of(self.options, resources.stop)
        write = partial(resources.download, url, version, digest_of(self.options.digests, url))
        local, is_made = cache.get(self._entry(cache, url, version), write)
        resources.counts.add(downloads=is_made)
        return local

    def _entry(self, cache: DiskCache, url: str, version: Version) -> Entry:
        digest = digest_of(self.options.digests, url)
        return entry_of(cache.folder, shown(url), identity(url), version, digest)


def _check(span: Span, size: int) -> None:
    if span.offset < 0 or span.length < 0:
        raise OutOfDatasetError(
            shown(span.url), "has no part that begins or is so long", (span.offset, span.length)
        )
    if size != UNKNOWN_SIZE and span.offset + span.length > size:
        last = span.offset + span.length
        problem = f"has {size} bytes, but those from {span.offset} to {last} were asked for"
        raise DatasetError(shown(span.url), problem, hint="it may have been cut: see whether it is whole")


@final
class RemoteResources:
    """What a remote storage holds in one process; a child gets its own.

    Args:
        options: how files are reached.
        versions: those that are known, by URL; it grows.
        stats: the figures to begin with.

    Attributes:
        stop: ends all that is on its way.
        counts: the figures.
        pool: the threads that read parts.
        finalizer: ends it when the storage is garbage, and at the interpreter's end.
    """

    finalizer: weakref.finalize[Any, Any]

    def __init__(self, options: RemoteOptions, versions: dict[str, Version], stats: RemoteStats) -> None:
        self.counts = Counts(stats)
        self._versions = versions
        self._pid = os.getpid()
        self._http = Http(options, self.counts)
        self._filesystems = Filesystems(options, self.counts)
        self.stop = Stop()
        self.pool = Pool(options.threads, "samplerkit-remote", self.stop)
        self._parallel = ParallelHttp(
            self._http.connections, self._http.plain_route, options.timeout, self.pool
        )

    def tried(self, url: str, attempt: Callable[[Client], Result], stop: Stop) -> Result:
        """Makes a request until it goes well: by HTTP, also for S3, or by fsspec.

        Raises:
            DatasetError: it does not; `AbsentError` where there is no such file, or it may not be read.
        """
        client = self._http if self._http.serves(url) else self._filesystems
        return retried(url, client, attempt, stop)

    def version(self, url: str, stop: Stop) -> Version:
        """Gives the version of a file, asked if it is not known."""
        known = self._versions.get(url)
        if known is not None:
            return known
        found = self.tried(url, lambda client: client.version(url, stop), stop)
        return self._versions.setdefault(url, found)

    def parts(self, spans: Sequence[Span]) -> list[bytes]:
        """Reads parts of files whose versions are known: by plain requests of HTTP where that will do.

        What is found to have no ranges is left empty: see `has_no_ranges`.
        """
        answers = self._parallel.read(spans, self._versions, self.stop)
        found = {number: data for number, data in answers.items() if isinstance(data, bytes)}
        failures = {number: error for number, error in answers.items() if isinstance(error, Exception)}
        self.counts.add(requests=len(answers), bytes=sum(map(len, found.values())))

        def again(number: int, stop: Stop) -> bytes:
            url, offset, length = spans[number]
            version = self._versions[url]

            def attempt(client: Client) -> bytes:
                if number in failures:  # the first attempt was made already
                    raise failures.pop(number)
                return client.part(url, version, offset, length, stop)

            return self.tried(url, attempt, stop)

        for number, failure in failures.items():
            if isinstance(failure, Refused):  # so the others are given up
                raise final_error(spans[number].url, failure)
        left = [number for number in range(len(spans)) if number not in found]
        found.update(zip(left, self.pool.map(again, left), strict=True))
        self.pool.map(self._confirm, list(dict.fromkeys(spans[number].url for number in left)))
        return [found[number] for number in range(len(spans))]

    def _confirm(self, url: str, stop: Stop) -> None:
        """Makes certain that parts that were read are of the version that is known."""
        version = self._versions[url]
        self.tried(url, lambda client: client.confirm(url, version, stop), stop)

    def has_no_ranges(self, url: str) -> bool:
        """Whether only the whole of a file can be had, of which the version is known."""
        return self._versions[url].size == UNKNOWN_SIZE or url in self._http.without_ranges

    def download(self, url: str, version: Version, digest: str | None, part: PartFile) -> None:
        """Downloads a whole file.

        Args:
            url: of the file.
            version: that it must be of.
            digest: that it must have, such as "sha256:9f86d0...", or None.
            part: to write to.

        Raises:
            DatasetError: it cannot be read, was changed, does not fit on the disk, or has twice come with
                another digest.
            Stopped: it is not wanted any more.
        """
        found = self._arrived(url, version, digest, part)
        if digest not in {None, found}:
            _LOG.warning("%s: has another digest than was given; it is downloaded again", shown(url))
            self.counts.add(retries=1)
            found = self._arrived(url, version, digest, part)
        if digest not in {None, found}:
            problem = f"has the digest {found}, though {digest} was given, also at a second download"
            raise DatasetError(shown(url), problem, hint="correct digests, or the file")

    def _arrived(self, url: str, version: Version, digest: str | None, part: PartFile) -> str:
        """Downloads all of it, and resumes after a break where the version allows that; gives its digest."""
        algorithm = (digest or "sha256").partition(":")[0]
        hasher: Any = None

        def attempt(client: Client) -> None:
            nonlocal hasher
            if hasher is None or not version.may_resume:
                part.restart()
                hasher = hashlib.new(algorithm, usedforsecurity=False)
            for piece in client.rest(
                url, version, part.written, self.pool, self.stop, is_verified=digest is not None
            ):
                part.write(piece)
                if digest is not None:
                    hasher.update(piece)

        self.tried(url, attempt, self.stop)
        return f"{algorithm}:{hasher.hexdigest()}"

    def end(self) -> None:
        """Ends what is on its way, the threads and the connections."""
        if self._pid != os.getpid():  # locks may have been held when this process was forked
            return
        self.stop.set()
        self.pool.end()
        self._http.close()
