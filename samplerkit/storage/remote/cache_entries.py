"""The files of the cache on disk: their names, their locks, and whether a copy is intact."""

import hashlib
import logging
import os
import re
import secrets
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from io import FileIO
from pathlib import Path

import numpy as np

from samplerkit.storage.atomic import is_the_file, try_lock, unlock
from samplerkit.storage.open_files import cache_error
from samplerkit.storage.remote.access import UNKNOWN_SIZE, Version
from samplerkit.storage.threads import Stop

FOLDER_LOCK = "samplerkit-remote.lock"

PAUSE = 0.01
"""Seconds between two attempts to get a lock."""

_LOG = logging.getLogger(__name__)
_NAME = re.compile(r"samplerkit-([0-9a-f]{40})\.(file|part|lock)")


@dataclass(frozen=True)
class Entry:
    """A version of a file in the cache: the whole file, or the part received so far, and a lock file.

    Args:
        folder: the folder of the cache.
        key: a digest of the identity of the file and of its version.
        place: the name in errors, without secrets; "" for an entry found in the folder.
        size: the required size; -1 if unknown. For an entry found in the folder: the bytes of the file and
            of the part, where a part already has its final size.
        used: the time of the last use in nanoseconds.
        is_part: whether there is no whole file: it is being written, or its writer died.
    """

    folder: Path
    key: str
    place: str = field(default="", compare=False)
    size: int = field(default=UNKNOWN_SIZE, compare=False)
    used: int = field(default=0, compare=False)
    is_part: bool = field(default=False, compare=False)

    @property
    def file(self) -> Path:
        """The path of the whole file."""
        return self.folder / f"samplerkit-{self.key}.file"

    @property
    def part(self) -> Path:
        """The path of the file while it is being written."""
        return self.folder / f"samplerkit-{self.key}.part"

    @property
    def lock(self) -> Path:
        """The path of the lock file: locked exclusively to write or delete, shared to use.

        It has the checksum of the file, and its state when the checksum was last verified.
        """
        return self.folder / f"samplerkit-{self.key}.lock"

    @property
    def exists(self) -> bool:
        """Whether the whole file exists and has the required size."""
        try:
            status = self.file.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return stat.S_ISREG(status.st_mode) and self.size in {UNKNOWN_SIZE, status.st_size}

    def delete(self) -> None:
        """Deletes all its files; the caller must hold its lock."""
        for path in (self.file, self.part, self.lock):
            path.unlink(missing_ok=True)

    def is_intact(self, lock: int) -> bool:
        """Returns whether the file matches the checksum in its lock file; logs if it does not.

        The file is read and its checksum verified, unless that was done since the machine was booted and the
        file did not change since: a power failure may replace content by zeros without any other trace.

        Args:
            lock: the descriptor of the lock file, with a shared or exclusive lock.

        Raises:
            OSError: the file cannot be opened.
        """
        checksum, _, state = os.pread(lock, _LONGEST, 0).decode("latin-1").partition(" ")
        if not checksum:  # its writer was killed
            return False
        # If it cannot be opened, for lack of descriptors, it is not damaged: other processes may use it.
        with self.file.open("rb", buffering=0) as file:
            before, state = state, state_of(file)
            if state == before:
                return True
            try:
                is_right = checksum == checksum_of(file)
            except OSError:
                is_right = False
        if not is_right:
            _LOG.warning("%s: its copy in the cache is damaged, and is made again", self.place)
            return False
        with suppress(OSError):  # on a full disk the checksum is verified again the next time
            write_lock(lock, checksum, state)
        return True

    def discard(self, lock: int, stop: Stop) -> None:
        """Deletes a damaged file, also while other processes use it, which keep what they have opened.

        Args:
            lock: the descriptor of the lock file, with a shared lock.
            stop: ends the waiting for the lock of the folder.
        """
        with exclusive_lock(self.folder / FOLDER_LOCK, stop):
            # If another process discarded it too, the files of this name are new ones.
            if is_the_file(lock, self.lock):
                self.delete()

    def evict(self) -> bool:
        """Deletes all its files if it is not in use; returns whether it was deleted."""
        descriptor = try_lock(self.lock, is_exclusive=True)
        if descriptor is None:
            return False
        try:
            self.delete()
        finally:
            unlock(descriptor)
        return True


