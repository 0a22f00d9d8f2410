"""Where indexes are kept, and archives that are unpacked."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

from samplerkit.errors import ArgumentTypeError, DatasetError
from samplerkit.storage.atomic import unlock, user_cache_folder
from samplerkit.storage.inflate import GzipError, TooLargeError, inflated
from samplerkit.storage.remote.attempt import UNKNOWN_SIZE, Version
from samplerkit.storage.remote.cache_eviction import PartFile
from samplerkit.storage.remote.disk_cache import DiskCache, LocalFile, Wanted
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.tar.format.flaws import Flaw
from samplerkit.storage.tar.index.archive import INDEX_SUFFIX, Archive, Handle, open_for_reading
from samplerkit.storage.threads import Stop
from samplerkit.storage.urls import is_remote

REMOTE_FOLDER = "remote"
"""Where fetched shards and unpacked ones lie in a cache folder that the user names for a dataset."""


@dataclass(frozen=True)
class Cache:
    """A folder of indexes, which can be made again, and one of copies, which is bounded.

    Args:
        folder: of indexes; made when the first one is kept.
        options: tell where copies are kept, and how many bytes of them.

    Example:
        >>> Cache.of("/scratch/mine").index_path("/data/train-0.tar").name
        '47bfc3a0d2e1f97ba976.skidx'
    """

    folder: Path
    options: RemoteOptions = field(default_factory=RemoteOptions)

    @classmethod
    def of(cls, place: Any, options: RemoteOptions | None = None) -> Cache:
        """Takes a folder, or None for the user's cache folder (`$XDG_CACHE_HOME/samplerkit`).

        Args:
            place: the folder.
            options: where copies are kept, unless it is there, and how many bytes of them.

        Raises:
            ArgumentTypeError: neither a path nor None.
        """
        options = options or RemoteOptions()
        if place is None:
            return cls(user_cache_folder() / "tar", options)
        if not isinstance(place, str | os.PathLike):
            raise ArgumentTypeError("cache", "must be a folder or None", place)
        folder = Path(os.fspath(place)).absolute()
        if options.cache is None:
            options = replace(options, cache=os.fspath(folder / REMOTE_FOLDER))
        return cls(folder, options)

    def index_path(self, archive: str) -> Path:
        """Where the index of an archive is kept."""
        return self.folder / f"{_digest(absolute(archive))}{INDEX_SUFFIX}"

    def joint_path(self, identity: str) -> Path:
        """Where the joint index of several archives is kept."""
        return self.folder / f"{_digest(identity)}.catalogue"

    @contextmanager
    def lock(self, path: Path) -> Iterator[None]:
        """Lets one process at a time make a file; the lock ends with its owner, however that ends.

        Where the folder cannot be written to, there is no lock: nobody else can make the file either.
        """
        # One of 64 lock files for each kind of file serves, so that they stay few.
        name = f"lock{path.suffix}-{int(_digest(path.name)[:2], 16) % 64:02}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            yield
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            unlock(descriptor)


def absolute(archive: str) -> str:
    """Returns what an archive is called everywhere on this machine: its real path, or its URL as it is."""
    return archive if is_remote(archive) else os.path.realpath(archive)


def _digest(text: str) -> str:
    return hashlib.blake2b(os.fsencode(text), digest_size=10, person=b"samplerkit").hexdigest()


def open_plain(archive: Archive, unpacked_size: int | None, cache: Cache) -> Handle:
    """Opens the plain tar file of an archive, if it is still the one that was indexed."""
    if unpacked_size is None:
        return Handle(archive.open())
    copy = unpack(archive, cache)
    if isinstance(copy, Flaw):
        raise copy.error()
    # Once it is open, it may be evicted: else processes that read nothing now would keep the others waiting.
    with copy:
        handle = Handle(open_for_reading(copy.path, archive.url), is_copy=True)
    if copy.size != unpacked_size:
        raise archive.changed()
    return handle


def unpack(archive: Archive, cache: Cache) -> LocalFile | Flaw:
    """Unpacks a gzip archive into the cache of copies, once a machine; gzip's own CRC and length are checked.

    Returns:
        The plain tar file, in use until it is closed; or what is wrong with the archive.

    Raises:
        DatasetError: the copy does not fit, or is larger than it may be, or the cache cannot be written to;
            or the archive cannot be read.
    """
    most = cache.options.max_unpacked_bytes

    def write(part: PartFile) -> None:
        with os.fdopen(archive.open(), "rb") as source:
            for piece in inflated(partial(_read, source, archive.url), most):
                part.write(piece)

    version = Version(UNKNOWN_SIZE, f"{archive.size} {archive.version}")
    identity = f"unpacked {absolute(archive.url)}"
    wanted = Wanted(archive.url, identity, version, None, write)
    try:
        return DiskCache.of(cache.options, Stop()).get(wanted)[0]
    except GzipError as error:
        detail = f"{error}; the whole archive is in doubt"
        return Flaw(archive.url, error.offset, "damaged gzip", detail)
    except TooLargeError as error:
        why = "200 times its size, or 1 GiB" if most is None else "max_unpacked_bytes"
        problem = f"{error} ({why}), as an archive does that is made to fill disks"
        hint = "if you trust it, say remote={'max_unpacked_bytes': ...}, or store it unpacked"
        raise DatasetError(archive.url, problem, hint=hint) from error


def _read(source: IO[bytes], place: str, most: int) -> bytes:
    try:
        return source.read(most)
    except OSError as error:
        raise DatasetError(place, f"cannot be read ({error.strerror})") from error
