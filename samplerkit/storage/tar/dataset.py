"""Samples in tar shards, on disk or remote, at any id."""

from __future__ import annotations

import os
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
from samplerkit.storage.ahead.cache_entries import CacheLimits, FileStats
from samplerkit.storage.catalogue.catalogue_file import opened_catalogue, refuse_lengths
from samplerkit.storage.ids import OrderWatch, checked_ids, checked_index
from samplerkit.storage.lengths import given_lengths, save_lengths
from samplerkit.storage.names import short_names
from samplerkit.storage.opening import AbsentError, Present, log_missing
from samplerkit.storage.per_process import storage_for
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.tar.codecs import Decode
from samplerkit.storage.tar.format.flaws import Skipped
from samplerkit.storage.tar.index.finding import Cache
from samplerkit.storage.tar.pipeline import Selection, Source, View
from samplerkit.storage.tar.read.shards import Fetch, OnError, Shards, TarOptions, archive_names
from samplerkit.storage.tar.steps import Map, MapDict, Rename, Step, ToTuple, checked_function
from samplerkit.storage.threads import Progress, progress_of
from samplerkit.storage.urls import is_remote, shown


@final
class TarDataset(View):
    """Samples in tar shards, as webdataset writes them: a map-style dataset with a pipeline.

    Files whose names are the same up to the first dot are one sample: a dict with `__key__`, `__url__` and
    the bytes of each file under its extension. Where each sample lies is indexed at first use, and kept; so
    any sample can be read at any time, and every shuffle mode and every resume works on shards.

    Each method of the pipeline returns a new dataset and does not change this one. Their functions are called
    when a sample is read, in the process that reads it.

    Shards may be remote. Whole shards are fetched, once per machine, into a cache on disk that all processes
    share, and the next ones are prefetched; or single samples are read by range requests, those of a batch at
    the same time. See `docs/tar.md`.

    Args:
        urls: a path or a URL, or a list of these, plain tar or gzip; `{000..127}`, `{a,b}`, `*`, `?` and
            `[...]` are expanded. Web servers list no files. Or the catalogue of all shards, `train.skcat`.
        on_error: how a truncated archive, a damaged header, a link, an unsafe name, a sample split over
            shards or a duplicate key is handled. `raise`: an error that names archive and byte, at first use.
            `skip`: counted in `skipped`, and the sample left out. With `lengths` the layout does not change,
            and missing samples are left out of their batches, also those of a missing shard.
        max_handles: archives that a process holds open; None for 256, or less where the system allows few.
        checksums: take a CRC-32 of each file with the index, and compare it at each reading.
        cache: the folder for indexes, unpacked gzip archives and, unless `remote` says another one, fetched
            shards; None for the user's cache folder.
        progress: called with a description, the number done and the total; None for a line on the terminal,
            False for nothing.
        lengths: samples in each shard: a list, a dict by URL or name, or the path of a JSON file from
            `save_lengths`. Then nothing is opened at the start: a shard is indexed when it is needed. None
            indexes all at first use.
        remote: how remote shards are reached and kept: `RemoteOptions`, or a mapping of these.
        fetch: `shards` fetches whole remote shards, `ranges` reads single samples of them. `auto` chooses by
            the next ids from a `Loader` (`samplerkit.storage.tar.fetch_costs.stretch_of` is the rule):
            file-aware orders fetch shards, GLOBAL reads samples. Without a `Loader` it reads samples.
        max_shards: fetched shards that a process holds open at most, including prefetched ones.
        read_ahead: how many shards are fetched before they are needed; 0 for none.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: `on_error` or `fetch` is not known, `urls` is empty or has wrong braces, or
            `lengths` do not fit them.
        ArgumentRangeError: a number is not positive, or `read_ahead` negative.
        DatasetError: a file is not there; or, at first use, an archive has a flaw or another length.

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
    """A Loader that seeds draws need not read this one by one: the steps of each sample run in its draw."""

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
        self._watch: OrderWatch | None = None
        self._iterations = 0

    def decode(self, *handlers: str | Callable[[str, bytes], Any], only: Any = None) -> Self:
        """Decodes files by their extensions.

        Text (`txt`), numbers (`cls`, `index`, `id`), `json`, `npy` and `npz` are always decoded, `.gz` is
        unpacked first, and unknown extensions stay bytes. Pickles are refused: they run code.

        Args:
            handlers: how images are decoded: `pil`, `rgb8`, `torchrgb`, `l` and so on; or functions that
                take an extension with its dot, such as ".jpg", and the bytes, and give None for what they
                leave to others.
            only: the fields to decode; None for all.

        Raises:
            ArgumentTypeError: a handler is neither a string nor a function.
            ArgumentValueError: a short name is not known.
        """
        return self._then(Decode.of(handlers, only))

    def rename(self, **fields: Any) -> Self:
        """Gives fields other names: `rename(image="jpg;png")` takes the first that a sample has.

        Args:
            fields: for each new name the old one, or several. Other fields stay as they are.
        """
        return self._then(Rename.of(fields))

    def map_dict(self, **functions: Callable[[Any], Any]) -> Self:
        """Applies a function to each of some fields."""
        return self._then(MapDict.of(functions))

    def map(self, function: Callable[[Any], Any]) -> Self:
        """Applies a function to each sample."""
        return self._then(Map(checked_function("map", function)))

    def to_tuple(self, *fields: Any) -> Self:
        """Makes a tuple of some fields; `"jpg;png"` takes the first that a sample has.

        Args:
            fields: names; one text of several names with spaces between them is taken too.
        """
        return self._then(ToTuple.of(fields))

    def select(self, predicate: Callable[[Any], Any], *, by: Literal["sample", "key"] = "sample") -> Self:
        """Keeps the samples for which a function gives true.

        The function is called once for each sample, when the length or a sample is first needed; the selected
        ids are held in memory, 8 bytes each.

        Args:
            predicate: is given the sample as it is at this place of the pipeline, or its key.
            by: `sample` reads every sample once; `key` reads the index only.

        Raises:
            ArgumentTypeError: no function.
            ArgumentValueError: `by` is not known.
        """
        arguments.choice("by", by, ("sample", "key"))
        return self._with(_selection=Selection(self, checked_function("select", predicate), by))

    def shuffle(self, size: int) -> Self:
        """Makes PARTIAL with this window the default order of samplerkit's loaders and of `for`.

        Args:
            size: samples in a window; 0 for no shuffle.

        Raises:
            ArgumentTypeError: no integer.
            ArgumentRangeError: negative.
        """
        return self._with(_window=arguments.at_least("shuffle", size, 0) or None)

    @property
    def default_partial_size(self) -> int | None:
        """The window of `shuffle`: the `partial_size` of the default order; None for no shuffle."""
        return self._window

    def __getitem__(self, id: int) -> Any:
        # Nearly always it is a plain integer: to look closer takes a tenth of the time of reading.
        number = id if type(id) is int and 0 <= id < len(self) else checked_index(id, self)
        if self._watch is not None:
            self._watch.see([number])
        sample = self._sample(number)
        if isinstance(sample, AbsentError):
            raise sample.with_traceback(None)
        return sample

    def __getitems__(self, ids: Any) -> list[Any]:
        return list(self._present(ids, logs=True))

    @property
    def read_present(self) -> Callable[..., Present] | None:
        """Reads a batch as `__getitems__` does, and returns what was left out of it.

        A `Loader` calls it, and logs that by itself; with `logs=True` it is logged here. None where nothing
        is left out: unless `on_error` is `skip` and shards are read one by one.
        """
        source = self._source
        return self._present if source.shards.options.skips and not source.is_indexed else None

    def _present(self, ids: Any, *, logs: bool = False) -> Present:
        numbers = self._ids(ids)
        # An array is what samplerkit's loaders send; a plain DataLoader sends a list.
        if self._watch is not None and isinstance(ids, list):
            self._watch.see(numbers.tolist())
        found = Present(self._samples(numbers))
        if found.missing:
            found.fill(numbers, self.layout, self._sample)
            if logs:
                log_missing(found.missing, self._source.logged)
        return found

    def __iter__(self) -> Iterator[Any]:
        if self._window is None:
            return self.in_order(range(len(self)))
        epoch, self._iterations = self._iterations, self._iterations + 1
        # What a Loader without a sampler reads by.
        mode = Mode(Shuffle.PARTIAL, partial_size=self._window)
        return self.in_order(mode.order(self.layout, partial(Key, 0, epoch, 0), run_lanes=1))

    def keys(self, ids: Any = None) -> list[str]:
        """Returns the keys of samples without reading the samples; "" for one that is missing and skipped.

        Args:
            ids: of the samples; None for all.
        """
        numbers = np.arange(len(self)) if ids is None else self._ids(ids)
        return self._source.reading.keys(self._source_ids(numbers))

    def order_is_given(self) -> None:
        """Informs a shuffled dataset that its order is chosen on purpose, so that it does not warn."""
        if self._watch is not None:
            self._watch.stop()

    def _ids(self, ids: Any) -> Ids:
        return checked_ids(ids, len(self))

    def _then(self, step: Step) -> Self:
        return self._with(_steps=(*self._steps, step))

    def _with(self, **changes: Any) -> Self:
        other = copy(self)
        vars(other).update(changes, _iterations=0)
        other._watch = OrderWatch() if other._window is not None else None
        return other

    @property
    def skipped(self) -> Skipped:
        """Samples left out with `on_error="skip"` because of a flaw, counted by reason, with places.

        With `lengths` it is what this process has met so far.
        """
        return self._source.skipped

    @property
    def stats(self) -> FileStats | None:
        """What this process has fetched and waited for; None for indexed shards on disk.

        The workers of a `Loader` are added, as their batches are handed out. Those of a plain DataLoader are
        not counted.
        """
        return None if self._source.is_indexed else self._source.stats

    def count_workers(self, told: Callable[[], FileStats | None]) -> None:
        """Receives what reports the figures of the workers of a loader; a `Loader` calls it."""
        self._source.count_workers(told)

    @property
    def is_layout_known(self) -> bool:
        """Whether the layout is known without requests for remote shards."""
        return self._selection is None and self._source.is_layout_known

    @property
    def expect(self) -> Callable[[Iterable[Ids]], None] | None:
        """Receives what this process will read, batch by batch, so that it is read ahead.

        A `Loader` calls it. None where that is of no use: for indexed shards on disk.
        """
        return None if self._source.is_indexed else self._expect

    @property
    def fetch(self) -> Fetch | None:
        """How remote shards are read; None for indexed shards on disk."""
        source = self._source
        return None if source.is_indexed else source.shards.options.fetch

    @property
    def max_cache_bytes(self) -> int | None:
        """What the cache for fetched shards may hold at most, if that was said."""
        source = self._source
        return source.shards.options.cache.options.max_cache_bytes if source.shards.is_remote else None

    @property
    def _limits(self) -> CacheLimits | None:
        """How many shards may be at hand: what `check` looks at."""
        source = self._source
        return None if source.is_indexed else source.shards.options.limits

    @property
    def is_remote(self) -> bool:
        """Whether some shards are remote."""
        return self._source.shards.is_remote

    def shard_bytes(self) -> Ids:
        """Returns the size of each shard; of remote ones, by one request each."""
        return self._source.shards.sizes()

    def local_path(self, url: str) -> str | None:
        """Returns the local path of a shard, also of a fetched one; None if it is not on this machine.

        Args:
            url: of the shard, as in `__url__`.

        Raises:
            ArgumentValueError: it is none of the shards.
        """
        shards = self._source.shards
        if url not in shards.numbers:
            raise ArgumentValueError("url", "is none of the shards", url)
        return shards.local_path(shards.numbers[url])

    def save_lengths(self, path: str | os.PathLike[str]) -> None:
        """Writes the number of samples of each shard as JSON, for `lengths` of a later run.

        Shards go by their names below the folder that they share, so the file is right where that is moved.
        """
        layout = self._source.contents.layout
        save_lengths(path, layout.names or (), layout.sizes)

    def close(self) -> None:
        """Ends the threads and lets go of open shards. The dataset can be used again."""
        self._source.close()

    def _expect(self, upcoming: Iterable[Ids]) -> None:
        in_source = upcoming if self._selection is None else map(self._source_ids, upcoming)
        self._source.reading.expect(in_source, len(self))


def source_of(urls: Any, options: TarOptions, progress: Progress, lengths: Any) -> Source:
    """Returns what is read: archives on disk are joined under one index, others are opened one by one.

    Raises:
        ArgumentTypeError: names or lengths have the wrong type.
        ArgumentValueError: they do not fit.
        DatasetError: a file is not there.
    """
    remote = options.cache.options
    known = opened_catalogue(urls, "tar", remote)
    if known is not None:
        refuse_lengths(lengths)
        names = public = known.files  # a catalogue names nothing private
        storage, told = storage_for(known.is_remote, None, remote), known.lengths.tolist()
    else:
        # What is told and skipped may be missing from the start.
        names = archive_names(urls, remote, keeps_absent=lengths is not None and options.skips)
        public = tuple(map(shown, names))
        if len({*public}) < len({*names}):  # errors, indexes and samples would confuse them
            name, _ = Counter(map(shown, dict.fromkeys(names))).most_common(1)[0]
            problem, hint = "differ in their queries or credentials only", "name each by its own path"
            raise ArgumentValueError("urls", problem, name, hint=hint)
        storage, told = storage_for(any(map(is_remote, names)), lengths, remote), None
        if lengths is not None:
            told = given_lengths(lengths, names, short_names(names), storage)
    return Source(Shards(names, public, storage, options, known), told, progress)
