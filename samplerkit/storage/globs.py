"""The files that a glob pattern means, each once, however many links lead to it."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_ALL_BELOW = re.compile(r"(?:^|(?<=/))\*\*(?:/+|$)")


def matching_files(pattern: str) -> list[str]:
    """Gives the files that match, sorted by bytes.

    A file to which links lead as well is given once: by the path with the fewest links, and of these by the
    first. Hard links are files of their own, for none of them is the link. `**` means the folder and all
    below, links to folders included, each gone through once.

    Args:
        pattern: with `*`, `?`, `[...]` and `**`; hidden names match only where a pattern begins with a dot.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> open(os.path.join(folder, "a.npy"), "w").close()
        >>> os.symlink(folder, os.path.join(folder, "again"))
        >>> [os.path.basename(path) for path in matching_files(f"{folder}/**/*.npy")]
        ['a.npy']
    """
    matches = {path for path in _matches(pattern) if os.path.isfile(path)}  # noqa: PTH113  # Path's own is slow
    kept: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path in sorted(matches, key=os.fsencode):
        file = _real_path(path, folders)
        if file not in kept or _links(path) < _links(kept[file]):
            kept[file] = path
    return sorted(kept.values(), key=os.fsencode)


def _matches(pattern: str) -> Iterator[str]:
    if pattern.endswith("/"):  # it means folders
        return
    found = _ALL_BELOW.search(pattern)
    if found is None:
        yield from glob.glob(pattern)  # noqa: PTH207  # Path.glob takes no absolute pattern
        return
    head, tail = re.sub("/+$", "/", pattern[: found.start()]), pattern[found.end() :]
    bases = glob.glob(head) if glob.has_magic(head) else [head]  # noqa: PTH207  # likewise
    for base in bases:
        for folder in _folders(base):
            yield from _matches(os.path.join(glob.escape(folder), tail or "*"))  # noqa: PTH118  # "" stays ""


def _folders(base: str) -> Iterator[str]:
    """Gives a folder and all below it, each once: by its own path if it has one, else by that of a link."""
    seen: set[tuple[int, int]] = set()
    wave = [base]
    while wave:
        links: list[str] = []
        for top in wave:
            waiting = [top]
            while waiting:
                folder = waiting.pop()
                if _is_new(folder, seen):
                    yield folder
                    for entry in _listed(folder):
                        (links if entry.is_symlink() else waiting).append(os.path.join(folder, entry.name))  # noqa: PTH118
        wave = sorted(links, key=os.fsencode)


def _is_new(folder: str, seen: set[tuple[int, int]]) -> bool:
    try:
        status = os.stat(folder or ".")  # noqa: PTH116  # "" is the working folder
    except OSError:  # gone, or nobody may look into it
        return False
    key = (status.st_dev, status.st_ino)
    is_new = key not in seen
    seen.add(key)
    return is_new


def _listed(folder: str) -> Iterable[os.DirEntry[str]]:
    """Gives the folders in a folder that are not hidden, and the links to folders."""
    try:
        with os.scandir(folder or ".") as listing:
            return [entry for entry in listing if entry.is_dir() and not entry.name.startswith(".")]
    except OSError:
        return []


def _real_path(path: str, folders: dict[str, str]) -> str:
    """Gives the path without links; those of folders are kept in a table, for files lie together."""
    if os.path.islink(path):  # noqa: PTH114  # Path's own is slow
        return os.path.realpath(path)
    folder, name = os.path.split(path)
    if folder not in folders:
        folders[folder] = os.path.realpath(folder)
    return os.path.join(folders[folder], name)  # noqa: PTH118  # likewise


def _links(path: str) -> int:
    """Counts the links in a path."""
    return sum(link.is_symlink() for link in (Path(path), *Path(path).parents))
