"""Reads files with a function of the user's, in one of the supported forms."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from samplerkit.errors import ArgumentRangeError, ArgumentTypeError, DatasetError, SamplerkitError
from samplerkit.order import arguments
from samplerkit.order.typing import Ids
from samplerkit.storage.files.content import FileContent
from samplerkit.storage.files.packages import guarded
from samplerkit.storage.lengths import COUNTING_THREADS
from samplerkit.storage.remote.access import translate_errors
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.threads import Progress, all_in_threads
from samplerkit.storage.urls import is_remote, shown

Result = TypeVar("Result")
_PARSER_RACE = "AST constructor recursion depth mismatch"
_MAX_RACES = 3


@dataclass(frozen=True)
class FileReader:
    """Reads files with a function of the user's, and counts the samples of each.

    The function receives local paths: a remote file is fetched into the cache of this machine. The copy is
    guaranteed to exist only during the call, so the returned data must not need the file any more. Errors
    name the URL, without its query and credentials; those that a reader raises itself may name the copy, and
    have a note with the URL.

    Args:
        function: maps a path to data; it may have a method `count`.
        gives_length: whether it has an argument `get_data`, as in Microsoft's
            PartiallyShuffleDistributedSampler: it then returns `(data, length)` with `get_data=True`, and
            the length or `(None, length)` with `get_data=False`.
        storage: fetches remote files; None passes the URL itself to the function.

    Source: https://github.com/microsoft/PartiallyShuffleDistributedSampler
    """

    function: Callable[..., Any]
    gives_length: bool = False
    storage: RemoteStorage | None = None

    @property
    def counts_cheaply(self) -> bool:
        """Whether a file is counted without reading all of it; a remote file is still fetched as a whole."""
        return self.gives_length or callable(getattr(self.function, "count", None))

    def read(self, path: str) -> FileContent:
        """Reads a file; if the function reports a length, the data must have that length."""
        return self._locally(path, self._read)

    def count(self, path: str) -> int:
        """Returns the number of samples in a file: as the function reports it, or by reading the file."""
        return self._locally(path, self._count)

    def count_all(self, paths: Sequence[str], max_read: int, progress: Progress) -> list[int]:
        """Counts many files in threads.

        Args:
            paths: the paths of the files.
            max_read: how many files may be in memory at a time, if a file has to be read to be counted.
            progress: called while files are counted.
        """
        threads = min(COUNTING_THREADS if self.counts_cheaply else max_read, COUNTING_THREADS)
        progress = partial(progress, "files counted:")
        return all_in_threads(self.count, paths, threads, "samplerkit-count", progress)

    def _read(self, path: str, name: str) -> FileContent:
        if not self.gives_length:
            return _guarded(name, "read", lambda: FileContent.of(self.function(path), name))
        given = _guarded(name, "read", lambda: self.function(path, get_data=True))
        if not isinstance(given, tuple) or len(given) != 2:
            raise DatasetError(name, "the reader must return (data, length) with get_data=True", given)
        content = _guarded(name, "read", lambda: FileContent.of(given[0], name))
        if content.length != _length(given[1], name):
            problem = f"has {content.length} samples, but its reader reports another length"
            raise DatasetError(name, problem, given[1])
        return content

    def _count(self, path: str, name: str) -> int:
        function: Any = self.function
        if self.gives_length:
            given = _guarded(name, "counted", lambda: function(path, get_data=False))
            return _length(given[1] if isinstance(given, tuple) and len(given) == 2 else given, name)
        if self.counts_cheaply:
            return _length(_guarded(name, "counted", lambda: function.count(path)), name)
        return self._read(path, name).length

    def _locally(self, path: str, call: Callable[[str, str], Result]) -> Result:
        """Calls a function with the local path of a file and its name in error messages."""
        name = shown(path)
        if self.storage is not None and is_remote(path):
            with self.storage.fetch(path) as local:
                return call(local.path, name)

        def reworded(error: SamplerkitError) -> Exception:
            # The reader's own error, which is its cause, may hold the query of the URL that it received.
            return DatasetError(name, error.problem.replace(path, name), hint=error.hint)

        kinds = (SamplerkitError,) if path != name else ()
        return translate_errors(lambda: call(path, name), kinds, reworded)


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
        sizes: the number of samples in each, as given or counted.
        file: the number of the file to read.
        hint: what to do if a size is wrong.

    Raises:
        DatasetError: the file cannot be read, or has another length.
    """
    content, expected = reader.read(paths[file]), int(sizes[file])
    if content.length != expected:
        problem = f"has {content.length} samples, but {expected} were given or counted"
        raise DatasetError(content.path, problem, hint=hint)
    return content


def has_get_data(reader: Any, *, or_any: bool = False) -> bool:
    """Whether a function has an argument `get_data`, as readers of PartiallyShuffleDistributedSampler have.

    Args:
        reader: a function.
        or_any: whether a function with `**kwargs` counts as well.
    """
    try:
        parameters = inspect.signature(reader).parameters
    except (TypeError, ValueError):  # builtins may have no signature
        return False
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return "get_data" in parameters or (or_any and takes_any)


def _length(value: Any, path: str) -> int:
    try:
        return arguments.at_least("length", value, 0)
    except (ArgumentTypeError, ArgumentRangeError):
        raise DatasetError(path, "the reader must return a number of samples", value) from None


def _guarded(path: str, verb: str, call: Callable[[], Result]) -> Result:
    """Calls a reader; any exception is turned into an error that names the file."""
    return guarded(path, verb, partial(_retry_races, call), hint="")


def _retry_races(call: Callable[[], Result]) -> Result:
    """Calls a function, again if it fails by a race in Python's parser, which numpy uses for array headers.

    Before Python 3.11.8, parsing in two threads fails rarely: https://github.com/python/cpython/issues/106905
    """
    for _ in range(_MAX_RACES):
        try:
            return call()
        except SystemError as error:
            if _PARSER_RACE not in str(error):
                raise
    return call()
