"""Locks between the processes of a machine, which end with their owner, however that ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.stopping import Stop

_PAUSE = 0.005


def locked(path: Path, *, is_exclusive: bool, may_make: bool = True) -> int | None:
    """Locks a lock file if that can be done at once.

    Args:
        path: of the lock file.
        is_exclusive: nobody else may hold it; else others may share it.
        may_make: make the lock file if there is none.

    Returns:
        A descriptor, whose closing ends the lock; None if another one holds it, or if the file was deleted
        meanwhile: a lock on a deleted file keeps nobody out.

    Raises:
        DatasetError: the folder cannot be written to, or does not know such locks.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if may_make else 0)
    try:
        descriptor = os.open(path, flags, 0o666)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unwritable(path.parent, error) from error
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if is_exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        is_held = is_the_file(descriptor, path)
    except BlockingIOError:
        is_held = False
    except OSError as error:
        os.close(descriptor)
        problem = f"is on a filesystem without locks ({error.strerror}), so it cannot be shared"
        mend = "say cache=FOLDER, on a disk of this machine"
        raise DatasetError("cache", problem, str(path.parent), mend=mend) from error
    if is_held:
        return descriptor
    os.close(descriptor)
    return None


def is_the_file(descriptor: int, path: Path) -> bool:
    """Tells whether a path still leads to the file that was opened."""
    try:
        now = path.lstat()
    except FileNotFoundError:
        return False
    then = os.fstat(descriptor)
    return (now.st_dev, now.st_ino) == (then.st_dev, then.st_ino)


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
    return DatasetError(
        "cache", f"cannot be written to ({error.strerror})", str(folder), mend="say cache=FOLDER"
    )
