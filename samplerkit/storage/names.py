"""Names of files and shards: expansion of braces and globs, and short names without the common folder."""

import fnmatch
import heapq
import os
import re
import stat
from collections.abc import Iterator, Sequence
from glob import has_magic
from itertools import islice, pairwise
from pathlib import Path

from samplerkit.errors import ArgumentValueError, DatasetError
from samplerkit.storage.urls import is_remote, shown

MAX_NAMES = 10_000_000
"""A pattern for more names than this is an error."""

_RANGE = re.compile(r"(-?\d{1,99}|[A-Za-z])\.\.(-?\d{1,99}|[A-Za-z])(?:\.\.(-?\d{1,99}))?\Z")


def expand_braces(pattern: str) -> list[str]:
    """Expands the braces of a pattern as a shell does.

    Args:
        pattern: with any number of `{first..last}`, `{first..last..step}` and `{one,other}`, nested or not.

    Raises:
        ArgumentValueError: a brace is not closed, or a step is 0.

    Example:
        >>> expand_braces("train-{08..10}.tar"), expand_braces("{a,b{1..2}}.tar")
        (['train-08.tar', 'train-09.tar', 'train-10.tar'], ['a.tar', 'b1.tar', 'b2.tar'])
    """
    expanded = list(islice(_expanded(pattern), MAX_NAMES + 1))
    if len(expanded) > MAX_NAMES:
        raise _too_many(pattern)
    return expanded


def short_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns names relative to the common folder of all files, which stay the same when that is moved.

    Example:
        >>> short_names(("/data/a/0.tar", "/data/b/0.tar"))
        ('a/0.tar', 'b/0.tar')
        >>> short_names(("s3://bucket/a/0.tar", "s3://bucket/b/0.tar"))
        ('a/0.tar', 'b/0.tar')
        >>> short_names(("s3://bucket/0.tar", "gs://bucket/0.tar"))
        ('s3://bucket/0.tar', 'gs://bucket/0.tar')
    """
    # `Path.absolute` keeps "..", and is slow.
    full = [shown(name) if is_remote(name) else os.path.abspath(name) for name in names]  # noqa: PTH100
    folders = [folder.split("/") for folder in {name.rpartition("/")[0] for name in full}]
    common = os.path.commonprefix(folders)  # noqa: RUF071  # of lists, so part by part
    length = len("/".join(common)) + (len(common) > 0)
    return tuple(name[length:] for name in full)


def _expanded(pattern: str) -> Iterator[str]:
    start = pattern.find("{")
    if start < 0:
        yield pattern
        return
    parts, end = _in_braces(pattern, start)
    for middle in _alternatives(parts, pattern):
        for rest in _expanded(pattern[end + 1 :]):
            yield f"{pattern[:start]}{middle}{rest}"


def _in_braces(pattern: str, start: int) -> tuple[list[str], int]:
    """Splits the content of braces at its top-level commas; also returns where the braces close."""
    borders, depth = [start], 0
    for position in range(start, len(pattern)):
        depth += {"{": 1, "}": -1}.get(pattern[position], 0)
        if depth == 0 or (depth == 1 and pattern[position] == ","):
            borders.append(position)
        if depth == 0:
            return [pattern[begin + 1 : end] for begin, end in pairwise(borders)], position
    raise ArgumentValueError("urls", "has a brace that is not closed", pattern)


def _alternatives(parts: Sequence[str], pattern: str) -> Iterator[str]:
    if len(parts) > 1:
        for part in parts:
            yield from _expanded(part)
        return
    match = _RANGE.match(parts[0])
    if match is None or match[1].isalpha() != match[2].isalpha():
        hint = "write a range as {000..127} and a choice as {a,b}"
        raise ArgumentValueError("urls", "has braces without a range or a choice", pattern, hint=hint)
    first, last, step = match.groups()
    if first.isalpha():
        yield from map(chr, _range(ord(first), ord(last), step, pattern))
    else:
        is_padded = any(re.match(r"-?0\d", text) for text in (first, last))
        width = max(len(first), len(last)) if is_padded else 0
        yield from (f"{number:0{width}d}" for number in _range(int(first), int(last), step, pattern))


def _range(first: int, last: int, step: str | None, pattern: str) -> range:
    stride = abs(int(step)) if step is not None else 1
    if stride == 0:
        raise ArgumentValueError("urls", "has a step of 0", pattern)
    numbers = range(first, last + 1, stride) if first <= last else range(first, last - 1, -stride)
    # Checked before any name is made; `expand_braces` counts the names of choices and nested braces.
    if numbers[MAX_NAMES:]:  # `len` fails for more than fit into 64 bits
        raise _too_many(pattern)
    return numbers


def _too_many(pattern: str) -> ArgumentValueError:
    return ArgumentValueError("urls", f"expands to more than {MAX_NAMES} archives", pattern)


def matching_files(pattern: str) -> list[str]:
    """Returns the files that match a pattern, sorted by the bytes of their paths.

    Nothing that may belong to the dataset is skipped: broken links, pipes and devices are returned as well,
    and raise the same error as if they were named without a pattern.

    A file that is also reachable by symbolic links is returned once: by the path with the fewest links, and
    of these by the first. Hard links are separate files, since none of them is the original. `**` means the
    folder and everything below it; linked folders are followed, and each folder is visited once.

    Args:
        pattern: a pattern with `*`, `?`, `[...]` and `**`; hidden names match only where the part of the
            pattern begins with a dot.

    Raises:
        DatasetError: a folder matches a pattern for files, a folder cannot be listed, or a link that
            may lead to a folder is broken.

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
    files = {path for path in matches if not _is_folder(path, broken)}
    for path in sorted(matches - files):
        if not may_match_folders(pattern):
            hint = "name the files in it too, or use a pattern that only files match"
            raise DatasetError(path, "is a folder, and matches a pattern for files", pattern, hint=hint)
    for path in sorted(broken - matches):
        problem = "is a link whose target is missing, and may be a folder that the pattern searches"
        raise DatasetError(path, problem, pattern, hint="restore the target, or remove the link")
    path_by_file: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path in sorted(files, key=os.fsencode):
        file = _real_path(path, folders)
        if file not in path_by_file or _links(path) < _links(path_by_file[file]):
            path_by_file[file] = path
    return sorted(path_by_file.values(), key=os.fsencode)


