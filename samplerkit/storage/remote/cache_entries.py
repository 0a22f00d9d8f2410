"""The files of the cache on disk: their names, locks, checksums, and the order of eviction."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import stat
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.storage.atomic import NoLocksError, try_lock, unlock
from samplerkit.storage.open_files import cache_error
from samplerkit.storage.remote.version import UNKNOWN_SIZE, Version
from samplerkit.storage.threads import Stop

FOLDER_LOCK = "samplerkit-remote.lock"

_NAME = re.compile(r"samplerkit-([0-9a-f]{32}-[0-9a-f]{16})\.(file|part|lock)")


@final
@dataclass(frozen=True)
class Entry:
    """A version of a file in the cache: the whole file, or the part received so far, and a lock file.

    Args:
        folder: the folder of the cache.
        key: digests of the identity of the file and of its version.
        place: the name in errors and in the lock file, without secrets; "" for an entry found in the folder.
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
        """The path of the lock file: locked exclusively to write or delete, shared to use; has a `Record`."""
        return self.folder / f"samplerkit-{self.key}.lock"

    @property
    def exists(self) -> bool:
        """Whether the whole file exists and has the required size."""
        try:
            status = self.file.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return stat.S_ISREG(status.st_mode) and self.size in {UNKNOWN_SIZE, status.st_size}

    @property
    def address(self) -> str:
        """The first half of the key, which is the same for all versions of a file."""
        return self.key.partition("-")[0]

    def delete(self) -> None:
        """Deletes all its files; the caller must hold its lock."""
        for path in (self.file, self.part, self.lock):
            path.unlink(missing_ok=True)


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
        >>> one.address == other.address, one.key == other.key
        (True, False)
    """
    text = f"{version.size} {version.tag} {digest or ''}"
    return Entry(folder, f"{_digest(identity, 16)}-{_digest(text, 8)}", place, version.size)


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
        if "lock" not in files:  # without it, ownership and use cannot be determined
            continue
        # Using an entry touches its lock file, since the times of the file itself show whether it changed.
        size = sum(status.st_size for kind, status in files.items() if kind != "lock")
        used = files["lock"].st_mtime_ns
        yield Entry(folder, key, size=size, used=used, is_part="file" not in files)


def _digest(text: str, size: int) -> str:
    data = text.encode("utf-8", "surrogateescape")
    return hashlib.blake2b(data, digest_size=size, person=b"samplerkit").hexdigest()


MARKER = b"samplerkit remote cache 1\n"
"""The first bytes of samplerkit's lock files."""

_PAGE = 4096
_PIECE = 1 << 20
_LONGEST = 4096
_SETTLED_NS = 10**8
"""A file written less than this many ns ago may be written again with the same time, as clocks are coarse."""


@final
class Checksum:
    """The incremental checksum of a file: the CRC-32 of the sums of its pages.

    It detects what a power failure leaves, pages of zeros or of another file, and takes an eighth of the time
    of a CRC-32 of all bytes, which was a quarter of the processor time of a download.

    Example:
        >>> checksum = Checksum()
        >>> checksum.add(bytes(5000))
        >>> whole = checksum.value
        >>> checksum.add(b"more")
        >>> checksum.value == whole
        False
    """

    def __init__(self) -> None:
        self._sums = 0
        self._rest = b""

    def add(self, data: bytes | memoryview) -> None:
        """Adds the next bytes."""
        data = self._rest + data if self._rest else data
        end = len(data) // _PAGE * _PAGE
        pages = np.frombuffer(data, np.uint64, end // 8).reshape(-1, _PAGE // 8)
        self._sums = zlib.crc32(pages.sum(axis=1), self._sums)
        self._rest = bytes(data[end:])

    @property
    def value(self) -> int:
        """The checksum of all bytes that were added."""
        return zlib.crc32(self._rest, self._sums)


@final
@dataclass(frozen=True)
class Record:
    """The content of a lock file, stored as JSON.

    Args:
        checksum: the checksum of the file, computed while it was written; None while it is being written, and
            if the file is damaged.
        state: the state of the file, from `_state_of`, when its checksum was last verified.
        name: the name of the file for people who look at the cache, without secrets.
    """

    checksum: int | None = None
    state: str = ""
    name: str = ""

    @classmethod
    def read(cls, descriptor: int) -> Record | None:
        """Reads a lock file; returns None if it was not written by samplerkit."""
        data = os.pread(descriptor, _LONGEST, 0)
        if not data.startswith(MARKER):
            return None
        try:
            return cls(**json.loads(data[len(MARKER) :]))
        except (ValueError, TypeError):  # its writer was killed
            return cls()

    def write(self, descriptor: int) -> None:
        """Writes a lock file; processes that share its lock may do so at once.

        Only the state differs, which has a fixed length, or the file is damaged for all of them.
        """
        header = {"checksum": self.checksum, "state": f"{self.state:120}", "name": self.name[:200]}
        data = MARKER + json.dumps(header).encode()
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))


