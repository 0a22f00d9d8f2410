"""One iteration over a dataset: the passes that it reads, and how far it is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from typing import Any, Final, Protocol, final

from samplerkit.compat.webdataset import stages
from samplerkit.compat.webdataset.handlers import EmptyDatasetError, Handler, goes_on, of_shard
from samplerkit.compat.webdataset.split import Seat, Shuffling, Split
from samplerkit.errors import DatasetError
from samplerkit.order.modes import Shuffle
from samplerkit.order.typing import Ids
from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.urls import is_remote

AHEAD: Final = 32
"""Samples of remote shards that are asked for at a time; the next ones are read meanwhile."""

FOREVER: Final = sys.maxsize
"""Passes without end."""

PASS_STRIDE: Final = 1 << 32
"""Pass p of an iteration that reads the dataset several times has the order of epoch + p * 2^32: so however
many passes a rank needs, its next iteration begins the same epoch as those of the other ranks."""

EMPTY_PASSES: Final = 8
"""A worker gives up after so many passes without an item, for each of the workers: with one sample in the
whole dataset that the pipeline keeps, one of 3000 workers gives up too early."""


@dataclass
class WorkerPlace:
    """How far an iteration is.

    Args:
        epoch: the epoch.
        passes: how often the dataset was read to its end.
        rows: how many samples of this pass were read.
        items: how many items the loop has received.
    """

    epoch: int
    passes: int = 0
    rows: int = 0
    items: int = 0


class ReadOnce(Protocol):
    """What can be read from front to back only."""

    def samples(self, seat: Seat, epoch: int, shuffling: Shuffling) -> Generator[Any, None, None]:
        """Returns the samples that one worker reads in an epoch."""


@final
@dataclass(frozen=True)
class SamplePipeline:
    """What an iteration reads.

    Args:
        shards: that can be read at any place, or what can be read only once; or what is wrong with them,
            which is raised when they are read, as in webdataset.
        shuffling: the order.
        split: the part.
        stages: what is done to samples.
        passes: how often the dataset is read.
        most_items: after how many items an iteration ends; None for no limit.
        handler: what is asked about flaws of archives.
        may_be_empty: whether a dataset without samples is fine.
    """

    shards: TarDataset | ReadOnce | DatasetError
    shuffling: Shuffling
    split: Split
    stages: tuple[stages.Stage, ...] = ()
    passes: int = 1
    most_items: int | None = None
    handler: Handler | None = None
    may_be_empty: bool = False

    @property
    def tar(self) -> TarDataset | None:
        """The shards, if they can be read at any place.

        Raises:
            DatasetError: one is not there.
        """
        if isinstance(self.shards, DatasetError):
            raise of_shard(self.shards)
        return self.shards if isinstance(self.shards, TarDataset) else None

    def items(self, seat: Seat, cursor: WorkerPlace) -> Generator[Any, None, None]:
        """Yields the items of one worker, from where the cursor stands; it moves along."""
        if self.most_items is not None and cursor.items >= self.most_items:
            return
        empty_passes = 0
        while cursor.passes < self.passes:
            items, start = cursor.items, cursor.rows
            with closing(self._samples(seat, cursor)) as samples:
                draws = self.shuffling.draws(seat.number, _epoch(cursor), stages.ROLE)
                may_drop = self.split.equal_steps is None
                for item in stages.run(self.stages, samples, draws, may_drop=may_drop):
                    cursor.items += 1
                    yield item
                    if cursor.items == self.most_items:
                        return
            if cursor.passes + 1 == self.passes:
                return
            empty_passes = empty_passes + 1 if cursor.items == items and not start else 0
            if self.passes == FOREVER and empty_passes >= self._most_empty_passes(seat):
                what = "the pipeline leaves all samples out" if cursor.rows else "there is no sample"
                raise DatasetError("dataset", f"cannot be read again and again: {what}")
            cursor.passes, cursor.rows = cursor.passes + 1, 0

    def _samples(self, seat: Seat, cursor: WorkerPlace) -> Generator[Any, None, None]:
        """Yields the samples of a pass; those that are missing are counted, too."""
        epoch, tar = _epoch(cursor), self.tar
        if tar is not None:
            samples = self._from_tar(tar, seat, epoch, cursor.rows)
        else:
            once: Any = self.shards
            samples = once.samples(seat, epoch, self.shuffling)
        with closing(samples):
            for sample in samples:
                cursor.rows += 1
                if sample is not stages.Dropped:
                    yield sample
        # Of those who share what commands write, one may be left without a sample.
        if tar is None and cursor.rows == 0 and seat.count == 1:
            self._refuse_empty()

    def _from_tar(
        self, dataset: TarDataset, seat: Seat, epoch: int, start: int
    ) -> Generator[Any, None, None]:
        path_of = cache(partial(_path, dataset))
        try:
            self._ask_about_flaws(dataset)
            if not len(dataset.layout):
                self._refuse_empty()
            order = self.shuffling.order(dataset, epoch, seat.world)
            of_worker = partial(self.split.ids, order, seat, start, never_none=self.passes == FOREVER)
            with closing(_read(dataset, of_worker)) as samples:
                for sample in samples:
                    if isinstance(sample, dict) and "__url__" in sample:
                        path = path_of(sample["__url__"])
                        if path is not None:
                            sample["__local_path__"] = path
                    yield sample
        except DatasetError as error:
            raise of_shard(error) from error.__cause__

    def _most_empty_passes(self, seat: Seat) -> int:
        """After how many passes that gave nothing there is no hope of another one."""
        # A worker that reads a part reads another part of a shuffled dataset in the next pass.
        is_another = seat.count > 1 and self.shuffling.mode is not Shuffle.FALSE
        return EMPTY_PASSES * seat.count if is_another else 1

    def _ask_about_flaws(self, dataset: TarDataset) -> None:
        if self.handler is not None:
            for flaw in dataset.skipped.places:
                error = of_shard(flaw.error())
                if not goes_on(self.handler, error):
                    raise error

    def _refuse_empty(self) -> None:
        if not self.may_be_empty:
            raise EmptyDatasetError("dataset", "has no samples", hint="say empty_check=False if that is fine")


def _epoch(cursor: WorkerPlace) -> int:
    return cursor.epoch + cursor.passes * PASS_STRIDE


def _path(dataset: TarDataset, url: str) -> str | None:
    """Where the shard of a sample lies: for all samples of a remote dataset, or for none."""
    is_whole = dataset.fetch == "shards" or not is_remote(url)
    return dataset.local_path(url) if is_whole else None


def _read(dataset: TarDataset, ids: Callable[..., Iterator[Ids]]) -> Generator[Any, None, None]:
    """Yields samples; those of remote shards are read ahead."""
    if dataset.expect is None:
        yield from dataset.in_order(chain.from_iterable(part.tolist() for part in ids()))
        return
    dataset.expect(ids(at_once=AHEAD))
    try:
        for batch in ids(at_once=AHEAD):
            yield from _present(dataset, batch)
    finally:
        # Nothing is read ahead for a loop that was left.
        dataset.close()


def _present(dataset: TarDataset, ids: Ids) -> Iterator[Any]:
    """Yields the samples of a batch, `Dropped` in place of those that are missing."""
    if dataset.read_present is None:
        yield from dataset.__getitems__(ids)
        return
    found = dataset.read_present(ids, logs=True)
    missing = {place for place, *_ in found.missing}
    samples = iter(found)
    for place in range(ids.size):
        yield stages.Dropped if place in missing else next(samples)
