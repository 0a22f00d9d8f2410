"""What a lock file of the cache says: that an entry is ours, its digest, and when that was last compared."""

from __future__ import annotations

import os
import secrets
import time
import zlib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import final

MARKER = b"samplerkit remote cache 1\n"
"""A lock file of ours begins so."""

_CRC = "crc32 "
_PIECE = 1 << 20
_LONGEST = 512
_SETTLED_NS = 10**8
"""A file that was written less than this ago may be written again without another time: clocks tick."""


@final
@dataclass(frozen=True)
class Record:
    """What a lock file of ours says, one line each.

    Args:
        crc: the CRC-32 of the file, as it was taken while it was written; None while it is being written.
        state: in which state, as `_state_of` gives it, the file was last held against that.
        name: for whom it was written, as it may be shown; it is for people who look.
    """

    crc: int | None = None
    state: str = ""
    name: str = ""

    @classmethod
    def read(cls, descriptor: int) -> Record | None:
        """Reads a lock file; None if it is not ours."""
        data = os.pread(descriptor, _LONGEST, 0)
        if not data.startswith(MARKER):
            return None
        crc, state, *rest = [*data[len(MARKER) :].decode("utf-8", "replace").split("\n"), "", ""]
        if not crc.startswith(_CRC):
            return cls()
        try:
            return cls(int(crc.removeprefix(_CRC), 16), state, rest[0])
        except ValueError:
            return cls()

    def write(self, descriptor: int) -> None:
        """Writes a lock file; those who share it may do so at the same time, for only the state differs."""
        crc = "being written" if self.crc is None else f"{_CRC}{self.crc:08x}"
        text = f"{crc}\n{self.state:120}\n{self.name[:200]}\n"
        data = MARKER + text.encode("utf-8", "backslashreplace")
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))


def is_intact(path: Path, descriptor: int) -> bool:
    """Whether a file holds what was written, as far as its lock file tells.

    It is read and held against its CRC-32 unless that was done since the machine was started, and nothing has
    written to the file since then: a loss of power leaves zeros in its place without any trace.

    Args:
        path: of the file.
        descriptor: of its lock file, locked in whichever way.
    """
    record = Record.read(descriptor)
    if record is None or record.crc is None:
        return False
    crc = 0
    try:
        with path.open("rb", buffering=0) as file:
            status, now = os.fstat(file.fileno()), time.time_ns()
            state = _state_of(status)
            if state == record.state.strip():
                return True
            while data := file.read(_PIECE):
                crc = zlib.crc32(data, crc)
    except OSError:
        return False
    if crc != record.crc:
        return False
    if now - status.st_ctime_ns > _SETTLED_NS:
        replace(record, state=state).write(descriptor)
    return True


def _state_of(status: os.stat_result) -> str:
    """Gives what is another one after a start of the machine, and after whatever was written to a file."""
    times = f"{status.st_mtime_ns:x} {status.st_ctime_ns:x}"
    return f"{_start()} {status.st_ino:x} {status.st_size:x} {times}"


@cache
def _start() -> str:
    """Gives what tells one start of the machine from another; where that is not told, a process."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip().replace("-", "")
    except OSError:
        return secrets.token_hex(16)