def is_intact(path: Path, descriptor: int) -> bool:
    """Returns whether the content of a file matches the checksum in its lock file.

    The file is read and its checksum verified, unless that was done since the machine was booted and the file
    did not change since: a power failure may replace content by zeros without any other trace.

    Args:
        path: the path of the file.
        descriptor: the descriptor of its lock file, with a shared or exclusive lock.
    """
    record = Record.read(descriptor)
    if record is None or record.checksum is None:
        return False
    checksum = Checksum()
    try:
        with path.open("rb", buffering=0) as file:
            status, now = os.fstat(file.fileno()), time.time_ns()
            state = _state_of(status)
            if state == record.state.strip():
                return True
            while data := file.read(_PIECE):
                checksum.add(data)
    except OSError:
        return False
    is_right = checksum.value == record.checksum
    if not is_right:
        record = replace(record, checksum=None)  # so that nobody reads a damaged file again
    elif abs(now - status.st_ctime_ns) > _SETTLED_NS:  # the clock may have been set back
        record = replace(record, state=state)
    with suppress(OSError):  # on a full disk the checksum is verified again the next time
        record.write(descriptor)
    return is_right


def _state_of(status: os.stat_result) -> str:
    """Returns a string that changes when the machine is booted, and when the file is written to."""
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


_PAUSE = 0.005


@contextmanager
def cache_errors(folder: Path) -> Iterator[None]:
    """Raises a `DatasetError` for an `OSError` that is raised within the context.

    Args:
        folder: the folder of the cache, which is not writable, or whose filesystem does not support locks.
    """
    try:
        yield
    except NoLocksError as error:
        problem = f"is on a filesystem without locks ({error.strerror}), so it cannot be shared"
        hint = "use cache=FOLDER, on a disk of this machine"
        raise DatasetError("cache", problem, str(folder), hint=hint) from error
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
        stop.sleep(_PAUSE)
    try:
        yield
    finally:
        unlock(descriptor)


def evict_excess(others: Sequence[Entry], excess: int) -> int:
    """Evicts entries until at most `-excess` bytes are left, if possible.

    Args:
        others: the entries in order of eviction.
        excess: the bytes of the new file minus the limit of the cache.

    Returns:
        The bytes that are left.
    """
    used = sum(each.size for each in others)
    for each in others:
        # Parts left by dead processes are always evicted.
        if (each.is_part or used + excess > 0) and evict(each):
            used -= each.size
    return used


def eviction_order(entries: Iterable[Entry]) -> list[Entry]:
    """Sorts entries in order of eviction."""
    now = time.time_ns()
    # A use in the future was before the clock was set back; it counts as old, or it would never be evicted.
    by_use = sorted(entries, key=lambda each: each.used if each.used <= now else 0)
    newest = {each.address: each.key for each in by_use if not each.is_part}
    return sorted(by_use, key=lambda each: (not each.is_part, newest.get(each.address) == each.key))


def evict(entry: Entry) -> bool:
    """Deletes an entry if it is not in use; returns whether it was deleted."""
    descriptor = try_lock(entry.lock, is_exclusive=True, may_create=False)
    if descriptor is None:
        return False
    try:
        # An empty lock file is left if its process died, or power failed, before the marker was written.
        is_ours = os.fstat(descriptor).st_size == 0 or Record.read(descriptor) is not None
        if is_ours:
            entry.delete()
        return is_ours
    finally:
        unlock(descriptor)
