"""Finding or building the index of an archive; the cache of indexes and decompressed archives."""

from __future__ import annotations

import hashlib
import os
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.storage.arrays import Array, on_disk
from samplerkit.storage.atomic import user_cache_folder
from samplerkit.storage.files.stored import INDEX_SUFFIX, Stored
from samplerkit.storage.inflate import GzipError, TooLargeError, inflated
from samplerkit.storage.open_files import Handle, file_error, open_for_reading, read_part
from samplerkit.storage.remote.access import UNKNOWN_SIZE, Version
from samplerkit.storage.remote.cache_entries import entry_of, exclusive_lock
from samplerkit.storage.remote.disk_cache import DiskCache, LocalFile, PartFile
from samplerkit.storage.remote.options import RemoteOptions, cache_folder
from samplerkit.storage.tar.format.flaws import Flaw, Skipped
from samplerkit.storage.tar.format.headers import is_gzip
from samplerkit.storage.tar.format.samples import Grouping
from samplerkit.storage.tar.format.scan import Members, scan
from samplerkit.storage.tar.index.index import Index, cached, read_index
from samplerkit.storage.threads import Stop
from samplerkit.storage.urls import add_suffix

T = TypeVar("T", bound=Index | None)

REMOTE_FOLDER = "remote"
"""The subfolder for fetched and decompressed shards in a cache folder given by the user."""


@dataclass(frozen=True)
class Cache:
    """A folder of indexes, which can be rebuilt, and one of copies of archives, whose size is limited.

    Args:
        folder: the folder of indexes; created when the first one is written.
        options: the folder of copies, and its size limit.

    Example:
        >>> Cache.of("/scratch/mine").index_path(Stored("/data/train-0.tar", 10240)).name
        '47bfc3a0d2e1f97ba976.skidx'
    """

    folder: Path
    options: RemoteOptions = field(default_factory=RemoteOptions)

    @classmethod
    def of(cls, place: Any, options: RemoteOptions | None = None) -> Cache:
        """Makes a cache in a folder.

        Args:
            place: the folder; None for the user's cache folder (`$XDG_CACHE_HOME/samplerkit`).
            options: the folder of copies if it is not in `place`, and its size limit.

        Raises:
            ArgumentTypeError: `place` is neither a path nor None.
            ArgumentValueError: it is empty or a URL.
        """
        options = options or RemoteOptions()
        given = cache_folder(place)
        if given is None:
            return cls(user_cache_folder() / "tar", options)
        folder = Path(given).absolute()
        if options.cache is None:
            options = replace(options, cache=os.fspath(folder / REMOTE_FOLDER))
        return cls(folder, options)

    def index_path(self, archive: Stored) -> Path:
        """Returns the path of the index of an archive."""
        return self.folder / f"{_digest(archive.identity)}{INDEX_SUFFIX}"

    def joint_path(self, identity: str) -> Path:
        """Returns the path of the joint index of several archives."""
        return self.folder / f"{_digest(identity)}.catalogue"

    @contextmanager
    def lock(self, path: Path) -> Iterator[None]:
        """Lets one thread of one process at a time make a file; the lock is released if its process dies.

        If the folder is not writable, or its filesystem has no locks, nothing is locked, and several may make
        the same file.
        """
        lock = path.with_suffix(".lock")
        with ExitStack() as stack:
            with suppress(OSError):
                self.folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(exclusive_lock(lock, Stop()))
                # Deleted before it is unlocked: `try_lock` refuses a deleted file that was opened before.
                stack.callback(_delete, lock)
            yield


def _delete(lock: Path) -> None:
    with suppress(OSError):  # in a shared folder, it may be another user's file
        lock.unlink()


def _digest(text: str) -> str:
    return hashlib.blake2b(os.fsencode(text), digest_size=10, person=b"samplerkit").hexdigest()


def open_plain(index: Index, cache: Cache, number: int) -> Handle:
    """Opens the uncompressed tar file of an archive of an index, and checks that it did not change."""
    archive, unpacked_size = index.archives[number], index.unpacked[number]
    if unpacked_size is None:
        return archive.open()
    copy = unpack(archive, cache)
    if isinstance(copy, Flaw):
        raise copy.error()
    # Once it is open, it may be evicted: otherwise idle processes would block eviction for others.
    with copy:
        handle = open_for_reading(copy.path, archive.name)
    if copy.size != unpacked_size:
        raise archive.changed()
    return handle


def unpack(archive: Stored, cache: Cache) -> LocalFile | Flaw:
    """Decompresses a gzip archive into the cache of copies, once per machine; checks gzip's CRC and length.

    Returns:
        The uncompressed tar file, which is not evicted until it is closed; or the flaw of the archive.

    Raises:
        DatasetError: the copy does not fit into the cache, exceeds its limit, or cannot be written; or the
            archive cannot be read.
    """
    max_bytes = cache.options.max_unpacked_bytes

    def write(part: PartFile) -> None:
        for piece in inflated(partial(_read, archive.open(), archive.name), max_bytes):
            part.write(piece)

    version = Version(UNKNOWN_SIZE, f"{archive.size} {archive.version}")
    identity = f"unpacked {archive.identity}"
    copies = DiskCache(cache.options, Stop())
    try:
        return copies.get(entry_of(copies.folder, archive.name, identity, version, None), write)[0]
    except GzipError as error:
        detail = f"{error}; the whole archive is in doubt"
        return Flaw(archive.name, error.offset, "damaged gzip", detail)
    except TooLargeError as error:
        limit = "200 times its size, or 1 GiB" if max_bytes is None else "max_unpacked_bytes"
        problem = f"{error} ({limit}), as a decompression bomb does"
        hint = "if you trust it, use remote={'max_unpacked_bytes': ...}, or store it unpacked"
        raise DatasetError(archive.name, problem, hint=hint) from error


