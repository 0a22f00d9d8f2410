"""The lengths of a dataset's samples, computed once: in workers, and resumed where a killed run stopped."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, final

import numpy as np

from samplerkit.batches.lengths import INTEGERS, LONGEST
from samplerkit.batches.segments import Segments
from samplerkit.errors import (
    ArgumentRangeError,
    ArgumentTypeError,
    ArgumentValueError,
    DatasetError,
    SamplerkitError,
    StateError,
)
from samplerkit.loading.loader import Loader
from samplerkit.loading.sample_fields import SampleCollate, rows_of
from samplerkit.loading.state.identity import describe_dataset
from samplerkit.order import arguments
from samplerkit.order.deal import World
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.samplers.subset import SequentialSampler
from samplerkit.storage.atomic import NoLocksError, atomic, try_lock

_BATCH_SIZE = 256
_LABEL = "computing lengths:"


def compute_lengths(
    dataset: Any,
    function: Callable[[Any], Any],
    out: str | os.PathLike[str],
    *,
    num_workers: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> np.ndarray[Any, Any]:
    """Computes the length of each sample once, into an `.npy` file for `lengths` of a recipe for batches.

    What is done is kept in a file next to it, with `.part` behind its name. A killed computation resumes from
    there, and the file comes out the same, byte for byte. Memory holds the lengths too, in 4 bytes each.

    Args:
        dataset: a map-style dataset; each sample is read once, in the dataset's order.
        function: returns the length of a sample, an integer, or a pair of them.
        out: the path of the `.npy` file.
        num_workers: worker processes; the function then has to be picklable where they are spawned.
        progress: is called with what is done, how many samples are done, and how many there are.

    Returns:
        The lengths, mapped from the file: int32 of shape (n,), or (n, 2) for pairs.

    Raises:
        ArgumentTypeError: `function` cannot be called, or returns no integers.
        ArgumentValueError: `out` exists already, does not end in `.npy`, cannot be written, or is being
            computed by another process.
        ArgumentRangeError: a length is negative or above 2^31 - 1.
        DatasetError: `function` fails; the sample is named.
        StateError: the unfinished file is of another dataset or function.

    Example:
        >>> import tempfile
        >>> import samplerkit as sk
        >>> path = f"{tempfile.mkdtemp()}/lengths.npy"
        >>> texts = ["a", "bcd", "ef"]
        >>> sk.compute_lengths(texts, len, path).tolist()
        [1, 3, 2]
        >>> len(sk.TokenBatches(6, lengths=path).plan(sk.RandomSampler(seed=7), texts))
        2
    """
    if not callable(function):
        raise ArgumentTypeError("function", "must be a function of a sample", function)
    path = Path(out)
    if path.suffix != ".npy":
        raise ArgumentValueError("out", "must end in .npy", str(path))
    if path.exists():
        raise ArgumentValueError("out", "exists already", str(path), hint="give another path")
    size, report = len(Layout.of(dataset)), progress or (lambda *_: None)
    identity = {"samplerkit": "lengths", "dataset": describe_dataset(dataset), "function": _name_of(function)}
    with journal_of(path, identity) as journal:
        report(_LABEL, journal.done, size)
        loader = Loader(
            dataset,
            SequentialSampler(journal.done),
            batch_size=_BATCH_SIZE,
            num_workers=num_workers,
            tail="ragged",
            world=World(1, 0),
            collate_fn=_MeasuringCollate(function),
        )
        with loader:
            for lengths in loader if journal.done < size else ():
                for skipped in loader.skipped:  # by a dataset that leaves out missing samples
                    raise DatasetError(f"sample {skipped.id}", f"cannot be measured ({skipped.error})")
                journal.append(lengths)
                report(_LABEL, journal.done, size)
    mapped: np.ndarray[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return mapped


@final
class _MeasuringCollate(SampleCollate):
    """Makes the lengths of samples by a function of one."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def collated(self, samples: Any, ids: Ids | None = None, segments: Segments | None = None) -> Ids:
        """Returns the lengths of some samples: int64 of shape (m,), or (m, 2) for pairs.

        Raises:
            ArgumentTypeError: the function returns no integers, or numbers and pairs.
            ArgumentRangeError: a length is out of range.
            DatasetError: the function fails.
        """
        samples = rows_of(samples, None if ids is None else ids.size)
        numbers = range(len(samples)) if ids is None else ids.tolist()
        lengths = [self._length(id, sample) for id, sample in zip(numbers, samples, strict=True)]
        try:
            return np.array(lengths, dtype=np.int64)
        except ValueError:
            problem = "must give a number for each sample, or a pair for each"
            raise ArgumentTypeError("function", problem, lengths[:2]) from None

    def _length(self, id: int, sample: Any) -> Any:
        try:
            length = self._function(sample)
        except SamplerkitError:
            raise
        except Exception as error:  # whatever a function of the user's raises
            problem = f"cannot be measured ({type(error).__name__}: {error})"
            raise DatasetError(f"sample {id}", problem) from error
        return _checked(f"lengths[{id}]", length.tolist() if isinstance(length, np.ndarray) else length)


