"""`TarDataset`: random access to samples in tar shards, on disk or remote."""

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, Literal, Self, final, get_args

import numpy as np

from samplerkit.errors import ArgumentValueError
from samplerkit.order import arguments
from samplerkit.order.keys import Key
from samplerkit.order.modes import Mode, Shuffle
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.limits import CacheLimits
from samplerkit.storage.catalogue.catalogue_file import open_catalogue
from samplerkit.storage.file_stats import FileStats
from samplerkit.storage.ids import checked_ids, checked_index
from samplerkit.storage.lengths import given_lengths, save_lengths
from samplerkit.storage.names import short_names
from samplerkit.storage.open_files import AbsentError, Samples, log_missing
from samplerkit.storage.per_process import storage_for
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.tar import steps
from samplerkit.storage.tar.codecs import Decode
from samplerkit.storage.tar.format.flaws import Skipped
from samplerkit.storage.tar.index.find_or_make import Cache
from samplerkit.storage.tar.pipeline import Selection, Source, View
from samplerkit.storage.tar.read.shards import Fetch, OnError, Shards, TarOptions, archive_names
from samplerkit.storage.tar.steps import Step
from samplerkit.storage.threads import Progress, progress_of
from samplerkit.storage.urls import is_remote, shown

_IGNORED = "a plain DataLoader ignores shuffle: use samplerkit.Loader, or sampler=samplerkit.TorchSampler"


