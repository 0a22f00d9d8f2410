"""The archives that a user names: to read, by braces, lists and globs; to write, by their numbers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from glob import has_magic
from typing import Any

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.storage.names import expand_braces, matching_files
from samplerkit.storage.remote.filesystem import expand
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.tar.index.archive import INDEX_SUFFIX
from samplerkit.storage.urls import has_pattern, is_remote, local_path, shown


def archive_names(
    urls: Any, options: RemoteOptions | None = None, *, keeps_absent: bool = False
) -> tuple[str, ...]:
    """Returns the names of the archives that a user means. Of remote ones nothing is asked, but for a glob.

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
        DatasetError: there is no such file, one is a folder, a pipe or a device, or nothing matches.
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
        raise DatasetError("urls", "there is no such file", names[0], hint="check the path")
    return tuple(names)


def _remote(pattern: str, options: RemoteOptions) -> list[str]:
    names: list[str] = []
    try:
        expanded = expand_braces(pattern)
    except ArgumentValueError as error:
        # What is private in a URL stays out of errors.
        raise ArgumentValueError("urls", error.problem, shown(pattern), hint=error.hint) from None
    for name in expanded:
        if has_pattern(name):
            names += (url for url in expand(name, options) if not shown(url).endswith(INDEX_SUFFIX))
        else:
            names.append(name)
    return names


def _found(path: str, keeps_absent: bool) -> list[str]:
    # Path's own methods raise where a name is too long to be one.
    names = []
    for name in [path] if os.path.lexists(path) else expand_braces(path):
        if has_magic(name) and not os.path.lexists(name):
            matches = [match for match in matching_files(name) if not match.endswith(INDEX_SUFFIX)]
            if not matches:
                raise DatasetError("urls", "no file matches", name, hint="check folder and pattern")
            names += matches
        else:
            names.append(name)
    for name in names:
        _require_file(name, keeps_absent)
    return names


def _require_file(name: str, keeps_absent: bool) -> None:
    if os.path.isfile(name):  # noqa: PTH113  # likewise
        return
    if os.path.isdir(name):  # noqa: PTH112  # likewise
        raise DatasetError("urls", "is a folder", name, hint="give its archives, as in 'folder/*.tar'")
    if os.path.exists(name):  # noqa: PTH110  # likewise
        problem = "is a pipe or a device, and no plain file"
        raise DatasetError("urls", problem, name, hint="give the files themselves")
    if not keeps_absent:
        is_link = os.path.islink(name)  # noqa: PTH114  # likewise
        problem = "is a link whose target is missing" if is_link else "there is no such file"
        raise DatasetError("urls", problem, name, hint="check the path")
