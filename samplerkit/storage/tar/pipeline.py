"""A view of a source: which of its samples, and what is done to each."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, final

import numpy as np

from samplerkit.closing import Closing
from samplerkit.errors import ArgumentValueError, DatasetError, SamplerkitError
from samplerkit.order.caching import cached_property
from samplerkit.order.draws import in_draws
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.ids import checked_ids
from samplerkit.storage.missing_file import AbsentError, Present, log_missing
from samplerkit.storage.tar.sources import Source
from samplerkit.storage.tar.steps import Map, Step, checked_function
from samplerkit.storage.threads import this_worker

AT_ONCE = 256
"""Samples that are read in one go, unless they are large, and that a selection looks at."""


class View(Closing):
    """Some samples of a source, each taken through some steps: what a `TarDataset` reads.

    Args:
        source: of all samples.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._steps: tuple[Step, ...] = ()
        self._selection: Selection | None = None

    @property
    def layout(self) -> Layout:
        """How many samples lie in which shard."""
        return (self._selection or self._source).layout

    @property
    def fingerprint(self) -> str:
        """A text that changes when keys, fields or sizes do; with `checksums`, when any byte does.

        With `lengths` it is of the lengths and the names of the shards.
        """
        return (self._selection or self._source).fingerprint

    def __len__(self) -> int:
        return len(self.layout)

    def __repr__(self) -> str:
        first, *others = self._source.names
        told = f"{first} and {len(others)} more" if others else first
        return f"TarDataset({told})" + "".join(f".{type(step).__name__}" for step in self._steps)

    def in_order(self, ids: Iterable[int]) -> Iterator[Any]:
        """Iterates over samples in any order, reading some at a time.

        Args:
            ids: of the samples: an `Order`, an array, or anything that yields integers.

        Raises:
            ArgumentTypeError: something else than integers.
            OutOfDatasetError: there is no such sample.
        """
        remaining = iter(ids)
        ahead: deque[Ids | SamplerkitError] = deque()

        def upcoming() -> Iterator[Ids]:
            while chunk := list(islice(remaining, AT_ONCE)):
                try:
                    numbers = checked_ids(chunk, len(self))
                except SamplerkitError as error:  # raised where the reading has come to it
                    ahead.append(error)
                    return
                ahead.append(numbers)
                yield self._source_ids(numbers)

        following = upcoming()
        reading = self._source.reading
        reading.expect(following, len(self))
        while ahead or next(following, None) is not None or ahead:
            numbers = ahead.popleft()
            if isinstance(numbers, SamplerkitError):
                raise numbers
            if reading.is_large(self._source_ids(numbers)):
                yield from map(self._sample, numbers.tolist())
            else:
                found = Present(self._samples(numbers))
                log_missing(found.missing, self._source.logged)
                yield from found

    def _source_ids(self, ids: Ids) -> Ids:
        """Returns the numbers that samples have in the source."""
        return ids if self._selection is None else self._selection.ids[ids]

    def _samples(self, ids: Ids) -> list[Any]:
        """Reads samples and takes them through the steps; an `AbsentError` stays in its place.

        Args:
            ids: each in [0, len(self)); int64 of shape (n,).

        Raises:
            DatasetError: an archive cannot be read, or a step failed; then its cause is the error there.
        """
        samples: list[Any] = self._source.reading.read(self._source_ids(ids)) if ids.size else []
        if not self._steps:
            return samples
        numbered = zip(samples, ids.tolist(), strict=True)
        return in_draws(lambda pair: self._taken(*pair), numbered, range(ids.size), ids.size)

    def _sample(self, id: int) -> Any:
        """Reads one sample and takes it through the steps: what `_samples` gives for it."""
        source_id = id if self._selection is None else int(self._selection.ids[id])
        sample = self._source.reading.read_one(source_id)
        return self._taken(sample, id) if self._steps else sample

    def _taken(self, sample: Any, id: int) -> Any:
        if isinstance(sample, AbsentError):
            return sample
        value: Any = sample
        for step in self._steps:
            try:
                value = step(value)
            except Exception as error:
                raise failure(sample, id, _described(step), error) from error
        return value


