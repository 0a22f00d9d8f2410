"""Files read by a function of the user's, in one of the forms that are understood."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, final

from samplerkit.errors import ArgumentTypeError, DatasetError, SamplerkitError, note_once
from samplerkit.order import arguments
from samplerkit.order.typing import Ids
from samplerkit.storage.files.content import FileContent
from samplerkit.storage.lengths import COUNTING_THREADS
from samplerkit.storage.remote.access import in_other_words
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.threads import Progress, all_in_threads
from samplerkit.storage.urls import is_remote, shown

Result = TypeVar("Result")
_PARSER_RACE = "AST constructor recursion depth mismatch"
_MOST_RACES = 3


@final
@dataclass(frozen=True)
class FileReader:
    """Reads files by a function of the user's, and says how many samples each has.

    The function knows only local files: a remote one is fetched into the cache of this machine, and stays
    there for certain only while it is read: what a function gives must not need the file any more. Errors
    name the URL, without its query and without credentials, and never the copy.

    Args:
        function: from a path to data; it may have a method `count`.
        gives_length: whether it has an argument `get_data`, as in Microsoft's
            PartiallyShuffleDistributedSampler: then it gives `(data, length)` with True; with False the
            length, or `(None, length)`.
        storage: fetches remote files; None gives the URL itself to the function.

    Source: https://github.com/microsoft/PartiallyShuffleDistributedSampler
    """

    function: Callable[..., Any]
    gives_length: bool = False
    storage: RemoteStorage | None = None

    @property
    def counts_cheaply(self) -> bool:
        """Whether a file is counted without reading all of it; a remote one is fetched as a whole for it."""
        return self.gives_length or callable(getattr(self.function, "count", None))

    def read(self, path: str) -> FileContent:
        """Reads a file; a length that the function reports must be that of its data."""
        content = self._locally(path, self._read)
        return replace(content, path=shown(path)) if is_remote(path) else content

    def count(self, path: str) -> int:
        """Reports how many samples a file has: as the function says, or by reading it."""
        return self._locally(path, self._count)

    def count_all(self, paths: Sequence[str], most_read: int, progress: Progress) -> list[int]:
        """Counts many files in threads.

        Args:
            paths: of the files.
            most_read: files that may be in memory at a time, where one has to be read to be counted.
            progress: is called while they are counted.
        """

        def count(number: int) -> int:
            return self.count(paths[number])

        threads = min(COUNTING_THREADS if self.counts_cheaply else most_read, COUNTING_THREADS)
        progress = partial(progress, "files counted:")
        return all_in_threads(count, len(paths), threads, "samplerkit-count", progress)

    def _read(self, path: str) -> FileContent:
        if not self.gives_length:
            return _guarded(path, "read", lambda: FileContent.of(self.function(path), path))
        given = _guarded(path, "read", lambda: self.function(path, get_data=True))
        if not isinstance(given, tuple) or len(given) != 2:
            raise DatasetError(path, "the reader must give (data, length) with get_data=True", given)
        content = _guarded(path, "read", lambda: FileContent.of(given[0], path))
        if content.length != _length(given[1], path):
            problem = f"has {content.length} samples, but its reader reports another length"
            raise DatasetError(path, problem, given[1])
        return content

    def _count(self, path: str) -> int:
        function: Any = self.function
        if self.gives_length:
            given = _guarded(path, "counted", lambda: function(path, get_data=False))
            return _length(given[1] if isinstance(given, tuple) and len(given) == 2 else given, path)
        if self.counts_cheaply:
            return _length(_guarded(path, "counted", lambda: function.count(path)), path)
        return self._read(path).length

    def _locally(self, path: str, call: Callable[[str], Result]) -> Result:
        if not is_remote(path):
            return call(path)
        if self.storage is None:
            return _renamed(path, shown(path), call)
        with self.storage.fetch(path) as local:
            return _renamed(local.path, shown(path), call)


def read_file(
    reader: FileReader,
    paths: Sequence[str],
    sizes: Ids,
    file: int,
    hint: str = "correct lengths, or leave them out to have them counted",
) -> FileContent:
    """Reads a file and checks its length.

    Args:
        reader: reads it.
        paths: of all files.
        sizes: samples in each, as was given or counted.
        file: its number.
        hint: what to do about sizes that are wrong.

    Raises:
        DatasetError: it cannot be read, or has another length.
    """
    content, told = reader.read(paths[file]), int(sizes[file])
    if content.length != told:
        raise DatasetError(
            content.path,
            f"has {content.length} samples, but {told} were given or counted",
            hint=hint,
        )
    return content


def has_get_data(reader: Any, *, or_any: bool = False) -> bool:
    """Whether a function is the original's reader, which has `get_data` among its arguments.

    Args:
        reader: a function.
        or_any: whether one that takes arguments of any name is one too.
    """
    try:
        parameters = inspect.signature(reader).parameters
    except (TypeError, ValueError):  # builtins may have no signature
        return False
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return "get_data" in parameters or (or_any and takes_any)


def _length(value: Any, path: str) -> int:
    try:
        number = arguments.integer("length", value)
    except ArgumentTypeError:
        number = -1
    if number < 0:
        raise DatasetError(path, "the reader must tell a number of samples", value)
    return number


def _guarded(path: str, what: str, call: Callable[[], Result]) -> Result:
    """Calls a reader; whatever it raises becomes an error that names the file."""
    try:
        return _parsed(call)
    except MemoryError as error:
        note_once(error, f"while {path} was {what}")
        raise
    except Exception as error:
        if isinstance(error, SamplerkitError) and path in error.place:
            raise
        is_gone = isinstance(error, FileNotFoundError)
        hint = "put it there again, or leave it out of the dataset" if is_gone else ""
        raise DatasetError(path, f"cannot be {what} ({type(error).__name__}: {error})", hint=hint) from error


def _parsed(call: Callable[[], Result]) -> Result:
    """Calls again what failed by a race in Python's parser, which numpy uses for the headers of arrays.

    Before 3.11.8, parsing in two threads may fail, seldom: https://github.com/python/cpython/issues/106905
    """
    for _ in range(_MOST_RACES):
        try:
            return call()
        except SystemError as error:
            if _PARSER_RACE not in str(error):
                raise
    return call()


def _renamed(path: str, name: str, call: Callable[[str], Result]) -> Result:
    """Calls with a path; an error has the name in its place."""

    def said(error: Exception) -> Exception:
        if not isinstance(error, SamplerkitError):
            error.__notes__ = [note.replace(path, name) for note in getattr(error, "__notes__", ())]
        if not isinstance(error, SamplerkitError) or path == name:
            return error
        value = error.value.replace(path, name) if isinstance(error.value, str) else error.value
        failed = type(error)(
            error.place.replace(path, name),
            error.problem.replace(path, name),
            *(() if value is None else (value,)),
            hint=error.hint,
        )
        # The reader's own error may hold the query of a URL, if it has seen one.
        failed.__cause__ = None if is_remote(path) else error.__cause__
        return failed

    return in_other_words(lambda: call(path), (MemoryError, SamplerkitError), said)