def _read(source: Handle, place: str, size: int) -> bytes:
    try:
        return os.read(source.descriptor, size)
    except OSError as error:
        raise file_error(place, "cannot be read", error) from error


def find_index(archive: Stored, cache: Cache, *, checksums: bool) -> Index | None:
    """Finds an up-to-date index of an archive: next to it, else in the cache; returns None if there is none.

    Indexes next to remote archives are not looked up here.
    """
    sidecar = [Path(archive.path + INDEX_SUFFIX)] if archive.storage is None else []
    for path in (*sidecar, cache.index_path(archive)):
        index = read_index(path, (archive,))
        if index is not None and index.serves(checksums):
            return index
    return None


def find_or_make(archive: Stored, cache: Cache, make: Callable[[], T], *, checksums: bool) -> Index | T:
    """Finds the index of an archive; otherwise one thread of the machine reads or makes it, and caches it.

    Args:
        archive: the archive in its current version.
        cache: the cache of indexes.
        make: builds the index, or returns None, if there is none next to a remote archive.
        checksums: whether a CRC-32 of each file is needed.

    Raises:
        DatasetError: the server does not answer.
    """
    index = find_index(archive, cache, checksums=checksums)
    if index is not None:
        return index
    with cache.lock(cache.index_path(archive)):
        # Another process may have built it meanwhile.
        index = find_index(archive, cache, checksums=checksums)
        if index is not None:
            return index
        new_index = _read_sidecar(archive, checksums=checksums) or make()
        return new_index if new_index is None else cached(new_index, cache.index_path(archive))


def verified_index(archive: Stored, cache: Cache, *, checksums: bool) -> Index:
    """Returns the index of an archive that is fetched if it is remote; one next to it is tried first.

    Args:
        archive: the archive in its current version.
        cache: the cache of indexes.
        checksums: whether a CRC-32 of each file is needed.

    Raises:
        DatasetError: the archive cannot be read, or the index next to it is of another version. Flaws are
            recorded in the index.
    """
    make = partial(make_index, archive, cache)
    index = find_or_make(archive, cache, partial(make, checksums=checksums), checksums=checksums)
    if index.is_certain:
        return index
    # Without the archive, only the headers that were read could be compared. Now all of them are, once for
    # all processes of this machine.
    if not make(checksums=False).is_like(index):
        raise index.stale()
    return cached(replace(index, is_certain=True), cache.index_path(archive))


def _read_sidecar(archive: Stored, *, checksums: bool) -> Index | None:
    """Returns the index next to a remote archive, by one request.

    Only the size of the archive is compared, so the index is not certain: headers in the archive are compared
    before its entries are used. An index for another size, or a damaged one, is ignored with a warning.
    """
    data = None
    if archive.storage is not None:
        data = archive.storage.read_small(add_suffix(archive.path, INDEX_SUFFIX))
    if data is None:
        return None
    with on_disk(data) as path:
        index = read_index(path, (archive,), by_size=True)
    if index is None:
        problem = "is damaged, or of another version, and not used; `samplerkit index` makes it again"
        warnings.warn(f"{archive.name}{INDEX_SUFFIX} {problem}", stacklevel=2)
    return index if index is not None and index.serves(checksums) else None


def make_index(archive: Stored, cache: Cache, *, checksums: bool) -> Index:
    """Builds the index of an archive by scanning its headers; for checksums, all data are read.

    Raises:
        DatasetError: the archive cannot be read, or changes meanwhile. Flaws are recorded in the index.
    """
    handle, size, unpacked = archive.open(), archive.size, None
    try:
        if is_gzip(os.pread(handle.descriptor, 8, 0), archive.name):
            copy = unpack(archive, cache)
            if isinstance(copy, Flaw):
                return empty_index(archive, copy)
            with copy:
                handle, size, unpacked = open_for_reading(copy.path, archive.name), copy.size, copy.size
        members = scan(handle.descriptor, archive.name, size)
        index = _index_of(archive, members, unpacked, handle.descriptor if checksums else None)
    except OSError as error:
        raise file_error(archive.name, "cannot be read", error) from error
    if unpacked is None:
        archive.require_open(handle)
    elif os.fstat(handle.descriptor).st_size != size:
        raise archive.changed()
    return index


def empty_index(archive: Stored, flaw: Flaw) -> Index:
    """Returns the index of an archive that cannot be read at all."""
    return _index_of(archive, Members(flaws=[flaw]))


def _index_of(
    archive: Stored, members: Members, unpacked: int | None = None, descriptor: int | None = None
) -> Index:
    """Builds an index from the members of an archive; with its descriptor, also checksums."""
    fields, arrays, flaws = Grouping(members, archive.name).samples()
    if descriptor is not None:
        arrays["crc"] = _checksums(archive, descriptor, arrays)
    return Index((archive,), (unpacked,), fields, Skipped(tuple(flaws)), arrays)


def _checksums(archive: Stored, descriptor: int, arrays: Mapping[str, Array]) -> Array:
    offsets, sizes = arrays["offset"].tolist(), arrays["size"].tolist()
    checksums = np.zeros(len(offsets), dtype=np.uint32)
    for number, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
        data = read_part(descriptor, offset, size)
        if len(data) < size:
            raise DatasetError(archive.name, f"became shorter than {offset + size} bytes while it was read")
        checksums[number] = zlib.crc32(data)
    return checksums
