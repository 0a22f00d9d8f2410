"""Finds the files that a user names by paths, URLs and patterns."""

import os
from collections import Counter
from collections.abc import Iterable
from glob import has_magic
from typing import Any

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.order import arguments
from samplerkit.storage.names import expand_braces, matching_files, short_names
from samplerkit.storage.remote.filesystem import expand
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.urls import has_pattern, is_remote, local_path, shown


def file_paths(
    files: Any, remote: RemoteOptions | None, place: str = "files", exclude: str | None = None
) -> tuple[str, ...]:
    """Returns the paths of the files that a user names, without opening them; only patterns are looked up.

    Args:
        files: a path, a URL or a pattern of either; or a list of these, taken in the order given. Braces are
            expanded as in a shell, then globs, whose matches are sorted by bytes. An existing path is not a
            pattern. In a list, a URL is a pattern only by `*` or braces: other wildcard characters are part
            of keys and versions.
        remote: how a pattern of URLs is expanded; None refuses it.
        place: the name of the argument in errors.
        exclude: a suffix of names that patterns do not match.

    Returns:
        One path per file.

    Raises:
        ArgumentTypeError: `files` is none of these.
        ArgumentValueError: the list is empty, a path is a folder, braces are not valid, or a pattern cannot
            be expanded.
        DatasetError: no file matches a pattern.
    """
    is_alone = isinstance(files, str | os.PathLike)
    given = [files] if is_alone else files
    if isinstance(given, bytes | dict | set | frozenset) or not arguments.is_iterable(given):
        raise ArgumentTypeError(place, "must be a path, a pattern or a list of these", files)
    paths: list[str] = []
    for number, path in enumerate(given):
        name = one_path(place if is_alone else f"{place}[{number}]", path)
        is_url = is_remote(name)
        # Path's own methods raise if a name is too long for the file system.
        if is_alone and not is_url and os.path.isdir(name):  # noqa: PTH112
            hint = f"give its files, as in {name.rstrip('/') + '/*'!r}"
            raise ArgumentValueError(place, "is a folder", files, hint=hint)
        is_key = is_url and not is_alone and (remote is None or {"*", "{"}.isdisjoint(shown(name)))
        paths += [name] if is_key else _matches(name, remote, place, exclude)
    if not paths:
        raise ArgumentValueError(place, "must not be empty", files)
    return tuple(paths)


def one_path(place: str, path: Any, local_hint: str | None = None) -> str:
    """Checks one path or URL that a user gave, and returns it.

    Args:
        place: the name of the argument in errors.
        path: the path or URL.
        local_hint: for a path that must be local, the hint of the error for a URL; None if it may be one.

    Raises:
        ArgumentTypeError: it is not a path.
        ArgumentValueError: it has a null byte; or it must be local, and is a URL.
    """
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise ArgumentTypeError(place, "must be a path", path)
    name = local_path(os.fspath(path))
    if "\0" in name:
        raise ArgumentValueError(place, "cannot be a path", shown(name))
    if local_hint is not None and is_remote(name):
        raise ArgumentValueError(place, "must be local", shown(name), hint=local_hint)
    return name


def local_paths(files: Any) -> tuple[str, ...]:
    """Same as `file_paths`, for files that must be local.

    Raises:
        ArgumentValueError: a file is a URL.
    """
    return tuple(one_path("files", path, "fetch them") for path in file_paths(files, None))


def distinct_names(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Returns each file's path below the common folder, which does not change when that folder is moved.

    The names of URLs have neither the query nor credentials.

    Raises:
        ArgumentValueError: two paths have the same name.

    Example:
        >>> distinct_names(("/data/a/0.npz", "/data/b/0.npz")), distinct_names(("a/only.npz",))
        (('a/0.npz', 'b/0.npz'), ('only.npz',))
        >>> distinct_names(("https://host/a/0.npz?key=secret", "https://host/b/0.npz"))
        ('a/0.npz', 'b/0.npz')
    """
    names = short_names(paths)
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        hint = "URLs differ by their paths, not by their queries" if any(map(is_remote, paths)) else ""
        raise ArgumentValueError("files", "must not name a file twice", twice, hint=hint)
    return names


def _matches(pattern: str, remote: RemoteOptions | None, place: str, exclude: str | None) -> list[str]:
    is_url, paths = is_remote(pattern), []
    # Web servers list no files, so braces are the only pattern that works for all URLs.
    has_braces = "{" in shown(pattern) and (is_url or not os.path.lexists(pattern))
    for name in _without_braces(pattern, place) if has_braces else [pattern]:
        if not (has_pattern(name) if is_url else has_magic(name) and not os.path.lexists(name)):
            paths.append(name)
            continue
        if not is_url:
            matches: Iterable[str] = matching_files(name)
        elif remote is not None:
            matches = expand(name, remote)
        else:
            problem = "is a pattern of URLs, with remote=False"
            hint = "list the URLs, or let samplerkit fetch them"
            raise ArgumentValueError(place, problem, shown(pattern), hint=hint)
        matches = [match for match in matches if not (exclude and shown(match).endswith(exclude))]
        if not matches:
            raise DatasetError(place, "no file matches", shown(name), hint="check folder and pattern")
        paths += matches
    return paths


def _without_braces(pattern: str, place: str) -> list[str]:
    try:
        return expand_braces(pattern)
    except ArgumentValueError as error:
        raise ArgumentValueError(place, error.problem, shown(pattern), hint=error.hint) from None
