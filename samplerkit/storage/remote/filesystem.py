"""Remote files through fsspec: S3, Google's and Azure's stores, HDFS, and what a user registers."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Coroutine, Iterator
from importlib import import_module
from typing import Any, TypeVar, final

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.attempt import (
    UNKNOWN_SIZE,
    Refused,
    Transient,
    Version,
    changed,
    in_other_words,
)
from samplerkit.storage.remote.counts import Counts
from samplerkit.storage.remote.filesystem_kinds import (
    is_changed,
    is_s3,
    names_version,
    plain_fault,
    s3_defaults,
    s3_part,
)
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.threads import Stop, Stopped, bounded
from samplerkit.storage.urls import shown

PIECE = 8 << 20
"""Bytes of a whole file that are asked for at a time."""

_MIB = 1 << 20

_TAGS = (
    "ETag", "etag", "generation", "md5Hash", "md5", "content_md5", "checksum", "crc32c",
    "mtime", "LastModified", "last_modified", "modified", "updated", "modificationTime", "created",
)  # fmt: skip
"""What tells versions apart, by the names that filesystems have for it; the best first."""

OF_HTTP = {"headers", "auth", "verify", "cert"}
"""The storage options that are for HTTP alone."""

Result = TypeVar("Result")


@final
class Filesystems:
    """The filesystems of one process, each method one attempt.

    They are made in the process that uses them: connections and event loops do not survive a fork.

    Args:
        options: how they are made.
        counts: of the requests and bytes.
    """

    def __init__(self, options: RemoteOptions, counts: Counts) -> None:
        self._options = options
        self._counts = counts
        self._lock = threading.Lock()
        self._made: dict[str, Any] = {}
        self.without_ranges: set[str] = set()

    def version(self, url: str, stop: Stop) -> Version:
        """Asks for the size and the tag by `info`, past the listings that fsspec keeps."""
        filesystem, path = self._opened(url)

        def ask() -> Any:
            filesystem.invalidate_cache(path)
            return filesystem.info(path)

        info = self._called(ask, 0, stop)
        if info.get("type") == "directory":
            raise Refused("is a folder", "give its files")
        size = info.get("size")
        tag = next((f"{name} {info[name]}" for name in _TAGS if info.get(name)), "")
        return Version(UNKNOWN_SIZE if size is None else int(size), tag)

    def part(self, url: str, version: Version, offset: int, length: int, stop: Stop) -> bytes:
        """Reads a part of a file, of at least one byte; except on S3, of whatever version there is."""
        filesystem, path = self._opened(url)

        def ask() -> bytes:
            if is_s3(filesystem):
                reading = s3_part(filesystem, path, version.tag, offset, length)
                return _awaited(filesystem, reading, self._seconds(length))
            return bytes(filesystem.cat_file(path, start=offset, end=offset + length))

        data = self._called(ask, length, stop)
        self._counts.add(bytes=len(data))
        if len(data) != length:
            raise Transient(f"{len(data)} bytes came in place of {length}")
        return data

    def rest(
        self, url: str, version: Version, offset: int, stop: Stop, *, is_verified: bool = False
    ) -> Iterator[bytes]:
        """Reads a file from a byte on to its end, part by part."""
        if version.size == UNKNOWN_SIZE:
            raise Refused("has no size that its filesystem tells, so a break could not be noticed")
        for at in range(offset, version.size, PIECE):
            yield self.part(url, version, at, min(PIECE, version.size - at), stop)
        self.confirm(url, version, stop)

    def small(self, url: str, most: int, stop: Stop) -> tuple[bytes, Version]:
        """Reads a whole small file, after asking for its version."""
        version = self.version(url, stop)
        if version.size > most:
            raise Refused(f"has {version.size} bytes, but {most} are the most that are read at once")
        data = self.part(url, version, 0, version.size, stop) if version.size else b""
        self.confirm(url, version, stop)
        return data, version

    def put(self, url: str, data: bytes, stop: Stop) -> None:
        """Writes a small file as a whole."""
        filesystem, path = self._opened(url)
        self._called(lambda: filesystem.pipe_file(path, data), len(data), stop)

    def confirm(self, url: str, version: Version, stop: Stop) -> None:
        """Asks for the version again; except on S3, where each part was asked for by its version."""
        filesystem, _ = self._opened(url)
        if not (is_s3(filesystem) and version.tag.startswith("ETag")) and self.version(url, stop) != version:
            raise changed()

    def may_resume(self, version: Version) -> bool:
        """Tells whether a broken download may go on where it broke."""
        return bool(version.tag)

    def matches(self, pattern: str, stop: Stop) -> tuple[str, ...]:
        """Lists the files that a pattern means, as URLs sorted by bytes."""
        filesystem, path = self._opened(pattern)

        def ask() -> Any:
            filesystem.invalidate_cache()
            return filesystem.glob(path, detail=True)

        found = self._called(ask, 100 * _MIB, stop)
        paths = [name for name, info in found.items() if info.get("type") != "directory"]
        # What stands before the path, such as the host of `ftp://host/path`, is not in what is listed.
        before = pattern[: -len(path)] if pattern.endswith(path) else None
        urls = [filesystem.unstrip_protocol(name) if before is None else before + name for name in paths]
        return tuple(sorted(urls, key=lambda url: url.encode("utf-8", "surrogateescape")))

    def close(self) -> None:
        """Lets go of the filesystems; fsspec closes their connections when they are garbage."""
        with self._lock:
            self._made = {}

    def _opened(self, url: str) -> tuple[Any, str]:
        """Gives the filesystem of a URL, and the path in it."""
        scheme, _, rest = url.partition("://")
        key = url if "::" in url else f"{scheme}://{rest.partition('/')[0]}"
        key += "?" * names_version(url)  # other options
        with self._lock:
            made = self._made.get(key)
            if made is None:
                made = self._made[key] = opened_filesystem(url, self._options)
        filesystem, path = made
        return filesystem, path if "::" in url else str(filesystem._strip_protocol(url))

    def _seconds(self, length: int) -> float:
        """Gives the time that a call may take: as with HTTP, so long for each MiB, and once for its head."""
        return self._options.timeout * (1 + math.ceil(length / _MIB))

    def _called(self, call: Callable[[], Result], length: int, stop: Stop) -> Result:
        """Calls a filesystem; its exceptions, which may hold what is private, become ours."""
        seconds = self._seconds(length)
        self._counts.add(requests=1)

        def said(error: Exception) -> Exception:
            if isinstance(error, Stopped):
                return error
            if isinstance(error, TimeoutError):
                return Transient(f"no answer in time, which is {seconds:g} s at most")
            return changed() if is_changed(error) else plain_fault(error)

        # Filesystems of all kinds raise errors of all kinds.
        return in_other_words(lambda: bounded(call, seconds, stop), Exception, said)


def opened_filesystem(url: str, options: RemoteOptions) -> tuple[Any, str]:
    """Makes the filesystem of a URL.

    Returns:
        The filesystem, and the path in it.

    Raises:
        DatasetError: fsspec, or its package for the scheme, is not there; or there is no such scheme.
    """
    try:
        # An extra: only URLs other than those of HTTP need it.
        core = import_module("fsspec.core")
    except ImportError as error:
        mend = 'install it with: pip install "samplerkit[remote]"'
        raise DatasetError("remote", "needs fsspec, which is not installed", mend=mend) from error
    given = {key: value for key, value in options.storage_options.items() if key not in OF_HTTP}
    try:
        filesystem, path = core.url_to_fs(url, **s3_defaults(url, given, options.timeout))
    except ImportError as missing:
        needs = f" ({missing.name})" if missing.name else ""
        failed = f"needs a package that is not installed{needs}", "install fsspec's package for its scheme"
    except Exception as other:  # filesystems of all kinds raise errors of all kinds
        failed = (
            f"its filesystem cannot be made ({type(other).__name__})",
            "check its scheme and storage_options",
        )
    else:
        if is_s3(filesystem):
            filesystem.retries = 1  # trying again is our business, so that attempts are counted
        return filesystem, str(path)
    raise DatasetError(shown(url), failed[0], mend=failed[1])


def _awaited(filesystem: Any, reading: Coroutine[Any, Any, bytes], seconds: float) -> bytes:
    """Runs a coroutine in the event loop of a filesystem; what takes too long is ended there."""
    limited = asyncio.wait_for(reading, seconds)
    return asyncio.run_coroutine_threadsafe(limited, filesystem.loop).result()
