"""Downloading a whole file: going on after a break, and holding it against its digest."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import Any, final

from samplerkit.storage.remote.attempt import UNKNOWN_SIZE, Access, Refused, Transient, Version
from samplerkit.storage.remote.counts import Counts
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.retry import retried
from samplerkit.storage.remote.room import PartFile
from samplerkit.storage.threads import Stop
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


@final
class Download:
    """Downloads a whole file."""

    def __init__(self, access: Access, options: RemoteOptions, counts: Counts, stop: Stop) -> None:
        self._access = access
        self._options = options
        self._counts = counts
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
                for piece in self._access.rest(
                    url, version, part.written, self._stop, is_verified=is_verified
                ):
                    part.write(piece)
                    if is_verified:
                        hasher.update(piece)
            if version.size not in {UNKNOWN_SIZE, part.written}:
                raise Transient(f"{part.written} bytes, though the file has {version.size}")

        retried(url, attempt, self._options, self._counts, self._stop)
        return f"{algorithm}:{hasher.hexdigest()}"
