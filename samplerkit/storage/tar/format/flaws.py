"""What a walk through an archive finds: its members, and what is wrong with it, with a place and a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
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

HINTS: Mapping[str, str] = MappingProxyType(
    {
        "unreadable": "give it back, or leave it out of the shards and the lengths",
        "link": "pack the file itself, as `tar --dereference --hard-dereference` does",
        "split sample": "write all files of a sample into one shard",
        "duplicate key": "files of one sample must follow one another, and keys must differ within a shard",
    }
)
"""What to do, where that is not to fetch or make the archive again."""

HINT = "fetch or make the archive again, or say on_error='skip' to count and skip what is damaged"

MOST_PLACES = 1000
"""Flaws that are kept one by one, each reason for itself; further ones are only counted."""


@dataclass(frozen=True)
class Flaw:
    """One place at which an archive is not as it should be.

    Args:
        archive: the url of the archive.
        offset: the byte at which the flaw was found: of the header, for a flaw of a member.
        reason: the kind of flaw.
        detail: what is wrong there, in a few words.
    """

    archive: str
    offset: int
    reason: Reason
    detail: str

    def error(self) -> DatasetError:
        """Returns the error that names the archive, the offset and a hint.

        Example:
            >>> raise Flaw("train-0.tar", 1536, "damaged header", "the checksum is wrong").error()
            Traceback (most recent call last):
            samplerkit.errors.DatasetError: train-0.tar: damaged header at byte 1536: the checksum is wrong; \
fetch or make the archive again, or say on_error='skip' to count and skip what is damaged
        """
        return DatasetError(self.archive, self.problem, hint=HINTS.get(self.reason, HINT))

    @property
    def problem(self) -> str:
        """What is wrong, and where in the archive."""
        # Of an archive that cannot be read no byte is known.
        place = "" if self.reason == "unreadable" else f" at byte {self.offset}"
        return f"{self.reason}{place}: {self.detail}"


@dataclass(frozen=True)
class Skipped:
    """What was skipped of a dataset's archives, and where.

    Args:
        counts: how many flaws there are of each reason.
        places: the flaws one by one, at most `MOST_PLACES` of each reason and archive.

    Example:
        >>> skipped = Skipped.of([Flaw("train-0.tar", 512, "link", "b.cls")])
        >>> len(skipped), dict(skipped.counts), skipped.places[0].offset
        (1, {'link': 1}, 512)
    """

    counts: Mapping[str, int]
    places: tuple[Flaw, ...]

    @classmethod
    def of(cls, flaws: Iterable[Flaw], counts: Mapping[str, int] | None = None) -> Skipped:
        """Counts some flaws.

        Args:
            flaws: those that are known one by one; `MOST_PLACES` of each reason and archive are kept.
            counts: how many there are in all, if more than those.
        """
        met: Counter[tuple[str, str]] = Counter()
        places, found = [], Counter[str]()
        for flaw in flaws:
            found[flaw.reason] += 1
            met[flaw.archive, flaw.reason] += 1
            if met[flaw.archive, flaw.reason] <= MOST_PLACES:
                places.append(flaw)
        return cls(dict(found if counts is None else counts), tuple(places))

    @classmethod
    def joined(cls, several: Iterable[Skipped]) -> Skipped:
        """Adds up what was skipped in several places."""
        places: list[Flaw] = []
        counts: Counter[str] = Counter()
        for one in several:
            places += one.places
            counts.update(one.counts)
        return cls(dict(counts), tuple(places))

    def __len__(self) -> int:
        return sum(self.counts.values())
