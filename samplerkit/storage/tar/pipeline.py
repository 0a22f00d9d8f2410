"""The source of samples in each process; and views of it: selections of samples, and pipeline steps."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice, tee
from typing import Any

import numpy as np

from samplerkit.closing import Closing
from samplerkit.errors import DatasetError, SamplerkitError
from samplerkit.order.caching import cached_property
from samplerkit.order.draws import in_draws
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.ids import checked_ids
from samplerkit.storage.open_files import AbsentError, Samples, log_missing
from samplerkit.storage.per_process import OpenPerProcess
from samplerkit.storage.tar.format.flaws import Skipped
from samplerkit.storage.tar.index.index import Index
from samplerkit.storage.tar.read.contents import Contents, contents_of_lengths
from samplerkit.storage.tar.read.reader import Reader
from samplerkit.storage.tar.read.shard_reading import ShardReading
from samplerkit.storage.tar.read.shards import Shards, indexed_contents
from samplerkit.storage.tar.steps import Step
from samplerkit.storage.threads import Progress, silence

AT_ONCE = 256
"""Samples that iteration and selections read at a time, unless they are large."""


class Source(OpenPerProcess[Reader | ShardReading]):
    """Random access to samples in shards.

    Each process reads by itself; fetched shards are in a cache on disk that all processes of the machine
    share.

    Args:
        shards: the shards, and options for reading them.
        lengths: the number of samples in each shard, from the user or a catalogue; None to index them at
            first use.
        progress: progress of indexing.

    Attributes:
        shards: as given.
        progress: as given.
        logged: the shards whose missing samples were logged already.
        is_indexed: whether all shards are on disk under one index, so that nothing is fetched or missing.
    """

    def __init__(self, shards: Shards, lengths: list[int] | None, progress: Progress) -> None:
        super().__init__(shards.storage)
        self.shards = shards
        self.progress = progress
        self.logged: set[str] = set()
        self.is_indexed = lengths is None and shards.storage is None
        self._load: Callable[[], Index] | None = None
        if lengths is not None:
            self.contents = contents_of_lengths(shards.short_names, lengths)

    @cached_property
    def contents(self) -> Contents | Index:
        """The contents of the shards, which are indexed now unless `lengths` was given.

        Raises:
            DatasetError: a shard cannot be read, or has a flaw and flaws are errors; or another process
                indexed the shards, and the index is not in the cache any more.
        """
        if self._load is not None:
            return self._load()
        return indexed_contents(self.shards, self.progress)

    @property
    def is_layout_known(self) -> bool:
        """Whether the layout is known without requests for remote shards."""
        return "contents" in self.__dict__ or not self.shards.is_remote

    @property
    def skipped(self) -> Skipped:
        """The skipped samples that are known so far; none unless flaws are skipped."""
        return (self._processes.current().open_files or self.contents).skipped

    @property
    def reading(self) -> Reader | ShardReading:
        """The reader of this process."""
        process = self._processes.current()
        held = process.open_files
        if held is not None:
            return held
        # Before the lock is taken: indexing may be slow, and `close` must not wait for it.
        contents = self.contents
        if isinstance(contents, Index):
            options = self.shards.options
            return process.open(self, lambda _: Reader(contents, options.cache, options.max_handles))
        return process.open(self, partial(ShardReading, self.shards, contents))

    def __getstate__(self) -> dict[str, Any]:
        # Another process shows no progress on the user's terminal.
        state = {**super().__getstate__(), "progress": silence}
        if isinstance(state.get("contents"), Index):
            # The index is mapped at its first use: an error while unpickling would end a spawned worker
            # before it can report it.
            state["_load"] = state.pop("contents").load
        return state


class View(Closing):
    """Samples of a source after some pipeline steps; the base class of `TarDataset`.

    Args:
        source: the source of all samples.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._steps: tuple[tuple[str, Step], ...] = ()  # each with the name of its method
        self._selection: Selection | None = None

    @property
    def layout(self) -> Layout:
        """The number of samples in each shard."""
        return (self._selection or self._source.contents).layout

    @property
    def fingerprint(self) -> str:
        """A string that changes when keys, fields or sizes do; with `checksums`, when any byte does.

        With `lengths` it depends on the lengths and the names of the shards only.
        """
        return (self._selection or self._source.contents).fingerprint

    def __len__(self) -> int:
        return len(self.layout)

    def __repr__(self) -> str:
        first, *others = self._source.shards.names
        shards = f"{first} and {len(others)} more" if others else first
        return f"TarDataset({shards})" + "".join(f".{name}" for name, _ in self._steps)

    def in_order(self, ids: Iterable[int]) -> Iterator[Any]:
        """Iterates over samples in a given order, reading up to 256 at a time.

        Args:
            ids: the ids of the samples: an `Order`, an array, or any iterable of integers.

        Raises:
            ArgumentTypeError: an id is not an integer.
            OutOfDatasetError: an id is out of range; raised before it is reached if shards are prefetched.
        """
        remaining = iter(ids)

        def chunks() -> Iterator[Ids]:
            while chunk := list(islice(remaining, AT_ONCE)):
                yield checked_ids(chunk, len(self))

        numbered, ahead = tee(chunks())
        reading = self._source.reading
        reading.expect(self._in_source(ahead))
        del ahead  # else `tee` would keep all chunks for it
        for numbers in numbered:
            if reading.is_large(self._source_ids(numbers)):
                yield from map(self._sample, numbers.tolist())
            else:
                samples = Samples(self._samples(numbers))
                log_missing(samples.missing, self._source.logged)
                yield from samples

    def _source_ids(self, ids: Ids) -> Ids:
        """Returns the ids of samples in the source."""
        return ids if self._selection is None else self._selection.ids[ids]

    def _in_source(self, upcoming: Iterable[Ids]) -> Iterable[Ids]:
        """Converts upcoming ids to those of the source; what it returns does not refer to this object."""
        return upcoming if self._selection is None else map(self._selection.ids.__getitem__, upcoming)

    def _samples(self, ids: Ids) -> list[Any]:
        """Reads samples and applies the steps; for a missing sample the list has an `AbsentError`.

        Args:
            ids: each in [0, len(self)); int64 of shape (n,).

        Raises:
            DatasetError: an archive cannot be read, or a step failed, whose exception is then the cause.
        """
        samples: list[Any] = self._source.reading.read(self._source_ids(ids)) if ids.size else []
        if not self._steps:
            return samples
        numbered = zip(samples, ids.tolist(), strict=True)
        return in_draws(lambda pair: self._apply_steps(*pair), numbered, range(ids.size), ids.size)

    def _sample(self, id: int) -> Any:
        """Reads one sample and applies the steps, like `_samples`."""
        source_id = id if self._selection is None else int(self._selection.ids[id])
        sample = self._source.reading.read_one(source_id)
        return self._apply_steps(sample, id) if self._steps else sample

    def _apply_steps(self, sample: Any, id: int) -> Any:
        if isinstance(sample, AbsentError):
            return sample
        value: Any = sample
        for name, step in self._steps:
            try:
                value = step(value)
            except Exception as error:
                raise failure(sample, id, name, error) from error
        return value


