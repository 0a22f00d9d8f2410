"""The number of samples in each file: given by the user, or saved and loaded."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.order.arguments import at_least, is_iterable
from samplerkit.order.typing import Ids
from samplerkit.storage.files.paths import one_path
from samplerkit.storage.remote.filesystem import read_small, write_small
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.urls import shown

COUNTING_THREADS = 16
"""Files that are counted in parallel, for formats where counting does not read the whole file."""

_HINT = "write it with dataset.save_lengths(path)"


def given_lengths(
    lengths: Any, paths: Sequence[str], names: Sequence[str], storage: RemoteStorage | None
) -> list[int]:
    """Checks the lengths that the user gives, and returns them in the order of the files.

    Args:
        lengths: a list with the number of samples of each file; or a dict of these numbers, whose keys are
            the paths as given or the names; or the path or URL of a JSON file, as `save_lengths` writes it.
        paths: the files as given.
        names: their names.
        storage: fetches the JSON file; None if URLs are not fetched.

    Raises:
        ArgumentTypeError: `lengths` is of another type, or a length is not an integer.
        ArgumentValueError: a file is missing or unknown, or `lengths` is a URL and URLs are not fetched.
        ArgumentRangeError: a number is negative.
        DatasetError: the JSON file cannot be read, or has no dict of lengths.
    """
    if isinstance(lengths, str | os.PathLike):
        lengths = _load(os.fspath(lengths), storage)
    if isinstance(lengths, Mapping):
        lengths = _by_file(lengths, paths, names)
    elif isinstance(lengths, bytes | set | frozenset) or not is_iterable(lengths):
        raise ArgumentTypeError("lengths", "must be a dict, a list or the path of a JSON file", lengths)
    listed = list(lengths)
    if len(listed) != len(paths):
        raise ArgumentValueError("lengths", f"must be as many as the {len(paths)} files", len(listed))
    return [at_least(f"lengths[{name!r}]", each, 0) for each, name in zip(listed, names, strict=True)]


def save_lengths(path: str | os.PathLike[str], names: Sequence[str], lengths: Ids) -> None:
    """Writes lengths by name as JSON, atomically.

    Raises:
        ArgumentValueError: the path is a URL.
        DatasetError: the file cannot be written.
    """
    local = one_path("path", path, "save them to a local file, and upload that")
    text = lengths_text(dict(zip(names, lengths.tolist(), strict=True)))
    write_small(local, text.encode(), RemoteOptions())


def _by_file(lengths: Mapping[Any, Any], paths: Sequence[str], names: Sequence[str]) -> list[Any]:
    """Returns the values of a dict of lengths in the order of the files."""
    used = [path if path in lengths else name for path, name in zip(paths, names, strict=True)]
    missing = next((key for key in used if key not in lengths), None)
    if missing is not None:
        raise ArgumentValueError("lengths", "lacks a file", missing, hint="name every file, or none")
    extra = next(iter(lengths.keys() - set(used)), None)
    if extra is not None:
        name = shown(extra) if isinstance(extra, str) else extra
        raise ArgumentValueError("lengths", "names a file that is not in the dataset", name)
    return [lengths[key] for key in used]


def _load(path: str, storage: RemoteStorage | None) -> Mapping[Any, Any]:
    data = read_small(path, _refuse_url if storage is None else storage.read_shared)
    if data is None:
        raise DatasetError("lengths", "there is no such file", shown(path), hint=_HINT)
    return lengths_in(data, shown(path))


def _refuse_url(url: str) -> bytes:
    raise ArgumentValueError("lengths", "is a URL, with remote=False", shown(url), hint="fetch it first")


def lengths_text(lengths: Mapping[str, int]) -> str:
    """Returns the JSON of lengths by name."""
    return json.dumps({"lengths": dict(lengths)}, indent=0) + "\n"


def lengths_in(data: bytes, name: str) -> Mapping[str, Any]:
    """Parses JSON as `save_lengths` writes it.

    Raises:
        DatasetError: the JSON is invalid or has no lengths; `name` is the name of the file.
    """
    try:
        return dict(json.loads(data)["lengths"])
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        problem = f"holds no lengths of files ({type(error).__name__}: {error})"
        raise DatasetError("lengths", problem, name, hint=_HINT) from error
