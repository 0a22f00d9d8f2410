"""The lengths of a dataset's samples, computed once: in workers, and resumed where a killed run stopped."""

import json
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from samplerkit.batches.lengths import INTEGERS, LONGEST
from samplerkit.batches.segments import Segments
from samplerkit.errors import (
    ArgumentRangeError,
    ArgumentTypeError,
    ArgumentValueError,
    DatasetError,
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
from samplerkit.storage.atomic import atomic, try_lock

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
        ArgumentValueError: `out` exists already, does not end in `.npy`, cannot be written or locked, or is
            being computed by another process.
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
    arguments.function("function", function, "a sample")
    path = Path(out)
    if path.suffix != ".npy":
        raise ArgumentValueError("out", "must end in .npy", str(path))
    if path.exists():
        raise ArgumentValueError("out", "exists already", str(path), hint="give another path")
    identity = {"samplerkit": "lengths", "dataset": describe_dataset(dataset), "function": _name_of(function)}
    part = path.with_name(f"{path.name}.part")
    with _disk_errors(path):
        descriptor = try_lock(part, is_exclusive=True)
    if descriptor is None:
        raise ArgumentValueError("out", "is being computed by another process", str(path), hint="wait for it")
    # Without a buffer, whose rest a close would write again where the disk is full.
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        with _disk_errors(path):
            computed = _resumed(file, identity, part)
        report = progress or (lambda *_: None)
        size, done = len(Layout.of(dataset)), sum(map(len, computed))
        report(_LABEL, done, size)
        for lengths in _measured(dataset, function, num_workers, done) if done < size else ():
            if computed and computed[0].ndim != lengths.ndim:
                problem = f"must be {'numbers' if lengths.ndim > 1 else 'pairs'}, as those before"
                raise ArgumentValueError(f"lengths[{done}]", problem, lengths[0].tolist())
            computed.append(lengths.astype(_DTYPE))
            with _disk_errors(path):
                # A process that is killed in the middle leaves a line whose checksum does not fit.
                file.write(_line(lengths.tolist()))
            done += len(lengths)
            report(_LABEL, done, size)
        with _disk_errors(path):
            with atomic(path) as whole:
                np.save(whole, np.concatenate(computed or [np.zeros(0, _DTYPE)]))
            part.unlink(missing_ok=True)
    mapped: np.ndarray[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return mapped


def _measured(dataset: Any, function: Callable[[Any], Any], num_workers: int, done: int) -> Iterator[Ids]:
    """Computes the lengths of all samples from a number on, of some at a time."""
    options: dict[str, Any] = {"batch_size": _BATCH_SIZE, "tail": "ragged", "num_workers": num_workers}
    options["collate_fn"] = _MeasuringCollate(function)
    with Loader(dataset, SequentialSampler(done), world=World(1, 0), **options) as loader:
        for lengths in loader:
            for skipped in loader.skipped:  # by a dataset that leaves out missing samples
                raise DatasetError(f"sample {skipped.id}", f"cannot be measured ({skipped.error})")
            yield lengths


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
            array = np.array(lengths, dtype=np.int64)
        except ValueError:
            problem = "must give a number for each sample, or a pair for each"
            value = [length.tolist() for length in lengths[:2]]
            raise ArgumentTypeError("function", problem, value) from None
        outside = ((array < 0) | (array > LONGEST)).reshape(len(array), -1).any(axis=1)
        if outside.any():
            at = int(outside.argmax())
            place, value = f"lengths[{numbers[at]}]", array[at].tolist()
            raise ArgumentRangeError(place, f"must be in [0, {LONGEST}]", value)
        return array

    def _length(self, id: int, sample: Any) -> np.ndarray[Any, Any]:
        """Returns the length of a sample, an integer or a pair of them."""
        try:
            length = self._function(sample)
        except Exception as error:  # whatever a function of the user's raises
            problem = f"cannot be measured ({type(error).__name__}: {error})"
            raise DatasetError(f"sample {id}", problem) from error
        with suppress(ValueError):  # of a list in a list
            array = np.asarray(length)
            if array.dtype.kind in "iu" and array.shape in {(), (2,)}:
                return array
        raise ArgumentTypeError(f"lengths[{id}]", "must be an integer, or a pair", length, hint=INTEGERS)


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


def _resumed(file: BinaryIO, identity: dict[str, Any], path: Path) -> list[np.ndarray[Any, Any]]:
    """Reads the lengths of the first samples, up to which the file is kept.

    Args:
        file: lines with checksums: first what is computed, then lengths.
        identity: what is computed, as JSON values.
        path: of the file.

    Raises:
        StateError: the file is of another dataset or function.
    """
    header, computed = _line(identity), []
    end = len(header)
    with path.open("rb") as lines:
        saved = _value_of(lines.readline(_LONGEST_LINE))
        while saved is not None and (lengths := _value_of(line := lines.readline(_LONGEST_LINE))) is not None:
            computed.append(np.array(lengths, dtype=_DTYPE))
            end += len(line)
    # A file without lengths, as an error of the first sample leaves it, fits any dataset.
    for name, value in identity.items() if computed else ():
        if saved.get(name) != value:
            raise StateError(f"{path}: {name}", "is for other lengths", saved.get(name), value, hint=_HINT)
    file.seek(0)
    file.write(header)
    # The rest after the last complete line is truncated or damaged.
    file.seek(end)
    file.truncate()
    return computed


def _line(value: Any) -> bytes:
    """Writes a JSON value as a line, after its checksum."""
    text = json.dumps(value).encode() + b"\n"
    return b"%08x %s" % (zlib.crc32(text), text)


def _value_of(line: bytes) -> Any:
    """Reads the value of a line; None where it was cut off or damaged."""
    checksum, _, text = line.partition(b" ")
    return json.loads(text) if checksum == b"%08x" % zlib.crc32(text) and text.endswith(b"\n") else None


@contextmanager
def _disk_errors(out: Path) -> Iterator[None]:
    """Names the file in an error of the disk."""
    try:
        yield
    except OSError as error:
        raise ArgumentValueError("out", f"cannot be written ({error.strerror or error})", str(out)) from error
