"""Downloading a whole file: resuming after a break, and checking it against its digest."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.attempt import UNKNOWN_SIZE, Access, Refused, Streamed, Transient, Version
from samplerkit.storage.remote.cache_eviction import PartFile
from samplerkit.storage.remote.resources import RemoteResources
from samplerkit.storage.threads import Stop
from samplerkit.storage.urls import shown


def digest_of(digests: Mapping[str, str] | None, url: str) -> str | None:
    """Finds the digest of a URL: by the URL, else by the longest end of its path that is named.

    Args:
        digests: by URL, or by the last parts of a path, such as "a.tar" and "train/a.tar".
        url: of the file.

    Returns:
        As it was given, such as "sha256:9f86d0..."; None if none was.

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


def download(
    resources: RemoteResources, url: str, version: Version, digest: str | None, part: PartFile
) -> None:
    """Downloads a whole file.

    Args:
        resources: of this process.
        url: of the file.
        version: that it must be of.
        digest: that it must have, such as "sha256:9f86d0...", or None.
        part: to write to.

    Raises:
        DatasetError: it cannot be read, was changed, does not fit on the disk, or has twice come with another
            digest.
        Stopped: it is not wanted any more.
    """
    found = _arrived(resources, url, version, digest, part)
    if digest is None or found == digest:
        return
    _LOG.warning("%s: has another digest than was given; it is downloaded again", shown(url))
    resources.counts.add(retries=1)
    part.restart()
    found = _arrived(resources, url, version, digest, part)
    if found != digest:
        problem = f"has the digest {found}, though {digest} was given, also at a second download"
        raise DatasetError(shown(url), problem, hint="correct digests, or the file")


def _arrived(
    resources: RemoteResources, url: str, version: Version, digest: str | None, part: PartFile
) -> str:
    """Downloads all of it, and resumes after a break where the version allows that; gives its digest."""
    algorithm = (digest or "sha256").partition(":")[0]
    hasher: Any = None

    def attempt(access: Access) -> None:
        nonlocal hasher
        if hasher is None or not access.may_resume(version):
            part.restart()
            hasher = hashlib.new(algorithm, usedforsecurity=False)
        if part.written < version.size or version.size in {0, UNKNOWN_SIZE}:
            for piece in _rest(resources, access, url, version, part.written, is_verified=digest is not None):
                part.write(piece)
                if digest is not None:
                    hasher.update(piece)
        if version.size not in {UNKNOWN_SIZE, part.written}:
            raise Transient(f"{part.written} bytes, though the file has {version.size}")

    resources.tried(url, attempt, resources.stop, is_data=True)
    return f"{algorithm}:{hasher.hexdigest()}"


def _rest(
    resources: RemoteResources, access: Access, url: str, version: Version, offset: int, *, is_verified: bool
) -> Iterator[bytes]:
    """Reads a file from a byte on to its end."""
    if isinstance(access, Streamed):
        yield from access.rest(url, version, offset, resources.stop, is_verified=is_verified)
        return
    if version.size == UNKNOWN_SIZE:
        raise Refused("has no size by its filesystem, so a break could not be noticed")

    def part(at: int, stop: Stop) -> bytes:
        return access.part(url, version, at, min(_PIECE, version.size - at), stop)

    places = range(offset, version.size, _PIECE)
    for first in range(0, len(places), _AT_A_TIME):
        yield from resources.pool.map(part, places[first : first + _AT_A_TIME])
    access.confirm(url, version, resources.stop)
