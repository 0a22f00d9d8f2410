"""One archive on disk: its size and time, and the plain tar file that is read for it."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from samplerkit.errors import DatasetError
from samplerkit.storage.absent import AbsentError, unopened
from samplerkit.storage.remote.attempt import UNKNOWN_SIZE, Version
from samplerkit.storage.remote.disk_cache import DiskCache, Wanted
from samplerkit.storage.remote.flock import unwritable
from samplerkit.storage.remote.room import PartFile
from samplerkit.storage.remote.storage import LocalFile
from samplerkit.storage.tar.arrays import opened_at_once
from samplerkit.storage.tar.cache import Cache, absolute
from samplerkit.storage.tar.format.inflate import GzipError, TooLargeError, inflated
from samplerkit.storage.tar.format.members import Flaw
from samplerkit.storage.threads import Stop

GZIP = b"\x1f\x8b"
OTHERS = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstandard"}
"""Compressions that are told from damage by their first bytes."""


@dataclass(frozen=True)
class Archive:
    """An archive as it was when the dataset was made.

    Args:
        url: the name that the user gave; of a remote archive, without its query and credentials.
        size: bytes.
        mtime_ns: when it was last written, in nanoseconds; of a remote archive, when its copy was.
        copy: where the copy of a remote archive lies; None for a local one, and while there is no copy.
        tag: of a remote archive, what changes with its content; else None.
    """

    url: str
    size: int
    mtime_ns: int
    copy: str | None = None
    tag: str | None = None

    @classmethod
    def of(cls, url: str, copy: str | None = None, tag: str | None = None) -> Archive:
        """Looks at a file.

        Raises:
            AbsentError: it is not there, may not be read, or is no plain file.
            DatasetError: it cannot be looked at.
        """
        try:
            status = Path(copy or url).stat()
        except OSError as error:
            raise unopened(url, "cannot be read", error) from error
        if not stat.S_ISREG(status.st_mode):
            raise AbsentError(url, "is no plain file", mend="give the files themselves")
        return cls(url, status.st_size, status.st_mtime_ns, copy, tag)

    @property
    def is_remote(self) -> bool:
        """Whether it lies elsewhere."""
        return self.tag is not None

    @property
    def version(self) -> int | str:
        """What changes when it is written: of a local archive the time, of a remote one its tag."""
        return self.mtime_ns if self.tag is None else self.tag

    def open(self) -> int:
        """Opens the archive, if it is still the one that it was.

        Returns:
            A file descriptor.

        Raises:
            DatasetError: it is gone, or was written since.
        """
        descriptor = open_for_reading(self.copy or self.url, self.url)
        status = os.fstat(descriptor)
        if not self.is_same(status):
            os.close(descriptor)
            raise self.changed()
        return descriptor

    def is_same(self, status: os.stat_result) -> bool:
        """Whether an open file is still the one that it was; a copy of a remote one is never written to."""
        return status.st_size == self.size and (self.is_remote or status.st_mtime_ns == self.mtime_ns)

    def changed(self) -> DatasetError:
        """Gives the error for an archive that was written since its index was made."""
        return DatasetError(self.url, "was changed while it was in use", mend="make the dataset anew")


def open_for_reading(path: str, shown: str) -> int:
    """Opens a file.

    Raises:
        AbsentError: it is not there, or may not be read; `shown` is its name there.
        DatasetError: it cannot be opened, or is a copy, and the cache was emptied.
    """
    try:
        return opened_at_once(path, os.O_RDONLY)
    except OSError as error:
        if path != shown and isinstance(error, FileNotFoundError):
            # The copy is gone and not the archive: nobody is to leave its samples out.
            raise unwritable(Path(path).parent, error) from error
        raise unopened(shown, "cannot be opened", error) from error


def is_gzip(descriptor: int, archive: Archive) -> bool:
    """Whether an archive is compressed by gzip.

    Raises:
        DatasetError: it is compressed in another way.
    """
    start = os.pread(descriptor, 8, 0)
    for magic, name in OTHERS.items():
        if start.startswith(magic):
            mend = "unpack it, or pack it with gzip"
            raise DatasetError(archive.url, f"is compressed by {name}, which is not supported", mend=mend)
    return start.startswith(GZIP)


def unpack(archive: Archive, cache: Cache) -> LocalFile | Flaw:
    """Unpacks a gzip archive into the cache of copies, once a machine; gzip's own CRC and length are checked.

    Args:
        archive: to be unpacked.
        cache: takes the copy.

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
        mend = "if you trust it, say remote={'max_unpacked_bytes': ...}, or store it unpacked"
        raise DatasetError(archive.url, problem, mend=mend) from error


def _read(source: IO[bytes], place: str, most: int) -> bytes:
    try:
        return source.read(most)
    except OSError as error:
        raise DatasetError(place, f"cannot be read ({error.strerror})") from error