def _checked(place: str, value: Any) -> Any:
    if isinstance(value, tuple | list) and len(value) == 2:
        return [_number(place, number) for number in value]
    return _number(place, value)


def _number(place: str, value: Any) -> int:
    if isinstance(value, float | np.floating):
        raise ArgumentTypeError(place, "must be an integer", value, hint=INTEGERS)
    length = arguments.integer(place, value)
    if not 0 <= length <= LONGEST:
        raise ArgumentRangeError(place, f"must be in [0, {LONGEST}]", length)
    return length


def _name_of(function: Callable[[Any], Any]) -> str:
    if is_dataclass(function):
        return repr(function)
    if isinstance(function, partial):
        return f"{_name_of(function.func)} of {function.args} and {function.keywords}"
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', type(function).__module__)}.{name}"


_DTYPE: Final = np.dtype("<i4")
_LONGEST_LINE = 1 << 16
_HINT = "remove this file, which keeps other lengths computed so far, or give another path for the lengths"


@final
class LengthsJournal:
    """A file with the lengths of the first samples in lines with checksums; the first line is the identity.

    Args:
        file: open for reading and writing, and locked.
        path: of the file.
        identity: what is computed, as JSON values: a file with other values is refused.

    Raises:
        StateError: the file is of another dataset or function.
    """

    def __init__(self, file: BinaryIO, path: Path, identity: dict[str, Any]) -> None:
        self._file = file
        self._out = path.with_suffix("")
        self._lengths: list[np.ndarray[Any, Any]] = []
        self.done = 0
        saved, header = _value_of(file.readline(_LONGEST_LINE)), _line(identity)
        end = len(header)
        while saved is not None and (lengths := _value_of(line := file.readline(_LONGEST_LINE))) is not None:
            # A file without lengths, as an error of the first sample leaves it, fits any dataset.
            if not self.done:
                _require_same(saved, identity, path)
            end += len(line)
            self._add(lengths)
        # The rest after the last complete line is truncated or damaged.
        file.seek(0)
        file.write(header)
        file.seek(end)
        file.truncate()

    def append(self, lengths: Ids) -> None:
        """Adds the lengths of the next samples: of shape (m,), or (m, 2) for pairs.

        Raises:
            ArgumentValueError: pairs after single lengths, or the other way round.
        """
        if self._lengths and self._lengths[0].ndim != lengths.ndim:
            problem = f"must be {'numbers' if lengths.ndim > 1 else 'pairs'}, as those before"
            raise ArgumentValueError(f"lengths[{self.done}]", problem, lengths[0].tolist())
        # A process that is killed in the middle leaves a line whose checksum does not fit.
        with _disk_errors(self._out):
            self._file.write(_line(lengths.tolist()))
            self._file.flush()
        self._add(lengths)

    def finish(self, out: Path) -> None:
        """Writes the lengths as an `.npy` file, atomically."""
        with atomic(out) as file:
            np.save(file, np.concatenate(self._lengths or [np.zeros(0, _DTYPE)]))

    def _add(self, lengths: Any) -> None:
        self._lengths.append(np.array(lengths, dtype=_DTYPE))
        self.done += len(lengths)


def _line(value: Any) -> bytes:
    """Writes a JSON value as a line, after its checksum."""
    text = json.dumps(value).encode() + b"\n"
    return b"%08x %s" % (zlib.crc32(text), text)


def _value_of(line: bytes) -> Any:
    """Reads the value of a line; None where it was cut off or damaged."""
    checksum, _, text = line.partition(b" ")
    return json.loads(text) if checksum == b"%08x" % zlib.crc32(text) and text.endswith(b"\n") else None


@contextmanager
def journal_of(out: Path, identity: dict[str, Any]) -> Iterator[LengthsJournal]:
    """Opens the journal of a file of lengths, next to it; at the end, it becomes that file.

    Raises:
        ArgumentValueError: the folder cannot be written to, or another process computes these lengths now.
        StateError: the journal is of another dataset or function.
    """
    part = out.with_name(f"{out.name}.part")
    with _disk_errors(out):
        try:
            descriptor = try_lock(part, is_exclusive=True)
        except NoLocksError:
            descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    if descriptor is None:
        raise ArgumentValueError("out", "is being computed by another process", str(out), hint="wait for it")
    with os.fdopen(descriptor, "r+b") as file:
        with _disk_errors(out):
            journal = LengthsJournal(file, part, identity)
        yield journal
        with _disk_errors(out):
            journal.finish(out)
            part.unlink(missing_ok=True)


@contextmanager
def _disk_errors(out: Path) -> Iterator[None]:
    """Names the file in an error of the disk."""
    try:
        yield
    except OSError as error:
        raise ArgumentValueError("out", f"cannot be written ({error.strerror or error})", str(out)) from error


def _require_same(saved: dict[str, Any], identity: dict[str, Any], path: Path) -> None:
    """Refuses a journal of something else."""
    for name, value in identity.items():
        if saved.get(name) != value:
            raise StateError(
                f"{path}: {name}", "belongs to other lengths", saved.get(name), value, hint=_HINT
            )
