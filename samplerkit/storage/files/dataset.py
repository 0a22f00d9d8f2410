"""A dataset over files that a function of the user's reads."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal, final

import numpy as np

from samplerkit.order import arguments
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.catalogue.catalogue_file import read_unchanged
from samplerkit.storage.files.chunked import ChunkLimits, Chunks, DatasetOfFiles
from samplerkit.storage.files.content import gathered_columns, gathered_samples
from samplerkit.storage.files.file_reader import read_file
from samplerkit.storage.files.readers import file_reader
from samplerkit.storage.files.stored import stored_files
from samplerkit.storage.lengths import given_lengths, save_lengths
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.threads import Progress


@final
class FileDataset(DatasetOfFiles):
    """A map-style dataset over files, each read as a whole by your function and kept in memory for a while.

    If the reader returns arrays, a sample is a dict with a row of each; if it returns a sequence, an item of
    it. A `Loader` announces the next ids: each file is then prefetched, and read once per epoch and rank, as
    long as `max_files` is enough for the files between which the order alternates. Without a `Loader`, the
    most recently used files are kept.

    Each process has its own files in memory and its own threads; so does each worker of a loader.

    Files may be remote: URLs are fetched, once per machine, into a cache on disk that all processes of the
    machine share, and the reader gets the path of the copy. `read_ahead` and `threads` prefetch several files
    in the background.

    Args:
        files: a path, a URL or a glob pattern, whose matches are sorted by bytes; or a list of these, in the
            order given. Braces are a pattern too, `{000..127}.npz`, and the only one for web servers, which
            list no files. Or the catalogue of all files, `train.skcat`.
        reader: a function from a path to a mapping of arrays of one length, or to a sequence. It may have a
            method `count(path)`. One with an argument `get_data` returns `(data, length)` if that is True,
            and the length alone otherwise. Or the name of a reader: `npz`, `npy`, `parquet`, `csv`, `tsv`,
            `jsonl`, `text`, or one added by `register_reader`.
        lengths: samples in each file: a dict by path or name, or a list, or the path or URL of a JSON file
            from `save_lengths`; then no file is opened or requested before it is needed. None counts them at
            first use; URLs are fetched for it.
        max_files: files in memory at most, including prefetched ones.
        max_bytes: bytes in memory at most; None for no limit.
        read_ahead: how many files are prefetched; 0 for none.
        threads: how many of them are read in parallel; `reader` is then called from several threads.
        as_columns: return batches as a dict of arrays instead of a list of samples to collate, which is many
            times as fast for small samples. Use `collate_fn=torch.utils.data.default_convert` then.
        progress: called while files are counted, with a description, the number done and the total; None for
            a line on the terminal, False for nothing.
        remote: how URLs are fetched: `RemoteOptions`, or a mapping of these; None for the defaults, False to
            give the URL itself to the reader.

    Attributes:
        files: the paths and URLs.
        is_remote: whether some of them are remote.
        max_cache_bytes: the limit of the cache on disk; None if it was not set, or nothing is fetched.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: no file is given, a file is given twice, or lengths do not match the files.
        ArgumentRangeError: `max_files`, `max_bytes` or `threads` is not positive, or `read_ahead` negative.
        DatasetError: no file matches the pattern; later, a file cannot be read, has another length than was
            given, or is larger than `max_bytes`.

    Example:
        >>> import os, tempfile
        >>> import numpy as np
        >>> folder = tempfile.mkdtemp()
        >>> for number in range(3):
        ...     np.savez(os.path.join(folder, f"{number}.npz"), x=np.full((4, 2), number), y=np.arange(4))
        >>> dataset = FileDataset(os.path.join(folder, "*.npz"), "npz")
        >>> len(dataset), dataset.layout.names, dataset[5]
        (12, ('0.npz', '1.npz', '2.npz'), {'x': array([1, 1]), 'y': np.int64(1)})
    """

    _kind = "files"

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
        limits = ChunkLimits(max_files, max_bytes, read_ahead, threads, argument="max_files")
        gather = gathered_columns if arguments.boolean("as_columns", as_columns) else gathered_samples
        super().__init__(files, limits, gather, progress, remote, lengths)
        self.max_cache_bytes: Final = self._storage.options.max_cache_bytes if self._storage else None
        self._reader: Final = replace(file_reader(reader), storage=self._storage)
        if self._catalogue is not None:
            self._chunks = self._make_chunks(self._catalogue.lengths)
        elif lengths is not None:
            self._chunks = self._make_chunks(given_lengths(lengths, self.files, self._names, self._storage))

    def shard_bytes(self) -> Ids:
        """Returns the size of each file in bytes, shape (files,); an unknown remote one takes a request.

        Raises:
            DatasetError: the size of a file is not known.
        """
        if self._catalogue is not None:
            return self._catalogue.sizes
        return np.array([stored.size for stored in stored_files(self.files, self._storage)], dtype=np.int64)

    def save_lengths(self, path: str | os.PathLike[str]) -> None:
        """Writes the number of samples of each file as JSON, for `lengths` of a later run.

        Files are named by their paths below their common folder, so the lengths stay valid if it is moved.

        Raises:
            DatasetError: the file cannot be written.
        """
        save_lengths(path, self._names, self.layout.sizes)

    def _find(self) -> Chunks:
        lengths = self._reader.count_all(self.files, self._limits.max_files, self._progress)
        self._note_counted(len(lengths))
        return self._make_chunks(lengths)

    def _make_chunks(self, lengths: Any) -> Chunks:
        layout = Layout(lengths, self._names)
        read = partial(read_file, self._reader, self.files, layout.sizes)
        if self._catalogue is not None:
            read = partial(read_unchanged, self._catalogue, self._storage, read)
        return Chunks(layout, read)
