"""Locks on files, between the processes of a machine: they end with their owner, however that ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class NoLocksError(OSError):
    """A filesystem knows no locks."""


def locked(path: Path, *, is_exclusive: bool, may_make: bool = True) -> int | None:
    """Locks a file if that can be done at once.

    Args:
        path: of the file; links are not followed.
        is_exclusive: nobody else may hold it; else others may share it.
        may_make: make the file if there is none.

    Returns:
        A descriptor, for `unlock`; None if another one holds it, or if the file was deleted or
        renamed meanwhile: a lock on such a file keeps nobody out. None, too, if there is none, and none may
        be made.

    Raises:
        NoLocksError: the filesystem knows no locks.
        OSError: it cannot be opened.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if may_make else 0)
    try:
        descriptor = os.open(path, flags, 0o666)
    except FileNotFoundError:
        if may_make:  # then there is no folder
            raise
        return None
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if is_exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        is_held = is_the_file(descriptor, path)
    except BlockingIOError:
        is_held = False
    except OSError as error:
        os.close(descriptor)
        raise NoLocksError(error.errno, error.strerror) from error
    if is_held:
        return descriptor
    os.close(descriptor)
    return None


def unlock(descriptor: int) -> None:
    """Ends a lock, and closes its descriptor.

    A process that was forked meanwhile holds the same lock: closing alone would not end it, and the fork
    would wait for itself.
    """
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def is_the_file(descriptor: int, path: Path) -> bool:
    """Returns whether a path still leads to the file that was opened."""
    try:
        now = path.lstat()
    except FileNotFoundError:
        return False
    then = os.fstat(descriptor)
    return (now.st_dev, now.st_ino) == (then.st_dev, then.st_ino)