def may_match_folders(pattern: str) -> bool:
    """Returns whether folders that match a pattern are skipped: only if its last part is `*` or `**`.

    Otherwise a matching folder is an error. A folder called `0.parquet` or `0.tar` contains data, such as
    Spark writes it, and skipping it would silently make the dataset smaller.

    Example:
        >>> [may_match_folders(pattern) for pattern in ("data/*", "data/**", "data/*.tar", "data/train*")]
        [True, True, False, False]
    """
    return set(pattern.rpartition("/")[2]) <= set("*?.")


def _matches(folder: str, parts: Sequence[str], broken: set[str]) -> Iterator[str]:
    """Yields matching paths of any kind below a folder; broken links on the way are added to `broken`."""
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
        for entry in _entries_of(folder):
            if is_match(entry.name) and (part[0] == "." or entry.name[0] != "."):
                path = os.path.join(folder, entry.name)  # noqa: PTH118  # likewise
                if not rest:
                    yield path
                elif entry.is_dir(follow_symlinks=False) or (entry.is_symlink() and _is_folder(path, broken)):
                    yield from _matches(path, rest, broken)


def _folders(base: str, broken: set[str]) -> Iterator[str]:
    """Yields a folder and all folders below it, each once: by the path with the fewest links."""
    seen: set[tuple[int, int]] = set()
    waiting = [(0, os.fsencode(base))]
    while waiting:
        links, path = heapq.heappop(waiting)
        folder = os.fsdecode(path)
        identity = _folder_identity(folder, broken)
        if identity is None or identity in seen:
            continue
        seen.add(identity)
        yield folder
        for entry in _entries_of(folder):
            if not entry.name.startswith(".") and (entry.is_symlink() or entry.is_dir()):
                path = os.fsencode(os.path.join(folder, entry.name))  # noqa: PTH118  # likewise
                heapq.heappush(waiting, (links + entry.is_symlink(), path))


def _is_folder(path: str, broken: set[str]) -> bool:
    return _folder_identity(path, broken) is not None


def _folder_identity(path: str, broken: set[str]) -> tuple[int, int] | None:
    """Returns the device and inode of a folder, also through a link; None if it is none.

    Broken links are added to `broken`.
    """
    try:
        status = os.stat(path or ".")  # noqa: PTH116  # "" is the working folder
    except ValueError:  # a null byte
        return None
    except OSError as error:
        if os.path.islink(path):  # noqa: PTH114  # Path's own is slow
            broken.add(path)
        elif not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise DatasetError(path, f"cannot be examined ({error.strerror})") from error
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISDIR(status.st_mode) else None


def _entries_of(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder or ".") as listing:
            return list(listing)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise DatasetError(folder, f"cannot be listed ({error.strerror})", hint="check its rights") from error


def _real_path(path: str, folders: dict[str, str]) -> str:
    """Returns the path with links resolved; resolved folders are cached, since many files share one."""
    if os.path.islink(path):  # noqa: PTH114  # Path's own is slow
        return os.path.realpath(path)
    folder, name = os.path.split(path)
    if folder not in folders:
        folders[folder] = os.path.realpath(folder)
    return os.path.join(folders[folder], name)  # noqa: PTH118  # likewise


def _links(path: str) -> int:
    """Returns the number of symbolic links in a path."""
    return sum(link.is_symlink() for link in (Path(path), *Path(path).parents))
