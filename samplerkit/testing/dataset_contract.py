"""The contracts of a dataset and of a reader as test classes: define `write` and `make`, and run pytest.

Nothing here needs pytest itself.
"""

import multiprocessing
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np

from samplerkit.errors import DatasetError, OutOfDatasetError
from samplerkit.loading.loader import Loader
from samplerkit.order.deal import World
from samplerkit.order.layout import Layout
from samplerkit.samplers.shuffled import DistributedSampler
from samplerkit.storage.files.dataset import FileDataset
from samplerkit.testing.contract import require, same

_CUTS = 8
_TIMEOUT = 120.0
_THREADS = 4
_ROUNDS = 5
_ANOTHER_PROCESS = """
import pickle, sys
from samplerkit.testing.dataset_contract import _require_read
_require_read(*pickle.load(sys.stdin.buffer))
"""


class DatasetContract:
    """Tests of the properties that every map-style dataset over stored data must have; each method is a test.

    A subclass implements `write` and `make`. Name it `Test...`, so that pytest finds it.

    Attributes:
        has_files: whether the layout has files; the layout of a key-value store has none.

    Example:
        >>> import samplerkit as sk
        >>> class TestNpy(DatasetContract):
        ...     def write(self, folder):
        ...         for name in ("a.npy", "b.npy"):
        ...             np.save(Path(folder, name), np.arange(3))
        ...         return [[0, 1, 2], [0, 1, 2]]
        ...     def make(self, folder):
        ...         return sk.FileDataset([f"{folder}/a.npy", f"{folder}/b.npy"], "npy")
        >>> TestNpy().test_batches_are_read_in_any_order()
    """

    has_files: bool = True
    _shows_damage: bool = True

    def write(self, folder: str) -> Sequence[Sequence[Any]]:
        """Writes data into an empty folder, without the dataset; returns the samples of each file."""
        raise NotImplementedError("define how the data is written, and what its samples are")

    def make(self, folder: str) -> Any:
        """Opens the data by the names of its files: a pattern would not notice a deleted file."""
        raise NotImplementedError("define how the dataset is made")

    def victim(self, folder: str) -> Path:
        """Returns the file that the tests cut, overwrite and delete: by default, the largest one."""
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        return max(files, key=lambda path: path.stat().st_size)

    def lies(self, whole: bytes) -> Sequence[bytes]:
        """Returns contents that must be detected as damage: zeros and noise, alone and before the file's end.

        Return fewer if the format has no checksum, or if zeros have a meaning: they end a tar.
        """
        half = len(whole) // 2
        others = (bytes(len(whole)), np.random.default_rng(0).bytes(len(whole)))
        return [other[:end] + whole[end:] for end in (len(whole), half) for other in others]

    def test_the_layout_has_the_number_of_samples_of_each_file(self) -> None:
        """The layout has the written numbers of samples and files; names of files, if any, are distinct."""
        with self._write_data() as (folder, files), self._open_dataset(folder) as dataset:
            layout, counts = Layout.of(dataset), [len(samples) for samples in files]
            require(layout.has_files is self.has_files, "the layout has files if `has_files` is True", layout)
            sizes = layout.sizes.tolist()
            require(sizes == (counts if self.has_files else [sum(counts)]), "a file has its samples", sizes)
            require(len(dataset) == sum(counts), "the length is that of the layout", len(dataset))
            names = layout.names or ()
            require(len(set(names)) == len(names), "no two files have one name", names)

    def test_each_id_returns_its_sample_and_other_ids_raise_an_error(self) -> None:
        """Samples are read one at a time by their ids; ids beyond the first and the last raise an error."""
        with self._write_data() as (folder, files), self._open_dataset(folder) as dataset:
            samples = _flatten(files)
            for id, sample in enumerate(samples):
                require(same(dataset[id], sample), "an id is its sample", id)
            for outside in (len(samples), -len(samples) - 1):
                _require_out_of_range(partial(getitem, dataset, outside), outside)
                _require_out_of_range(partial(dataset.__getitems__, [abs(outside)]), abs(outside))

    def test_batches_are_read_in_any_order(self) -> None:
        """Ids are in order, reversed, mixed, repeated, or none; as a list and as an array."""
        with self._write_data() as (folder, files), self._open_dataset(folder) as dataset:
            samples = _flatten(files)
            require(len(dataset) == len(samples), "the length is that of the files", len(dataset))
            all_ids = list(range(len(samples)))
            mixed = np.random.default_rng(0).choice(all_ids, 2 * len(all_ids))
            for ids in (all_ids, all_ids[::-1], mixed, all_ids[-1:] * 3, []):
                read = list(dataset.__getitems__(ids))
                require(same(read, [samples[id] for id in ids]), "a batch is its samples", list(ids))

    def test_a_loader_reads_each_sample_once(self) -> None:
        """A loader reads a mixed order, announces the next ids, and reads another epoch."""
        with self._write_data() as (folder, files), self._open_dataset(folder) as dataset:
            samples = _flatten(files)
            sampler = DistributedSampler(shuffle="files" if self.has_files else "global", seed=7)
            for epoch in range(2):
                loader = Loader(dataset, sampler, batch_size=3, world=World(1, 0), collate_fn=list)
                with loader:
                    loader.set_epoch(epoch)
                    read = [sample for batch in loader for sample in batch]
                ids = sampler.order(Layout.of(dataset), epoch=epoch, world=World(1, 0))[:]
                require(same(read, [samples[id] for id in ids]), "a loader reads the order", epoch)

    def test_a_forked_process_and_its_parent_can_both_read(self) -> None:
        """Both read after the parent has read: neither disturbs the open files of the other."""
        with self._write_data() as (folder, files), self._open_dataset(folder) as dataset:
            samples = _flatten(files)
            _require_read(dataset, samples, "a batch is its samples")
            context = multiprocessing.get_context("fork")
            receiver, sender = context.Pipe()
            child = context.Process(target=_read_and_send, args=(dataset, samples, sender), daemon=True)
            child.start()
            sender.close()
            require(receiver.poll(_TIMEOUT), "a forked process reads", folder)
            require(not (error := receiver.recv()), "a forked process reads alike", error)
            child.join(_TIMEOUT)
            _require_read(dataset, samples, "its parent reads as before")

    def test_a_pickled_dataset_reads_in_another_process(self) -> None:
        """A dataset is pickled, as for spawned workers, before and after use, without its open files."""
        with self._write_data() as (folder, files), self._open_dataset(folder) as dataset:
            samples = _flatten(files)
            fresh = pickle.dumps(dataset)
            _require_read(dataset, samples, "a batch is its samples")
            unpickled = pickle.loads(fresh)  # noqa: S301  # what this test wrote itself
            _require_read(unpickled, samples, "a pickled dataset reads alike")
            _close(unpickled)
            command = [sys.executable, "-c", _ANOTHER_PROCESS]
            data = pickle.dumps((dataset, samples, "it reads alike"))
            run = subprocess.run(command, input=data, capture_output=True, timeout=_TIMEOUT, check=False)  # noqa: S603
            require(run.returncode == 0, "another process reads alike", run.stderr.decode()[-500:])

    def test_a_closed_dataset_has_no_open_files_and_can_be_used_again(self) -> None:
        """No data file stays open and no thread is left; the next sample is read as before."""
        with self._write_data() as (folder, files):
            samples, threads = _flatten(files), set(threading.enumerate())
            dataset = self.make(folder)
            for _ in range(2):
                _require_read(dataset, samples, "a dataset that was closed can be used again")
                _close(dataset)
                open_files = [path for path in _open_files() if path.startswith(folder)]
                require(not open_files, "a closed dataset has no open file", open_files)
                remaining = {thread.name for thread in set(threading.enumerate()) - threads}
                remaining = {name for name in remaining if name.startswith("samplerkit")}
                require(not remaining, "a closed dataset has no threads", remaining)

    def test_truncated_or_missing_data_raises_an_error_that_names_the_file(self) -> None:
        """The file is cut anywhere, emptied or deleted, before and after the dataset has opened it."""
        with self._write_data() as (folder, files):
            path = self.victim(folder)
            content = path.read_bytes()
            ends = {*(len(content) * cut // _CUTS for cut in range(_CUTS)), len(content) - 1}
            for end in (*sorted(ends), None):
                self._require_detected(path, content, None if end is None else content[:end], folder, files)

    def test_damaged_data_raises_an_error_that_names_the_file(self) -> None:
        """Each of `lies` replaces the written file, before and after the dataset has opened it."""
        with self._write_data() as (folder, files):
            path = self.victim(folder)
            content = path.read_bytes()
            for damaged in self.lies(content):
                self._require_detected(path, content, damaged, folder, files)

    def _require_detected(
        self, path: Path, content: bytes, damaged: bytes | None, folder: str, files: Sequence[Sequence[Any]]
    ) -> None:
        """Checks that damage is detected by a new dataset, and by one that has opened the file before."""
        damage = "a missing file" if damaged is None else f"{len(damaged)} of {len(content)} bytes"
        samples = _flatten(files)
        path.write_bytes(content)
        with self._open_dataset(folder) as opened:
            opened.__getitems__([0])
            _close(opened)
            path.unlink() if damaged is None else path.write_bytes(damaged)
            for dataset in (lambda: opened, lambda: self.make(folder)):
                self._require_error_or_same(dataset, samples, path, folder, damage)
        path.write_bytes(content)

    def _require_error_or_same(
        self, make: Callable[[], Any], samples: list[Any], path: Path, folder: str, case: str
    ) -> None:
        dataset: Any = None
        try:
            dataset = make()
            read = list(dataset.__getitems__(range(len(samples))))
            is_same = not self._shows_damage or (len(dataset) == len(samples) and same(read, samples))
        except DatasetError as error:
            is_named = path.name in str(error) or folder in str(error)
            require(is_named, "the error names what is wrong", f"{case}: {error}")
        except OutOfDatasetError as error:
            require(len(dataset) < len(samples), "only missing samples are out of range", case)
            require(not self._shows_damage, f"a damaged file is an error, not {error}", case)
        except Exception as error:
            raise AssertionError(f"damage is a DatasetError: not so for {case} ({error!r})") from error
        else:
            require(is_same, "damaged data is an error, or is read unchanged", case)
        finally:
            _close(dataset)

    @contextmanager
    def _write_data(self) -> Iterator[tuple[str, Sequence[Sequence[Any]]]]:
        """Writes data into a folder that exists during the `with` block."""
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder).resolve() / "data"
            data.mkdir()
            yield str(data), self.write(str(data))

    @contextmanager
    def _open_dataset(self, folder: str) -> Iterator[Any]:
        dataset = self.make(folder)
        try:
            yield dataset
        finally:
            _close(dataset)


def _flatten(files: Sequence[Sequence[Any]]) -> list[Any]:
    return [sample for samples in files for sample in samples]


def _close(dataset: Any) -> None:
    close = getattr(dataset, "close", None)
    if close is not None:
        close()


def _require_read(dataset: Any, samples: list[Any], rule: str) -> None:
    ids = list(range(len(samples)))[::-1]
    require(same(list(dataset.__getitems__(ids)), samples[::-1]), rule, ids)


def _read_and_send(dataset: Any, samples: list[Any], pipe: Connection) -> None:
    """Reads in a forked process, and sends the error, if any."""
    try:
        _require_read(dataset, samples, "a batch is its samples")
        _close(dataset)
        pipe.send("")
    except BaseException as error:  # raised in the parent
        pipe.send(repr(error))


def _open_files() -> list[str]:
    """Returns the open files of this process, if the system reports them; otherwise none."""
    paths = []
    folder = Path("/proc/self/fd")
    for entry in folder.iterdir() if folder.exists() else ():
        try:
            paths.append(str(entry.readlink()))
        except OSError:  # closed meanwhile
            continue
    return paths


def _require_out_of_range(read: Callable[[], Any], id: int) -> None:
    try:
        error = f"read {read()}"
    except OutOfDatasetError:
        return
    except Exception as raised:
        error = repr(raised)
    raise AssertionError(f"an id out of range is an OutOfDatasetError: not so for {id} ({error})")


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
            read = files.test_batches_are_read_in_any_order
            futures = [pool.submit(read) for _ in range(_ROUNDS * _THREADS)]
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
