"""How long samples are: checked once, told by a digest, and counted by length."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from samplerkit.batches.histogram import Histogram, Tally
from samplerkit.batches.kept import KeptArrays
from samplerkit.errors import (
    ArgumentRangeError,
    ArgumentTypeError,
    ArgumentValueError,
    DatasetError,
)
from samplerkit.order.arguments import holds_bool
from samplerkit.order.told import told_column
from samplerkit.order.typing import Ids

LONGEST = (1 << 31) - 1
"""The largest length of a sample."""

CHUNK = 1 << 20
_NAMES = ("lengths", "length")


@final
class SampleLengths:
    """The length of each sample of a dataset, or the two lengths of each, as an array or a mapped file.

    Args:
        source: integers, in an array or a list of shape (n,), or (n, 2) for pairs; or the path of an `.npy`
            file of them, which is mapped.
        place: what errors call it.
        kept: where what was counted in a file is kept.

    Raises:
        ArgumentTypeError: no integers.
        ArgumentValueError: of another shape, no `.npy` file, or a file that cannot be read.
        ArgumentRangeError: a length is negative or above 2^31 - 1.

    Example:
        >>> lengths = SampleLengths([5, 3, 5])
        >>> lengths.at(np.array([2, 1])), lengths.histogram.values, lengths.histogram.counts
        (array([5, 3]), array([5, 3]), array([2, 1]))
    """

    def __init__(self, source: Any, place: str = "lengths", kept: KeptArrays | None = None) -> None:
        self._place = place
        self._path = Path(source).absolute() if isinstance(source, str | os.PathLike) else None
        self._array: np.ndarray[Any, Any] | None = None
        given = self._mapped() if self._path is not None else _array(source, place)
        if given.ndim != 1 and not (given.ndim == 2 and given.shape[1] == 2):
            raise ArgumentValueError(
                place,
                "must have one length a sample, or a pair: shape (n,) or (n, 2)",
                given.shape,
                mend="give the dataset's lengths in its order",
            )
        _require_integers(given, place)
        self._array = given
        self.size: Final = given.shape[0]
        self.are_pairs: Final = given.ndim == 2
        self.histogram: Final = self._counted(kept)

    @property
    def digest(self) -> str:
        """A digest of all lengths: the same for an array and a file that hold the same."""
        return self.histogram.digest

    def at(self, ids: Ids) -> Ids:
        """Gives the lengths of samples: int64 of shape (m,), or (m, 2) for pairs."""
        array = self._mapped() if self._array is None else self._array
        found: Ids = array[ids].astype(np.int64)
        return found

    def chunks(self, size: int | None = None) -> Iterator[Ids]:
        """Gives the lengths of the first samples, of all where nothing is said, in arrays of int64."""
        array = self._mapped() if self._array is None else self._array
        end = self.size if size is None else size
        for start in range(0, end, CHUNK):
            yield array[start : min(end, start + CHUNK)].astype(np.int64)

    def __getstate__(self) -> dict[str, Any]:
        # Another process gets the path, not the array.
        return {**self.__dict__, "_array": None} if self._path is not None else self.__dict__

    def _mapped(self) -> np.ndarray[Any, Any]:
        path = self._path
        assert path is not None  # noqa: S101  # for mypy: what has no path has an array
        if path.suffix != ".npy":
            raise ArgumentValueError(self._place, "must be the path of an .npy file", str(path), mend=_SAVE)
        try:
            array: np.ndarray[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        except FileNotFoundError:
            raise ArgumentValueError(self._place, "the file is not there", str(path), mend=_SAVE) from None
        except (OSError, ValueError, EOFError) as error:
            raise ArgumentValueError(
                self._place, f"cannot be read as an .npy file ({error})", str(path), mend=_SAVE
            ) from None
        return array

    def _counted(self, kept: KeptArrays | None) -> Histogram:
        """Counts in one pass, or finds what an earlier pass over the same file counted."""
        if kept is None or self._path is None:
            return self._pass()
        name = _stamp(self._path)
        found = kept.arrays(name)
        if found is not None and set(found) == {"values", "counts", "digest"}:
            return Histogram(found["values"], found["counts"], str(found["digest"]))
        counted = self._pass()
        kept.keep_arrays(name, values=counted.values, counts=counted.counts, digest=np.array(counted.digest))
        return counted

    def _pass(self) -> Histogram:
        state = hashlib.blake2b(digest_size=8, person=b"samplerkit")
        state.update(f"{self.size} {self.are_pairs}".encode())
        tally = Tally()
        seen = 0
        for chunk in self.chunks():
            low, high = (int(chunk.min()), int(chunk.max())) if chunk.size else (0, 0)
            if low < 0 or high > LONGEST:
                wrong = np.argwhere((chunk < 0) | (chunk > LONGEST))[0]
                value = int(chunk[tuple(wrong)])
                problem = "must not be negative" if value < 0 else f"must be at most {LONGEST}"
                raise ArgumentRangeError(
                    f"{self._place}[{seen + int(wrong[0])}]", problem, value, mend="count the sample again"
                )
            # The same digest whatever integers hold the lengths.
            narrow = chunk.astype(np.min_scalar_type(high).newbyteorder("<"))
            state.update(narrow.dtype.str.encode())
            state.update(narrow.tobytes())
            tally.add(chunk.max(axis=1) if self.are_pairs else chunk)
            seen += chunk.shape[0]
        values, counts = tally.result()
        return Histogram(values, counts, state.hexdigest())


def histogram_of(lengths: SampleLengths, size: int, ids: Ids | None = None) -> Histogram:
    """Counts the lengths of some samples, in chunks.

    Args:
        lengths: of the dataset.
        size: how many samples.
        ids: which; None for the first ones.

    Example:
        >>> histogram_of(SampleLengths([5, 3, 5]), 2, np.array([0, 2])).counts
        array([2])
    """
    if ids is None and size == lengths.size:
        return lengths.histogram
    state = hashlib.blake2b(f"{lengths.digest} {size}".encode(), digest_size=8, person=b"samplerkit")
    tally = Tally()
    if ids is None:
        for found in lengths.chunks(size):
            tally.add(found)
    else:
        state.update(ids.astype("<i8").tobytes())
        for start in range(0, size, CHUNK):
            tally.add(lengths.at(ids[start : start + CHUNK]))
    values, counts = tally.result()
    return Histogram(values, counts, state.hexdigest())


def found_lengths(given: Any, dataset: Any, size: int, kept: KeptArrays | None = None) -> SampleLengths:
    """Finds the lengths of a dataset's samples.

    Args:
        given: what was given to the recipe: an array, a path, `SampleLengths`, or None to ask the dataset
            for an attribute or a column `lengths` or `length`.
        dataset: the dataset.
        size: how many samples it has.
        kept: where what was counted in a file is kept.

    Raises:
        DatasetError: the dataset has none, or they are more or fewer than its samples.
        ArgumentTypeError: as for `SampleLengths`; so ArgumentValueError and ArgumentRangeError.
    """
    lengths = given if isinstance(given, SampleLengths) else None
    if lengths is None:
        place, source = ("lengths", given) if given is not None else _of_dataset(dataset)
        lengths = SampleLengths(source, place, kept)
    if lengths.size != size:
        raise DatasetError(
            "lengths",
            f"must be one for each of the {size} samples of the dataset",
            lengths.size,
            mend="compute them for this dataset, in its order",
        )
    return lengths


_SAVE = "write it by samplerkit lengths, or numpy.save(path, lengths), lengths an array of integers"


def _of_dataset(dataset: Any) -> tuple[str, Any]:
    told = told_column(dataset, *_NAMES)
    if told is not None:
        return f"dataset.{told[0]}", told[1]
    raise DatasetError(
        "lengths",
        "the dataset has no attribute or column lengths",
        dataset,
        mend="give lengths= to the recipe: an array, or the path of an .npy file",
    )


def _array(source: Any, place: str) -> np.ndarray[Any, Any]:
    if isinstance(source, bytes | dict | set | frozenset) or not (
        hasattr(source, "__array__") or hasattr(source, "__len__") or hasattr(source, "__iter__")
    ):
        raise ArgumentTypeError(place, "must be integers, or the path of an .npy file", source)
    entries = source if hasattr(source, "__array__") else list(source)
    try:
        array = np.asarray(entries)
    except (TypeError, ValueError, RuntimeError):  # rows of different lengths, a tensor on a device
        raise ArgumentTypeError(
            place, "must be a flat list of integers, or one of pairs", source, mend=_INTEGERS
        ) from None
    if isinstance(entries, list) and array.ndim == 1 and holds_bool(entries):
        raise ArgumentTypeError(place, "must be integers, not booleans", source, mend=_INTEGERS)
    return array if array.size else array.astype(np.int64)


_INTEGERS = "give the number of tokens of each sample as integers: numpy.asarray(lengths, dtype=numpy.int64)"


def _require_integers(array: np.ndarray[Any, Any], place: str) -> None:
    if array.dtype.kind in "iu":
        return
    if array.dtype.kind == "f" and np.isnan(array[:CHUNK]).any():
        first = int(np.argwhere(np.isnan(array))[0][0])
        raise ArgumentTypeError(f"{place}[{first}]", "must be an integer", float("nan"), mend=_INTEGERS)
    raise ArgumentTypeError(place, "must be integers", array.dtype.name, mend=_INTEGERS)


def _stamp(path: Path) -> str:
    """Names a file as it is: another name as soon as it is written to, moved or replaced."""
    status = path.stat()
    parts = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    named = hashlib.blake2b(f"{path.resolve()} {parts}".encode(), digest_size=8, person=b"samplerkit")
    return f"lengths-{named.hexdigest()}"
