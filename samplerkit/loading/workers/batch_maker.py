"""How a batch is made of a request: its samples are read, together if the dataset can, and collated.

A dataset gives a batch together, together except for missing samples, or as parts of documents. Two functions
are chosen for it: one answers a request, the other one a request for one sample of it. Where it gives whole
documents, parts are cut out of them when they are collated.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from typing import Any, Self, cast

import numpy as np
import torch
import torch.utils.data

from samplerkit.batches.segments import Segments
from samplerkit.errors import DatasetError
from samplerkit.loading.generators import seed_generators, seed_worker
from samplerkit.loading.sample_fields import SampleCollate, cut
from samplerkit.loading.workers.protocol import Answer, Batches, Request, SkippedSample
from samplerkit.order.dataset_protocol import has_segments
from samplerkit.order.draws import Draws
from samplerkit.order.typing import Ids
from samplerkit.storage.batch_readers import (
    batch_reader,
    copy_by_thread,
    has_getitem,
    only_sample,
    present_reader,
    read_args,
)

Read = Callable[[Any, Request], Answer]
"""Reads the samples of a request from a dataset."""


@dataclass(eq=False)
class BatchMaker:
    """Reads the samples of requests and collates them.

    It also sets the epoch of the dataset and the worker's random state.

    Args:
        dataset: a map-style dataset. If it has `set_epoch`, that is called before the first request of each
            epoch, in each process that reads; if it has `expect`, that then gets an iterable of the int64
            arrays of ids that this process will read. If it has `wants_passes` or `wants_epochs`, its
            `__getitems__` and `read_present` are called with ids and these.
        seed: of the draws, and of the random state of workers.
        rank: this process's rank.
        skips: whether samples that cannot be read are left out.
        seeds_draws: whether the process-wide generators are seeded before each sample. Then a dataset is read
            one by one, unless it has `enters_draws`: then it enters the draw of each sample itself.
        is_packed: whether requests are for parts of samples.
        collate: makes a batch of a list of samples; a `SampleCollate` receives which these are.
        pins: whether batches are pinned: those of worker processes where they are received.
        upcoming: returns the ids of the batches that a worker reads from a request on.
        batches_of: returns what comes in the reading of a request, for `expect`; None where it is not called.
        reports: whether answers have the figures of the dataset.
    """

    dataset: Any
    seed: int
    rank: int = 0
    skips: bool = False
    seeds_draws: bool = False
    is_packed: bool = False
    collate: Any = None
    pins: bool = False
    upcoming: Callable[[Request, Batches, Any], Iterator[Ids]] = Request.upcoming
    batches_of: Callable[[Request], Batches] | None = None
    reports: bool = False

    def __post_init__(self) -> None:
        self._enters_draws = bool(getattr(batch_reader(self.dataset), "enters_draws", False))
        gives_parts = self.is_packed and has_segments(self.dataset)
        self._cuts = self.is_packed and not gives_parts
        together, self._single = _read_functions(self.dataset, gives_parts=gives_parts)
        self._together = together if self._enters_draws or not self.seeds_draws else None
        if not callable(getattr(self.dataset, "expect", None)):
            self.batches_of = None
        self._last: Request | None = None

    def for_thread(self, copies: ExitStack) -> Self:
        """Returns what one of several threads reads with: this, or the same with a copy of the dataset.

        Args:
            copies: closes them.
        """
        own = copy_by_thread(self.dataset, copies)
        return self if own is self.dataset else replace(self, dataset=own, batches_of=None)

    def sets_epoch(self, request: Request) -> bool:
        """Returns whether `begin` calls `set_epoch` of the dataset."""
        is_new = self._last is None or self._last.epoch != request.epoch
        return is_new and callable(getattr(self.dataset, "set_epoch", None))

    def begin(self, request: Request) -> None:
        """Passes the epoch of a request, and the next ids, to the dataset."""
        last = self._last
        if last is None or last.epoch != request.epoch:
            worker = torch.utils.data.get_worker_info()
            if worker is not None:
                seed_worker(self.seed, request.epoch, self.rank, worker.id)
            set_epoch = getattr(self.dataset, "set_epoch", None)
            if callable(set_epoch):
                set_epoch(request.epoch)
        if self.batches_of is not None and not (last is not None and request.follows(last)):
            batches = self.batches_of(request)
            self.dataset.expect(UpcomingIds(partial(self.upcoming, request, batches, self.dataset)))
        self._last = request  # now: what the dataset raised above is asked for again

    def draws(self, request: Request) -> Draws:
        """Returns the draws of a batch, at their beginning."""
        begin = seed_generators if self.seeds_draws else None
        return Draws(self.seed, request.epoch, request.draws, enters_alone=self._enters_draws, begin=begin)

    def read(self, request: Request) -> Answer:
        """Reads the samples of a request; bad samples are left out, or an error that names them."""
        answer = None
        if self._together is not None:
            answer = self._read_together(self._together, request)
        answer = answer or self._read_singly(request)
        if self.reports:
            return replace(answer, reports=((os.getpid(), self.dataset.stats),))
        return answer

    def __getitem__(self, request: Request) -> Any:
        self.begin(request)
        return self.batch(request)

    def batch(self, request: Request) -> Any:
        """Makes the batch of a request after `begin`, or reads a part of it; several threads may do so."""
        answer = self.read(request)
        if request.places is None:
            answer = self.collated(request, answer)
        return answer.pin_memory() if self.pins else answer

    def collated(self, request: Request, samples: Answer) -> Answer:
        """Collates the samples of a request; an error of the collate function names them.

        Raises:
            DatasetError: all of them were left out.
        """
        if samples.substitute is None and 0 < len(samples.skipped) == request.ids.size:
            raise _all_skipped_error(request, samples.skipped)
        if self.seeds_draws:
            # The collate function draws by the first draw of the batch. Parts of a document share a draw, so
            # these also draw by their starts.
            begin = 0 if request.segments is None else int(request.segments.starts[0])
            seed_generators(self.draws(request).draw(0), f"batch {begin}" if begin else "batch")
        batch, read, collate = samples.batch, request.read_by(samples), self.collate
        try:
            if self._cuts and read.segments is not None:
                batch = cut(batch, read.segments)
            if isinstance(collate, SampleCollate):
                batch = collate.collated(batch, read.ids, read.segments)
            else:
                batch = collate(batch)
        except Exception as error:
            request.note(error, f"collating {request.some_ids}")
            raise
        return Answer(batch, samples.skipped, samples.reports, samples.substitute)

    def _read_together(self, read: Read, request: Request) -> Answer | None:
        """Returns None if a bad sample must be left out: it is found by reading one by one."""
        try:
            with self.draws(request):
                return read(self.dataset, request)
        except Exception as error:
            if self.skips:
                return None
            request.note_reading(error)
            raise

    def _read_singly(self, request: Request) -> Answer:
        samples: list[Any] = []
        skipped: list[SkippedSample] = []
        dataset, single, draws = self.dataset, self._single, self.draws(request)
        with draws:
            for place, index in enumerate(request.ids.tolist()):
                try:
                    draws.entered = place  # a call takes a third of the time of a fast dataset
                    if draws.begin is not None:
                        draws.enter(place)
                    sample = dataset[index] if single is None else _read_one(dataset, single, request, place)
                    samples.append(sample)
                except Exception as error:
                    if not self.skips:
                        request.note_reading(error, place)
                        raise
                    # A note says for instance in which part of a dataset it was.
                    text = "; ".join([str(error), *getattr(error, "__notes__", ())])
                    problem, file = f"{type(error).__name__}: {text}", getattr(error, "absent_from", "")
                    skipped.append(SkippedSample(index, request.epoch, place, problem, file))
        return Answer(samples, tuple(skipped))


def reports_stats(dataset: Any) -> bool:
    """Returns whether the figures of a dataset can be added up over processes."""
    stats = getattr(dataset, "stats", None)
    return is_dataclass(stats) and hasattr(type(stats), "__add__")


def _all_skipped_error(request: Request, skipped: Sequence[SkippedSample]) -> DatasetError:
    problem = f"gives none of the samples of {request.where} (the first error: {skipped[0].error})"
    hint = "bad_samples='skip' needs one good sample in each batch"
    return DatasetError("dataset", problem, [skip.id for skip in skipped[:8]], hint=hint)


def _read_functions(dataset: Any, *, gives_parts: bool) -> tuple[Read | None, Read | None]:
    """Returns the functions that read all samples, if the dataset can, and one; None for `dataset[index]`."""
    if gives_parts:
        return _read_segments, _read_segments
    together = _read_present if present_reader(dataset) else _read_batch
    # A `__getitems__` may take more of each sample than the id, or be the only way to read.
    single = _read_batch if read_args(dataset) or not has_getitem(dataset) else None
    return None if batch_reader(dataset) is None else together, single


def _read_one(dataset: Any, read: Read, request: Request, place: int) -> Any:
    return only_sample(read(dataset, request.at(slice(place, place + 1))).batch)


def _read_batch(dataset: Any, request: Request) -> Answer:
    samples = dataset.__getitems__(request.ids, *request.columns)
    if not _may_have_size(samples, request.ids.size):
        raise _wrong_number("__getitems__", "sample", request, samples)
    return Answer(samples)


def _may_have_size(samples: Any, size: int) -> bool:
    """Returns whether a batch may have so many samples: a list, or columns of that length."""
    if isinstance(samples, np.ndarray | torch.Tensor):
        return size in samples.shape
    if not isinstance(samples, list | tuple) or len(samples) == size:
        return True
    columns = [part for part in samples if isinstance(part, list | tuple) or getattr(part, "ndim", None)]
    return len(columns) == len(samples) > 0 and all(len(part) == size for part in columns)


def _wrong_number(place: str, noun: str, request: Request, given: Any) -> DatasetError:
    problem = f"must give one {noun} for each of {request.ids.size} ids"
    value = len(given) if isinstance(given, list | tuple) else getattr(given, "shape", given)
    return DatasetError(place, problem, value, hint="give a list of them, in the order of the ids")


def _read_present(dataset: Any, request: Request) -> Answer:
    """Reads from a dataset that leaves out samples itself.

    `read_present` gives those that are there, as a list with `missing` (of each other one its place, its file
    and what is wrong) and `substitute` (the id of the only one, where all are missing; else None).
    """
    samples = dataset.read_present(request.ids, *request.columns)
    skipped = tuple(
        SkippedSample(int(request.ids[place]), request.epoch, place, text, file)
        for place, file, text in samples.missing
    )
    # A subclass of list may have attributes, which the answer needs.
    plain = list(samples) if isinstance(samples, list) else samples
    return Answer(plain, skipped, substitute=getattr(samples, "substitute", None))


def _read_segments(dataset: Any, request: Request) -> Answer:
    """Reads parts by `__getsegments__`, which is given int64 (m, 3) of id, start and length.

    Raises:
        DatasetError: it gave more or fewer.
    """
    segments = cast("Segments", request.segments)
    parts = dataset.__getsegments__(segments.table(request.ids), *request.columns)
    if not hasattr(parts, "__len__") or len(parts) != request.ids.size:
        raise _wrong_number("__getsegments__", "part", request, parts)
    return Answer(list(parts))


class UpcomingIds:
    """The ids of each batch that a process will read.

    Args:
        begin: returns them from the first one on. It is called for each iteration: each part of a dataset of
            several has its own, for one part may look far ahead of another one.
    """

    def __init__(self, begin: Callable[[], Iterator[Ids]]) -> None:
        self._begin = begin

    def __iter__(self) -> Iterator[Ids]:
        return self._begin()