def entry_of(folder: Path, place: str, identity: str, version: Version, digest: str | None) -> Entry:
    """Returns the entry of a version of a file; files checked against a digest have another entry.

    Args:
        folder: the folder of the cache.
        place: the name of the file in errors.
        identity: a string that identifies the file, without secrets.
        version: the version of the file.
        digest: the digest against which the file is checked, or None.

    Example:
        >>> first, second = (Version(9, tag) for tag in ('"1"', '"2"'))
        >>> url = "https://host/a.tar"
        >>> one, other = (entry_of(Path("/cache"), url, url, each, None) for each in (first, second))
        >>> one.key == other.key
        False
    """
    text = f"{version.size} {version.tag} {digest or ''} {identity}"
    data = text.encode("utf-8", "surrogateescape")
    key = hashlib.blake2b(data, digest_size=20, person=b"samplerkit").hexdigest()
    return Entry(folder, key, place, version.size)


def entries_in(folder: Path) -> Iterator[Entry]:
    """Yields the entries in a folder; ignores all other files, and links.

    Raises:
        OSError: the folder does not exist, or cannot be read.
    """
    files_by_key: dict[str, dict[str, os.stat_result]] = {}
    with os.scandir(folder) as listing:
        for item in listing:
            match = _NAME.fullmatch(item.name)
            if match is None:
                continue
            try:
                status = item.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode):
                files_by_key.setdefault(match[1], {})[match[2]] = status
    for key, files in files_by_key.items():
        if "lock" not in files:  # without it, use cannot be determined
            continue
        # Using an entry touches its lock file, since the times of the file itself show whether it changed.
        size = sum(status.st_size for kind, status in files.items() if kind != "lock")
        used = files["lock"].st_mtime_ns
        yield Entry(folder, key, size=size, used=used, is_part="file" not in files)


_PAGE = 4096
_PIECE = 1 << 20
_LONGEST = 4096


def checksum_of(file: FileIO) -> str:
    """Returns the checksum of an open file: the CRC-32 of its size and of the sums of its pages.

    It detects what a power failure leaves, pages of zeros or of another file, and takes an eighth of the time
    of a CRC-32 of all bytes, which was a quarter of the processor time of a download.
    """
    checksum = zlib.crc32(b"%d" % os.fstat(file.fileno()).st_size)
    piece = bytearray(_PIECE)
    file.seek(0)
    while count := file.readinto(piece):
        piece[count:] = bytes(_PIECE - count)
        pages = np.frombuffer(piece, np.uint64).reshape(-1, _PAGE // 8)
        checksum = zlib.crc32(pages.sum(axis=1), checksum)
    return f"{checksum:08x}"


def write_lock(lock: int, checksum: str, state: str) -> None:
    """Writes a lock file; processes that share its lock may do so at once, since they write the same."""
    data = f"{checksum} {state}".encode()
    os.pwrite(lock, data, 0)
    os.ftruncate(lock, len(data))


def state_of(file: FileIO) -> str:
    """Returns a string that changes when the machine is booted, and when the file is written to."""
    status = os.fstat(file.fileno())
    times = f"{status.st_mtime_ns:x} {status.st_ctime_ns:x}"
    return f"{_boot_id()} {status.st_ino:x} {status.st_size:x} {times}"


@cache
def _boot_id() -> str:
    """Returns an id of the current boot of the machine, or of this process if the system has none."""
    try:
        # By another encoding, the first call would import it, in whatever thread: see `importing`.
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip().replace("-", "")
    except OSError:
        return secrets.token_hex(16)


@contextmanager
def cache_errors(folder: Path) -> Iterator[None]:
    """Raises a `DatasetError` for an `OSError` that is raised within the context.

    Args:
        folder: the folder of the cache, which is not writable, or whose filesystem does not support locks.
    """
    try:
        yield
    except OSError as error:
        raise cache_error(folder, error) from error


@contextmanager
def exclusive_lock(path: Path, stop: Stop) -> Iterator[None]:
    """Waits for an exclusive lock, and holds it within the context; for short operations only.

    Raises:
        OSError: the file cannot be locked.
        Stopped: `stop` was set.
    """
    while (descriptor := try_lock(path, is_exclusive=True)) is None:
        stop.sleep(PAUSE)
    try:
        yield
    finally:
        unlock(descriptor)