@dataclass(frozen=True)
class Selection:
    """The samples of a view for which a function returns true; the function is called at first use.

    Args:
        view: the samples to choose from, after its steps.
        predicate: called with a sample, or its key.
        by: which of the two: `sample` or `key`.
    """

    view: View
    predicate: Callable[[Any], Any]
    by: str

    @cached_property
    def ids(self) -> Ids:
        """The ids of the selected samples in the source, ascending."""
        view, source, total = self.view, self.view._source, len(self.view)
        is_selected = np.zeros(total, dtype=bool)

        def chunks() -> Iterator[Ids]:
            return (np.arange(start, min(start + AT_ONCE, total)) for start in range(0, total, AT_ONCE))

        if self.by == "sample":
            source.reading.expect(map(view._source_ids, chunks()))
        for ids in chunks():
            source.progress("selecting sample", int(ids[0]), total)
            keys = source.reading.keys(view._source_ids(ids))
            values = keys if self.by == "key" else view._samples(ids)
            for id, key, value in zip(ids.tolist(), keys, values, strict=True):
                if not key:  # a missing sample
                    continue
                try:
                    is_selected[id] = bool(self.predicate(value))
                except Exception as error:
                    url = source.shards.names[int(view.layout.file_of(np.array([id]))[0])]
                    raise failure({"__url__": url, "__key__": key}, id, "select", error) from error
        source.progress("selecting sample", total, total)
        return view._source_ids(np.flatnonzero(is_selected))

    @cached_property
    def layout(self) -> Layout:
        """The number of selected samples of each shard."""
        base = self.view._source.contents.layout
        return Layout(np.diff(np.searchsorted(self.ids, base.starts)), base.names)

    @cached_property
    def fingerprint(self) -> str:
        """A string that changes with the selected ids and the content."""
        content = self.view.fingerprint.encode() + self.ids.astype("<i8").tobytes()
        return hashlib.blake2b(content, digest_size=16, person=b"samplerkit").hexdigest()


def failure(sample: dict[str, Any], id: int, step: str, error: Exception) -> DatasetError:
    """Returns the error for a step that failed, which names the sample."""
    if isinstance(error, SamplerkitError):
        text, hint = str(error).removesuffix(f"; {error.hint}"), error.hint
    else:
        text, hint = f"{type(error).__name__} {error}", ""
    place = f"{sample['__url__']}: sample {sample['__key__']!r} (id {id})"
    return DatasetError(place, f"{step} failed: {text}", hint=hint)