@final
@dataclass(frozen=True)
class Selection:
    """The samples of a view that a user's function lets through; it is asked once, at first use.

    Args:
        view: the samples to choose from, as they are after its steps.
        predicate: is given a sample, or its key.
        by: which of the two.
    """

    view: View
    predicate: Callable[[Any], Any]
    by: str

    @classmethod
    def of(cls, view: View, predicate: Any, by: Any) -> Selection:
        """Takes the arguments of `select`.

        Raises:
            ArgumentTypeError: no function.
            ArgumentValueError: `by` is not known.
        """
        if by not in {"sample", "key"}:
            raise ArgumentValueError("by", "must be 'sample' or 'key'", by)
        return cls(view, checked_function("select", predicate), by)

    @cached_property
    def ids(self) -> Ids:
        """The numbers that the samples have in the source, ascending."""
        return self.view._source_ids(np.flatnonzero(self._is_chosen))

    @cached_property
    def layout(self) -> Layout:
        """How many samples of each archive there are."""
        below = self.view._source.layout
        return Layout(np.diff(np.searchsorted(self.ids, below.starts)), below.names)

    @cached_property
    def fingerprint(self) -> str:
        """Changes with what is chosen."""
        content = self.view.fingerprint.encode() + self.ids.astype("<i8").tobytes()
        return hashlib.blake2b(content, digest_size=16, person=b"samplerkit").hexdigest()

    @cached_property
    def _is_chosen(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        view, source, total = self.view, self.view._source, len(self.view)
        chosen = np.zeros(total, dtype=bool)
        starts = range(0, total, AT_ONCE)
        if self.by == "sample":
            upcoming = (np.arange(start, min(start + AT_ONCE, total)) for start in starts)
            source.reading.expect(map(view._source_ids, upcoming), total)
        for start in starts:
            source.progress("selecting sample", start, total)
            ids = np.arange(start, min(start + AT_ONCE, total))
            keys = source.reading.keys(view._source_ids(ids))
            asked = keys if self.by == "key" else view._samples(ids)
            for id, key, given in zip(ids.tolist(), keys, asked, strict=True):
                if not key:  # it is missing
                    continue
                try:
                    chosen[id] = bool(self.predicate(given))
                except Exception as error:
                    url = source.names[int(view.layout.file_of(np.array([id]))[0])]
                    raise failure({"__url__": url, "__key__": key}, id, "select", error) from error
        source.progress("selecting sample", total, total)
        return chosen


def failure(sample: dict[str, Any], id: int, step: str, error: Exception) -> DatasetError:
    """Returns the error that says at which sample a step failed."""
    hint = error.hint if isinstance(error, SamplerkitError) else ""
    text = f"{error.place}: {error.problem}" if hint and isinstance(error, SamplerkitError) else str(error)
    name = "" if isinstance(error, SamplerkitError) else f" {type(error).__name__}"
    place = f"{sample['__url__']}: sample {sample['__key__']!r} (id {id})"
    return DatasetError(place, f"{step} failed:{name} {text}", hint=hint)


def _described(step: Step) -> str:
    if isinstance(step, Map):
        return f"map({getattr(step.function, '__name__', type(step.function).__name__)})"
    return re.sub(r"\B(?=[A-Z])", "_", type(step).__name__).lower()  # as the method that adds it


ENOUGH = 16
"""Ascending ids by which reading from front to back is recognised: by chance once in 2 * 10^13."""


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
        looked_at = [self._last, *ids][: ENOUGH - self._ascending + 1]
        self._last, self._ascending = looked_at[-1], self._ascending + len(looked_at) - 1
        is_ascending = all(one < other for one, other in pairwise(looked_at))
        self._is_over = not is_ascending or self._ascending == ENOUGH
        if is_ascending and self._is_over:
            warnings.warn(
                "a dataset with .shuffle(...) is read from front to back: a plain DataLoader does not "
                "know of the window; use samplerkit.Loader, or sampler=samplerkit.TorchSampler(...)",
                stacklevel=4,
            )