@final
class TarDataset(View):
    """Samples in tar shards, as webdataset writes them: a map-style dataset with a pipeline.

    Files whose names are the same up to the first dot are one sample: a dict with `__key__`, `__url__` and
    the bytes of each file under its extension. The positions of samples are indexed at first use, and the
    index is kept; so any sample can be read at any time, and every shuffle mode and every resume works.

    Each method of the pipeline returns a new dataset and does not change this one. Functions are called when
    a sample is read, in the process that reads it.

    Shards may be remote. Whole shards are fetched, once per machine, into a cache on disk that all processes
    share, and the next ones are prefetched; or single samples are read by range requests, those of a batch in
    parallel. See `docs/tar.md`.

    Args:
        urls: a path or a URL, or a list of these, plain tar or gzip; `{000..127}`, `{a,b}`, `*`, `?` and
            `[...]` are expanded; web servers cannot list files. Or the catalogue of all shards,
            `train.skcat`.
        on_error: how a truncated archive, a damaged header, a link, an unsafe name, a sample split over
            shards or a duplicate key is handled. `raise`: an error that names archive and byte, at first use.
            `skip`: the sample is skipped and counted in `skipped`. With `lengths` the layout does not change;
            missing samples, also those of a missing shard, are left out of their batches.
        max_handles: archives that a process holds open; None for 256, or fewer if the system allows fewer.
        checksums: whether to store a CRC-32 of each file in the index, and to check it at each read.
        cache: the folder for indexes, decompressed gzip archives and, unless `remote` has another one,
            fetched shards; None for the user's cache folder.
        progress: called with a description, the number done and the total; None for a line on the terminal,
            False for nothing.
        lengths: samples in each shard: a list, a dict by URL or name, or the path of a JSON file from
            `save_lengths`. Then nothing is opened at the start, and a shard is indexed when it is needed.
            None indexes all shards at first use.
        remote: how remote shards are fetched and cached: `RemoteOptions`, or a mapping of these.
        fetch: `shards` fetches whole remote shards, `ranges` reads single samples of them. `auto` chooses by
            the upcoming ids of a `Loader` (see `samplerkit.storage.tar.fetch_costs.choose_fetch`): file-aware
            orders fetch shards, GLOBAL reads samples. Without a `Loader` it reads samples.
        max_shards: the most fetched shards that a process holds open, including prefetched ones.
        read_ahead: the number of shards to prefetch; 0 for none.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: `on_error` or `fetch` is unknown, `urls` is empty or has wrong braces, or
            `lengths` do not match `urls`.
        ArgumentRangeError: a number is not positive, or `read_ahead` is negative.
        DatasetError: a file does not exist; or, at first use, an archive has a flaw or another length.

    Source: the WebDataset format.

    Example:
        >>> import samplerkit as sk
        >>> from samplerkit.storage.tar.writer import TarWriter
        >>> from tempfile import TemporaryDirectory
        >>> folder = TemporaryDirectory()
        >>> with TarWriter(f"{folder.name}/train-%03d.tar", samples_per_shard=2) as writer:
        ...     for number in range(5):
        ...         writer.write({"__key__": f"{number}", "txt": f"number {number}", "cls": number % 2})
        >>> shards = TarDataset(f"{folder.name}/train-{{000..002}}.tar", cache=folder.name)
        >>> dataset = shards.decode().to_tuple("txt", "cls")
        >>> len(dataset), dataset.layout, dataset[3]
        (5, Layout([2, 2, 1]), ('number 3', 1))
        >>> loader = sk.Loader(dataset, sk.RandomSampler(seed=7), batch_size=5)
        >>> sorted(next(iter(loader))[0])
        ['number 0', 'number 1', 'number 2', 'number 3', 'number 4']
        >>> folder.cleanup()
    """

    enters_draws = True
    """The steps of each sample run within its draw, so a Loader that seeds draws may read whole batches."""

    def __init__(
        self,
        urls: Any,
        *,
        on_error: OnError = "raise",
        max_handles: int | None = None,
        checksums: bool = False,
        cache: str | os.PathLike[str] | None = None,
        progress: Any = None,
        lengths: Mapping[Any, int] | Sequence[int] | str | os.PathLike[str] | None = None,
        remote: RemoteOptions | Mapping[str, Any] | None = None,
        fetch: Fetch = "auto",
        max_shards: int = 8,
        read_ahead: int = 2,
    ) -> None:
        arguments.choice("on_error", on_error, get_args(OnError))
        arguments.choice("fetch", fetch, get_args(Fetch))
        options = TarOptions(
            on_error,
            arguments.limit("max_handles", max_handles),
            arguments.boolean("checksums", checksums),
            Cache.of(cache, RemoteOptions.of(remote)),
            fetch,
            arguments.at_least("max_shards", max_shards, 1),
            arguments.at_least("read_ahead", read_ahead, 0),
        )
        super().__init__(source_of(urls, options, progress_of(progress), lengths))
        self._window: int | None = None
        self._iterations = 0

    def decode(self, *handlers: str | Callable[[str, bytes], Any], only: Any = None) -> Self:
        """Decodes files by their extensions.

        Text (`txt`), numbers (`cls`, `index`, `id`), `json`, `npy` and `npz` are always decoded, `.gz` is
        decompressed first, and files with other extensions stay bytes. Pickles are refused: they run code.

        Args:
            handlers: how images are decoded: `pil`, `rgb8`, `torchrgb`, `l` and so on; or functions that
                take an extension with its dot, such as ".jpg", and the bytes, and return the value, or None
                to leave it to the next handler.
            only: names of the fields to decode, as a list, a set or one string with spaces; None for all.

        Raises:
            ArgumentTypeError: a handler is neither a string nor a function, or `only` is none of these.
            ArgumentValueError: a short name is unknown, or `only` is empty or has a name twice.
        """
        return self._then("decode", Decode(handlers, only))

    def rename(self, **fields: Any) -> Self:
        """Renames fields: `rename(image="jpg;png")` takes the first of them that a sample has.

        Args:
            fields: for each new name the old name, or several. Other fields are kept.
        """
        return self._then("rename", partial(steps.rename, steps.renames_of(fields)))

    def map_dict(self, **functions: Callable[[Any], Any]) -> Self:
        """Applies functions to fields: `map_dict(cls=int)`."""
        return self._then("map_dict", steps.mapping(functions))

    def map(self, function: Callable[[Any], Any]) -> Self:
        """Applies a function to each sample."""
        name = getattr(function, "__name__", type(function).__name__)
        return self._then(f"map({name})", arguments.function("map", function))

    def to_tuple(self, *fields: Any) -> Self:
        """Makes a tuple of some fields; `"jpg;png"` takes the first that a sample has.

        Args:
            fields: names; or one string of names separated by spaces.
        """
        return self._then("to_tuple", partial(steps.to_tuple, steps.fields_of(fields)))

    def select(self, predicate: Callable[[Any], Any], *, by: Literal["sample", "key"] = "sample") -> Self:
        """Keeps the samples for which a function returns true.

        The function is called once for each sample, when the length or a sample is first needed; the selected
        ids are held in memory, 8 bytes each.

        Args:
            predicate: receives the sample after the steps before this one, or its key.
            by: `sample` reads every sample once; `key` reads the index only.

        Raises:
            ArgumentTypeError: `predicate` is not a function.
            ArgumentValueError: `by` is unknown.
        """
        arguments.choice("by", by, ("sample", "key"))
        return self._with(_selection=Selection(self, arguments.function("select", predicate), by))

    def shuffle(self, size: int) -> Self:
        """Makes PARTIAL with this window the default order of samplerkit's loaders and of iteration.

        Args:
            size: samples in a window; 0 for no shuffle.

        Raises:
            ArgumentTypeError: `size` is not an integer.
            ArgumentRangeError: `size` is negative.
        """
        return self._with(_window=arguments.at_least("shuffle", size, 0) or None)

    @property
    def default_partial_size(self) -> int | None:
        """The window of `shuffle`: the `partial_size` of the default order; None for no shuffle."""
        return self._window

    def __getitem__(self, id: int) -> Any:
        # A fast path for plain integers: the full check takes a tenth of the time of reading.
        number = id if type(id) is int and 0 <= id < len(self) else checked_index(id, self)
        sample = self._sample(number)
        if isinstance(sample, AbsentError):
            raise sample.with_traceback(None)
        return sample

    def __getitems__(self, ids: Any) -> list[Any]:
        return list(self._present(ids, logs=True))

    @property
    def read_present(self) -> Callable[..., Samples] | None:
        """A method that reads a batch like `__getitems__`, and also returns which samples are missing.

        A `Loader` calls it, and logs missing samples itself; with `logs=True` they are logged here. None
        unless `on_error` is `skip` and shards are opened one by one, since otherwise no sample is skipped.
        """
        source = self._source
        return self._present if source.shards.options.skips and not source.is_indexed else None

    def _present(self, ids: Any, *, logs: bool = False) -> Samples:
        numbers = checked_ids(ids, len(self))
        # samplerkit's loaders pass an array; a plain DataLoader passes a list.
        if self._window is not None and isinstance(ids, list) and len(ids) > 1 and ids == [*range(len(ids))]:
            warnings.warn(_IGNORED, stacklevel=3)
        samples = Samples(self._samples(numbers))
        if samples.missing:
            samples.fill(numbers, self.layout, self._sample)
            if logs:
                log_missing(samples.missing, self._source.logged)
        return samples

    def __iter__(self) -> Iterator[Any]:
        if self._window is None:
            return self.in_order(range(len(self)))
        epoch, self._iterations = self._iterations, self._iterations + 1
        # The order of a Loader without a sampler.
        mode = Mode(Shuffle.PARTIAL, partial_size=self._window)
        return self.in_order(mode.order(self.layout, partial(Key, 0, epoch, 0), run_lanes=1))

    def keys(self, ids: Any = None) -> list[str]:
        """Returns the keys of samples without reading the samples; "" for missing samples that are skipped.

        Args:
            ids: the ids of the samples; None for all.
        """
        numbers = np.arange(len(self)) if ids is None else checked_ids(ids, len(self))
        return self._source.reading.keys(self._source_ids(numbers))

    def _then(self, name: str, step: Step) -> Self:
        return self._with(_steps=(*self._steps, (name, step)))

    def _with(self, **changes: Any) -> Self:
        other = copy(self)
        vars(other).update(changes, _iterations=0)
        return other

    @property
    def skipped(self) -> Skipped:
        """Samples that `on_error="skip"` left out because of a flaw, counted by reason, with places.

        With `lengths`, only those that this process has met so far.
        """
        return self._source.skipped

    @property
    def stats(self) -> FileStats | None:
        """Counters of fetching and waiting in this process; None for indexed shards on disk.

        Those of worker processes are in `stats.dataset` of the `Loader`.
        """
        return None if self._source.is_indexed else self._source._stats

    @property
    def is_layout_known(self) -> bool:
        """Whether the layout is known without requests for remote shards."""
        return self._selection is None and self._source.is_layout_known

    @property
    def expect(self) -> Callable[[Iterable[Ids]], None] | None:
        """A method that receives the upcoming ids of this process, batch by batch, for prefetching.

        A `Loader` calls it. None for indexed shards on disk, which are not prefetched.
        """
        return None if self._source.is_indexed else self._expect

    @property
    def fetch(self) -> Fetch | None:
        """How remote shards are read; None for indexed shards on disk."""
        source = self._source
        return None if source.is_indexed else source.shards.options.fetch

    @property
    def max_cache_bytes(self) -> int | None:
        """The size limit of the cache for fetched shards; None if not set or if no shard is remote."""
        source = self._source
        return source.shards.options.cache.options.max_cache_bytes if source.shards.is_remote else None

    @property
    def _limits(self) -> CacheLimits | None:
        """Limits on open shards, for `check`; None for indexed shards on disk."""
        source = self._source
        return None if source.is_indexed else source.shards.options.limits

    @property
    def is_remote(self) -> bool:
        """Whether some shards are remote."""
        return self._source.shards.is_remote

    def shard_bytes(self) -> Ids:
        """Returns the size of each shard in bytes; takes one request per remote shard."""
        return self._source.shards.sizes()

    def local_path(self, url: str) -> str | None:
        """Returns the local path of a shard, also of a fetched one; None if it is not on this machine.

        Args:
            url: the URL of the shard, as in `__url__`.

        Raises:
            ArgumentValueError: the URL is not one of the shards.
        """
        shards = self._source.shards
        if url not in shards.names:
            raise ArgumentValueError("url", "is not one of the shards", url)
        return shards.local_path(shards.names.index(url))

    def save_lengths(self, path: str | os.PathLike[str]) -> None:
        """Writes the number of samples of each shard as JSON, for `lengths` of a later run.

        Shards are named relative to their common folder, so the file stays valid if that is moved.
        """
        layout = self._source.contents.layout
        save_lengths(path, layout.names or (), layout.sizes)

    def close(self) -> None:
        """Ends the threads and closes open shards. The dataset can be used again."""
        self._source.close()

    def _expect(self, upcoming: Iterable[Ids]) -> None:
        self._source.reading.expect(self._in_source(upcoming))


