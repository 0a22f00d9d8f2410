"""The adapter that answers requests: where a request becomes the samples of a dataset, in whatever worker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, is_dataclass
from functools import partial
from typing import Any, final

import numpy as np
import torch.utils.data

from samplerkit.batches.segments import Segments
from samplerkit.loading.affinity import ids_to_come, layout_of_files
from samplerkit.loading.answer import Answer, Report, ShareAnswer, SkippedSample
from samplerkit.loading.cutting import beginning, cut, require_parts
from samplerkit.loading.generators import seed_generators
from samplerkit.loading.reading import Reading, Upcoming
from samplerkit.loading.request import BadSamples, Foreseen, Request
from samplerkit.loading.sharing import none_was_read
from samplerkit.loading.worker import seed_worker
from samplerkit.order.draws import Draws
from samplerkit.order.told import gives_segments
from samplerkit.order.typing import Ids
from samplerkit.storage.batch_readers import batch_reader, copied_by_thread, only_sample, present_reader


@dataclass(frozen=True, eq=False)
class _Found:
    """What was read of a request.

    Args:
        samples: those that are there, or the parts of them that were asked for.
        skipped: what was left out.
        stand_in: the sample that stands in where all were left out.
        segments: of what is there, for packs.
    """

    samples: Any
    skipped: tuple[SkippedSample, ...] = ()
    stand_in: int | None = None
    segments: Segments | None = None


def reports_stats(dataset: Any) -> bool:
    """Tells whether the figures of a dataset can be added up over processes."""
    stats = getattr(dataset, "stats", None)
    return is_dataclass(stats) and hasattr(type(stats), "__add__")


@final
class RequestedDataset(torch.utils.data.Dataset[Any]):
    """Reads the samples of requests from a dataset, and tells it and the worker's random state the epoch.

    Args:
        dataset: a map-style dataset. If it has `set_epoch`, that is called before the first request of each
            epoch, in each process that reads; if it has `expect`, that then gets an iterator over the int64
            arrays of ids that this process will read. If it has `wants_passes` or `wants_epochs`, its
            `__getitems__` and `read_present` are called with ids and these.
        seed: from which the random state of workers is made.
        rank: this process's rank.
        bad_samples: `skip` leaves out what cannot be read.
        reports: whether to report the figures of the dataset. Then, and with `skip`, batches are an `Answer`,
            for `AnswerCollate`.
        tells_ids: whether the collate wants the ids of the samples. Batches are an `Answer` then, too.
        reading: gives the reading from a position of an epoch on, for `expect`; None where the dataset
            does not want to know.
        seed_draws: whether to seed the process-wide generators before each sample. Then a dataset is read one
            by one, unless it has `enters_draws`: it enters the draw of each sample by itself.

    Of packs, a dataset with `__getsegments__` is asked for parts alone: int64 (m, 3) of id, start and length.
    A dataset that leaves samples out by itself has `read_present`: it gives the samples that are there, as a
    list with `missing` (of each other one its place, its file and what is wrong) and `stand_in` (the id of
    the only one, where all of the batch is missing; else None). Batches are an `Answer` then, too.
    """

    def __init__(
        self,
        dataset: Any,
        seed: int,
        rank: int,
        bad_samples: BadSamples = "raise",
        reading: Foreseen | None = None,
        *,
        reports: bool = False,
        tells_ids: bool = False,
        seed_draws: bool = False,
    ) -> None:
        self.dataset = dataset
        self._reader: int | None = None
        self._seed = seed
        self._rank = rank
        self._skips = bad_samples == "skip"
        self._reports = reports
        self._tells_ids = tells_ids
        self._reading = reading
        self._last: Request | None = None
        self._seeds_draws = seed_draws
        reader = batch_reader(dataset)
        self._enters_draws = bool(getattr(reader, "enters_draws", False))
        self._in_batches = reader is not None and (self._enters_draws or not seed_draws)
        self._present = present_reader(dataset)
        self._gives_segments = gives_segments(dataset)

    def __getitems__(self, request: Request) -> Any:
        self.begin(request)
        return self.read(request)

    def read(self, request: Request) -> Any:
        """Reads the samples of a request, which was begun; several threads may do so at a time."""
        found = self._read(request)
        reports: tuple[Report, ...] = ()
        if self._reports:
            reports = (Report(self._reader or os.getpid(), self.dataset.stats),)
        if request.places is not None:
            # What a list of its own kind knows beside its samples stands in the answer.
            samples = list(found.samples) if isinstance(found.samples, list) else found.samples
            answer = Answer(samples, found.skipped, reports, found.stand_in, segments=found.segments)
            return ShareAnswer(request.places, answer).sent()
        self.seed_collate(request)
        if not (self._skips or self._reports or self._tells_ids or self._present is not None):
            return found.samples
        if not self._tells_ids:
            return Answer(found.samples, found.skipped, reports, found.stand_in)
        ids = np.delete(request.ids, [one.place for one in found.skipped])
        ids = ids if found.stand_in is None else np.array([found.stand_in])
        return Answer(found.samples, found.skipped, reports, found.stand_in, ids, found.segments)

    def seed_collate(self, request: Request) -> None:
        """Seeds the generators for the collate function of a batch, where they are seeded for its samples."""
        if self._seeds_draws:
            # What it draws belongs to the batch, and follows from its first draw, and of parts of a document,
            # which have one draw, from where they begin.
            begin = 0 if request.segments is None else int(request.segments.starts[0])
            seed_generators(self._draws(request).draw(0), f"batch {begin}" if begin else "batch")

    def of_one_thread(self, reader: int, copies: ExitStack) -> RequestedDataset:
        """Gives what answers in one of several threads: this, or one with a copy of the dataset.

        Args:
            reader: the number under which the figures of a copy are reported.
            copies: closes them.
        """
        own = copied_by_thread(self.dataset, copies)
        if own is self.dataset:
            return self
        # A dataset that copies parts of itself has the figures of the others, which all threads share.
        reports = reports_stats(own) and callable(getattr(type(own), "copy_for_thread", None))
        found = RequestedDataset(
            own,
            self._seed,
            self._rank,
            "skip" if self._skips else "raise",
            reports=reports,
            tells_ids=self._tells_ids,
        )
        found._reader = reader
        return found

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def __len__(self) -> int:
        return len(self.dataset)

    def _read(self, request: Request) -> _Found:
        gives_parts = request.segments is not None and self._gives_segments
        is_alone = self._seeds_draws and not self._enters_draws
        if not (gives_parts and not is_alone) and not self._in_batches:
            return self._one_by_one(request)
        try:
            with self._draws(request).being_read():
                return self._together(request)
        except Exception as error:
            if not self._skips:
                request.tell(error)
                raise
        # Only one by one can tell which samples are the bad ones.
        return self._one_by_one(request)

    def _together(self, request: Request) -> _Found:
        """Reads all samples of a request at once."""
        segments = request.segments
        if segments is not None and self._gives_segments:
            parts = self.dataset.__getsegments__(*request.asked(segments.table(request.ids)))
            return _Found(require_parts(parts, segments), segments=segments)
        if self._present is None:
            samples = self.dataset.__getitems__(*request.asked(request.ids))
            return _Found(samples if segments is None else cut(samples, segments), segments=segments)
        samples = self._present(*request.asked(request.ids))
        skipped, stand_in = _left_out(request, samples), getattr(samples, "stand_in", None)
        if segments is None:
            return _Found(samples, skipped, stand_in)
        if stand_in is not None:
            parts, segments = beginning(samples[0], segments)
            return _Found(parts, skipped, stand_in, segments)
        segments = segments.without([one.place for one in skipped])
        return _Found(cut(samples, segments), skipped, segments=segments)

    def _one_by_one(self, request: Request) -> _Found:
        samples: list[Any] = []
        skipped: list[SkippedSample] = []
        draws, dataset = self._draws(request), self.dataset
        # Small samples are read as quickly as they are called for: each call more shows.
        is_plain = request.segments is None and not request.told and not draws.seeds
        if is_plain:
            draws.enter_behind(samples, skipped)
        with draws.being_read():
            for index in request.ids.tolist():
                try:
                    if is_plain:
                        samples.append(dataset[index])
                    else:
                        samples.append(self._one(request, draws, len(samples) + len(skipped), index))
                except Exception as error:
                    place = len(samples) + len(skipped)
                    if not self._skips:
                        request.tell(error, place)
                        raise
                    # A note says for instance in which part of a dataset it was.
                    told = "; ".join([str(error), *getattr(error, "__notes__", ())])
                    what, file = f"{type(error).__name__}: {told}", getattr(error, "absent_from", "")
                    skipped.append(SkippedSample(index, request.epoch, place, what, file))
        if not samples and skipped and request.places is None:
            raise none_was_read(request, skipped)
        segments = request.segments and request.segments.without([one.place for one in skipped])
        return _Found(samples, tuple(skipped), segments=segments)

    def _one(self, request: Request, draws: Draws, place: int, index: int) -> Any:
        """Reads a part of a sample, one whose pass is told to what reads batches alone, or a seeded one."""
        draws.enter(place)
        one = slice(place, place + 1)
        part = None if request.segments is None else request.segments.at(one)
        if part is not None and self._gives_segments:
            asked = request.asked(part.table(request.ids[one]), one)
            return require_parts(self.dataset.__getsegments__(*asked), part)[0]
        if not request.told:
            sample = self.dataset[index]
        else:
            sample = only_sample(self.dataset.__getitems__(*request.asked(request.ids[one], one)))
        return sample if part is None else cut([sample], part)[0]

    def _draws(self, request: Request) -> Draws:
        """The draws of a batch, at their beginning."""
        return Draws(
            self._seed,
            request.epoch,
            request.positions,
            enters_alone=self._enters_draws,
            begin=seed_generators if self._seeds_draws else None,
        )

    def tells_epoch(self, request: Request) -> bool:
        """Whether `begin` would tell the dataset another epoch than that of the request before."""
        is_new = self._last is None or self._last.epoch != request.epoch
        return is_new and callable(getattr(self.dataset, "set_epoch", None))

    def begin(self, request: Request) -> None:
        """Tells the dataset what begins with a request: its epoch, and what comes next."""
        last, self._last = self._last, request
        if last is not None and last.epoch == request.epoch:
            is_next = last.start == request.start and last.step < request.step
            begins = request.share is not None and request.share.files is not None
            if is_next and len(last.edits) == len(request.edits) and not begins:
                return
        else:
            self._begin_epoch(request.epoch)
        if self._reading is not None:
            self._reading.follow(request.edits)
            reading = self._reading(request.epoch, request.start)
            self.dataset.expect(Upcoming(partial(self._to_come, reading, request)))

    def _to_come(self, reading: Reading, request: Request) -> Iterator[Ids]:
        """Gives the ids of the batches that this process reads from a request on."""
        if request.share is not None:
            return ids_to_come(layout_of_files(self.dataset), reading, request.step, request.share)
        worker = torch.utils.data.get_worker_info()
        stride = 1 if worker is None else worker.num_workers
        return (ids for _, ids in reading.batches(request.step, stride))

    def _begin_epoch(self, epoch: int) -> None:
        worker = torch.utils.data.get_worker_info()
        if worker is not None:
            seed_worker(self._seed, epoch, self._rank, worker.id)
        set_epoch = getattr(self.dataset, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(epoch)


def _left_out(request: Request, samples: Any) -> tuple[SkippedSample, ...]:
    """What a dataset left out of a batch by itself."""
    return tuple(
        SkippedSample(int(request.ids[place]), request.epoch, place, text, file)
        for place, file, text in samples.missing
    )
