"""A view of a source: which of its samples, and what is done to each."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any, Protocol, final

import numpy as np

from samplerkit.errors import ArgumentValueError, DatasetError, SamplerkitError
from samplerkit.order.caching import cached_property
from samplerkit.order.draws import in_draws
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.cache_entries import FileStats
from samplerkit.storage.ids import checked_ids
from samplerkit.storage.missing_file import AbsentError, Present, log_missing
from samplerkit.storage.progress import Progress
from samplerkit.storage.tar.format.flaws import Skipped
from samplerkit.storage.tar.read.shards import TarOptions
from samplerkit.storage.tar.steps import Map, Step, checked_function
from samplerkit.storage.threads import this_worker

AT_ONCE = 256
"""Samples that are read in one go, unless they are large, and that a selection looks at."""


class ArchiveSource(Protocol):
    """Samples in archives, at any id."""

    names: tuple[str, ...]
    options: TarOptions
    progress: Progress
    logged: set[str]
    """The shards of which it was logged that something of them is missing."""

    is_indexed: bool = False
    """Whether all archives are on disk under one index: nothing is fetched, nothing is missing."""

    @property
    def layout(self) -> Layout:
        """How many samples lie in which archive."""

    @property
    def fingerprint(self) -> str:
        """Changes with the samples."""

    @property
    def skipped(self) -> Skipped:
        """What was skipped: nothing, unless flaws are skipped."""

    @property
    def is_remote(self) -> bool:
        """Whether some archives are remote."""
        return False

    @property
    def is_layout_known(self) -> bool:
        """Whether the layout is known without requests for remote shards."""
        return True

    @property
    def stats(self) -> FileStats | None:
        """What was fetched and waited for, where that is counted."""
        return None

    def count_workers(self, told: Callable[[], FileStats | None]) -> None:
        """Receives what reports the figures of the workers of a loader."""
        return

    def expect(self, upcoming: Iterable[Ids], epoch_samples: int) -> None:
        """Receives what is read next, batch by batch, and how many samples an epoch has."""
        return

    def read(self, ids: Ids) -> list[dict[str, Any]]:
        """Reads samples; where flaws are skipped, an `AbsentError` is in place of one that is missing."""

    def read_one(self, id: int) -> dict[str, Any]:
        """Reads one sample: what `read` gives for it."""

    def keys(self, ids: Ids) -> list[str]:
        """Returns the keys of samples; "" for one that is missing."""

    def is_large(self, ids: Ids) -> bool:
        """Whether samples are so large that they are better read one at a time."""
        return False

    def shard_bytes(self) -> Ids:
        """Returns the size of each archive."""

    def local_path(self, name: str) -> str | None:
        """Where an archive lies on a disk of this machine; None if it does not."""

    def close(self) -> None:
        """Lets go of what is open."""


@final
@dataclass(frozen=True)
class View:
    """Some samples of a source, each taken through some steps."""

    source: ArchiveSource
    steps: tuple[Step, ...] = ()
    selection: Selection | None = None

    @property
    def layout(self) -> Layout:
        """How many samples there are of each archive."""
        return self.source.layout if self.selection is None else self.selection.layout

    @property
    def fingerprint(self) -> str:
        """Changes with the samples, and not with the steps."""
        if self.selection is not None:
            return self.selection.fingerprint
        return self.source.fingerprint

    @property
    def description(self) -> str:
        """The archives and the steps, in short."""
        names = self.source.names
        told = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        return f"({told})" + "".join(f".{type(step).__name__}" for step in self.steps)

    def then(self, step: Step) -> View:
        """Returns the view with one more step."""
        return replace(self, steps=(*self.steps, step))

    def source_ids(self, ids: Ids) -> Ids:
        """Returns the numbers that samples have in the source."""
        return ids if self.selection is None else self.selection.ids[ids]

    def samples(self, ids: Ids) -> list[Any]:
        """Reads samples and takes them through the steps; an `AbsentError` stays in its place.

        Args:
            ids: each in [0, len(layout)); int64 of shape (n,).

        Raises:
            DatasetError: an archive cannot be read, or a step failed; then its cause is the error there.
        """
        samples: list[Any] = self.source.read(self.source_ids(ids))
        if not self.steps:
            return samples
        numbered = zip(samples, ids.tolist(), strict=True)
        return in_draws(lambda pair: self._taken(*pair), numbered, range(ids.size), ids.size)

    def in_order(self, ids: Iterable[int]) -> Iterator[Any]:
        """Yields samples in any order, some at a time; a source that wants to know receives what comes next.

        Raises:
            ArgumentTypeError: something else than integers.
            OutOfDatasetError: there is no such sample.
        """
        remaining = iter(ids)
        ahead: deque[Ids | SamplerkitError] = deque()

        def upcoming() -> Iterator[Ids]:
            while chunk := list(islice(remaining, AT_ONCE)):
                try:
                    numbers = checked_ids(chunk, len(self.layout))
                except SamplerkitError as error:  # raised where the reading has come to it
                    ahead.append(error)
                    return
                ahead.append(numbers)
                yield self.source_ids(numbers)

        following = upcoming()
        if not self.source.is_indexed:
            self.source.expect(following, len(self.layout))
        while ahead or next(following, None) is not None or ahead:
            numbers = ahead.popleft()
            if isinstance(numbers, SamplerkitError):
                raise numbers
            if self.source.is_large(self.source_ids(numbers)):
                yield from map(self.sample, numbers.tolist())
            else:
                found = Present(self.samples(numbers))
                log_missing(found.missing, self.source.logged)
                yield from found

    def sample(self, id: int) -> Any:
        """Reads one sample and takes it through the steps: what `samples` gives for it."""
        source_id = id if self.selection is None else int(self.selection.ids[id])
        sample = self.source.read_one(source_id)
        return self._taken(sample, id) if self.steps else sample

    def _taken(self, sample: Any, id: int) -> Any:
        if isinstance(sample, AbsentError):
            return sample
        value: Any = sample
        for step in self.steps:
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
        whole = np.arange(len(self.view.layout))
        return self.view.source_ids(whole[self._is_chosen])

    @cached_property
    def layout(self) -> Layout:
        """How many samples of each archive there are."""
        below = self.view.source.layout
        return Layout(np.diff(np.searchsorted(self.ids, below.starts)), below.names)

    @cached_property
    def fingerprint(self) -> str:
        """Changes with what is chosen."""
        content = self.view.fingerprint.encode() + self.ids.astype("<i8").tobytes()
        return hashlib.blake2b(content, digest_size=16, person=b"samplerkit").hexdigest()

    @cached_property
    def _is_chosen(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        total = len(self.view.layout)
        chosen = np.zeros(total, dtype=bool)
        progress = self.view.source.progress
        if self.by == "sample" and not self.view.source.is_indexed:
            starts = range(0, total, AT_ONCE)
            upcoming = (np.arange(start, min(start + AT_ONCE, total)) for start in starts)
            self.view.source.expect(map(self.view.source_ids, upcoming), total)
        for start in range(0, total, AT_ONCE):
            progress("selecting sample", start, total)
            ids = np.arange(start, min(start + AT_ONCE, total))
            keys = self.view.source.keys(self.view.source_ids(ids))
            asked = keys if self.by == "key" else self.view.samples(ids)
            for id, key, given in zip(ids.tolist(), keys, asked, strict=True):
                if not key:  # it is missing
                    continue
                try:
                    chosen[id] = bool(self.predicate(given))
                except Exception as error:
                    url = self.view.source.names[int(self.view.layout.file_of(np.array([id]))[0])]
                    raise failure({"__url__": url, "__key__": key}, id, "select", error) from error
        progress("selecting sample", total, total)
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
