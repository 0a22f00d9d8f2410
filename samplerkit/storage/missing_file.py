"""What a dataset tells of and does not have."""

from __future__ import annotations

import errno

from samplerkit.errors import DatasetError

ERRNOS = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EACCES,
        errno.EPERM,
        errno.EIO,
        errno.ESTALE,
        errno.ELOOP,
        errno.ENAMETOOLONG,
    }
)
"""What a system says of a file that is not there or cannot be read, and that is no fault of the process."""


class AbsentError(DatasetError):
    """A file is not there or may not be read, or a sample that was told of one is not in it."""

    @property
    def absent_from(self) -> str:
        """The file: who leaves its samples out says so once for all of them."""
        return self.place


def unopened(name: str, what: str, error: OSError) -> DatasetError:
    """Returns the error for a file that cannot be opened, which is absent or not."""
    kind = AbsentError if error.errno in ERRNOS else DatasetError
    hint = "put it there again, or leave it out of the dataset" if error.errno == errno.ENOENT else ""
    return kind(name, f"{what} ({error.strerror})", hint=hint)
