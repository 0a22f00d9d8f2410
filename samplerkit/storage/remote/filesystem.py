"""Remote files through fsspec, such as S3, Google, Azure and HDFS; and small files, local or remote."""

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from samplerkit.errors import DatasetError
from samplerkit.storage.atomic import atomic
from samplerkit.storage.names import may_match_folders
from samplerkit.storage.remote.access import (
    Refused,
    Transient,
    Version,
    library_fault,
    no_size,
    translate_errors,
)
from samplerkit.storage.remote.options import HTTP_OPTIONS, RemoteOptions
from samplerkit.storage.remote.retries import Client, Counts, check_small, retry
from samplerkit.storage.threads import Pool, Stop, importing, with_timeout
from samplerkit.storage.urls import has_pattern, has_version, is_remote, is_s3, is_web, shown

_MIB = 1 << 20

_TAGS = (
    "ETag", "generation", "etag", "md5Hash", "md5", "content_md5", "checksum", "crc32c",
    "mtime", "LastModified", "last_modified", "modified", "updated", "modificationTime", "created",
)  # fmt: skip
"""The keys of versions in `info` of filesystems; the best first."""

_PART = 4 << 20
"""Bytes of a whole file per request, for clients whose responses cannot be streamed."""

_PARALLEL = 4
"""Such requests that run in parallel, since one connection to a store is slower than the network."""

Result = TypeVar("Result")

_opened: list[Any] = []
"""All filesystems that this process and its ancestors by fork have opened; fsspec also keeps them.

In a child they must not be garbage collected: that would remove their connections from the event loop of the
parent, whose descriptors the child shares, so that the parent would wait forever for received responses.
"""


class Filesystems(Client):
    """The fsspec filesystems of one process, since connections and event loops do not survive a fork."""

    def __init__(self, options: RemoteOptions, counts: Counts) -> None:
        super().__init__(options, counts)
        self._lock = threading.Lock()
        self._by_key: dict[str, Any] = {}

    def version(self, url: str, stop: Stop) -> Version:
        """Requests the size and the tag by `info`, bypassing the listings that fsspec caches."""
        filesystem, path = self._open(url)
        filesystem.invalidate_cache(path)
        info = self._call(lambda: filesystem.info(path), 0, stop)
        if info.get("type") == "directory":
            raise Refused("is a folder", "give its files")
        if info.get("size") is None:
            raise no_size()
        # Azure's tag has quotes or not, depending on the request.
        tag = next((f"{name} {info[name]}" for name in _TAGS if info.get(name)), "")
        tag = tag.removeprefix("ETag ").replace('etag "', "etag ")  # for S3 the same as by HTTP
        tag = tag.rstrip('"') if tag.startswith("etag ") else tag
        return Version(int(info["size"]), tag)

    def part(self, url: str, version: Version, offset: int, length: int, stop: Stop) -> bytes:
        """Reads a part of at least one byte of a file, in whatever version the file has."""
        filesystem, path = self._open(url)
        end = offset + length
        data = self._call(lambda: bytes(filesystem.cat_file(path, start=offset, end=end)), length, stop)
        self.counts.add(bytes_downloaded=len(data))
        if len(data) != length:
            raise Transient(f"{len(data)} bytes were received instead of {length}")
        return data

    def small(self, url: str, stop: Stop) -> tuple[bytes, Version]:
        """Reads a whole small file, after requesting its version."""
        version = self.version(url, stop)
        check_small(version.size)
        data = self.part(url, version, 0, version.size, stop) if version.size else b""
        self.confirm(url, version, stop)
        return data, version

    def rest(self, url: str, version: Version, offset: int, pool: Pool, stop: Stop) -> Iterator[bytes]:
        """Reads a file from an offset to its end, by several parts in parallel.

        Args:
            url: the URL of the file.
            version: the expected version.
            offset: the offset of the first byte.
            pool: the threads that read parts.
            stop: stops the requests.
        """

        def part(at: int, stop: Stop) -> bytes:
            return self.part(url, version, at, min(_PART, version.size - at), stop)

        places = range(offset, version.size, _PART)
        for first in range(0, len(places), _PARALLEL):
            yield from pool.map(part, places[first : first + _PARALLEL])
        self.confirm(url, version, stop)

    def fault(self, error: Exception) -> Exception:
        """Classifies an exception of a filesystem; filesystems raise exceptions of many types."""
        # They are looked up again for each attempt, which takes seconds: `NoCredentialsError` and so on.
        is_mistake = "Credentials" in type(error).__name__
        return library_fault(error, "its filesystem", is_mistake=is_mistake)

    def put(self, url: str, data: bytes, stop: Stop) -> None:
        """Writes a small file by one request."""
        filesystem, path = self._open(url)
        self._call(lambda: filesystem.pipe_file(path, data), len(data), stop)

    def confirm(self, url: str, version: Version, stop: Stop) -> None:
        """Requests the version again, and compares it."""
        current = self.version(url, stop)
        version.check(current.size, current.tag)

    def matches(self, pattern: str, stop: Stop) -> tuple[str, ...]:
        """Lists the files that match a pattern, as URLs sorted by bytes."""
        filesystem, path = self._open(pattern)
        filesystem.invalidate_cache()
        listing = self._call(lambda: filesystem.glob(path, detail=True), 100 * _MIB, stop)
        folders = {name for name, info in listing.items() if info.get("type") == "directory"}
        if folders and not may_match_folders(path):
            problem = f"matches a folder, {min(folders)!r}"
            raise Refused(problem, "name the files in it too, or use a pattern that only files match")
        paths = [name for name in listing if name not in folders]
        # The part before the path, such as the host of `ftp://host/path`, is missing in the listing.
        before = pattern[: -len(path)] if pattern.endswith(path) else None
        urls = [filesystem.unstrip_protocol(name) if before is None else before + name for name in paths]
        return tuple(sorted(urls, key=lambda url: url.encode("utf-8", "surrogateescape")))

    def _open(self, url: str) -> tuple[Any, str]:
        """Returns the filesystem of a URL, and the path in it."""
        scheme, _, rest = url.partition("://")
        key = url if "::" in url else f"{scheme}://{rest.partition('/')[0]}"
        key += "?" * has_version(url)  # other options
        with self._lock:
            opened = self._by_key.get(key)
            if opened is None:
                with importing:
                    opened = self._by_key[key] = open_filesystem(url, self.options)
        filesystem, path = opened
        return filesystem, path if "::" in url else str(filesystem._strip_protocol(url))

    def _call(self, call: Callable[[], Result], length: int, stop: Stop) -> Result:
        """Calls a filesystem; as for HTTP, the timeout is for the first response and for each MiB."""
        self.counts.add(requests=1)
        return with_timeout(call, self.options.timeout * (1 + math.ceil(length / _MIB)), stop)


