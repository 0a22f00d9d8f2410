"""The files of the cache: their names, which of a folder are ours, their locks, and which go first."""

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
from samplerkit.storage import atomic
from samplerkit.storage.opening import unwritable
from samplerkit.storage.remote.access import UNKNOWN_SIZE, Version
from samplerkit.storage.threads import Stop

FOLDER_LOCK = "samplerkit-remote.lock"

_NAME = re.compile(r"samplerkit-([0-9a-f]{32}-[0-9a-f]{16})\.(file|part|lock)")


@final
@dataclass(frozen=True)
class Entry:
    """A version of a file in the cache: the whole of it, or the part that has arrived, and a lock file.

    Args:
        folder: of the cache.
        key: digests of its identity and of the version.
        place: what errors and people who look call it, without what is private; "" where it is only counted.
        size: that it must have; -1 if that is not known. Of one that lies in the folder: the bytes of the
            file and of the part, which for that are those that it will have at its end.
        used: when it was used last, in nanoseconds.
        is_part: there is no whole file: it is being written, or its owner died.
    """

    folder: Path
    key: str
    place: str = field(default="", compare=False)
    size: int = field(default=UNKNOWN_SIZE, compare=False)
    used: int = field(default=0, compare=False)
    is_part: bool = field(default=False, compare=False)

    @property
    def file(self) -> Path:
        """The whole file, once it is there."""
        return self.folder / f"samplerkit-{self.key}.file"

    @property
    def part(self) -> Path:
        """What is being written."""
        return self.folder / f"samplerkit-{self.key}.part"

    @property
    def lock(self) -> Path:
        """Locked by whom writes or deletes it; shared by those who use it; it holds a `Record`."""
        return self.folder / f"samplerkit-{self.key}.lock"

    @property
    def is_there(self) -> bool:
        """Whether there is a whole file, of the size that it must have."""
        try:
            about = self.file.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return stat.S_ISREG(about.st_mode) and self.size in {UNKNOWN_SIZE, about.st_size}

    @property
    def address(self) -> str:
        """The half of the key that all versions of a file share."""
        return self.key.partition("-")[0]

    def delete(self) -> None:
        """Deletes what there is of it; the caller holds its lock."""
        for path in (self.file, self.part, self.lock):
            path.unlink(missing_ok=True)


def entry_of(folder: Path, place: str, identity: str, version: Version, digest: str | None) -> Entry:
    """Gives the entry of a version of a file; one that was checked against a digest is another one.

    Args:
        folder: of the cache.
        place: what errors call the file.
        identity: of the file: what distinguishes it from all others, without what is private.
        version: of it.
        digest: that it was checked against, or None.

    Example:
        >>> first, second = (Version(9, tag) for tag in ('"1"', '"2"'))
        >>> url = "https://host/a.tar"
        >>> one, other = (entry_of(Path("/cache"), url, url, each, None) for each in (first, second))
        >>> one.address == other.address, one.key == other.key
        (True, False)
    """
    told = f"{version.size} {version.tag} {digest or ''}"
    return Entry(folder, f"{_digest(identity, 16)}-{_digest(told, 8)}", place, version.size)


def kept_in(folder: Path) -> Iterator[Entry]:
    """Goes through the entries of a folder; all other files, and links, are passed over.

    Raises:
        DatasetError: the folder is gone, or cannot be read.
    """
    found: dict[str, dict[str, os.stat_result]] = {}
    try:
        entries = os.scandir(folder)
    except OSError as error:
        raise unwritable(folder, error) from error
    with entries as listing:
        for item in listing:
            match = _NAME.fullmatch(item.name)
            if match is None:
                continue
            try:
                about = item.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISREG(about.st_mode):
                found.setdefault(match[1], {})[match[2]] = about
    for key, files in found.items():
        if "lock" not in files:  # without it nobody can tell whether it is ours, nor whether it is in use
            continue
        # Who uses it touches the lock: the times of the file tell whether anything was written to it.
        size = sum(about.st_size for kind, about in files.items() if kind != "lock")
        used = files["lock"].st_mtime_ns
        yield Entry(folder, key, size=size, used=used, is_part="file" not in files)


def _digest(text: str, size: int) -> str:
    data = text.encode("utf-8", "surrogateescape")
    return hashlib.blake2b(data, digest_size=size, person=b"samplerkit").hexdigest()


MARKER = b"samplerkit remote cache 1\n"
"""A lock file of ours begins so."""

_PAGE = 4096
_PIECE = 1 << 20
_LONGEST = 4096
_SETTLED_NS = 10**8
"""A file that was written less than this ago may be written again without another time: clocks tick."""


