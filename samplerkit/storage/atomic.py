"""Atomic writes of files, the base of writers, locks between processes, and the user's cache folder."""

import errno
import fcntl
import os
import secrets
import stat
import tempfile
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from samplerkit.closing import Closing
from samplerkit.errors import DatasetError

_SUFFIX = ".samplerkit-part"


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
    written = AtomicFile(path, is_synced=is_synced)
    try:
        yield written.file
        written.finish()
    except BaseException:
        written.drop()
        raise


class AtomicFile:
    """A file that is written in several calls, as by `atomic`: `finish` renames it, `drop` deletes it.

    Args:
        path: the path of the file; its folder must exist.
        is_synced: as for `atomic`.

    Attributes:
        file: the temporary file, open for writing.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, path: Path, *, is_synced: bool = True) -> None:
        self._path, self._is_synced = path, is_synced
        self._part, descriptor = _open_part(path)
        # The file is locked until it is renamed or deleted, or another writer would reuse it.
        self.file: IO[bytes] = os.fdopen(descriptor, "wb")

    def finish(self) -> None:
        """Renames the temporary file to `path`.

        Raises:
            OSError: the file cannot be written; `drop` deletes the temporary file.
        """
        self.file.flush()
        if self._is_synced:
            os.fsync(self.file.fileno())
        self._part.replace(self._path)
        self.file.close()
        if self._is_synced:
            sync_folder(self._path.parent)

    def drop(self) -> None:
        """Deletes the temporary file; does nothing after `finish`."""
        if not self.file.closed:
            self._part.unlink(missing_ok=True)
            with suppress(OSError):  # on a full disk, closing may fail to write buffered data
                self.file.close()


class Writing(Closing):
    """A writer that is closed at the end of a `with` block; after an error its output is dropped."""

    _failure: DatasetError | None = None  # the error that ended writing
    _is_closed = False

    @abstractmethod
    def abort(self) -> None:
        """Drops the output."""

    def __exit__(self, *exception: object) -> None:
        if exception[0] is None:
            self.close()
        else:
            self.abort()

    def _require_open(self, path: str) -> None:
        """Raises the error that ended writing, or another one if the writer was closed."""
        if self._failure is not None:
            raise self._failure
        if self._is_closed:
            raise DatasetError(path, "was closed", hint="make a new writer")

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
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        # A folder that is writable but not readable, or a filesystem that cannot.
        if error.errno not in {errno.EACCES, errno.EINVAL, errno.ENOTSUP}:
            raise


def _open_part(path: Path) -> tuple[Path, int]:
    """Opens the temporary file of a target: by a fixed name, which is reused after a crash, or a random one.

    The name is random if another writer has the fixed one, if there are no locks, or if a file of another
    user, a link or a pipe has that name.
    """
    part = path.with_name(f".{path.name[:64]}{_SUFFIX}")
    with suppress(OSError):
        descriptor = try_lock(part, is_exclusive=True)
        if descriptor is not None:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_uid == os.geteuid():
                os.ftruncate(descriptor, 0)
                return part, descriptor
            os.close(descriptor)
    part = path.with_name(f".{path.name[:64]}.{secrets.token_hex(8)}{_SUFFIX}")
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


def try_lock(path: Path, *, is_exclusive: bool) -> int | None:
    """Locks a file without waiting; creates it if it does not exist.

    Args:
        path: the path of the file; symbolic links are not followed.
        is_exclusive: whether the lock is exclusive; otherwise it is shared.

    Returns:
        A file descriptor, for `unlock`; or None if the lock is held elsewhere, or if the file was deleted or
        renamed meanwhile, so that the lock would exclude nobody.

    Raises:
        OSError: the file cannot be opened, or the filesystem does not support locks.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if is_exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        is_held = is_the_file(descriptor, path)
    except BlockingIOError:
        is_held = False
    except OSError:
        os.close(descriptor)
        raise
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
