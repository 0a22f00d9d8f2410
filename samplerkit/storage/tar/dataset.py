"""Samples in tar shards, on disk or remote, at any id."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final, get_args

from samplerkit.closing import Closing
from samplerkit.order import arguments
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.cache_entries import CacheLimits
from samplerkit.storage.ahead.stats import FileStats
from samplerkit.storage.catalogue.catalogue_file import opened_catalogue, refuse_lengths
from samplerkit.storage.files.remote import storage_for
from samplerkit.storage.lengths import fetched_lengths, given_lengths, save_lengths
from samplerkit.storage.names import short_names
from samplerkit.storage.progress import Progress, progress_of
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.tar.archive_names import archive_names
from samplerkit.storage.tar.fluent import Pipeline
from samplerkit.storage.tar.format.flaws import Skipped
from samplerkit.storage.tar.index.archive import Cache
from samplerkit.storage.tar.pipeline import View
from samplerkit.storage.tar.read.shard_source import ShardSource
from samplerkit.storage.tar.read.shards import Fetch, OnError, Shards, TarOptions
from samplerkit.storage.tar.read.sources import ArchiveSource, IndexedSource
from samplerkit.storage.urls import is_remote, shown


@final
class TarDataset(Pipeline, Closing):
    """Samples in tar shards, as webdataset writes them: a map-style dataset with a pipeline.

    Files whose names are the same up to the first dot are one sample: a dict with `__key__`, `__url__` and
    the bytes of each file under its extension. Where each sample lies is indexed at first use, and kept; so
    any sample can be read at any time, and every shuffle mode and every resume works on shards.

    Each method of the pipeline gives a new dataset and changes nothing of this one. What is given to them
    is called when a sample is read, in the process that reads it.

    Shards may be remote. Whole ones are fetched, each once a machine, into a cache on disk that all processes
    share, and the next ones ahead of need; or single samples are read from where they lie, those of a batch
    at the same time. See `docs/tar.md`.

    Args:
        urls: a path or a URL, or a list of these, plain tar or gzip; `{000..127}`, `{a,b}`, `*`, `?` and
            `[...]` are expanded. Web servers list no files. Or the catalogue of all shards, `train.skcat`.
        on_error: what becomes of a truncated archive, a damaged header, a link, an unsafe name, a sample
            split over shards or a key that stands twice. `raise`: an error that names archive and byte, at
            first use. `skip`: counted in `skipped`, and the sample left out. With `lengths` the layout stays
            as told, and what is missing is left out of its batch; so is a shard that is not there.
        max_handles: archives that a process holds open; None for 256, or less where the system allows few.
        checksums: take a CRC-32 of each file with the index, and compare it at each reading.
        cache: the folder for indexes, unpacked gzip archives and, unless `remote` says another one, fetched
            shards; None for the user's cache folder.
        progress: called with what is done, how many are done and how many there are; None for a line on
            the terminal, False for nothing.
        lengths: samples in each shard: a list, a dict by URL or name, or the path of a JSON file from
            `save_lengths`. Then nothing is opened at the start: a shard is indexed when it is needed. None
            indexes all at first use.
        remote: how remote shards are reached and kept: `RemoteOptions`, or a mapping of these.
        fetch: `shards` fetches whole remote shards, `ranges` reads single samples of them. `auto` chooses by
            what a `Loader` says comes next (`samplerkit.storage.tar.fetch_costs.stretch_of` is the rule):
            file-aware orders fetch shards, GLOBAL reads samples. Where nobody says, it reads samples.
        max_shards: fetched shards that a process holds open at most, those fetched ahead included.
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
        super().__init__(View(source_of(urls, options, progress_of(progress), lengths)))

    @property
    def skipped(self) -> Skipped:
        """What was left out because of a flaw, counted by reason, with places; empty unless asked to skip.

        With `lengths` it is what this process has met so far.
        """
        return self._view.source.skipped

    @property
    def stats(self) -> FileStats | None:
        """What this process has fetched and waited for; None for indexed shards on disk.

        The workers of a `Loader` are added, as their batches are handed out. Those of a plain DataLoader tell
        nobody.
        """
        return self._view.source.stats

    def count_workers(self, told: Callable[[], FileStats | None]) -> None:
        """Receives what reports the figures of the workers of a loader; a `Loader` calls it."""
        self._view.source.count_workers(told)

    @property
    def is_layout_known(self) -> bool:
        """Whether the layout is known without requests for remote shards."""
        return self._view.selection is None and self._view.source.is_layout_known

    @property
    def expect(self) -> Callable[[Iterable[Ids]], None] | None:
        """Receives what this process will read, batch by batch, so that it is read ahead.

        A `Loader` calls it. None where that is of no use: for indexed shards on disk.
        """
        return None if self._view.source.is_indexed else self._expect

    @property
    def fetch(self) -> Fetch | None:
        """How remote shards are read; None for indexed shards on disk."""
        source = self._view.source
        return None if source.is_indexed else source.options.fetch

    @property
    def max_cache_bytes(self) -> int | None:
        """What the cache for fetched shards may hold at most, if that was said."""
        source = self._view.source
        return source.options.cache.options.max_cache_bytes if source.is_remote else None

    @property
    def _limits(self) -> CacheLimits | None:
        """How many shards may be at hand: what `check` looks at."""
        source = self._view.source
        return None if source.is_indexed else source.options.limits

    @property
    def is_remote(self) -> bool:
        """Whether some shards are remote."""
        return self._view.source.is_remote

    def shard_bytes(self) -> Ids:
        """Returns the size of each shard; of remote ones, by one request each."""
        return self._view.source.shard_bytes()

    def local_path(self, url: str) -> str | None:
        """Returns where a shard lies on a disk of this machine, fetched ones included; None if it does not.

        Args:
            url: of the shard, as in `__url__`.
        """
        return self._view.source.local_path(url)

    def save_lengths(self, path: str | os.PathLike[str]) -> None:
        """Writes the number of samples of each shard as JSON, for `lengths` of a later run.

        Shards go by their names below the folder that they share, so the file is right where that is moved.
        """
        layout = self._view.source.layout
        save_lengths(path, layout.names or (), layout.sizes)

    def close(self) -> None:
        """Ends the threads and lets go of open shards. The dataset can be used again."""
        self._view.source.close()

    def __repr__(self) -> str:
        return f"TarDataset{self._view.description}"

    def _expect(self, upcoming: Iterable[Ids]) -> None:
        in_source = upcoming if self._view.selection is None else map(self._view.source_ids, upcoming)
        self._view.source.expect(in_source, len(self))


def source_of(urls: Any, options: TarOptions, progress: Progress, lengths: Any) -> ArchiveSource:
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
        storage = storage_for(known.is_remote, None, remote)
        shards = Shards(known.files, known.files, storage, options, known)
        return ShardSource(shards, known.lengths.tolist(), progress)
    # What is told and skipped may be missing from the start.
    names = archive_names(urls, remote, keeps_absent=lengths is not None and options.skips)
    if lengths is None and not any(map(is_remote, names)):
        return IndexedSource(names, options, progress)
    storage = storage_for(any(map(is_remote, names)), lengths, remote)
    if lengths is not None:
        lengths = given_lengths(fetched_lengths(lengths, storage), names, short_names(names))
    public = tuple(shown(name) if is_remote(name) else name for name in names)
    return ShardSource(Shards(names, public, storage, options), lengths, progress)
