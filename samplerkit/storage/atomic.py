"""Files that are there as a whole or not at all; locks between processes; and the folder of caches."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, final

_SUFFIX = ".samplerkit-part"
_WRITERS = 8
"""Writers of one file at a time whose leftovers are taken up again."""


@contextmanager
def atomic(path: Path, *, is_synced: bool = True) -> Iterator[IO[bytes]]:
    """Opens a temporary file that takes the name `path` when all is written, and vanishes on an error.

    A writer that is killed leaves it behind; the next one that writes the same file takes it up, for nobody
    locks it any more.

    Args:
        path: of the file; its folder is there.
        is_synced: wait until the bytes are on the disk before the name is given, and then for the name: else
            a power cut may leave a file of zeros. Not needed where reading compares a digest.

    Yields:
        The file, open for writing.

    Raises:
        OSError: it cannot be written; nothing is left behind.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with atomic(Path(folder, "a.bin")) as file:
        ...         count = file.write(b"whole")
        ...     Path(folder, "a.bin").read_bytes(), len(os.listdir(folder))
        (b'whole', 1)
    """
    part, descriptor = _begun(path)
    with os.fdopen(descriptor, "wb") as file:
        # The lock is held until it has its name, or is gone: another writer would take it up.
        try:
            yield file
            file.flush()
            if is_synced:
                os.fsync(descriptor)
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    if is_synced:
        sync_folder(path.parent)


@final
class BegunFile:
    """A file of `atomic` that is written in several calls: it gets its name at the end, or is dropped.

    Args:
        path: of the file; its folder is there.

    Attributes:
        file: open for writing.

    Raises:
        OSError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._stack = ExitStack()
        self.file: IO[bytes] = self._stack.enter_context(atomic(path))

    def finish(self) -> None:
        """Gives it its name.

        Raises:
            OSError: it cannot be written; nothing is left behind.
        """
        self._stack.close()

    def drop(self) -> None:
        """Deletes what was written; nothing, once it has its name."""
        error = _DroppedError()
        with suppress(OSError):  # a full disk takes what is still in memory no more than what came before
            self._stack.__exit__(type(error), error, None)


class _DroppedError(Exception):
    """Ends a temporary file."""


def sync_folder(folder: Path) -> None:
    """Waits until the names in a folder are on the disk, where its filesystem can do that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:  # a folder that may be written to, but not be listed
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(descriptor)


def _begun(path: Path) -> tuple[Path, int]:
    start = f".{path.name[:64]}"
    for number in range(_WRITERS):
        part = path.with_name(f"{start}.{number}{_SUFFIX}")
        try:
            descriptor = locked(part, is_exclusive=True)
        except NoLocksError:
            break
        except OSError:  # another user's, or no plain file
            continue
        if descriptor is None:
            continue
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_uid == os.geteuid():
            os.ftruncate(descriptor, 0)
            return part, descriptor
        os.close(descriptor)
    part = path.with_name(f"{start}.{secrets.token_hex(8)}{_SUFFIX}")
    return part, os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def user_cache_folder() -> Path:
    """Gives samplerkit's folder in the user's cache folder.

    Source: the XDG Base Directory Specification.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if Path(base).is_absolute():
        return Path(base) / "samplerkit"
    try:
        return Path.home() / ".cache" / "samplerkit"
    except RuntimeError:  # no home folder is known
        return Path(tempfile.gettempdir()) / f"samplerkit-{os.getuid()}"


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