def source_of(urls: Any, options: TarOptions, progress: Progress, lengths: Any) -> Source:
    """Returns the source of samples: archives on disk share one index, others are opened one by one.

    Raises:
        ArgumentTypeError: names or lengths have the wrong type.
        ArgumentValueError: names or lengths are invalid, or do not match.
        DatasetError: a file does not exist.
    """
    remote = options.cache.options
    catalogue = open_catalogue(urls, "tar", remote, lengths)
    if catalogue is not None:
        storage = storage_for(catalogue.is_remote, None, remote)
        shards = Shards(catalogue.files, storage, options, catalogue)
        return Source(shards, catalogue.lengths.tolist(), progress)
    # With lengths and on_error="skip", shards may be missing from the start.
    names = archive_names(urls, remote, keeps_absent=lengths is not None and options.skips)
    distinct = Counter(map(shown, dict.fromkeys(names)))
    if len(distinct) < distinct.total():  # they would have the same name in errors, indexes and samples
        problem, hint = "differ in their queries or credentials only", "name each by its own path"
        raise ArgumentValueError("urls", problem, distinct.most_common(1)[0][0], hint=hint)
    storage = storage_for(any(map(is_remote, names)), lengths, remote)
    counts = None if lengths is None else given_lengths(lengths, names, short_names(names), storage)
    return Source(Shards(names, storage, options), counts, progress)
