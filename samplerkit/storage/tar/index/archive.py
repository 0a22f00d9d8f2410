"""`Archive`: the size and version of an archive when the dataset was created."""

from __future__ import annotations

import os
from dataclasses import dataclass

from samplerkit.errors import DatasetError
from samplerkit.storage.opening import open_for_reading, plain_file
from samplerkit.storage.remote.access import RemoteAccess
from samplerkit.storage.urls import is_remote, shown

INDEX_SUFFIX = ".skidx"
"""The suffix that is added to the name of a shard for the index next to it."""


_GZIP = b"\x1f\x8b"
_UNSUPPORTED = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstandard"}
"""Unsupported compressions, which are distinguished from damage by their first bytes."""


@dataclass(frozen=True)
class Archive:
    """An archive in its version when the dataset was created.

    Args:
        url: the path or URL as given by the user; a URL without query and credentials.
        size: the size in bytes.
        mtime_ns: the modification time in nanoseconds; for a remote archive, that of its copy.
        copy: the path of the copy of a remote archive; None for a local archive or if there is no copy.
        tag: for a remote archive, a string that changes with its content; otherwise None.
    """

    url: str
    size: int
    mtime_ns: int
    copy: str | None = None
    tag: str | None = None

    @classmethod
    def of(cls, url: str, copy: str | None = None, tag: str | None = None) -> Archive:
        """Describes a file on disk.

        Raises:
            AbsentError: the file is missing, may not be read, or is not a regular file.
            DatasetError: the status of the file cannot be read.
        """
        status = plain_file(copy or url, url)
        return cls(url, status.st_size, status.st_mtime_ns, copy, tag)

    @classmethod
    def of_url(cls, url: str, storage: RemoteAccess | None) -> Archive:
        """Describes a local or remote file; the version of a remote file is requested.

        Raises:
            AbsentError: as `of`.
            DatasetError: the status of the file cannot be read, or the server does not answer.
        """
        if storage is None or not is_remote(url):
            return cls.of(url)
        version = storage.version(url)
        return cls(shown(url), version.size, 0, None, version.tag)

    @property
    def is_remote(self) -> bool:
        """Whether the archive is remote."""
        return self.tag is not None

    @property
    def version(self) -> int | str:
        """A value that changes with the content: the modification time, or the tag of a remote archive."""
        return self.mtime_ns if self.tag is None else self.tag

    def open(self) -> int:
        """Opens the archive, and checks that it did not change.

        Returns:
            A file descriptor.

        Raises:
            DatasetError: the archive is missing, or was changed since.
        """
        descriptor = open_for_reading(self.copy or self.url, self.url)
        status = os.fstat(descriptor)
        if not self.is_same(status):
            os.close(descriptor)
            raise self.changed()
        return descriptor

    def is_same(self, status: os.stat_result) -> bool:
        """Returns whether an open file did not change; copies of remote archives never change."""
        return status.st_size == self.size and (self.is_remote or status.st_mtime_ns == self.mtime_ns)

    def changed(self) -> DatasetError:
        """Returns the error for an archive that was changed since it was indexed."""
        return DatasetError(self.url, "was changed while it was in use", hint="make the dataset again")


def is_gzip(start: bytes, url: str) -> bool:
    """Returns whether an archive is compressed by gzip.

    Args:
        start: its first eight bytes or more.
        url: its name in errors.

    Raises:
        DatasetError: the archive is compressed in another way.
    """
    for magic, name in _UNSUPPORTED.items():
        if start.startswith(magic):
            hint = "unpack it, or pack it with gzip"
            raise DatasetError(url, f"is compressed by {name}, which is not supported", hint=hint)
    return start.startswith(_GZIP)
