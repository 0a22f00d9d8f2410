"""The files that a glob pattern means, each once, however many links lead to it."""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Iterator, Sequence
from glob import has_magic
from pathlib import Path

from samplerkit.errors import DatasetError


def matching_files(pattern: str) -> list[str]:
    """Returns the files that match, sorted by bytes.

    What may be a file of the dataset is never left out: a link whose target is missing, a pipe or a device is
    returned too, and is the error that it is where it is named without a pattern.

    A file to which links lead as well is given once: by the path with the fewest links, and of these by the
    first. Hard links are files of their own, for none of them is the link. `**` means the folder and all
    below, links to folders included, each gone through once.

    Args:
        pattern: with `*`, `?`, `[...]` and `**`; hidden names match only where a pattern begins with a dot.

    Raises:
        DatasetError: a folder matches whose name the pattern gives in part, cannot be listed, or may be the
            missing target of a link.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> open(os.path.join(folder, "a.npy"), "w").close()
        >>> os.symlink(folder, os.path.join(folder, "again"))
        >>> [os.path.basename(path) for path in matching_files(f"{folder}/**/*.npy")]
        ['a.npy']
    """
    if pattern.endswith("/"):  # it means folders
        return []
    root = re.match("/*", pattern)[0]  # type: ignore[index]  # it matches all
    parts = [part for part in pattern[len(root) :].split("/") if part]
    broken: set[str] = set()
    matches = set(_matches(root, parts, broken))
    found = {path for path in matches if not _is_folder(path, broken)}
    for path in sorted(matches - found):
        if not may_match_folders(pattern):
            hint = "name the files in it too, or use a pattern that only files match"
            raise DatasetError(path, "is a folder, and matches a pattern for files", pattern, hint=hint)
    for path in sorted(broken - matches):
        problem = "is a link whose target is missing, where the pattern looks into folders"
        raise DatasetError(path, problem, pattern, hint="restore the target, or remove the link")
    kept: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path in sorted(found, key=os.fsencode):
        file = _real_path(path, folders)
        if file not in kept or _links(path) < _links(kept[file]):
            kept[file] = path
    return sorted(kept.values(), key=os.fsencode)


def may_match_folders(pattern: str) -> bool:
    """Returns whether folders that match are left out: `*` and `**` take whatever is there.

    Elsewhere a folder is an error. One called `0.parquet` or `0.tar` holds data, as Spark writes it, and
    without it the dataset would be smaller than its files look.

    Example:
        >>> [may_match_folders(pattern) for pattern in ("data/*", "data/**", "data/*.tar", "data/train*")]
        [True, True, False, False]
    """
    return set(pattern.rpartition("/")[2]) <= set("*?.")


def _matches(folder: str, parts: Sequence[str], broken: set[str]) -> Iterator[str]:
    """Returns the paths below a folder that match, of any kind; broken links to folders are kept apart."""
    part, rest = parts[0], parts[1:]
    if part == "**":
        for below in _folders(folder, broken):
            yield from _matches(below, rest or ["*"], broken)
    elif not has_magic(part):
        path = os.path.join(folder, part)  # noqa: PTH118  # "" stays ""
        if not rest:
            yield from [path] * os.path.lexists(path)
        elif _is_folder(path, broken):
            yield from _matches(path, rest, broken)
    else:
        is_match = re.compile(fnmatch.translate(part)).match
        for entry in _listed(folder):
            if is_match(entry.name) and (part[0] == "." or entry.name[0] != "."):
                path = os.path.join(folder, entry.name)  # noqa: PTH118  # likewise
                if not rest:
                    yield path
                elif entry.is_dir(follow_symlinks=False) or (entry.is_symlink() and _is_folder(path, broken)):
                    yield from _matches(path, rest, broken)


def _folders(base: str, broken: set[str]) -> Iterator[str]:
    """Returns a folder and all below it, each once: by its own path if it has one, else by that of a link."""
    seen: set[tuple[int, int]] = set()
    wave = [base]
    while wave:
        links: list[str] = []
        for top in wave:
            waiting = [top]
            while waiting:
                folder = waiting.pop()
                if not _is_folder(folder, broken) or not _is_new(folder, seen):
                    continue
                yield folder
                for entry in _listed(folder):
                    if not entry.name.startswith("."):
                        path = os.path.join(folder, entry.name)  # noqa: PTH118  # likewise
                        if entry.is_symlink():
                            links.append(path)
                        elif entry.is_dir():
                            waiting.append(path)
        wave = sorted(links, key=os.fsencode)


def _is_folder(path: str, broken: set[str]) -> bool:
    """Returns whether a path leads to a folder; a link without a target is added to `broken`."""
    try:
        return stat.S_ISDIR(os.stat(path or ".").st_mode)  # noqa: PTH116  # "" is the working folder
    except ValueError:  # a null byte
        return False
    except OSError as error:
        if os.path.islink(path):  # noqa: PTH114  # Path's own is slow
            broken.add(path)
        elif not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise DatasetError(path, f"cannot be looked at ({error.strerror})") from error
        return False


def _is_new(folder: str, seen: set[tuple[int, int]]) -> bool:
    try:
        status = os.stat(folder or ".")  # noqa: PTH116  # likewise
    except FileNotFoundError:  # gone meanwhile
        return False
    key = (status.st_dev, status.st_ino)
    is_new = key not in seen
    seen.add(key)
    return is_new


def _listed(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder or ".") as listing:
            return list(listing)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise DatasetError(folder, f"cannot be listed ({error.strerror})", hint="check its rights") from error


def _real_path(path: str, folders: dict[str, str]) -> str:
    """Returns the path without links; those of folders are kept in a table, for files lie together."""
    if os.path.islink(path):  # noqa: PTH114  # Path's own is slow
        return os.path.realpath(path)
    folder, name = os.path.split(path)
    if folder not in folders:
        folders[folder] = os.path.realpath(folder)
    return os.path.join(folders[folder], name)  # noqa: PTH118  # likewise


def _links(path: str) -> int:
    """Counts the links in a path."""
    return sum(link.is_symlink() for link in (Path(path), *Path(path).parents))
