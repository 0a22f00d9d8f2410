"""The contract of a reader as a test class: inherit it, say how a file is written, and run pytest.

Nothing here needs pytest itself, as in the contract of a sampler.
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
    """What every reader of files must keep; each method is a test.

    A subclass gives `make` and `write`. Call it `Test...`, so that pytest finds it.

    Attributes:
        sizes: the samples of the files that are written.
        suffix: how their names end.
        shows_damage: whether the format itself shows that a file was cut or overwritten; text does not.

    Example:
        >>> import numpy as np
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
        _Files(self).test_the_layout_says_which_samples_lie_together()

    def test_any_samples_are_read_in_any_order_and_again(self) -> None:
        """Over all files: one by one, backwards, mixed, some of them twice, and none."""
        _Files(self).test_an_id_is_its_sample_and_there_are_no_others()
        _Files(self).test_a_batch_is_its_samples_in_any_order()

    def test_a_file_is_read_alike_whenever_and_by_whomever(self) -> None:
        """By one reader again and again, other files between, and by one made again."""
        for reader in (self.make(), self.make()):
            files = _Files(self, reader=reader)
            for _ in range(2):
                files.test_a_batch_is_its_samples_in_any_order()

    def test_a_file_without_samples_has_none(self) -> None:
        """Alone, and between others."""
        for sizes in ((0, 3, 0), (0,)):
            _Files(self, sizes).test_a_batch_is_its_samples_in_any_order()

    def test_a_file_that_was_cut_is_an_error_that_names_it(self) -> None:
        """Cut anywhere, or empty: a `DatasetError` with its path, and never other samples quietly."""
        _Files(self, self.sizes[:1]).test_data_that_was_cut_or_is_gone_is_an_error_that_names_it()

    def test_a_file_that_was_overwritten_is_an_error_that_names_it(self) -> None:
        """By zeros or by noise, whole or at its beginning: a `DatasetError` with its path."""
        _Files(self, self.sizes[:1]).test_data_that_lies_is_an_error_that_names_it()

    def test_a_pickled_reader_reads_as_before(self) -> None:
        """So it gets to spawned workers, with its dataset; these know no registered names."""
        try:
            sent = pickle.loads(pickle.dumps(self.make()))  # noqa: S301  # what this test wrote itself
        except Exception as error:
            raise AssertionError(f"a reader can be pickled: not so ({error})") from error
        _Files(self, reader=sent).test_a_batch_is_its_samples_in_any_order()

    def test_threads_share_a_reader(self) -> None:
        """Several read files with one reader at the same time."""
        files = _Files(self, reader=self.make())
        with ThreadPoolExecutor(_THREADS) as pool:
            turns = [
                pool.submit(files.test_a_batch_is_its_samples_in_any_order) for _ in range(_ROUNDS * _THREADS)
            ]
            for turn in turns:
                turn.result()


class _Files(DatasetContract):
    """The contract of the dataset that a reader's files make."""

    def __init__(self, of: ReaderContract, sizes: Sequence[int] | None = None, reader: Any = None) -> None:
        self._shows_damage = of.shows_damage
        self._of, self._sizes, self._reader = of, of.sizes if sizes is None else sizes, reader

    def _paths(self, folder: str) -> list[str]:
        return [f"{folder}/{number}{self._of.suffix}" for number in range(len(self._sizes))]

    def write(self, folder: str) -> Sequence[Sequence[Any]]:
        files = [list(self._of.write(*of)) for of in zip(self._paths(folder), self._sizes, strict=True)]
        require([len(file) for file in files] == [*self._sizes], "write gives the samples of its file", files)
        return files

    def make(self, folder: str) -> FileDataset:
        reader = self._of.make() if self._reader is None else self._reader
        return FileDataset(self._paths(folder), reader, progress=False)
