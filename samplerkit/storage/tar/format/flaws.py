"""Flaws of archives, each with a place and a reason."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from samplerkit.errors import DatasetError

Reason = Literal[
    "unreadable",
    "truncated",
    "damaged header",
    "damaged gzip",
    "data after the end",
    "link",
    "device",
    "unsafe name",
    "unsupported member",
    "duplicate key",
    "duplicate field",
    "reserved field",
    "split sample",
    "incomplete sample",
]
"""The kinds of flaws."""

REASONS: tuple[Reason, ...] = get_args(Reason)

HINTS: Mapping[str, str] = {
    "unreadable": "restore it, or leave it out of the shards and the lengths",
    "link": "pack the file itself, as `tar --dereference --hard-dereference` does",
    "split sample": "write all files of a sample into one shard",
    "duplicate key": "files of one sample must follow one another, and keys must differ within a shard",
}
"""Hints for reasons to which the general `HINT` does not apply."""

HINT = "fetch or make the archive again, or use on_error='skip' to count and skip what is damaged"


@dataclass(frozen=True)
class Flaw:
    """A flaw of an archive at one place.

    Args:
        archive: the URL of the archive.
        offset: the byte at which the flaw was found; for a flaw of a member, that of its header.
        reason: the kind of flaw.
        detail: a short description.
    """

    archive: str
    offset: int
    reason: Reason
    detail: str

    def error(self) -> DatasetError:
        """Returns the error with the archive, the offset and a hint.

        Example:
            >>> raise Flaw("train-0.tar", 1536, "damaged header", "the checksum is wrong").error()
            Traceback (most recent call last):
            samplerkit.errors.DatasetError: train-0.tar: damaged header at byte 1536: the checksum is wrong; \
fetch or make the archive again, or use on_error='skip' to count and skip what is damaged
        """
        return DatasetError(self.archive, self.problem, hint=HINTS.get(self.reason, HINT))

    @property
    def problem(self) -> str:
        """The reason, the offset and the detail."""
        # An archive that cannot be read has no offset.
        place = "" if self.reason == "unreadable" else f" at byte {self.offset}"
        return f"{self.reason}{place}: {self.detail}"


@dataclass(frozen=True)
class Skipped:
    """Flaws of a dataset's archives that were skipped.

    Args:
        places: the flaws.

    Example:
        >>> skipped = Skipped((Flaw("train-0.tar", 512, "link", "b.cls"),))
        >>> len(skipped), skipped.counts, skipped.places[0].offset
        (1, {'link': 1}, 512)
    """

    places: tuple[Flaw, ...]

    @property
    def counts(self) -> dict[str, int]:
        """The number of flaws by reason."""
        return dict(Counter(flaw.reason for flaw in self.places))

    def __len__(self) -> int:
        return len(self.places)
