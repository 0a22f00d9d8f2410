"""The contract of a reader as a test class: inherit from it, implement `make` and `write`, and run pytest.

Nothing here needs pytest itself.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from samplerkit.storage.files.dataset import FileDataset
from samplerkit.testing.contract import require
from samplerkit.testing.dataset_contract import DatasetContract

_THREADS = 4
_ROUNDS = 5


class ReaderContract:
    """Tests of the properties that every file reader must have; each method is a test.

    A subclass implements `make` and `write`. Name it `Test...`, so that pytest finds it.

    Attributes:
        sizes: the numbers of samples of the files that are written.
        suffix: the suffix of their names.
        shows_damage: whether the format reveals that a file was cut or overwritten; text does not.

    Example:
        >>> import numpy as np
        >>> class TestNpy(ReaderContract):
        ...     suffix = ".npy"
        ...     def make(self):
        ...         return "npy"
        ...     def write(self, path, num_samples):
        ...         np.save(path, np.arange(num_samples))
        ...         return range(num_samples)
        >>> TestNpy().test_a_truncated_file_raises_an_error_that_names_it()
    """

    sizes: Sequence[int] = (23, 0, 1, 9)
    suffix: str = ""
    shows_damage: bool = True

    def make(self) -> Callable[..., Any] | str:
        """Makes a new reader, as a second process would, or returns its name."""
        raise NotImplementedError("define how the reader is made")

    def write(self, path: str, num_samples: int) -> Sequence[Any]:
        """Writes a file, without the reader, and returns its expected samples, which are all different."""
        raise NotImplementedError("define how a file is written, and what its samples are")

    def test_the_samples_of_a_file_are_counted(self) -> None:
        """The count is the number of written samples, whether the reader counts them or reads the file."""
        _Files(self).test_the_layout_has_the_number_of_samples_of_each_file()

    def test_samples_can_be_read_in_any_order_and_repeatedly(self) -> None:
        """Samples of all files are read one at a time, reversed, mixed, repeated, or none."""
        _Files(self).test_each_id_returns_its_sample_and_other_ids_raise_an_error()
        _Files(self).test_batches_are_read_in_any_order()

    def test_a_file_returns_the_same_samples_each_time(self) -> None:
        """A file is read repeatedly by one reader, with other files in between, and by a new reader."""
        for reader in (self.make(), self.make()):
            files = _Files(self, reader=reader)
            for _ in range(2):
                files.test_batches_are_read_in_any_order()

    def test_a_file_may_have_no_samples(self) -> None:
        """The file is alone, or between others."""
        for sizes in ((0, 3, 0), (0,)):
            _Files(self, sizes).test_batches_are_read_in_any_order()

    def test_a_truncated_file_raises_an_error_that_names_it(self) -> None:
        """A file that was cut or emptied raises a `DatasetError` with its path, never wrong samples."""
        _Files(self, self.sizes[:1]).test_truncated_or_missing_data_raises_an_error_that_names_the_file()

    def test_an_overwritten_file_raises_an_error_that_names_it(self) -> None:
        """A file overwritten by zeros or noise, or its start, raises a `DatasetError` with its path."""
        _Files(self, self.sizes[:1]).test_damaged_data_raises_an_error_that_names_the_file()

    def test_a_pickled_reader_reads_the_same_samples(self) -> None:
        """Spawned workers receive the pickled reader with its dataset; they do not know registered names."""
        try:
            reader = pickle.loads(pickle.dumps(self.make()))  # noqa: S301  # what this test wrote itself
        except Exception as error:
            raise AssertionError(f"a reader can be pickled: not so ({error})") from error
        _Files(self, reader=reader).test_batches_are_read_in_any_order()

    def test_threads_share_a_reader(self) -> None:
        """Several threads read files with one reader in parallel."""
        files = _Files(self, reader=self.make())
        with ThreadPoolExecutor(_THREADS) as pool:
            futures = [
                pool.submit(files.test_batches_are_read_in_any_order) for _ in range(_ROUNDS * _THREADS)
            ]
            for future in futures:
                future.result()


class _Files(DatasetContract):
    """The contract of a `FileDataset` with the reader."""

    def __init__(self, spec: ReaderContract, sizes: Sequence[int] | None = None, reader: Any = None) -> None:
        self._shows_damage = spec.shows_damage
        self._spec, self._sizes, self._reader = spec, spec.sizes if sizes is None else sizes, reader

    def _paths(self, folder: str) -> list[str]:
        return [f"{folder}/{number}{self._spec.suffix}" for number in range(len(self._sizes))]

    def write(self, folder: str) -> Sequence[Sequence[Any]]:
        files = [list(self._spec.write(*args)) for args in zip(self._paths(folder), self._sizes, strict=True)]
        require([len(file) for file in files] == [*self._sizes], "write gives the samples of its file", files)
        return files

    def make(self, folder: str) -> FileDataset:
        reader = self._spec.make() if self._reader is None else self._reader
        return FileDataset(self._paths(folder), reader, progress=False)
