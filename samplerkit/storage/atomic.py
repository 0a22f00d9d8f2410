"""Atomic writes of files, the base of writers, locks between processes, and the user's cache folder."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import tempfile
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, final

from samplerkit.closing import Closing
from samplerkit.errors import DatasetError

_SUFFIX = ".samplerkit-part"
_WRITERS = 8
"""Fixed temporary names per target, which are reused after a crash; more writers get random names."""


@contextmanager
def atomic(path: Path, *, is_synced: bool = True) -> Iterator[IO[bytes]]:
    """Opens a temporary file that is renamed to `path` at the end, and deleted on an error.

    A killed writer leaves its temporary file behind; the next writer of the same path reuses it, since it is
    no longer locked.

    Args:
        path: the path of the file; its folder must exist.
        is_synced: whether to fsync the file before it is renamed, and its folder afterwards. Without it, a
            power failure may leave a file of zeros. Not needed if a digest is checked on reading.

    Yields:
        The file, open for writing.

    Raises:
        OSError: the file cannot be written; the temporary file is deleted.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with atomic(Path(folder, "a.bin")) as file:
        ...         count = file.write(b"whole")
        ...     Path(folder, "a.bin").read_bytes(), len(os.listdir(folder))
        (b'whole', 1)
    """
    part, descriptor = _open_part(path)
    with os.fdopen(descriptor, "wb") as file:
        # The file is locked until it is renamed or deleted, or another writer would reuse it.
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
class AtomicFile:
    """A file that is written in several calls, as by `atomic`: `finish` renames it, `drop` deletes it.

    Args:
        path: the path of the file; its folder must exist.

    Attributes:
        file: the temporary file, open for writing.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._stack = ExitStack()
        self.file: IO[bytes] = self._stack.enter_context(atomic(path))

    def finish(self) -> None:
        """Renames the temporary file to `path`.

        Raises:
            OSError: the file cannot be written; the temporary file is deleted.
        """
        self._stack.close()

    def drop(self) -> None:
        """Deletes the temporary file; does nothing after `finish`."""
        error = _DroppedError()
        with suppress(OSError):  # on a full disk, closing may fail to write buffered data
            self._stack.__exit__(type(error), error, None)


class _DroppedError(Exception):
    """Raised into `atomic` to delete the temporary file."""


class Writing(Closing):
    """A writer that is closed at the end of a `with` block; after an error its output is dropped."""

    _failure: DatasetError | None = None  # the error that ended writing

    @abstractmethod
    def abort(self) -> None:
        """Drops the output."""

    def __exit__(self, *exception: object) -> None:
        if exception[0] is None:
            self.close()
        else:
            self.abort()

    @contextmanager
    def _writing(self, path: Path, hint: str = "make room, or give another path") -> Iterator[None]:
        """Drops the output if the file cannot be written, for instance because the disk is full."""
        try:
            yield
        except OSError as error:
            self.abort()
            problem = f"cannot be written ({error.strerror})"
            self._failure = DatasetError(str(path), problem, hint=hint)
            raise self._failure from error


def sync_folder(folder: Path) -> None:
    """Calls fsync for a folder, so that new names in it are on disk, if its filesystem supports that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:  # a folder that is writable but not readable
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(descriptor)


def _open_part(path: Path) -> tuple[Path, int]:
    start = f".{path.name[:64]}"
    for number in range(_WRITERS):
        part = path.with_name(f"{start}.{number}{_SUFFIX}")
        try:
            descriptor = try_lock(part, is_exclusive=True)
        except NoLocksError:
            break
        except OSError:  # owned by another user, or not a regular file
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
    """Returns samplerkit's folder in the user's cache folder.

    Source: the XDG Base Directory Specification.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if Path(base).is_absolute():
        return Path(base) / "samplerkit"
    try:
        return Path.home() / ".cache" / "samplerkit"
    except RuntimeError:  # the user has no home folder
        return Path(tempfile.gettempdir()) / f"samplerkit-{os.getuid()}"


class NoLocksError(OSError):
    """The filesystem does not support locks."""


def try_lock(path: Path, *, is_exclusive: bool, may_create: bool = True) -> int | None:
    """Locks a file without waiting.

    Args:
        path: the path of the file; symbolic links are not followed.
        is_exclusive: whether the lock is exclusive; otherwise it is shared.
        may_create: whether to create the file if it does not exist.

    Returns:
        A file descriptor, for `unlock`; or None if the lock is held elsewhere, if the file was deleted or
        renamed meanwhile, so that the lock would exclude nobody, or if it does not exist and `may_create` is
        False.

    Raises:
        NoLocksError: the filesystem does not support locks.
        OSError: the file cannot be opened.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if may_create else 0)
    try:
        descriptor = os.open(path, flags, 0o666)
    except FileNotFoundError:
        if may_create:  # the folder is missing
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
    """Releases a lock, and closes its file descriptor.

    A process that was forked meanwhile shares the lock: closing alone would not release it, and the child
    would wait for itself.
    """
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def is_the_file(descriptor: int, path: Path) -> bool:
    """Returns whether a path still refers to an opened file."""
    try:
        now = path.lstat()
    except FileNotFoundError:
        return False
    then = os.fstat(descriptor)
    return (now.st_dev, now.st_ino) == (then.st_dev, then.st_ino)
