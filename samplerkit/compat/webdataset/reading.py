"""Reading by one worker of one rank: the order of an epoch, the worker's part of it, and its position."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np

from samplerkit.compat.webdataset import stages
from samplerkit.compat.webdataset.handlers import EmptyDatasetError, Handler, of_shard
from samplerkit.errors import DatasetError
from samplerkit.loading.world import detect_world
from samplerkit.order.algebra import Shard
from samplerkit.order.deal import World
from samplerkit.order.keys import Key
from samplerkit.order.modes import Shuffle
from samplerkit.order.order import Order
from samplerkit.order.sequences import LaneWeave
from samplerkit.order.typing import Ids
from samplerkit.samplers.shuffled import DistributedSampler
from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.threads import this_worker
from samplerkit.storage.urls import is_remote


@dataclass(frozen=True)
class WorkerSlot:
    """A worker of a rank.

    Args:
        world: the rank and the number of ranks.
        worker: the number of the worker in its rank.
        workers: the number of workers of each rank.

    Example:
        >>> WorkerSlot(World(2, 1), worker=0, workers=4).number
        4
    """

    world: World
    worker: int = 0
    workers: int = 1

    @classmethod
    def current(cls, world: World | None = None) -> WorkerSlot:
        """Returns the slot of this process, from torch, and from the running job if `world` is None."""
        return cls(detect_world() if world is None else world, *this_worker())

    @property
    def number(self) -> int:
        """The number of this worker among the workers of all ranks."""
        return self.world.shard_id * self.workers + self.worker

    @property
    def count(self) -> int:
        """The number of workers of all ranks."""
        return self.world.num_shards * self.workers


AHEAD: Final = 32
"""The number of samples of remote shards that are requested together; the next ones are prefetched."""

FOREVER: Final = sys.maxsize
"""The number of passes for reading without end."""

PASS_STRIDE: Final = 1 << 32
"""Pass p of an iteration that reads the dataset several times has the order of epoch + p * 2^32. So the next
iteration begins the same epoch on all ranks, even if ranks need different numbers of passes."""

EMPTY_PASSES: Final = 8
"""A worker raises an error after this number of passes without an item, times the number of workers, since
each pass of a shuffled dataset gives it another part. If the pipeline keeps a single sample of the dataset,
one of 3000 workers raises the error by mistake."""


@dataclass
class WorkerPlace:
    """The position of an iteration.

    Args:
        epoch: the epoch.
        passes: how often the dataset was read to its end.
        rows: the number of samples of this pass that were read.
        items: the number of items that the loop has received.
    """

    epoch: int
    passes: int = 0
    rows: int = 0
    items: int = 0


@dataclass(frozen=True)
class SamplePipeline:
    """What an iteration reads: the order of an epoch, the part of one worker, and the stages of the pipeline.

    The order interleaves as many lanes as there are ranks, so a rank reads one lane, which holds consecutive
    files. Each worker reads a contiguous run of its rank's lane. Each sample is read exactly once, unless
    `equal_steps` repeats or drops some.

    Args:
        shards: shards with random access, or a source that can be read only once; or an error, which is
            raised when shards are read, as in webdataset.
        seed: the seed of the order, in [0, 2^64).
        shuffles_shards: whether the shards are read in random order.
        window: how many samples are shuffled together; 0 for no shuffle within shards.
        lanes: the number of lanes of the order; None for the number of ranks.
        equal_steps: `pad` or `drop`; None to read each sample once, so that ranks may differ by one sample.
        batch_size: the number of samples in a batch, if known: the parts of workers end between two batches.
        stages: the stages that samples pass through.
        passes: how often the dataset is read.
        most_items: the number of items after which an iteration ends; None for no limit.
        length: the value of `len`, if the user gave it.
        handler: called if an archive is damaged.
        may_be_empty: whether a dataset without samples is allowed.

    Example:
        >>> import samplerkit as sk
        >>> pipeline = SamplePipeline(lambda *_: iter(()), seed=7, shuffles_shards=True)
        >>> order = pipeline.order(sk.Layout([3, 3, 3]), 0, World(1, 0))
        >>> sorted(order) == list(range(9)), order[0] % 3, order[1] - order[0]
        (True, 0, 1)
        >>> slots = [WorkerSlot(World(2, rank), worker, 2) for rank in range(2) for worker in range(2)]
        >>> [list(pipeline.part(sk.SequentialSampler().order(7), slot)) for slot in slots]
        [[0, 2], [4, 6], [1, 3], [5]]
    """

    shards: TarDataset | ReadOnce | DatasetError
    seed: int = 0
    shuffles_shards: bool = False
    window: int = 0
    lanes: int | None = None
    equal_steps: str | None = None
    batch_size: int | None = None
    stages: tuple[stages.Stage, ...] = ()
    passes: int = 1
    most_items: int | None = None
    length: int | None = None
    handler: Handler | None = None
    may_be_empty: bool = False

    @property
    def tar(self) -> TarDataset | None:
        """The shards, if they have random access.

        Raises:
            DatasetError: a shard is missing.
        """
        if isinstance(self.shards, DatasetError):
            raise of_shard(self.shards)
        return self.shards if isinstance(self.shards, TarDataset) else None

    @property
    def mode(self) -> Shuffle:
        """The shuffle mode: PARTIAL with a window, FILES if only shards are shuffled."""
        if self.window:
            return Shuffle.PARTIAL
        return Shuffle.FILES if self.shuffles_shards else Shuffle.FALSE

    def order(self, dataset: Any, epoch: int, world: World) -> Order:
        """Returns the order of all ranks together."""
        # Lanes are used also without a shuffle, so that each rank reads its own shards.
        sampler = DistributedSampler(
            world.num_shards,
            world.shard_id,
            shuffle=self.mode,
            seed=self.seed,
            partial_size=max(1, self.window),
            lanes=self.lanes or world.num_shards,
        )
        return sampler.undealt_order(dataset, epoch)

    def rows_of_rank(self, total: int, world: World) -> int:
        """Returns the number of samples, of `total`, that a rank reads."""
        least, more = divmod(total, world.num_shards)
        return least + {"pad": more > 0, "drop": False}.get(self.equal_steps or "", world.shard_id < more)

    def part(self, order: Order, slot: WorkerSlot, start: int = 0) -> Order:
        """Returns a worker's part of the order of all ranks, without the first `start` samples.

        If the dataset is read without end, a worker whose part is empty reads the part of its rank.
        """
        world = slot.world
        rank_rows = range(self.rows_of_rank(len(order), world))
        block = self.batch_size or 1
        starts = LaneWeave(-(-len(rank_rows) // block), slot.workers).starts * block
        worker_rows = rank_rows[starts[slot.worker] : starts[slot.worker + 1]]
        rows = (rank_rows if self.passes == FOREVER and not worker_rows else worker_rows)[start:]
        first = world.shard_id + rows.start * world.num_shards
        return Shard(order, world.num_shards, first, length=len(rows))

    def draws(self, slot: int, epoch: int) -> Callable[[int], np.random.Generator]:
        """Returns the random generators of stages that draw: one for each position in the pipeline.

        Args:
            slot: the number of the worker among the workers of all ranks.
            epoch: the epoch.
        """
        key = Key(self.seed, epoch, 0, "stage")
        return lambda place: np.random.Generator(np.random.Philox(key=key.words(2, slot, place)))

    def items(self, slot: WorkerSlot, cursor: WorkerPlace) -> Generator[Any, None, None]:
        """Yields the items of one worker from the position of the cursor, and advances the cursor."""
        most_items = self.most_items or FOREVER
        empty_passes = 0
        while cursor.passes < self.passes and cursor.items < most_items:
            items, start = cursor.items, cursor.rows
            epoch = cursor.epoch + cursor.passes * PASS_STRIDE
            with closing(self._samples(slot, epoch, cursor)) as samples:
                draws = self.draws(slot.number, epoch)
                may_drop = self.equal_steps is None
                for item in stages.run(self.stages, samples, draws, may_drop=may_drop):
                    cursor.items += 1
                    yield item
                    if cursor.items == most_items:
                        return
            if cursor.passes + 1 == self.passes:
                return
            empty_passes = empty_passes + 1 if cursor.items == items and not start else 0
            if self.passes == FOREVER and empty_passes >= EMPTY_PASSES * slot.count:
                raise DatasetError("dataset", "cannot be read again and again: no sample is left")
            cursor.passes, cursor.rows = cursor.passes + 1, 0

    def _samples(self, slot: WorkerSlot, epoch: int, cursor: WorkerPlace) -> Generator[Any, None, None]:
        """Yields the samples of a pass; skipped samples also count in `cursor.rows`."""
        tar = self.tar
        if tar is not None:
            samples = self._from_tar(tar, slot, epoch, cursor.rows)
        else:
            read_once: Any = self.shards
            samples = read_once(self, slot, epoch)
        with closing(samples):
            for sample in samples:
                cursor.rows += 1
                if sample is not stages.Dropped:
                    yield sample
        # If several workers share a dataset, the part of one may be empty.
        is_empty = cursor.rows == 0 and (slot.count == 1 if tar is None else not len(tar.layout))
        if is_empty and not self.may_be_empty:
            raise EmptyDatasetError("dataset", "has no samples", hint="use empty_check=False if that is fine")

    def _from_tar(
        self, dataset: TarDataset, slot: WorkerSlot, epoch: int, start: int
    ) -> Generator[Any, None, None]:
        @cache
        def path_of(url: str) -> str | None:
            # The local path of the shard: for all samples of a remote dataset, or for none.
            is_whole = dataset.fetch == "shards" or not is_remote(url)
            return dataset.local_path(url) if is_whole else None

        try:
            if self.handler is not None:
                for flaw in dataset.skipped.places:
                    error = of_shard(flaw.error())
                    if not self.handler(error):
                        raise error
            part = self.part(self.order(dataset, epoch, slot.world), slot, start)
            with closing(_read(dataset, part)) as samples:
                for sample in samples:
                    if isinstance(sample, dict) and "__url__" in sample:
                        path = path_of(sample["__url__"])
                        if path is not None:
                            sample["__local_path__"] = path
                    yield sample
        except DatasetError as error:
            raise of_shard(error) from error.__cause__


ReadOnce = Callable[[SamplePipeline, WorkerSlot, int], Generator[Any, None, None]]
"""Returns the samples that one worker reads in an epoch, from a source that can only be read sequentially."""


def _read(dataset: TarDataset, part: Order) -> Generator[Any, None, None]:
    """Yields samples; samples of remote shards are prefetched."""
    if dataset.expect is None:
        yield from dataset.in_order(part)
        return
    dataset.expect(part.chunks(AHEAD))
    try:
        for ids in part.chunks(AHEAD):
            yield from _present(dataset, ids)
    finally:
        # Ends prefetching if the loop was left.
        dataset.close()


def _present(dataset: TarDataset, ids: Ids) -> list[Any]:
    """Returns the samples of a batch, with `Dropped` in place of missing ones."""
    if dataset.read_present is None:
        return dataset.__getitems__(ids)
    samples = dataset.read_present(ids, logs=True)
    for place, *_ in samples.missing:
        samples.insert(place, stages.Dropped)
    # If all are missing, `samples` also has a sample in their place, which is cut off here.
    return samples[: ids.size]
