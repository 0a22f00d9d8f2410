"""One iteration over a dataset: the passes that it reads, and how far it is."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, final

from samplerkit.compat.webdataset import stages
from samplerkit.compat.webdataset.commands import Command
from samplerkit.compat.webdataset.handlers import Handler
from samplerkit.compat.webdataset.piped import Piped
from samplerkit.compat.webdataset.shuffling import Shuffling
from samplerkit.compat.webdataset.split import Seat, Split
from samplerkit.errors import DatasetError
from samplerkit.order.typing import Ids
from samplerkit.storage.tar.dataset import TarDataset

AHEAD: Final = 32
"""Samples of remote shards that are asked for at a time; the next ones are read meanwhile."""

FOREVER: Final = sys.maxsize
"""Passes without end."""

PASS_STRIDE: Final = 1 << 32
"""Pass p of an iteration that reads the dataset several times has the order of epoch + p * 2^32: so however
many passes a rank needs, its next iteration begins the same epoch as those of the other ranks."""


@dataclass
class Cursor:
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


@final
@dataclass(frozen=True)
class Reading:
    """What an iteration reads.

    Args:
        tar: shards that can be read at any place, or None.
        piped: shards that commands write, or None.
        shuffling: the order.
        split: the part.
        stages: what is done to samples.
        passes: how often the dataset is read.
        most_items: after how many items an iteration ends; None for no limit.
        handler: what is asked about flaws of archives.
        may_be_empty: whether a dataset without samples is fine.
    """

    tar: TarDataset | None
    piped: Piped | None
    shuffling: Shuffling
    split: Split
    stages: tuple[stages.Stage, ...] = ()
    passes: int = 1
    most_items: int | None = None
    handler: Handler | None = None
    may_be_empty: bool = False

    @property
    def commands(self) -> tuple[Command, ...]:
        """The commands, if shards are written by some."""
        return () if self.piped is None else self.piped.commands

    def items(self, seat: Seat, cursor: Cursor) -> Generator[Any, None, None]:
        """Gives the items of one worker, from where the cursor stands; it moves along."""
        if self.most_items is not None and cursor.items >= self.most_items:
            return
        while cursor.passes < self.passes:
            items, start = cursor.items, cursor.rows
            with closing(self._samples(seat, cursor)) as samples:
                for item in stages.run(self.stages, samples, may_drop=self.split.equal_steps is None):
                    cursor.items += 1
                    yield item
                    if cursor.items == self.most_items:
                        return
            if cursor.passes + 1 == self.passes:
                return
            if cursor.items == items and not start:
                what = "the pipeline leaves all samples out" if cursor.rows else "there is no sample"
                raise DatasetError("dataset", f"cannot be read again and again: {what}")
            cursor.passes, cursor.rows = cursor.passes + 1, 0

    def _samples(self, seat: Seat, cursor: Cursor) -> Generator[Any, None, None]:
        epoch = cursor.epoch + cursor.passes * PASS_STRIDE
        if self.piped is not None:
            samples = self.piped.samples(seat, epoch, self.shuffling)
        else:
            samples = self._from_tar(seat, epoch, cursor.rows)
        with closing(samples):
            for sample in samples:
                cursor.rows += 1
                yield sample
        if cursor.rows == 0 and self.piped is not None and seat.count == 1 and not self.may_be_empty:
            raise DatasetError("dataset", "has no samples", mend="say empty_check=False if that is fine")

    def _from_tar(self, seat: Seat, epoch: int, start: int) -> Generator[Any, None, None]:
        dataset = self.tar
        assert dataset is not None  # noqa: S101  # one of the two is there
        self._ask_about_flaws(dataset)
        total = len(dataset.layout)
        if not total and not self.may_be_empty:
            raise DatasetError("dataset", "has no samples", mend="say empty_check=False if that is fine")
        order = self.shuffling.order(dataset, epoch, seat.world)
        never_none = self.passes == FOREVER

        def ids() -> Iterator[Any]:
            return self.split.ids(order, seat, start, never_none=never_none)

        if dataset.expect is None:
            yield from dataset.in_order(chain.from_iterable(part.tolist() for part in ids()))
            return
        dataset.expect(_batches(ids()))
        try:
            for batch in _batches(ids()):
                yield from dataset.__getitems__(batch)
        finally:
            # Nothing is read ahead for a loop that was left.
            dataset.close()

    def _ask_about_flaws(self, dataset: TarDataset) -> None:
        if self.handler is not None:
            for flaw in dataset.skipped.places:
                if not stages.goes_on(self.handler, flaw.error(), flaw.error()):
                    raise flaw.error()


def _batches(parts: Iterator[Ids]) -> Iterator[Ids]:
    for part in parts:
        yield from (part[start : start + AHEAD] for start in range(0, part.size, AHEAD))
