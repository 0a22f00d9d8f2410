"""The archives that a user names: to read, by braces, lists and globs; to write, by their numbers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path
from typing import Any

from samplerkit.errors import ArgumentRangeError, ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.order import arguments
from samplerkit.storage.globs import matching_files
from samplerkit.storage.names import expand_braces
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.store import expand
from samplerkit.storage.tar.index.archive import INDEX_SUFFIX
from samplerkit.storage.urls import has_pattern, is_remote, local_path, shown

DEFAULT_BYTES = 1 << 30
"""Bytes of a numbered shard, unless said otherwise."""

_NUMBER = re.compile(r"%0?[0-9]*d")


def archive_names(
    urls: Any, options: RemoteOptions | None = None, *, keeps_absent: bool = False
) -> tuple[str, ...]:
    """Gives the names of the archives that a user means. Of remote ones nothing is asked, but for a glob.

    Args:
        urls: a path or a URL, or a list of these. In each, `{000..127}`, `{000..127..2}` and `{a,b}` are
            expanded as a shell does, then `*`, `?` and `[...]`, sorted by bytes. A path that exists is taken
            as it is. Web servers list no files.
        options: how remote archives are reached; None for the defaults.
        keeps_absent: whether a path that is named and not there stays, if another one is there.

    Returns:
        One path or URL an archive, in the order given.

    Raises:
        ArgumentTypeError: no path and no list of paths.
        ArgumentValueError: an empty list, or braces that do not match.
        DatasetError: there is no such file, or nothing matches.
    """
    given = [urls] if isinstance(urls, str | os.PathLike) else urls
    if isinstance(given, bytes | dict | set | frozenset) or not isinstance(given, Iterable):
        raise ArgumentTypeError("urls", "must be a path or a list of paths", urls)
    names: list[str] = []
    for path in given:
        if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
            raise ArgumentTypeError("urls", "must hold paths only", path)
        name = os.fspath(path)
        if is_remote(name):
            names += _remote(name, options or RemoteOptions())
        else:
            names += _found(local_path(name), keeps_absent)
    if not names:
        raise ArgumentValueError("urls", "must not be empty", urls)
    if keeps_absent and not any(is_remote(name) or os.path.isfile(name) for name in names):  # noqa: PTH113
        raise DatasetError("urls", "there is no such file", names[0], mend="check the path")
    return tuple(names)


def _remote(pattern: str, options: RemoteOptions) -> list[str]:
    names: list[str] = []
    try:
        expanded = expand_braces(pattern)
    except ArgumentValueError as error:
        # What is private in a URL stays out of errors.
        raise ArgumentValueError("urls", error.problem, shown(pattern), mend=error.mend) from None
    for name in expanded:
        if has_pattern(name):
            names += (url for url in expand(name, options) if not shown(url).endswith(INDEX_SUFFIX))
        else:
            names.append(name)
    return names


def _found(path: str, keeps_absent: bool) -> list[str]:
    # Path's own methods raise where a name is too long to be one.
    is_file, is_folder = os.path.isfile, os.path.isdir
    if is_file(path):
        return [path]
    names = []
    for name in expand_braces(path):
        if is_file(name):
            names.append(name)
        elif has_magic(name):
            matches = [match for match in matching_files(name) if not match.endswith(INDEX_SUFFIX)]
            if not matches:
                raise DatasetError("urls", "no file matches", name, mend="check folder and pattern")
            names += matches
        elif keeps_absent and not is_folder(name):
            names.append(name)
        else:
            problem = "is a folder" if is_folder(name) else "there is no such file"
            mend = "give its archives, as in 'folder/*.tar'" if is_folder(name) else "check the path"
            raise DatasetError("urls", problem, name, mend=mend)
    return names


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
