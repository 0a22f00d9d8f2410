"""Samples in tar shards, at any id."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, Literal, final, get_args

import numpy as np

from samplerkit.errors import (
    ArgumentRangeError,
    ArgumentTypeError,
    ArgumentValueError,
    OutOfDatasetError,
)
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.tar.decode import Decode
from samplerkit.storage.tar.flaws import Skipped
from samplerkit.storage.tar.orders import default_order
from samplerkit.storage.tar.pipeline import Selection, View
from samplerkit.storage.tar.source import OnError, Source
from samplerkit.storage.tar.steps import (
    Map,
    MapDict,
    Rename,
    Step,
    ToTuple,
    alternatives,
    checked_function,
)
from samplerkit.storage.tar.watch import OrderWatch

AT_ONCE = 256
"""Samples that an iteration reads at a time,"""

BYTES_AT_ONCE = 4 << 20
"""and bytes; if these are more, it reads one sample at a time."""


@final
class TarDataset:
    """Samples in tar shards, as webdataset writes them: a map-style dataset with a pipeline.

    Files whose names are the same up to the first dot are one sample: a dict with `__key__`, `__url__` and
    the bytes of each file under its extension. Where each sample lies is indexed at first use, and kept; so
    any sample can be read at any time, and every shuffle mode and every resume works on shards.

    Each method of the pipeline gives a new dataset and changes nothing of this one. What is given to them
    is called when a sample is read, in the process that reads it.

    Args:
        urls: a path or a list of paths, plain tar or gzip; `{000..127}`, `{a,b}`, `*`, `?` and `[...]` are
            expanded.
        on_error: what becomes of a truncated archive, a damaged header, a link, an unsafe name, a sample
            split over shards or a key that stands twice. `raise`: an error that names archive and byte, at
            first use. `skip`: counted in `skipped`, and the sample left out.
        max_handles: archives that a process holds open; None for 256, or less where the system allows few.
        checksums: take a CRC-32 of each file with the index, and compare it at each reading.
        cache: the folder for indexes and for unpacked gzip archives; None for the user's cache folder.
        progress: called with what is done, how many are done and how many there are; None for a line on
            the terminal, False for nothing.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: `on_error` is not known, or `urls` is empty or has wrong braces.
        ArgumentRangeError: `max_handles` is not positive.
        DatasetError: a file is not there; or, at first use, an archive has a flaw.

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

    def __init__(
        self,
        urls: Any,
        *,
        on_error: OnError = "raise",
        max_handles: int | None = None,
        checksums: bool = False,
        cache: Any = None,
        progress: Any = None,
    ) -> None:
        if not isinstance(on_error, str):
            raise ArgumentTypeError("on_error", "must be a string", on_error)
        if on_error not in get_args(OnError):
            raise ArgumentValueError("on_error", "must be 'raise' or 'skip'", on_error)
        if not isinstance(checksums, bool):
            raise ArgumentTypeError("checksums", "must be a bool", checksums)
        self._view = View(Source(urls, on_error, max_handles, checksums, cache, progress))
        self._window: int | None = None
        self._watch: OrderWatch | None = None
        self._iterations = 0

    @property
    def layout(self) -> Layout:
        """How many samples lie in which shard."""
        return self._view.layout

    @property
    def fingerprint(self) -> str:
        """A text that changes when keys, fields or sizes do; with `checksums`, when any byte does."""
        return self._view.fingerprint

    @property
    def skipped(self) -> Skipped:
        """What was left out because of a flaw, counted by reason, with places; empty unless asked to skip."""
        return self._view.source.skipped

    @property
    def default_partial_size(self) -> int | None:
        """The window of `shuffle`: the `partial_size` of the default order; None for no shuffle."""
        return self._window

    def __len__(self) -> int:
        return len(self._view.layout)

    def __getitem__(self, id: int) -> Any:
        numbers = self._ids([id])
        if self._watch is not None:
            self._watch.see(numbers.tolist())
        return self._view.sample(int(numbers[0]))

    def __getitems__(self, ids: Any) -> list[Any]:
        numbers = self._ids(ids)
        # An array is what samplerkit's loaders send; a plain DataLoader sends a list.
        if self._watch is not None and isinstance(ids, list):
            self._watch.see(numbers.tolist())
        return self._view.samples(numbers)

    def __iter__(self) -> Iterator[Any]:
        order = default_order()
        if self._window is None or order is None:
            return self.in_order(range(len(self)))
        epoch, self._iterations = self._iterations, self._iterations + 1
        return self.in_order(id for ids in order(self.layout, self._window, epoch) for id in ids.tolist())

    def in_order(self, ids: Iterable[int]) -> Iterator[Any]:
        """Iterates over samples in any order, reading some at a time.

        Args:
            ids: of the samples: an `Order`, an array, or anything that yields integers.

        Raises:
            OutOfDatasetError: there is no such sample.
        """
        remaining = iter(ids)
        while chunk := list(islice(remaining, AT_ONCE)):
            numbers = self._ids(chunk)
            lengths = self._view.source.reader.lengths(self._view.source_ids(numbers))
            if lengths.sum() <= BYTES_AT_ONCE:
                yield from self._view.samples(numbers)
            else:
                # Large ones gain nothing from company, and one at a time they stay in the processor's cache.
                for id in numbers.tolist():
                    yield self._view.sample(id)

    def keys(self, ids: Any = None) -> list[str]:
        """Gives the keys of samples without reading the samples.

        Args:
            ids: of the samples; None for all.
        """
        numbers = np.arange(len(self)) if ids is None else self._ids(ids)
        return self._view.source.reader.keys(self._view.source_ids(numbers))

    def decode(self, *handlers: str | Callable[[str, bytes], Any], only: Any = None) -> TarDataset:
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

    def rename(self, **fields: Any) -> TarDataset:
        """Gives fields other names: `rename(image="jpg;png")` takes the first that a sample has.

        Args:
            fields: for each new name the old one, or several. Other fields stay as they are.
        """
        _some("rename", fields)
        return self._then(Rename(tuple((new, alternatives(new, old)) for new, old in fields.items())))

    def map_dict(self, **functions: Callable[[Any], Any]) -> TarDataset:
        """Applies a function to each of some fields."""
        _some("map_dict", functions)
        return self._then(
            MapDict(tuple((name, checked_function(name, function)) for name, function in functions.items()))
        )

    def map(self, function: Callable[[Any], Any]) -> TarDataset:
        """Applies a function to each sample."""
        return self._then(Map(checked_function("map", function)))

    def to_tuple(self, *fields: Any) -> TarDataset:
        """Makes a tuple of some fields; `"jpg;png"` takes the first that a sample has.

        Args:
            fields: names; one text of several names with spaces between them is taken too.
        """
        names = fields[0].split() if len(fields) == 1 and isinstance(fields[0], str) else fields
        _some("to_tuple", names)
        return self._then(ToTuple(tuple(alternatives("to_tuple", name) for name in names)))

    def select(
        self, predicate: Callable[[Any], Any], *, by: Literal["sample", "key"] = "sample"
    ) -> TarDataset:
        """Keeps the samples for which a function gives true.

        The function is asked once for each sample, when the length or a sample is first needed; the ids of
        those that stay are held in memory, 8 bytes each.

        Args:
            predicate: is given the sample as it is at this place of the pipeline, or its key.
            by: `sample` reads every sample once; `key` reads the index only.
        """
        if by not in {"sample", "key"}:
            raise ArgumentValueError("by", "must be 'sample' or 'key'", by)
        selection = Selection(self._view, checked_function("select", predicate), by)
        return self._with(replace(self._view, selection=selection), self._window)

    def shuffle(self, size: int) -> TarDataset:
        """Makes PARTIAL with this window the default order of samplerkit's loaders and of `for`.

        Args:
            size: samples in a window; 0 for no shuffle.

        Raises:
            ArgumentTypeError: no integer.
            ArgumentRangeError: negative.
        """
        if isinstance(size, bool) or not hasattr(size, "__index__"):
            raise ArgumentTypeError("shuffle", "must be an integer", size)
        if size < 0:
            raise ArgumentRangeError("shuffle", "must not be negative", size)
        return self._with(self._view, operator.index(size) or None)

    def order_is_given(self) -> None:
        """Tells a shuffled dataset that its order is chosen on purpose, so that it does not warn."""
        if self._watch is not None:
            self._watch.stop()

    def __repr__(self) -> str:
        names = self._view.source.names
        shown = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        steps = "".join(f".{type(step).__name__}" for step in self._view.steps)
        return f"TarDataset({shown}){steps}"

    def _then(self, step: Step) -> TarDataset:
        return self._with(self._view.then(step), self._window)

    def _with(self, view: View, window: int | None) -> TarDataset:
        other = object.__new__(TarDataset)
        other._view = view
        other._window = window
        other._watch = OrderWatch() if window is not None else None
        other._iterations = 0
        return other

    def _ids(self, ids: Any) -> Ids:
        numbers = np.asarray(ids)
        if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
            raise ArgumentTypeError("ids", "must be integers", ids)
        numbers = numbers.astype(np.int64, copy=False)
        total = len(self)
        if numbers.size and (numbers.min() < 0 or numbers.max() >= total):
            outside = int(numbers[(numbers < 0) | (numbers >= total)][0])
            raise OutOfDatasetError("id", f"outside of a dataset of {total} samples", outside)
        return numbers


def _some(method: str, given: Any) -> None:
    if not given:
        raise ArgumentValueError(method, "needs at least one field")
