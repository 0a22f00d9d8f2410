"""How many samples lie in which file: told by the user, counted, or read from where they were saved."""

from __future__ import annotations

import json
import os
import queue
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.order.typing import Ids

COUNTING_THREADS = 16
"""Files that are counted at the same time, where counting does not read all of a file."""


def given_lengths(lengths: Any, paths: Sequence[str], names: Sequence[str]) -> list[int]:
    """Takes the lengths that a user tells.

    Args:
        lengths: one number a file, in the order of the files; or a dict from each file, by its path as given
            or by its name, to its number; or the path of a JSON file with such a dict, as `save_lengths`
            writes it.
        paths: the files as they were given.
        names: their names.

    Raises:
        ArgumentTypeError: none of these, or no integer.
        ArgumentValueError: a file is missing or not among the files, or a number is negative.
        DatasetError: the JSON file cannot be read.
    """
    if isinstance(lengths, str | os.PathLike):
        lengths = _loaded(Path(lengths))
    if isinstance(lengths, Mapping):
        lengths = _by_file(lengths, paths, names)
    elif isinstance(lengths, bytes | set | frozenset) or not hasattr(lengths, "__len__"):
        raise ArgumentTypeError("lengths", "must be a dict, a list or the path of a JSON file", lengths)
    if len(lengths) != len(paths):
        raise ArgumentValueError("lengths", f"must be as many as the {len(paths)} files", len(lengths))
    return [_checked(length, name) for length, name in zip(lengths, names, strict=True)]


def counted_lengths(
    count: Callable[[int], int], number: int, threads: int, progress: Callable[[int, int], None]
) -> list[int]:
    """Counts the samples of all files, several at a time.

    Args:
        count: tells the length of one file, by its number.
        number: of files.
        threads: how many files at a time.
        progress: is told how many are done, and of how many.

    Raises:
        Exception: the first that `count` raises; what is not begun then is left.
    """
    lengths = [0] * number
    progress(0, number)
    for done, (file, length) in enumerate(_in_threads(count, number, threads), start=1):
        lengths[file] = length
        progress(done, number)
    return lengths


def save_lengths(path: str | os.PathLike[str], names: Sequence[str], lengths: Ids) -> None:
    """Writes lengths by name as JSON, all or nothing."""
    target = Path(path)
    text = json.dumps({"lengths": dict(zip(names, lengths.tolist(), strict=True))}, indent=0) + "\n"
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_mask())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _in_threads(count: Callable[[int], int], number: int, threads: int) -> Iterator[tuple[int, int]]:
    """Yields (file, length) as they become known."""
    # Daemon threads: one that hangs in a read must not keep the interpreter from its end.
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, int | BaseException]] = queue.SimpleQueue()
    is_over = threading.Event()
    for file in range(number):
        waiting.put(file)

    def work() -> None:
        while not is_over.is_set():
            try:
                file = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((file, count(file)))
            except BaseException as error:  # raised again by the one who waits
                done.put((file, error))

    for worker in range(min(threads, number)):
        threading.Thread(target=work, name=f"samplerkit-count-{worker}", daemon=True).start()
    try:
        for _ in range(number):
            file, length = done.get()
            if isinstance(length, BaseException):
                raise length
            yield file, length
    finally:
        is_over.set()


def _by_file(lengths: Mapping[Any, Any], paths: Sequence[str], names: Sequence[str]) -> list[Any]:
    """Sorts a dict of lengths by file."""
    given = {os.fspath(key) if isinstance(key, os.PathLike) else key: value for key, value in lengths.items()}
    used = [path if path in given else name for path, name in zip(paths, names, strict=True)]
    missing = next((key for key in used if key not in given), None)
    if missing is not None:
        raise ArgumentValueError("lengths", "lacks a file", missing, mend="name every file, or none")
    extra = next(iter(given.keys() - set(used)), None)
    if extra is not None:
        raise ArgumentValueError("lengths", "names what is not among the files", extra)
    return [given[key] for key in used]


def _loaded(path: Path) -> Mapping[Any, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        mend = "write it with dataset.save_lengths(path)"
        raise DatasetError("lengths", "there is no such file", str(path), mend=mend) from error
    except (OSError, ValueError) as error:
        raise DatasetError("lengths", f"cannot be read ({error})", str(path)) from error
    lengths = content.get("lengths", content) if isinstance(content, dict) else content
    if not isinstance(lengths, dict):
        raise DatasetError("lengths", "holds no dict of files", str(path))
    return lengths


def _checked(length: Any, name: str) -> int:
    if isinstance(length, bool | np.bool_) or not hasattr(length, "__index__"):
        raise ArgumentTypeError(f"lengths[{name!r}]", "must be an integer", length)
    if length < 0:
        raise ArgumentValueError(f"lengths[{name!r}]", "must not be negative", int(length))
    return int(length)


def _mask() -> int:
    """The mask of new files' permissions, which Python can only read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
