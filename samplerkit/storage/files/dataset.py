"""Samples in files that a function of the user's reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal, final

import numpy as np

from samplerkit.errors import OutOfDatasetError
from samplerkit.order import arguments
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.shelf import CacheLimits
from samplerkit.storage.ahead.stats import FileStats, tell_of_rereading
from samplerkit.storage.files.content import (
    FileCache,
    FilePart,
    batch_ids,
    gathered_columns,
    gathered_samples,
)
from samplerkit.storage.files.paths import distinct_names, file_paths
from samplerkit.storage.files.reader import FileReader, file_reader, read_file
from samplerkit.storage.files.remote import RemoteReader, sizes_of, storage_for, with_requests
from samplerkit.storage.lengths import (
    COUNTING_THREADS,
    counted_lengths,
    fetched_lengths,
    given_lengths,
    save_lengths,
)
from samplerkit.storage.per_process import PerProcess, Process
from samplerkit.storage.progress import Progress, progress_of, silence
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.urls import is_remote


@final
class FileDataset:
    """A map-style dataset over files, each read as a whole by a function of yours and kept for a while.

    A sample of a file of arrays is a dict with a row of each; of a file that is a sequence, an item. A
    `Loader` tells the dataset what comes next: then each file is read once an epoch and rank, before it is
    needed, as long as `max_files` hold those between which the order goes back and forth. Without one, with
    a plain DataLoader, the files that were used last are kept.

    Each process has its own files in memory and its own threads: so does each worker of a loader.

    Files may lie elsewhere: URLs are fetched, each once a machine, into a cache on disk that all processes of
    the machine share, and the reader gets the path of the copy. With `read_ahead` and `threads` that goes on
    in the background, several files at a time.

    Args:
        files: a list of paths or URLs, in the order given; or a glob pattern, whose matches are sorted by
            bytes. Web servers list no files: of their addresses, braces are a pattern, `{000..127}.npz`.
        reader: a function from a path to a mapping of arrays of one length, or to a sequence. It may have a
            method `count(path)`. One with an argument `get_data` gives `(data, length)` with it, and the
            length alone without. Or the name of one that comes along, `npz`, `npy`, `parquet` or `text`, or
            of one of yours after `register_reader`.
        lengths: samples in each file: a dict by path or name, or a list, or the path or URL of a JSON file
            from `save_lengths`; then no file is opened before it is needed, and of URLs nothing is asked.
            None counts them at first need; URLs are fetched for it.
        max_files: files in memory at most, those that are read ahead included.
        max_bytes: bytes in memory at most; None for no limit.
        read_ahead: how many files are read before they are needed, in the background; 0 for none.
        threads: how many of them at a time; `reader` is then called from several threads.
        as_columns: hand out batches as a dict of arrays, in place of a list of samples that is collated: many
            times as fast for small samples. Use `collate_fn=torch.utils.data.default_convert` then.
        progress: is called while files are counted, with what is done, how many are done, and how many there
            are; None for a line on the terminal, False for nothing.
        remote: how URLs are fetched: `RemoteOptions`, or a mapping of these; None for the defaults, False to
            give the URL itself to the reader.

    Attributes:
        files: the paths and URLs.
        is_remote: whether some of them lie elsewhere.
        max_cache_bytes: what the cache on disk may take; None where nothing was said, or nothing is fetched.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: no file, one that is named twice, or lengths that do not fit the files.
        ArgumentRangeError: `max_files`, `max_bytes` or `threads` is not positive, or `read_ahead` negative.
        DatasetError: nothing matches the pattern; later, a file cannot be read, has another length than was
            told, or is larger than `max_bytes`.

    Example:
        >>> import os, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> for number in range(3):
        ...     np.savez(os.path.join(folder, f"{number}.npz"), x=np.full((4, 2), number), y=np.arange(4))
        >>> dataset = FileDataset(os.path.join(folder, "*.npz"), "npz")
        >>> len(dataset), dataset.layout.names, dataset[5]
        (12, ('0.npz', '1.npz', '2.npz'), {'x': array([1, 1]), 'y': np.int64(1)})
    """

    enters_draws = True
    """A Loader that seeds draws need not read this one by one: items of sequences are read in their draws."""

    def __init__(
        self,
        files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        reader: Callable[..., Any] | str,
        lengths: Mapping[Any, int] | Sequence[int] | str | os.PathLike[str] | None = None,
        *,
        max_files: int = 4,
        max_bytes: int | None = None,
        read_ahead: int = 1,
        threads: int = 1,
        as_columns: bool = False,
        progress: Progress | bool | None = None,
        remote: RemoteOptions | Mapping[str, Any] | Literal[False] | None = None,
    ) -> None:
        self._limits: Final = CacheLimits(
            arguments.at_least("max_files", max_files, 1),
            None if max_bytes is None else arguments.at_least("max_bytes", max_bytes, 1),
            arguments.at_least("read_ahead", read_ahead, 0),
            arguments.at_least("threads", threads, 1),
        )
        self._reader: FileReader = file_reader(reader)
        self._as_columns: Final = arguments.boolean("as_columns", as_columns)
        self._progress: Final = progress_of(progress)
        options = None if remote is False else RemoteOptions.of(remote)
        self.files: Final = file_paths(files, options)
        self._names: Final = distinct_names(self.files)
        self.is_remote: Final = any(map(is_remote, self.files))
        self._storage: Final = storage_for(self.is_remote, lengths, options)
        self.max_cache_bytes: Final = (
            None if self._storage is None or options is None else options.max_cache_bytes
        )
        if self.is_remote:
            self._reader = RemoteReader(self._reader, self._storage)
        self._layout: Layout | None = None
        if lengths is not None:
            told = fetched_lengths(lengths, self._storage)
            self._layout = Layout(given_lengths(told, self.files, self._names), self._names)
        self._has_told = False
        self._processes: PerProcess[FileCache] = PerProcess()

    @property
    def layout(self) -> Layout:
        """How many samples lie in which file; counted now if it was not told."""
        if self._layout is None:
            process = self._processes.here()
            with process.lock:
                if self._layout is None:
                    self._layout = self._counted(process)
        return self._layout

    @property
    def stats(self) -> FileStats:
        """What was read and waited for in this process, since the dataset was made or the process began.

        The workers of a `Loader` are added, as their batches are handed out. Those of a plain DataLoader tell
        nobody.
        """
        process = self._processes.here()
        return process.with_workers(with_requests(process.stats, self._storage))

    def count_workers(self, told: Callable[[], FileStats | None]) -> None:
        """Is told who knows the figures of the workers of a loader; a `Loader` calls it."""
        self._processes.here().of_workers.append(told)

    @property
    def is_layout_known(self) -> bool:
        """Whether the layout can be told without fetching files that lie elsewhere."""
        return self._layout is not None or not self.is_remote

    def __len__(self) -> int:
        return len(self.layout)

    def __getitem__(self, index: int) -> Any:
        """Gives a sample."""
        number, size = arguments.integer("index", index), len(self)
        if not -size <= number < size:
            raise OutOfDatasetError("index", f"outside of a dataset of {size} samples", number)
        with closing(self._parts(np.array([number % size]))) as parts:
            return gathered_samples(parts, 1)[0]

    def __getitems__(self, ids: Iterable[int]) -> list[Any] | dict[Any, np.ndarray[Any, Any]]:
        """Gives a batch, in the order asked for; each file is gone through once.

        Args:
            ids: of the samples, in [0, len), as a list or an array.

        Returns:
            A list of samples; with `as_columns`, a dict of arrays.

        Raises:
            OutOfDatasetError: there is no such sample.
            DatasetError: a file cannot be read; also if that was found out ahead.
        """
        wanted = batch_ids(ids)
        cache = self._cache()
        cache.begin(wanted)
        with closing(self._parts(wanted)) as parts:
            batch = (gathered_columns if self._as_columns else gathered_samples)(parts, wanted.size)
        if cache.is_too_small and not self._has_told:
            self._has_told = True
            tell_of_rereading(cache.rereading.times, self._limits)
        return batch

    def expect(self, upcoming: Iterable[Ids]) -> None:
        """Is told what this process will read, so that files are read ahead and the right ones kept.

        A `Loader` calls it, at the start of each epoch and after a resume.

        Args:
            upcoming: the ids of each batch to come, int64 arrays; iterated over as far as needed.
        """
        self._cache().expect(upcoming, self.layout.file_of)

    def shard_bytes(self) -> Ids:
        """Gives the size of each file in bytes, shape (files,); one request for each that lies elsewhere.

        Raises:
            DatasetError: the size of a file cannot be told.
        """
        return sizes_of(self.files, self._storage)

    def save_lengths(self, path: str | os.PathLike[str]) -> None:
        """Writes the number of samples of each file as JSON, for `lengths` of a later run.

        Files go by their names below the folder that they share, so the file is right where that is moved.
        """
        save_lengths(path, self._names, self.layout.sizes)

    def close(self) -> None:
        """Ends the threads and lets go of the files in memory. The dataset can be used again."""
        self._processes.here().close(self._storage)

    def __enter__(self) -> FileDataset:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        # Neither what is in memory nor threads, locks and the user's terminal travel to another process.
        return {**self.__dict__, "_processes": PerProcess(), "_progress": silence}

    def __repr__(self) -> str:
        samples = "not counted" if self._layout is None else f"{len(self._layout)} samples"
        return f"FileDataset({len(self.files)} files, {samples})"

    def _parts(self, ids: Ids) -> Generator[FilePart, None, None]:
        """Goes through the files that hold some of the ids."""
        layout, cache = self.layout, self._cache()
        file = layout.file_of(ids)
        by_file = np.argsort(file, kind="stable")
        numbers, first = np.unique(file[by_file], return_index=True)
        places = dict(zip(numbers.tolist(), np.split(by_file, first[1:]), strict=False))
        try:
            # Not sorted once for all: while one file is gone through, another one arrives.
            while places:
                number = cache.nearest(places)
                mine = places.pop(number)
                with cache.using(number) as content:
                    yield content, ids[mine] - layout.starts[number], mine
                    del content  # else it would stay in memory while the next one is read
        finally:
            cache.end()

    def _counted(self, process: Process[FileCache]) -> Layout:
        def count(file: int) -> int:
            return self._reader.count(self.files[file])

        # A reader that cannot count holds a whole file in memory for it.
        threads = COUNTING_THREADS if self._reader.counts_cheaply else self._limits.max_files
        progress = partial(self._progress, "files counted:")
        lengths = counted_lengths(count, len(self.files), min(threads, COUNTING_THREADS), progress)
        process.before = replace(process.before, files_counted=process.before.files_counted + len(lengths))
        return Layout(lengths, self._names)

    def _cache(self) -> FileCache:
        process = self._processes.here()
        held = process.held
        if held is not None:
            return held
        layout = self.layout
        read = partial(read_file, self._reader, self.files, layout.sizes)
        return process.opened(self, partial(FileCache, read, layout.num_files, self._limits))
