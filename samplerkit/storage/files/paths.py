"""The files that a user names, and the one place where a path becomes an open file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from glob import glob, has_magic
from pathlib import Path
from typing import Any, BinaryIO

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError


def file_paths(files: Any) -> tuple[str, ...]:
    """Gives the paths of the files that a user means; none of them is opened, nor looked for.

    Args:
        files: a list of paths, taken in the order given; or one string, a path or a glob pattern, whose
            matches are sorted by bytes.

    Returns:
        One path a file.

    Raises:
        ArgumentTypeError: neither.
        ArgumentValueError: an empty list, or a file that is named twice.
        DatasetError: nothing matches the pattern.
    """
    if isinstance(files, str | os.PathLike):
        return _matches(os.fspath(files), files)
    if isinstance(files, bytes | dict | set | frozenset) or not isinstance(files, Iterable):
        raise ArgumentTypeError("files", "must be a list of paths or a glob pattern", files)
    given = list(files)
    paths = []
    for number, path in enumerate(given):
        if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
            raise ArgumentTypeError(f"files[{number}]", "must be a path", path)
        paths.append(os.fspath(path))
    if not paths:
        raise ArgumentValueError("files", "must not be empty", given)
    return tuple(paths)


def short_names(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Gives each file's path below the folder that all share, which stays when that folder is moved.

    Raises:
        ArgumentValueError: two paths are one.

    Example:
        >>> short_names(("/data/a/0.npz", "/data/b/0.npz")), short_names(("a/only.npz",))
        (('a/0.npz', 'b/0.npz'), ('only.npz',))
    """
    absolute = [os.path.abspath(path) for path in paths]  # noqa: PTH100  # Path.absolute keeps "..", and is slow
    shared = os.path.commonpath({os.path.dirname(path) for path in absolute})  # noqa: PTH120  # likewise slow
    length = len(shared) + (not shared.endswith(os.sep))
    names = tuple(path[length:].replace(os.sep, "/") for path in absolute)
    if len(set(names)) < len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ArgumentValueError("files", "must not name a file twice", twice)
    return names


def opened(path: str) -> BinaryIO:
    """Opens a file for reading: what all readers of this package go through."""
    return Path(path).open("rb")


def _matches(pattern: Any, given: Any) -> tuple[str, ...]:
    if not isinstance(pattern, str):
        raise ArgumentTypeError("files", "must be a list of paths or a glob pattern", given)
    if not has_magic(pattern) or Path(pattern).is_file():
        if Path(pattern).is_dir():
            raise ArgumentValueError(
                "files", "is a folder", given, mend="give its files, as in 'folder/*.npz'"
            )
        return (pattern,)
    matches = glob(pattern, recursive=True)  # noqa: PTH207  # Path.glob takes no absolute pattern
    found = [path for path in matches if Path(path).is_file()]
    if not found:
        raise DatasetError("files", "no file matches", pattern, mend="check folder and pattern")
    return tuple(sorted(found, key=os.fsencode))
