"""Downloading a whole file: going on after a break, and holding it against its digest."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any, final

from samplerkit.storage.remote.attempt import UNKNOWN_SIZE, Access, Refused, Streamed, Transient, Version
from samplerkit.storage.remote.cache_eviction import PartFile
from samplerkit.storage.remote.counts import Counts
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.retries import retried
from samplerkit.storage.threads import Pool, Stop
from samplerkit.storage.urls import shown


def digest_of(digests: Mapping[str, str] | None, url: str) -> str | None:
    """Finds the digest of a URL: by the URL, else by the longest end of its path that is named.

    Args:
        digests: by URL, or by the last parts of a path, such as "a.tar" and "train/a.tar".
        url: of the file.

    Returns:
        As it was told, such as "sha256:9f86d0..."; None if none was.

    Example:
        >>> digest_of({"a.tar": "md5:1", "train/a.tar": "md5:2"}, "https://host/train/a.tar?token=5")
        'md5:2'
    """
    if not digests:
        return None
    address = shown(url)
    for name in (url, address):
        if name in digests:
            return digests[name]
    parts = address.split("/")
    ends = ("/".join(parts[first:]) for first in range(3, len(parts)))
    return next((digests[end] for end in ends if end in digests), None)


_LOG = logging.getLogger(__name__)

_PIECE = 4 << 20
"""Bytes of a whole file that one request asks for, where answers cannot be read bit by bit."""

_AT_A_TIME = 4
"""Such pieces that are on their way at a time: one connection of a store is slower than the network."""


@final
class Download:
    """Downloads a whole file."""

    def __init__(
        self, access: Access, options: RemoteOptions, counts: Counts, pool: Pool, stop: Stop
    ) -> None:
        self._access = access
        self._options = options
        self._counts = counts
        self._pool = pool
        self._stop = stop

    def into(self, part: PartFile, url: str, version: Version, digest: str | None) -> None:
        """Writes a file.

        Args:
            part: to write to.
            url: of the file.
            version: that it must be of.
            digest: that it must have, such as "sha256:9f86d0...", or None.

        Raises:
            DatasetError: it cannot be read, or does not fit on the disk.
            Refused: it may not be read, was changed, or has twice come with another digest.
            Stopped: it is not wanted any more.
        """
        for is_last in (False, True):
            found = self._arrived(part, url, version, digest)
            if digest is None or found == digest:
                return
            if is_last:
                problem = f"has the digest {found}, though {digest} was told, also at a second download"
                raise Refused(problem, "correct digests, or the file")
            _LOG.warning("%s: has another digest than was told; it is downloaded again", shown(url))
            self._counts.add(retries=1)
            part.restart()

    def _arrived(self, part: PartFile, url: str, version: Version, digest: str | None) -> str:
        """Downloads all of it; gives its digest."""
        algorithm = "" if digest is None else digest.partition(":")[0]
        hasher: Any = None

        def attempt() -> None:
            nonlocal hasher
            if hasher is None or not self._access.may_resume(version):
                part.restart()
                hasher = hashlib.new(algorithm, usedforsecurity=False) if algorithm else hashlib.sha256()
            is_verified = digest is not None
            if part.written < version.size or version.size in {0, UNKNOWN_SIZE}:
                for piece in self._rest(url, version, part.written, is_verified=is_verified):
                    part.write(piece)
                    if is_verified:
                        hasher.update(piece)
            if version.size not in {UNKNOWN_SIZE, part.written}:
                raise Transient(f"{part.written} bytes, though the file has {version.size}")

        retried(url, attempt, self._options, self._counts, self._stop)
        return f"{algorithm}:{hasher.hexdigest()}"

    def _rest(self, url: str, version: Version, offset: int, *, is_verified: bool) -> Iterator[bytes]:
        """Reads a file from a byte on to its end."""
        access = self._access
        if isinstance(access, Streamed):
            yield from access.rest(url, version, offset, self._stop, is_verified=is_verified)
            return
        if version.size == UNKNOWN_SIZE:
            raise Refused("has no size that its filesystem tells, so a break could not be noticed")

        def part(at: int, stop: Stop) -> bytes:
            return access.part(url, version, at, min(_PIECE, version.size - at), stop)

        places = range(offset, version.size, _PIECE)
        for first in range(0, len(places), _AT_A_TIME):
            yield from self._pool.map(part, places[first : first + _AT_A_TIME])
        access.confirm(url, version, self._stop)
