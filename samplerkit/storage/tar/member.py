"""One member of an archive: what its header says, and what the headers before it say of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from samplerkit.storage.tar.flaws import Reason
from samplerkit.storage.tar.header import (
    DIRECTORY,
    GNU_LONG_LINK,
    GNU_LONG_NAME,
    LONGEST_EXTENSION,
    PAX_GLOBAL,
    PAX_LOCAL,
    REGULAR,
    Header,
    HeaderError,
    pax_records,
    trouble,
)

EXTENSIONS = frozenset({PAX_LOCAL, PAX_GLOBAL, GNU_LONG_NAME, GNU_LONG_LINK})
"""The kinds of headers that say something of the members after them."""

_SPARSE = b"GNU.sparse."
_MOST_DIGITS = 20


@dataclass(frozen=True, slots=True)
class Member:
    """What the headers of a member say together.

    Args:
        name: as it stands in the archive.
        size: bytes of data that follow its header; 0 for a link, a device and a directory, whatever is said.
        is_directory: whether it is a directory, and no file.
        wrong: why it cannot be read, or None.
    """

    name: bytes
    size: int
    is_directory: bool
    wrong: tuple[Reason, str] | None


@final
class Extensions:
    """The extended headers that were met: pax records and GNU's long names.

    Attributes:
        are_pending: whether the next header has to be that of the member they belong to.
    """

    def __init__(self) -> None:
        self._global: dict[bytes, bytes] = {}
        self._local: dict[bytes, bytes] = {}
        self._long_name: bytes | None = None
        self.are_pending = False

    @property
    def are_global(self) -> bool:
        """Whether some hold for all members to come."""
        return bool(self._global)

    def add(self, header: Header, data: bytes) -> None:
        """Takes an extended header.

        Args:
            header: of one of the kinds `EXTENSIONS`.
            data: what follows it.

        Raises:
            HeaderError: its data are damaged.
        """
        if header.kind == PAX_LOCAL:
            self._local.update(_used(pax_records(data)))
        elif header.kind == PAX_GLOBAL:
            self._global.update(_used(pax_records(data)))
        elif header.kind == GNU_LONG_NAME:
            self._long_name = data.split(b"\0", 1)[0]
        self.are_pending = self.are_pending or header.kind != PAX_GLOBAL

    def member(self, header: Header) -> Member:
        """Gives the member whose own header this is; those that were pending are used up by it.

        Raises:
            HeaderError: a size is none.
        """
        records = {**self._global, **self._local} if self._local else self._global
        name = self._long_name if self._long_name is not None else records.get(b"path", header.name)
        size = _size(records[b"size"]) if b"size" in records else header.size
        wrong = trouble(header.kind)
        if any(key.startswith(_SPARSE) for key in records):
            wrong = ("unsupported member", "a sparse file")
        self._local, self._long_name, self.are_pending = {}, None, False
        # What follows the header of a link, device or directory is the next header, whatever its size says.
        has_data = header.kind != DIRECTORY and (wrong is None or wrong[0] == "unsupported member")
        # Before POSIX, a directory was a file whose name ends in a slash.
        is_directory = header.kind == DIRECTORY or (header.kind in REGULAR and name.endswith(b"/"))
        return Member(name, size if has_data else 0, is_directory, wrong)


def extension_size(header: Header) -> int:
    """Gives the bytes that follow an extended header.

    Raises:
        HeaderError: there are so many that it must be damage.
    """
    if header.size > LONGEST_EXTENSION:
        raise HeaderError(f"an extended header of {header.size} bytes")
    return header.size


def _size(record: bytes) -> int:
    if not record.isdigit() or len(record) > _MOST_DIGITS:
        raise HeaderError("the size in a pax record is no number")
    return int(record)


def _used(records: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Keeps the records that say where data lie and what they are called."""
    return {
        key: value for key, value in records.items() if key in {b"path", b"size"} or key.startswith(_SPARSE)
    }
