"""Files that are there as a whole or not at all, whenever the process or the machine stops."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from samplerkit.storage.locks import NoLocksError, locked

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
