"""The locks of the cache, and the errors of a folder that cannot be one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from samplerkit.errors import DatasetError
from samplerkit.storage import locks
from samplerkit.storage.threads import Stop

_PAUSE = 0.005


def locked(path: Path, *, is_exclusive: bool, may_make: bool = True) -> int | None:
    """Locks a lock file of the cache if that can be done at once: see `samplerkit.storage.locks.locked`.

    Raises:
        DatasetError: the folder cannot be written to, or does not know such locks.
    """
    try:
        return locks.locked(path, is_exclusive=is_exclusive, may_make=may_make)
    except locks.NoLocksError as error:
        problem = f"is on a filesystem without locks ({error.strerror}), so it cannot be shared"
        mend = "say cache=FOLDER, on a disk of this machine"
        raise DatasetError("cache", problem, str(path.parent), mend=mend) from error
    except OSError as error:
        raise unwritable(path.parent, error) from error


@contextmanager
def held(path: Path, stop: Stop) -> Iterator[None]:
    """Waits for an exclusive lock, for as long as it is wanted. It is for what takes a moment only.

    Raises:
        DatasetError: as `locked`.
        Stopped: it is not wanted any more.
    """
    while (descriptor := locked(path, is_exclusive=True)) is None:
        stop.sleep(_PAUSE)
    try:
        yield
    finally:
        os.close(descriptor)


def unwritable(folder: Path, error: OSError) -> DatasetError:
    """Gives the error for a cache folder that cannot be written to."""
    if isinstance(error, FileNotFoundError):
        mend = "leave it alone while it is in use, and start again"
        return DatasetError("cache", "was emptied while it was in use", str(folder), mend=mend)
    return DatasetError(
        "cache", f"cannot be written to ({error.strerror})", str(folder), mend="say cache=FOLDER"
    )