def open_filesystem(url: str, options: RemoteOptions) -> tuple[Any, str]:
    """Makes the filesystem of a URL.

    Returns:
        The filesystem, and the path in it.

    Raises:
        DatasetError: fsspec, or its package for the scheme, is not installed; or the scheme is unknown.
    """
    try:
        # An optional dependency, not needed for HTTP.
        core = import_module("fsspec.core")
    except ImportError as error:
        hint = 'install it with: pip install "samplerkit[remote]"'
        raise DatasetError("remote", "needs fsspec, which is not installed", hint=hint) from error
    given = {key: value for key, value in options.storage_options.items() if key not in HTTP_OPTIONS}

    def failed(error: Exception) -> DatasetError:
        # The text of fsspec's error for a missing package names it, and has no URL.
        reason = error if isinstance(error, ImportError) else type(error).__name__
        problem = f"its filesystem cannot be made ({reason})"
        hint = "check its scheme, fsspec's package for it, and storage_options"
        return DatasetError(shown(url), problem, hint=hint)

    filesystem, path = translate_errors(
        lambda: core.url_to_fs(url, **_s3_defaults(url, given, options.timeout)), Exception, failed
    )
    if not any(filesystem is each for each in _opened):
        _opened.append(filesystem)
    if hasattr(filesystem, "call_s3"):
        filesystem.retries = 1  # samplerkit retries itself, and counts attempts
    return filesystem, str(path)


def expand(pattern: str, options: RemoteOptions) -> tuple[str, ...]:
    """Lists the files that match a remote glob pattern, as URLs sorted by bytes.

    Args:
        pattern: a URL with `*`, `?`, `[...]` or `**` in its path; a URL without them is returned unchanged,
            without a request.
        options: options for the store.

    Raises:
        DatasetError: no file matches; the store does not support listing, such as HTTP; or fsspec is not
            installed.
    """
    if not has_pattern(pattern):
        return (pattern,)
    if is_web(pattern):
        raise DatasetError(shown(pattern), "is a pattern, and HTTP has no listing", hint="name each URL")
    if "::" in pattern:
        raise DatasetError(shown(pattern), "is a pattern in a chain of URLs", hint="name each URL")
    client, stop = Filesystems(options, Counts()), Stop()
    urls = retry(pattern, client, lambda client: client.matches(pattern, stop), stop)
    if not urls:
        raise DatasetError(shown(pattern), "no file matches", hint="check folder and pattern")
    return urls


def _s3_defaults(url: str, given: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    """Adds the timeouts to the options of an S3 store, and turns its own retries off."""
    options = dict(given)
    if is_s3(url):
        ours = {"connect_timeout": timeout, "read_timeout": timeout, "retries": {"total_max_attempts": 1}}
        options["config_kwargs"] = {**ours, **options.get("config_kwargs", {})}
        if has_version(url):  # s3fs ignores versions by default
            options.setdefault("version_aware", True)
    return options


def read_small(path: str, read_remote: Callable[[str], bytes | None]) -> bytes | None:
    """Reads a small file; returns None if it does not exist.

    Args:
        path: a path or a URL.
        read_remote: reads a URL: a method of a `RemoteStorage`.

    Raises:
        DatasetError: the file cannot be read.
    """
    if is_remote(path):
        return read_remote(path)
    try:
        # A pipe or a device may have no end.
        return Path(path).read_bytes() if Path(path).is_file() else None
    except OSError as error:
        raise DatasetError(path, f"cannot be read ({error.strerror})") from error


def write_small(path: str, data: bytes, options: RemoteOptions) -> None:
    """Writes a small file atomically; a URL is written through fsspec by one request.

    Args:
        path: a path or a URL.
        data: the content.
        options: options for a URL, including retries.

    Raises:
        DatasetError: the file cannot be written, or is on a web server.

    Example:
        >>> import fsspec
        >>> write_small("memory://shards/lengths.json", b"{}", RemoteOptions())
        >>> fsspec.filesystem("memory").cat("/shards/lengths.json")
        b'{}'
    """
    if is_web(path):
        hint = "use --out FOLDER, and upload its files"
        raise DatasetError(shown(path), "cannot be written by HTTP", hint=hint)
    if is_remote(path):
        client, stop = Filesystems(options, Counts()), Stop()
        retry(path, client, lambda client: client.put(path, data, stop), stop)
        return
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with atomic(Path(path)) as file:
            file.write(data)
    except OSError as error:
        hint = "make room, or give another path"
        raise DatasetError(path, f"cannot be written ({error.strerror})", hint=hint) from error