@final
class Checksum:
    """The checksum of a file while its bytes come: the CRC-32 of the sums of its pages.

    It is for what a loss of power leaves, pages of zeros or of another file, and takes an eighth of the time
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
        """Adds what comes next."""
        data = self._rest + data if self._rest else data
        end = len(data) // _PAGE * _PAGE
        pages = np.frombuffer(data, np.uint64, end // 8).reshape(-1, _PAGE // 8)
        self._sums = zlib.crc32(pages.sum(axis=1), self._sums)
        self._rest = bytes(data[end:])

    @property
    def value(self) -> int:
        """That of all that was added."""
        return zlib.crc32(self._rest, self._sums)


@final
@dataclass(frozen=True)
class Record:
    """What a lock file of ours says, as JSON.

    Args:
        checksum: of the file, as it was taken while it was written; None while it is being written.
        state: in which state, as `_state_of` gives it, the file was last checked against that.
        name: for whom it was written, as it may be shown; it is for people who look.
    """

    checksum: int | None = None
    state: str = ""
    name: str = ""

    @classmethod
    def read(cls, descriptor: int) -> Record | None:
        """Reads a lock file; None if it is not ours."""
        data = os.pread(descriptor, _LONGEST, 0)
        if not data.startswith(MARKER):
            return None
        try:
            return cls(**json.loads(data[len(MARKER) :]))
        except (ValueError, TypeError):  # its writer was killed
            return cls()

    def write(self, descriptor: int) -> None:
        """Writes a lock file; those who share it may do so at the same time, for only the state differs."""
        said = {"checksum": self.checksum, "state": f"{self.state:120}", "name": self.name[:200]}
        data = MARKER + json.dumps(said).encode()
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))


def is_intact(path: Path, descriptor: int) -> bool:
    """Whether a file holds what was written, as far as its lock file says.

    It is read and checked against its checksum unless that was done since the machine started, and nothing
    has written to the file since then: a loss of power leaves zeros in its place without any trace.

    Args:
        path: of the file.
        descriptor: of its lock file, locked in whichever way.
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
    if checksum.value != record.checksum:
        return False
    if abs(now - status.st_ctime_ns) > _SETTLED_NS:  # the clock may have been set back
        with suppress(OSError):  # on a full disk it is compared again the next time
            replace(record, state=state).write(descriptor)
    return True


def _state_of(status: os.stat_result) -> str:
    """Gives what is another one after a start of the machine, and after whatever was written to a file."""
    times = f"{status.st_mtime_ns:x} {status.st_ctime_ns:x}"
    return f"{_start()} {status.st_ino:x} {status.st_size:x} {times}"


@cache
def _start() -> str:
    """Gives what distinguishes one start of the machine from another; where that is not told, a process."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip().replace("-", "")
    except OSError:
        return secrets.token_hex(16)


_PAUSE = 0.005


def locked(path: Path, *, is_exclusive: bool, may_make: bool = True) -> int | None:
    """Locks a lock file of the cache if that can be done at once: see `samplerkit.storage.atomic.locked`.

    Raises:
        DatasetError: the folder cannot be written to, or does not know such locks.
    """
    try:
        return atomic.locked(path, is_exclusive=is_exclusive, may_make=may_make)
    except atomic.NoLocksError as error:
        problem = f"is on a filesystem without locks ({error.strerror}), so it cannot be shared"
        hint = "say cache=FOLDER, on a disk of this machine"
        raise DatasetError("cache", problem, str(path.parent), hint=hint) from error
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
        atomic.unlock(descriptor)


def evicted(others: Sequence[Entry], excess: int) -> int:
    """Evicts until no more than `-excess` bytes are left, if that can be.

    Args:
        others: entries, those that go first before the others.
        excess: the bytes that are to come, less those that there may be.

    Returns:
        The bytes that are left.
    """
    used = sum(each.size for each in others)
    for each in others:
        # What a dead process left goes in any case.
        is_wanted_away = used + excess > 0
        if (each.is_part or is_wanted_away) and evict(each, may_be_whole=is_wanted_away):
            used -= each.size
    return used


def in_order(kept: Iterable[Entry]) -> list[Entry]:
    """Sorts by what goes first."""
    now = time.time_ns()
    # What was used in the future was so before the clock was set back: else it would stay for ever.
    by_use = sorted(kept, key=lambda each: each.used if each.used <= now else 0)
    newest = {each.address: each.key for each in by_use if not each.is_part}
    return sorted(by_use, key=lambda each: (not each.is_part, newest.get(each.address) == each.key))


def evict(entry: Entry, *, may_be_whole: bool = True) -> bool:
    """Deletes an entry that nobody uses; returns whether it is gone.

    Args:
        entry: which.
        may_be_whole: whether it goes also if it has become a whole file meanwhile.
    """
    descriptor = locked(entry.lock, is_exclusive=True, may_make=False)
    if descriptor is None:
        return False
    try:
        if not may_be_whole and entry.file.exists():
            return False
        # An empty one is of a process that died before it wrote the marker, or the machine lost power then.
        is_ours = os.fstat(descriptor).st_size == 0 or Record.read(descriptor) is not None
        if is_ours:
            entry.delete()
        return is_ours
    finally:
        atomic.unlock(descriptor)
