"""The fluent pipeline: samples at any id and in any order, and methods that each give another dataset."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self, final

import numpy as np

from samplerkit.order import arguments
from samplerkit.order.keys import Key
from samplerkit.order.layout import Layout
from samplerkit.order.modes import Mode, Shuffle
from samplerkit.order.typing import Ids
from samplerkit.storage.ids import checked_ids
from samplerkit.storage.missing_file import AbsentError
from samplerkit.storage.skipping import Present, log_missing
from samplerkit.storage.tar.codecs import Decode
from samplerkit.storage.tar.pipeline import Selection, View
from samplerkit.storage.tar.steps import Map, MapDict, Rename, Step, ToTuple, checked_function
from samplerkit.storage.workers import this_worker

ENOUGH = 16
"""Ascending ids by which reading from front to back is recognised: by chance once in 2 * 10^13."""


class Pipeline:
    """Samples at any id, with a pipeline: each of its methods gives a new dataset, and this one stays."""

    def __init__(self, view: View) -> None:
        self._view = view
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

        The function is asked once for each sample, when the length or a sample is first needed; the ids of
        those that stay are held in memory, 8 bytes each.

        Args:
            predicate: is given the sample as it is at this place of the pipeline, or its key.
            by: `sample` reads every sample once; `key` reads the index only.
        """
        selection = Selection.of(self._view, predicate, by)
        return self._with(replace(self._view, selection=selection), self._window)

    def shuffle(self, size: int) -> Self:
        """Makes PARTIAL with this window the default order of samplerkit's loaders and of `for`.

        Args:
            size: samples in a window; 0 for no shuffle.

        Raises:
            ArgumentTypeError: no integer.
            ArgumentRangeError: negative.
        """
        return self._with(self._view, arguments.at_least("shuffle", size, 0) or None)

    @property
    def layout(self) -> Layout:
        """How many samples lie in which shard."""
        return self._view.layout

    @property
    def fingerprint(self) -> str:
        """A text that changes when keys, fields or sizes do; with `checksums`, when any byte does.

        With `lengths` it is of the lengths and the names of the shards.
        """
        return self._view.fingerprint

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
        sample = self._view.sample(int(numbers[0]))
        if isinstance(sample, AbsentError):
            raise sample.with_traceback(None)
        return sample

    def __getitems__(self, ids: Any) -> list[Any]:
        return list(self._present(ids, logs=True))

    @property
    def read_present(self) -> Callable[..., Present] | None:
        """Reads a batch as `__getitems__` does, and tells what was left out of it.

        A `Loader` calls it, and logs that by itself; with `logs=True` it is logged here. None where nothing
        is left out: unless `on_error` is `skip` and shards are read one by one.
        """
        source = self._view.source
        return self._present if source.options.skips and not source.is_indexed else None

    def _present(self, ids: Any, *, logs: bool = False) -> Present:
        numbers = self._ids(ids)
        # An array is what samplerkit's loaders send; a plain DataLoader sends a list.
        if self._watch is not None and isinstance(ids, list):
            self._watch.see(numbers.tolist())
        found = Present(self._view.samples(numbers))
        if found.missing:
            found.fill(numbers, self._view.layout, self._view.sample)
            if logs:
                log_missing(found.missing, self._view.source.logged)
        return found

    def __iter__(self) -> Iterator[Any]:
        if self._window is None:
            return self.in_order(range(len(self)))
        epoch, self._iterations = self._iterations, self._iterations + 1
        # What a Loader without a sampler reads by.
        mode = Mode(Shuffle.PARTIAL, partial_size=self._window)
        return self.in_order(mode.order(self.layout, partial(Key, 0, epoch, 0), run_lanes=1))

    def in_order(self, ids: Iterable[int]) -> Iterator[Any]:
        """Iterates over samples in any order, reading some at a time.

        Args:
            ids: of the samples: an `Order`, an array, or anything that yields integers.

        Raises:
            OutOfDatasetError: there is no such sample.
        """
        return self._view.in_order(ids)

    def keys(self, ids: Any = None) -> list[str]:
        """Returns the keys of samples without reading the samples; "" for one that is missing and skipped.

        Args:
            ids: of the samples; None for all.
        """
        numbers = np.arange(len(self)) if ids is None else self._ids(ids)
        return self._view.source.keys(self._view.source_ids(numbers))

    def order_is_given(self) -> None:
        """Tells a shuffled dataset that its order is chosen on purpose, so that it does not warn."""
        if self._watch is not None:
            self._watch.stop()

    def _ids(self, ids: Any) -> Ids:
        return checked_ids(ids, len(self))

    def _then(self, step: Step) -> Self:
        return self._with(self._view.then(step), self._window)

    def _with(self, view: View, window: int | None) -> Self:
        other = copy(self)
        other._view, other._window = view, window
        other._watch = OrderWatch() if window is not None else None
        other._iterations = 0
        return other


@final
class OrderWatch:
    """Warns once if a plain DataLoader reads a shuffled dataset in the order in which it lies.

    The window of `.shuffle(n)` is the default of samplerkit's own loader and samplers. A plain DataLoader
    does not know of it.
    """

    def __init__(self) -> None:
        self._last = -1
        self._ascending = 0
        self._is_over = False

    def stop(self) -> None:
        """Says that the order was chosen, whatever it is."""
        self._is_over = True

    def see(self, ids: list[int]) -> None:
        """Looks at ids that are read; of the workers of a loader, one is enough."""
        if self._is_over or this_worker()[0] != 0:
            return
        for id in ids:
            if id <= self._last:
                self._is_over = True
                return
            self._last = id
            self._ascending += 1
            if self._ascending >= ENOUGH:
                self._is_over = True
                warnings.warn(
                    "a dataset with .shuffle(...) is read from front to back: a plain DataLoader does not "
                    "know of the window; use samplerkit.Loader, or sampler=samplerkit.TorchSampler(...)",
                    stacklevel=4,
                )
                return
