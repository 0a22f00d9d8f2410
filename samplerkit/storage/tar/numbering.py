"""The paths of shards that are written one after another."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samplerkit.errors import ArgumentRangeError, ArgumentTypeError, ArgumentValueError
from samplerkit.order import arguments
from samplerkit.storage.names import expand_braces

DEFAULT_BYTES = 1 << 30
"""Bytes of a numbered shard, unless said otherwise."""

_NUMBER = re.compile(r"%0?[0-9]*d")


@dataclass(frozen=True)
class Numbering:
    """What shards are called.

    Args:
        pattern: as the user gave it.
        names: of the shards, where their number is known; None where the pattern has a place for a number.
        is_one: whether there is one only, for the pattern is its path.
        first: the number of the first one.

    Example:
        >>> Numbering.of("train-%03d.tar").path(7).name, Numbering.of("train.tar").is_one
        ('train-007.tar', True)
    """

    pattern: str
    names: tuple[str, ...] | None
    is_one: bool = False
    first: int = 0

    @classmethod
    def of(cls, shards: Any, first: Any = 0) -> Numbering:
        """Takes the path of one tar, of numbered ones, or of several by braces.

        Raises:
            ArgumentTypeError: no path.
            ArgumentValueError: it has several places for a number, wrong braces, or does not end in `.tar`;
                or no place for the number of the first one.
            ArgumentRangeError: that is negative.
        """
        number = arguments.at_least("start_shard", first, 0)
        if not isinstance(shards, str | os.PathLike) or not isinstance(os.fspath(shards), str):
            raise ArgumentTypeError("shards", "must be a path", shards)
        pattern = os.fspath(shards)
        if not pattern.endswith(".tar"):
            problem = "must end in .tar"
            raise ArgumentValueError("shards", problem, pattern, mend="random access wants plain tar")
        if "\0" in pattern:
            raise ArgumentValueError("shards", "cannot be a path", pattern)
        if pattern.count("%") == 1 and _NUMBER.search(pattern):
            return cls(pattern, None, first=number)
        if number:
            mend = "as in train-%06d.tar"
            raise ArgumentValueError("shards", "must have one place for a number", pattern, mend=mend)
        if "{" in pattern:
            return cls(pattern, tuple(expand_braces(pattern)))
        if "%" in pattern:
            mend = "as in train-%06d.tar or train-{000..127}.tar"
            raise ArgumentValueError("shards", "must have one place for a number", pattern, mend=mend)
        return cls(pattern, (pattern,), is_one=True)

    def path(self, number: int) -> Path:
        """Gives the path of a shard.

        Raises:
            ArgumentRangeError: there are not so many.
        """
        if self.names is None:
            return Path(self.pattern % (self.first + number))
        if number < len(self.names):
            return Path(self.names[number])
        noun = "shard" if len(self.names) == 1 else "shards"
        problem = f"names {len(self.names)} {noun}, and more are needed"
        raise ArgumentRangeError("shards", problem, self.pattern, mend="name more, or raise the limits")
