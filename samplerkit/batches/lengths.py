"""The lengths of samples: checked, with a digest and a histogram, chunk by chunk."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from samplerkit.batches.sample_set import SampleSet
from samplerkit.batches.table_cache import TableCache
from samplerkit.errors import ArgumentRangeError, ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.order.arguments import holds_bool
from samplerkit.order.caching import cached_property
from samplerkit.order.dataset_protocol import find_column, require_one_each
from samplerkit.order.typing import Ids

_TABLE_LIMIT = 1 << 22


@dataclass(frozen=True, eq=False)
class Histogram:
    """How many samples have each length.

    Args:
        values: the lengths that occur, descending; int64 of shape (d,).
        counts: the number of samples with each; int64 of shape (d,).
        digest: of the lengths of all samples, in the order of their ids.
    """

    values: Ids
    counts: Ids
    digest: str

    @property
    def total(self) -> int:
        """The number of samples."""
        return int(self.counts.sum())


def short_digest(*contents: bytes) -> str:
    """Returns a digest of some bytes, one after another: 16 hexadecimal digits."""
    return hashlib.blake2b(b"".join(contents), digest_size=8, person=b"samplerkit").hexdigest()


def _tally(chunks: Iterable[Ids]) -> tuple[Ids, Ids]:
    """Returns the values that occur in some chunks, descending, and how often each does; none is negative."""
    values, counts = np.zeros((2, 0), dtype=np.int64)
    for chunk in chunks:
        if chunk.max(initial=0) < _TABLE_LIMIT:
            # Many times as fast as `np.unique`, which sorts.
            table = np.bincount(chunk)
            present = np.flatnonzero(table)
            times = table[present]
        else:
            present, times = np.unique(chunk, return_counts=True)
        values, at = np.unique(np.concatenate([values, present]), return_inverse=True)
        before, counts = counts, np.zeros(values.size, dtype=np.int64)
        np.add.at(counts, at, np.concatenate([before, times]))
    return values[::-1].copy(), counts[::-1].copy()


LONGEST = (1 << 31) - 1
"""The largest length of a sample."""

CHUNK = 1 << 20


class SampleLengths:
    """The length of each sample of a dataset, or the two lengths of each, as an array or a mapped file.

    Args:
        source: integers, in an array or a list of shape (n,), or (n, 2) for pairs; or the path of an `.npy`
            file of them, which is mapped.
        place: the name of the argument in errors.
        cache: of the histogram, if the lengths are in a file.

    Attributes:
        size: the number of samples.
        are_pairs: whether each sample has two lengths.
        histogram: of the lengths; of pairs, of the longer one.
        digest: of the lengths.

    Raises:
        ArgumentTypeError: the lengths are not integers.
        ArgumentValueError: they have another shape, or the file is no `.npy` file or cannot be read.
        ArgumentRangeError: a length is negative or above 2^31 - 1.

    Example:
        >>> lengths = SampleLengths([5, 3, 5])
        >>> lengths.at(np.array([2, 1])), lengths.histogram.values, lengths.histogram.counts
        (array([5, 3]), array([5, 3]), array([2, 1]))
    """

    def __init__(self, source: Any, place: str = "lengths", cache: TableCache | None = None) -> None:
        self._place = place
        self._path = Path(source).absolute() if isinstance(source, str | os.PathLike) else None
        if self._path is None:
            self.__dict__["_array"] = _array(source, place)
        given = self._array
        if given.ndim != 1 and not (given.ndim == 2 and given.shape[1] == 2):
            problem = "must have one length per sample, or a pair: shape (n,) or (n, 2)"
            hint = "give the dataset's lengths in its order"
            raise ArgumentValueError(place, problem, given.shape, hint=hint)
        _require_integers(given, place)
        self.size: Final = given.shape[0]
        self.are_pairs: Final = given.ndim == 2
        self.histogram: Final = self._count(cache)
        # An array and a file with the same lengths have the same digest.
        self.digest: Final = self.histogram.digest

    def at(self, ids: Ids | slice) -> Ids:
        """Returns the lengths of samples: int64 of shape (m,), or (m, 2) for pairs."""
        lengths: Ids = self._array[ids].astype(np.int64)
        return lengths

    def chunks(self, chosen: SampleSet | None = None) -> Iterator[tuple[Ids, Ids]]:
        """Yields the ids and lengths of a set, or with None of all samples, in chunks; int64 arrays."""
        size, ids = (self.size, None) if chosen is None else (chosen.size, chosen.ids)
        for start in range(0, size, CHUNK):
            end = min(size, start + CHUNK)
            part: Any = slice(start, end) if ids is None else ids[start:end]
            yield np.arange(start, end) if ids is None else part, self.at(part)

    def __getstate__(self) -> dict[str, Any]:
        # Another process receives the path and not the array.
        state = self.__dict__
        return state if self._path is None else {name: state[name] for name in state if name != "_array"}

    @cached_property
    def _array(self) -> np.ndarray[Any, Any]:
        path = self._path
        assert path is not None  # noqa: S101  # for mypy: without a path there is an array
        try:
            array = np.lib.format.open_memmap(path, mode="r")  # `np.load` would open an archive as well
        except FileNotFoundError:
            raise ArgumentValueError(self._place, "the file does not exist", str(path), hint=_SAVE) from None
        except Exception as error:  # for a damaged header, also a TokenError
            problem = f"cannot be read as an .npy file ({error})"
            raise ArgumentValueError(self._place, problem, str(path), hint=_SAVE) from None
        return array

    def _count(self, cache: TableCache | None) -> Histogram:
        """Returns the histogram: that in the cache, if the same file was counted before."""
        if cache is None or self._path is None:
            return self._count_all()
        arrays = cache.arrays(_stamp(self._path), lambda: vars(self._count_all()))
        return Histogram(arrays["values"], arrays["counts"], str(arrays["digest"]))

    def histogram_of(self, chosen: SampleSet | None) -> Histogram:
        """Returns the histogram of a set; with None of all samples.

        Example:
            >>> SampleLengths([5, 3, 5]).histogram_of(SampleSet(2, np.array([0, 2]))).counts
            array([2])
        """
        if chosen is None or (chosen.ids is None and chosen.size == self.size):
            return self.histogram
        listed = b"" if chosen.ids is None else chosen.ids.astype("<i8").tobytes()
        digest = short_digest(f"{self.digest} {chosen.size}".encode(), listed)
        return Histogram(*_tally(lengths for _, lengths in self.chunks(chosen)), digest)

    def _count_all(self) -> Histogram:
        state = hashlib.blake2b(digest_size=8, person=b"samplerkit")
        state.update(f"{self.size} {self.are_pairs}".encode())
        counts = _tally(self._checked_chunks(state))
        return Histogram(*counts, state.hexdigest())

    def _checked_chunks(self, state: Any) -> Iterator[Ids]:
        """Yields the checked lengths in chunks, of a pair the longer one, and adds them to a digest."""
        for ids, chunk in self.chunks():
            low, high = int(chunk.min()), int(chunk.max())  # no chunk is empty
            if low < 0 or high > LONGEST:
                wrong = np.argwhere((chunk < 0) | (chunk > LONGEST))[0]
                value, place = int(chunk[tuple(wrong)]), f"{self._place}[{int(ids[wrong[0]])}]"
                problem = "must not be negative" if value < 0 else f"must be at most {LONGEST}"
                raise ArgumentRangeError(place, problem, value, hint="count the sample again")
            # In the smallest dtype: the digest does not depend on that of the source.
            narrow = chunk.astype(np.min_scalar_type(high).newbyteorder("<"))
            state.update(narrow.dtype.str.encode())
            state.update(narrow.tobytes())
            yield chunk.max(axis=1) if self.are_pairs else chunk


def find_lengths(
    given: Any, dataset: Any, cache: TableCache | None = None, *, pairs_hint: str | None = None
) -> SampleLengths:
    """Finds the lengths of a dataset's samples.

    Args:
        given: the argument of the recipe: an array, a path, or None for the attribute or column `lengths` or
            `length` of the dataset.
        dataset: the dataset.
        cache: as for `SampleLengths`.
        pairs_hint: the hint of the error for pairs; None if pairs are allowed.

    Raises:
        DatasetError: the dataset has no lengths, or there is not one for each of its samples.
        ArgumentTypeError: as for `SampleLengths`.
        ArgumentValueError: as for `SampleLengths`; or lengths are pairs, and not allowed.
        ArgumentRangeError: as for `SampleLengths`.
    """
    place, source = "lengths", given
    if given is None:
        column = find_column(dataset, "lengths", "length")
        if column is None:
            problem = "the dataset has no attribute or column lengths"
            hint = "give lengths= to the recipe: an array, or the path of an .npy file"
            raise DatasetError("lengths", problem, dataset, hint=hint)
        place, source = f"dataset.{column[0]}", column[1]
    lengths = SampleLengths(source, place, cache)
    require_one_each("lengths", lengths.size, dataset, "compute them for this dataset, in its order")
    if lengths.are_pairs and pairs_hint is not None:
        problem = "are pairs, but these batches need one length per sample"
        raise ArgumentValueError("lengths", problem, (lengths.size, 2), hint=pairs_hint)
    return lengths


_SAVE = "write it by samplerkit lengths, or numpy.save(path, lengths), lengths an array of integers"


def _array(source: Any, place: str) -> np.ndarray[Any, Any]:
    if isinstance(source, bytes | dict | set | frozenset) or not (
        hasattr(source, "__array__") or hasattr(source, "__getitem__") or hasattr(source, "__iter__")
    ):
        raise ArgumentTypeError(place, "must be integers, or the path of an .npy file", source)
    entries = source if hasattr(source, "__array__") else list(source)
    try:
        array = np.asarray(entries)
    except (TypeError, ValueError, RuntimeError):  # rows of different lengths, a tensor on a device
        problem = "must be a flat list of integers, or one of pairs"
        raise ArgumentTypeError(place, problem, source, hint=INTEGERS) from None
    if isinstance(entries, list) and array.ndim == 1 and holds_bool(entries):
        raise ArgumentTypeError(place, "must be integers, not booleans", source, hint=INTEGERS)
    return array if array.size else array.astype(np.int64)


INTEGERS: Final = (
    "give the number of tokens or frames of each sample as integers; of a duration the milliseconds, since "
    "whole seconds would cut 1.5 to 1: numpy.rint(1000 * numpy.asarray(seconds)).astype(numpy.int64)"
)


def _require_integers(array: np.ndarray[Any, Any], place: str) -> None:
    if array.dtype.kind in "iu":
        return
    if array.dtype.kind == "f" and np.isnan(array[:CHUNK]).any():
        first = int(np.argwhere(np.isnan(array))[0][0])
        raise ArgumentTypeError(f"{place}[{first}]", "must be an integer", float("nan"), hint=INTEGERS)
    raise ArgumentTypeError(place, "must be integers", array.dtype.name, hint=INTEGERS)


def _stamp(path: Path) -> str:
    """Returns a name for the contents of a file: it changes if the file is written to, moved or replaced."""
    status = path.stat()
    parts = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return f"lengths-{short_digest(os.fsencode(f'{path.resolve()} {parts}'))}"
