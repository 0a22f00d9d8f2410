"""The contract of a reader as a test class: inherit it, say how a file is written, and run pytest.

Nothing here needs pytest itself, as in the contract of a sampler.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.storage.files.dataset import FileDataset
from samplerkit.testing.contract import require

_CUTS = 12
_THREADS = 4
_ROUNDS = 5


class ReaderContract:
    """What every reader of files must keep; each method is a test.

    A subclass gives `make` and `write`. Call it `Test...`, so that pytest finds it.

    Attributes:
        sizes: the samples of the files that are written.
        suffix: how their names end.
        shows_damage: whether the format itself shows that a file was cut or overwritten; text does not.

    Example:
        >>> class TestNpy(ReaderContract):
        ...     suffix = ".npy"
        ...     def make(self):
        ...         return "npy"
        ...     def write(self, path, num_samples):
        ...         np.save(path, np.arange(num_samples))
        ...         return range(num_samples)
        >>> TestNpy().test_a_file_that_was_cut_is_an_error_that_names_it()
    """

    sizes: Sequence[int] = (23, 0, 1, 9)
    suffix: str = ""
    shows_damage: bool = True

    def make(self) -> Callable[..., Any] | str:
        """Makes the reader again, as a second process would, or gives its name."""
        raise NotImplementedError("say how the reader is made")

    def write(self, path: str, num_samples: int) -> Sequence[Any]:
        """Writes a file, without the reader, and gives its samples as they must be read, no two alike."""
        raise NotImplementedError("say how a file is written, and what its samples are")

    def test_the_samples_of_a_file_are_counted(self) -> None:
        """As many as were written, whether the reader counts them or a file is read for it."""
        with self._files() as (paths, files):
            counted = _dataset(paths, self.make()).layout.sizes.tolist()
            require(counted == [len(samples) for samples in files], "a file has its samples", counted)

    def test_any_samples_are_read_in_any_order_and_again(self) -> None:
        """Over all files: one by one, backwards, mixed, some of them twice, and none."""
        with self._files() as (paths, files), _dataset(paths, self.make()) as dataset:
            samples = [sample for file in files for sample in file]
            every = list(range(len(samples)))
            mixed = np.random.default_rng(0).choice(every, 2 * len(every)).tolist()
            for ids in (every, every[::-1], mixed, every[-1:] * 3, []):
                read = list(dataset.__getitems__(ids))
                require(same(read, [samples[id] for id in ids]), "the samples asked for are read", ids)
            for id in every:
                require(same(dataset[id], samples[id]), "a sample is read by itself", id)

    def test_a_file_is_read_alike_whenever_and_by_whomever(self) -> None:
        """By one reader again and again, other files between, and by one made again."""
        with self._files() as (paths, files):
            reader = self.make()
            for _ in range(2):
                _require_read(_dataset(paths, reader), files, "a file is read alike again")
            again = _dataset(paths[::-1], self.make())
            _require_read(again, files[::-1], "a reader made again reads alike")

    def test_a_file_without_samples_has_none(self) -> None:
        """Alone, and between others."""
        with self._files((0, 3, 0)) as (paths, files):
            for some in (slice(3), slice(1)):
                _require_read(_dataset(paths[some], self.make()), files[some], "an empty file has no samples")

    def test_a_file_that_was_cut_is_an_error_that_names_it(self) -> None:
        """Cut anywhere, or empty: a `DatasetError` with its path, and never other samples quietly."""
        with self._files(self.sizes[:1]) as ((path,), (samples,)):
            whole = Path(path).read_bytes()
            for end in sorted({*(len(whole) * cut // _CUTS for cut in range(_CUTS)), len(whole) - 1}):
                self._require_seen(path, whole[:end], samples, f"a file cut after {end} bytes")

    def test_a_file_that_was_overwritten_is_an_error_that_names_it(self) -> None:
        """By zeros or by noise, whole or at its beginning: a `DatasetError` with its path."""
        with self._files(self.sizes[:1]) as ((path,), (samples,)):
            whole = Path(path).read_bytes()
            zeros, noise = bytes(len(whole)), np.random.default_rng(0).bytes(len(whole))
            half = len(whole) // 2
            for other in (zeros, noise, zeros[:half] + whole[half:], noise[:half] + whole[half:]):
                self._require_seen(path, other, samples, f"a file that begins with {other[:8]!r}")

    def test_a_pickled_reader_reads_as_before(self) -> None:
        """So it gets to spawned workers, with its dataset; these know no registered names."""
        with self._files() as (paths, files):
            dataset = _dataset(paths, self.make())
            try:
                sent = pickle.loads(pickle.dumps(dataset))  # noqa: S301  # what this test wrote itself
            except Exception as error:
                raise AssertionError(f"a reader can be pickled: not so ({error})") from error
            _require_read(sent, files, "a pickled reader reads as before")

    def test_threads_share_a_reader(self) -> None:
        """Several read files with one reader at the same time."""
        with self._files() as (paths, files), ThreadPoolExecutor(_THREADS) as pool:
            reader = self.make()
            turns = [turn % len(paths) for turn in range(_ROUNDS * _THREADS)]
            datasets = [_dataset(paths[turn:] + paths[:turn], reader) for turn in turns]
            wanted = [files[turn:] + files[:turn] for turn in turns]
            # A list, so that what a thread raises is raised here.
            list(pool.map(partial(_require_read, law="threads read alike"), datasets, wanted))

    @contextmanager
    def _files(self, sizes: Sequence[int] = ()) -> Iterator[tuple[list[str], list[list[Any]]]]:
        """Writes files into a folder that goes with the block, and gives their paths and samples."""
        with tempfile.TemporaryDirectory() as folder:
            paths, files = [], []
            for number, size in enumerate(sizes or self.sizes):
                paths.append(os.path.join(folder, f"{number}{self.suffix}"))  # noqa: PTH118  # a string
                files.append(list(self.write(paths[-1], size)))
                require(len(files[-1]) == size, "write gives the samples of its file", size)
            yield paths, files

    def _require_seen(self, path: str, content: bytes, samples: list[Any], what: str) -> None:
        """Requires that what is no longer the file that was written is not taken for it."""
        Path(path).write_bytes(content)
        for lengths in (None, [len(samples)]):
            try:
                read = _all_of(_dataset([path], self.make(), lengths))
            except DatasetError as error:
                require(path in error.place, "the error names the file", f"{what}: {error}")
            except Exception as error:
                problem = f"what is wrong with a file is a DatasetError: not so for {what}"
                raise AssertionError(f"{problem} ({error!r})") from error
            else:
                is_seen = not self.shows_damage or same(read, samples)
                require(is_seen, "a file that is not whole is an error", what)


def _dataset(paths: list[str], reader: Any, lengths: list[int] | None = None) -> FileDataset:
    return FileDataset(paths, reader, lengths, progress=False)


def _all_of(dataset: FileDataset) -> list[Any]:
    with dataset:
        return list(dataset.__getitems__(range(len(dataset))))


def _require_read(dataset: FileDataset, files: list[list[Any]], law: str) -> None:
    read = _all_of(dataset)
    require(same(read, [sample for samples in files for sample in samples]), law, dataset.files)


def same(one: Any, other: Any) -> bool:
    """Whether two samples are equal, all that is in them too; what is not a number equals itself."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    left, right = np.asarray(one), np.asarray(other)
    has_nan = {left.dtype.kind, right.dtype.kind} <= {"f", "c"}
    return bool(np.array_equal(left, right, equal_nan=has_nan))
