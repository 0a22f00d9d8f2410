"""What a remote storage holds in one process: clients, threads, figures; and what is asked by them."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, final

from samplerkit.storage.remote.access import UNKNOWN_SIZE, Refused, Span, Version
from samplerkit.storage.remote.filesystem import Filesystems
from samplerkit.storage.remote.http import Http
from samplerkit.storage.remote.http_parallel import ParallelHttp
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.retries import Client, Counts, RemoteStats, final_error, retried
from samplerkit.storage.threads import Pool, Stop

Result = TypeVar("Result")


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

    def client(self, url: str) -> Client:
        """Gives the way to a URL: HTTP, also for S3, or fsspec."""
        return self._http if self._http.serves(url) else self._filesystems

    def tried(self, url: str, attempt: Callable[[Client], Result], stop: Stop) -> Result:
        """Makes a request by the way to its URL until it goes well.

        Raises:
            DatasetError: it does not; `AbsentError` where there is no such file, or it may not be read.
        """
        return retried(url, self.client(url), attempt, stop)

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
                if (failure := failures.pop(number, None)) is not None:  # the first attempt was made already
                    raise failure
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

    def end(self) -> None:
        """Ends what is on its way, the threads and the connections."""
        if self._pid != os.getpid():  # locks may have been held when this process was forked
            return
        self.stop.set()
        self.pool.end()
        for client in (self._http, self._filesystems):
            client.close()
