"""One archive as it was when the dataset was made."""

from __future__ import annotations

import os
from dataclasses import dataclass

from samplerkit.errors import DatasetError
from samplerkit.storage.opening import open_for_reading, plain_file
from samplerkit.storage.remote.access import RemoteAccess
from samplerkit.storage.urls import is_remote, shown

INDEX_SUFFIX = ".skidx"
"""An index beside a shard has its name and this."""


_GZIP = b"\x1f\x8b"
_OTHERS = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstandard"}
"""Compressions that are distinguished from damage by their first bytes."""


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
        status = plain_file(copy or url, url)
        return cls(url, status.st_size, status.st_mtime_ns, copy, tag)

    @classmethod
    def found(cls, url: str, storage: RemoteAccess | None) -> Archive:
        """Looks at a file; of a remote one the version is asked for.

        Raises:
            AbsentError: as `of`.
            DatasetError: it cannot be looked at, or the server does not answer.
        """
        if storage is None or not is_remote(url):
            return cls.of(url)
        version = storage.version(url)
        return cls(shown(url), version.size, 0, None, version.tag)

    @property
    def is_remote(self) -> bool:
        """Whether it is remote."""
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
        """Returns the error for an archive that was written since its index was made."""
        return DatasetError(self.url, "was changed while it was in use", hint="make the dataset again")


def is_gzip(start: bytes, url: str) -> bool:
    """Whether an archive is compressed by gzip.

    Args:
        start: how it begins: eight bytes or more.
        url: its name, for the error.

    Raises:
        DatasetError: it is compressed in another way.
    """
    for magic, name in _OTHERS.items():
        if start.startswith(magic):
            hint = "unpack it, or pack it with gzip"
            raise DatasetError(url, f"is compressed by {name}, which is not supported", hint=hint)
    return start.startswith(_GZIP)
