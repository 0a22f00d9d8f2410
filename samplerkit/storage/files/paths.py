"""The files that a user names."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from glob import has_magic
from typing import Any

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.storage.names import expand_braces, matching_files, short_names
from samplerkit.storage.remote.filesystem import expand
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.urls import has_pattern, is_remote, local_path, shown


def file_paths(files: Any, remote: RemoteOptions | None) -> tuple[str, ...]:
    """Gives the paths of the files that a user means; none of them is opened, nor looked for but by patterns.

    Args:
        files: a path, a URL or a glob pattern of either, whose matches are sorted by bytes; or a list of
            these, taken in the order given. A URL may have braces too. A path that is there is no pattern,
            and in a list a URL is one by `*` or braces: other signs are part of keys and of versions.
        remote: how a pattern of URLs is expanded; None refuses it.

    Returns:
        One path a file.

    Raises:
        ArgumentTypeError: neither.
        ArgumentValueError: an empty list, a file that is named twice, or a pattern that is not expanded.
        DatasetError: nothing matches the pattern.
    """
    if isinstance(files, str) and is_remote(files):
        return _remote_matches(files, remote)
    if isinstance(files, str | os.PathLike):
        return _matches(os.fspath(files), files)
    if isinstance(files, bytes | dict | set | frozenset) or not isinstance(files, Iterable):
        raise ArgumentTypeError("files", "must be a list of paths or a glob pattern", files)
    given = list(files)
    paths: list[str] = []
    for number, path in enumerate(given):
        if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
            raise ArgumentTypeError(f"files[{number}]", "must be a path", path)
        paths += _in_list(local_path(os.fspath(path)), remote)
    if not paths:
        raise ArgumentValueError("files", "must not be empty", given)
    return tuple(paths)


def local_paths(files: Any) -> tuple[str, ...]:
    """As `file_paths`, of files that must be local.

    Raises:
        ArgumentValueError: one is a URL.
    """
    paths = file_paths(files, None)
    remote = next(filter(is_remote, paths), None)
    if remote is not None:
        raise ArgumentValueError("files", "must be local", shown(remote), hint="fetch them")
    return paths


def distinct_names(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Gives each file's path below the folder that all share, which stays when that folder is moved.

    Of URLs neither the query nor credentials are part of a name.

    Raises:
        ArgumentValueError: two paths are one.

    Example:
        >>> distinct_names(("/data/a/0.npz", "/data/b/0.npz")), distinct_names(("a/only.npz",))
        (('a/0.npz', 'b/0.npz'), ('only.npz',))
        >>> distinct_names(("https://host/a/0.npz?key=secret", "https://host/b/0.npz"))
        ('a/0.npz', 'b/0.npz')
    """
    names = short_names(paths) if any(map(is_remote, paths)) else _names_of_paths(paths)
    if len(set(names)) < len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        hint = "URLs differ by their paths, not by their queries" if any(map(is_remote, paths)) else ""
        raise ArgumentValueError("files", "must not name a file twice", twice, hint=hint)
    return names


def _names_of_paths(paths: tuple[str, ...]) -> tuple[str, ...]:
    # Of paths that go up and down again this makes other names than `short_names`: saved states have them.
    absolute = [os.path.abspath(path) for path in paths]  # noqa: PTH100  # Path.absolute keeps "..", and is slow
    shared = os.path.commonpath({os.path.dirname(path) for path in absolute})  # noqa: PTH120  # likewise slow
    length = len(shared) + (not shared.endswith(os.sep))
    return tuple(path[length:].replace(os.sep, "/") for path in absolute)


def _matches(pattern: Any, given: Any) -> tuple[str, ...]:
    if not isinstance(pattern, str):
        raise ArgumentTypeError("files", "must be a list of paths or a glob pattern", given)
    pattern = local_path(pattern)
    # Path's own methods raise where a name is too long to be one.
    if not has_magic(pattern) or os.path.lexists(pattern):
        if os.path.isdir(pattern):  # noqa: PTH112
            hint = f"give its files, as in {_pattern_of_files(pattern)!r}"
            raise ArgumentValueError("files", "is a folder", given, hint=hint)
        return (pattern,)
    found = matching_files(pattern)
    if not found:
        raise DatasetError("files", "no file matches", pattern, hint="check folder and pattern")
    return tuple(found)


def _pattern_of_files(folder: str) -> str:
    """Returns a pattern for the files in a folder, by the extension that most of them have."""
    try:
        names = [name for name in os.listdir(folder) if not name.startswith(".")]  # noqa: PTH208
    except OSError:
        names = []
    extensions = Counter(os.path.splitext(name)[1] for name in names)  # noqa: PTH122
    extension = max(extensions, key=lambda each: (extensions[each], each), default="")
    return os.path.join(folder, f"*{extension}")  # noqa: PTH118


def _in_list(path: str, remote: RemoteOptions | None) -> tuple[str, ...]:
    if not is_remote(path):
        return _matches(path, path) if has_magic(path) else (path,)
    is_pattern = ("*" in path or "{" in path) and not {"*", "{"}.isdisjoint(shown(path))
    return _remote_matches(path, remote) if is_pattern and remote is not None else (path,)


def _remote_matches(pattern: str, remote: RemoteOptions | None) -> tuple[str, ...]:
    # Web servers list nothing, so braces are the only pattern that all URLs may have.
    names = _without_braces(pattern) if "{" in shown(pattern) else [pattern]
    if remote is None and any(map(has_pattern, names)):
        hint = "list the URLs, or let samplerkit fetch them"
        problem = "is a pattern of URLs, with remote=False"
        raise ArgumentValueError("files", problem, shown(pattern), hint=hint)
    return tuple(url for name in names for url in (expand(name, remote) if remote else (name,)))


def _without_braces(pattern: str) -> list[str]:
    try:
        return expand_braces(pattern)
    except ArgumentValueError as error:
        raise ArgumentValueError("files", error.problem, shown(pattern), hint=error.hint) from None
